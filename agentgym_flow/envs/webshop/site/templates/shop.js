"use strict";

/* Comforts only: every page works without this. A key stands for a press of a button that is on the page. */
const press = (selector, number = 0) => document.querySelectorAll(selector)[number]?.click();
const bar = () => document.getElementById("search_input");

const KEYS = {
  "/": () => (bar() ? bar().focus() : press('form:not([inert]) button[value="back to search"]')),
  n: () => press('form:not([inert]) button[value="next >"]'),
  p: () => press('form:not([inert]) button[value="< prev"]'),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return;
  if (event.target.closest("input:not([type=radio]), textarea, select")) return;
  const digit = "1234567890".indexOf(event.key);
  const action = digit >= 0 ? () => press("form:not([inert]) .product-link", digit) : KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

/* A pointer chooses an option at once; arrow keys only move to it, and Enter or "Choose" choose. */
let pointed = false;
addEventListener("pointerdown", () => { pointed = true; }, true);
addEventListener("keydown", () => { pointed = false; }, true);
document.addEventListener("change", (event) => {
  if (pointed && event.target.matches("form.option input[type=radio]")) event.target.form.requestSubmit();
});

/* The keys work, so the page may tell them. */
for (const hint of document.querySelectorAll(".keys")) hint.hidden = false;

/* A page is answered once, however often its buttons are pressed. */
let sent = false;
document.addEventListener("submit", (event) => {
  if (sent) event.preventDefault();
  sent = true;
});
addEventListener("pageshow", () => { sent = false; });
