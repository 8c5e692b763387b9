"use strict";

/* Columns with `aria-sort` can be sorted: a button in the head. Without the script they are plain text. */
const BY_LETTERS = new Intl.Collator("en", { numeric: true });

function sort(table, heads, column) {
  const rows = [...table.tBodies[0].rows];
  const text = (row) => row.cells[column].textContent.trim();
  const value = (row) => row.cells[column].dataset.value ?? text(row);
  const numbers = rows.every((row) => Number.isFinite(Number(value(row))));
  const now = heads[column].getAttribute("aria-sort");
  const up = now === "none" ? !numbers : now === "descending"; // the best numbers first, the first letters first
  for (const head of heads) if (head.hasAttribute("aria-sort")) head.setAttribute("aria-sort", "none");
  heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
  const order = numbers ? (one, other) => value(one) - value(other) : (one, other) => BY_LETTERS.compare(text(one), text(other));
  table.tBodies[0].append(...rows.sort((one, other) => (up ? order(one, other) : order(other, one))));
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.hasAttribute("aria-sort")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(table, heads, column));
  });
}


/* The filter of a board. Without the script there is no filter, and all entries are shown. */
for (const form of document.querySelectorAll("form.filter")) {
  const { words, prompts } = form.elements;
  const rows = [...document.querySelectorAll("tr[data-prompts]")];
  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = !prompts.value || row.dataset.prompts === prompts.value;
      row.hidden = !fits || !wanted.every((word) => text.includes(word));
    }
    for (const group of document.querySelectorAll("[data-group]"))
      group.hidden = !group.querySelector("tr[data-prompts]:not([hidden])");
    form.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} entries`;
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}
