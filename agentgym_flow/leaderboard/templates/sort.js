"use strict";

/* Columns with `aria-sort` can be sorted: a button in the head, which works without the script as plain text. */
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.hasAttribute("aria-sort")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const numbers = head.classList.contains("number");
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => {
        const order = numbers ? Number(key(one)) - Number(key(other)) : key(one).localeCompare(key(other), "en");
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
