"use strict";

/* Columns with `aria-sort` can be sorted: a button in the head. Without the script they are plain text. */
const BY_LETTERS = new Intl.Collator("en", { numeric: true });

function sort(table, heads, column) {
  const rows = [...table.tBodies[0].rows];
  const value = (row) => row.cells[column].dataset.value;
  const text = (row) => row.cells[column].textContent.trim();
  const numbers = rows.every((row) => value(row) !== undefined);
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
