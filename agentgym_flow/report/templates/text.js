"use strict";

/* Text with one character per cell, cells apart by one space, all rows equally long: a board. */
function isBoard(text) {
  const rows = text.split("\n");
  const width = [...rows[0]].length;
  return rows.length > 1 && width > 2 && rows.every((row) => {
    const cells = [...row];
    return cells.length === width && cells.every((cell, i) => i % 2 === 0 ? cell !== " " : cell === " ");
  });
}

/* Show `text` in `element`; on a board each symbol gets one of six colours by its code, walls and floor are dimmed. */
function showText(element, text) {
  element.replaceChildren();
  element.classList.toggle("board", isBoard(text));
  if (!isBoard(text)) {
    element.textContent = text;
    return;
  }
  for (const cell of text) {
    if (cell === " " || cell === "\n") {
      element.append(cell);
      continue;
    }
    const quiet = "#_.".includes(cell);
    const mark = document.createElement(quiet ? "span" : "b");
    mark.className = quiet ? "dim" : "g" + (cell.codePointAt(0) % 6);
    mark.textContent = cell;
    element.append(mark);
  }
}

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}
