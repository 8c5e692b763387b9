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

/* ---------------------------------------------------------------- state graphs */
function startGraph(root) {
  const scroll = root.querySelector(".graph-scroll");
  const svg = root.querySelector("svg");
  const panel = root.querySelector(".state");
  const width = svg.viewBox.baseVal.width;
  const height = svg.viewBox.baseVal.height;
  const nodes = [...root.querySelectorAll(".at")];
  let scale = 1;

  function zoom(to) {
    const centre = (scroll.scrollLeft + scroll.clientWidth / 2) / scale;
    const middle = (scroll.scrollTop + scroll.clientHeight / 2) / scale;
    scale = Math.min(4, Math.max(0.08, to));
    svg.setAttribute("width", width * scale);
    svg.setAttribute("height", height * scale);
    scroll.scrollLeft = centre * scale - scroll.clientWidth / 2;
    scroll.scrollTop = middle * scale - scroll.clientHeight / 2;
  }

  function describe(node) {
    const [head, ...board] = node.querySelector("title").textContent.split("\n\n");
    const text = make("pre", undefined, "observation");
    showText(text, board.join("\n\n"));
    panel.replaceChildren(make("p", head), text);
  }

  function neighbour(from, key) {
    const at = from.transform.baseVal[0].matrix;
    let best = null;
    let least = Infinity;
    for (const node of nodes) {
      const to = node.transform.baseVal[0].matrix;
      const dx = to.e - at.e;
      const dy = to.f - at.f;
      const along = { ArrowRight: dx, ArrowLeft: -dx, ArrowDown: dy, ArrowUp: -dy }[key];
      const aside = Math.abs(key === "ArrowRight" || key === "ArrowLeft" ? dy : dx);
      if (along > 0.5 && along + 2 * aside < least) {
        best = node;
        least = along + 2 * aside;
      }
    }
    return best;
  }

  for (const node of nodes) {
    node.addEventListener("pointerenter", () => describe(node));
    node.addEventListener("focus", () => describe(node));
    node.addEventListener("click", () => node.focus());
    node.addEventListener("keydown", (event) => {
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      const next = neighbour(node, event.key);
      if (!next) return;
      node.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }
  const start = root.querySelector(".at[tabindex='0']");
  if (start) describe(start);
  panel.hidden = false;
  const tools = root.querySelector(".graph-tools");
  tools.hidden = false;
  tools.addEventListener("click", (event) => {
    const kind = event.target.dataset.zoom;
    if (kind === "in") zoom(scale * 1.3);
    if (kind === "out") zoom(scale / 1.3);
    if (kind === "reset") zoom(1);
    if (kind === "fit") zoom(Math.min(scroll.clientWidth / width, (window.innerHeight * 0.75) / height));
  });
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(scale * (event.deltaY < 0 ? 1.15 : 1 / 1.15));
  }, { passive: false });
  let held = null;
  scroll.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) held = [event.clientX + scroll.scrollLeft, event.clientY + scroll.scrollTop];
  });
  window.addEventListener("pointermove", (event) => {
    if (!held) return;
    scroll.classList.add("grabbing");
    scroll.scrollLeft = held[0] - event.clientX;
    scroll.scrollTop = held[1] - event.clientY;
  });
  window.addEventListener("pointerup", () => {
    held = null;
    scroll.classList.remove("grabbing");
  });
}

/* ---------------------------------------------------------------- episode player */
function startPlayer(data) {
  const get = (id) => document.getElementById(id);
  const player = get("player");
  const stage = player.querySelector(".player-stage");
  const slider = get("slider");
  const playButton = player.querySelector("[data-go=play]");
  const rows = [...document.querySelectorAll("#episode-list tr[data-episode]")];
  const text = (index) => data.texts[index];
  const show = (value) => value === null ? "–" : String(Number(value.toPrecision(4))).replace("-", "−");
  let episode = 0;
  let step = 0;
  let timer = null;

  function frames() {
    return data.episodes[episode].frames;
  }

  function returnUntil(last) {
    return frames().slice(1, last + 1).reduce((sum, frame) => sum + (frame.r ?? 0), 0);
  }

  function fillFacts(table, pairs) {
    table.tBodies[0].replaceChildren(...pairs.map(([name, value]) => {
      const row = make("tr");
      const head = make("th", name);
      head.scope = "row";
      row.append(head, make("td", value));
      return row;
    }));
  }

  function flags(frame) {
    if (frame.v === undefined) return "start";
    return [...(frame.v ? [] : ["invalid action"]), ...frame.end].join(", ");
  }

  function facts(frame) {
    const rows = [];
    if (frame.a !== undefined) {
      rows.push(["action", text(frame.a)]);
      rows.push(["reward", show(frame.r)]);
    }
    const before = step > 0 ? frames()[step - 1].phi : null;
    const change = frame.phi !== null && before !== null ? frame.phi - before : null;
    const sign = change === null ? "" : ` (${change > 0 ? "+" : ""}${show(change)})`;
    rows.push(["return so far", show(returnUntil(step))]);
    rows.push(["potential φ", frame.phi === null ? "not known" : show(frame.phi) + sign]);
    rows.push(["state key", text(frame.k)]);
    rows.push(["flags", flags(frame) || "none"]);
    return rows;
  }

  function showStep(to) {
    const last = frames().length - 1;
    step = Math.min(last, Math.max(0, to));
    const frame = frames()[step];
    slider.max = last;
    slider.value = step;
    slider.setAttribute("aria-valuetext", `step ${step} of ${last}`);
    get("counter").textContent = `step ${step} of ${last}`;
    showText(get("observation"), text(frame.o));
    fillFacts(get("facts"), facts(frame));
    player.querySelector(".frame").classList.toggle("prose", !isBoard(text(frame.o)));
    get("completion").hidden = frame.c === undefined || frame.c === null;
    if (!get("completion").hidden) get("completion").querySelector("pre").textContent = text(frame.c);
    [...get("steps").querySelectorAll("tbody tr")].forEach((row, i) => row.classList.toggle("selected", i === step));
    document.querySelectorAll(".at").forEach((node) => node.classList.toggle("current", node.dataset.key === text(frame.k)));
    if (step === last) stop();
  }

  function listSteps() {
    const table = make("table");
    const head = table.createTHead().insertRow();
    for (const [name, kind] of [["Step", ""], ["Action", ""], ["Reward", "number"], ["Return", "number"], ["φ", "number"], ["Flags", ""]]) {
      const cell = make("th", name, kind);
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    let total = 0;
    frames().forEach((frame, i) => {
      total += frame.r ?? 0;
      const row = body.insertRow();
      const pick = make("button", String(i), "pick");
      pick.type = "button";
      pick.addEventListener("click", () => showStep(i));
      row.insertCell().append(pick);
      row.append(
        make("td", frame.a === undefined ? "" : text(frame.a)),
        make("td", frame.r === undefined ? "" : show(frame.r), "number"),
        make("td", show(total), "number"),
        make("td", show(frame.phi), "number"),
        make("td", flags(frame)),
      );
    });
    get("steps").replaceChildren(table);
  }

  function showEpisode(to) {
    stop();
    episode = to;
    rows.forEach((row) => {
      const current = Number(row.dataset.episode) === episode;
      row.classList.toggle("selected", current);
      row.setAttribute("aria-current", String(current));
    });
    get("player-title").textContent = rows[episode].querySelector("th").textContent;
    get("player-goal").textContent = text(data.episodes[episode].goal);
    const meta = data.episodes[episode].meta;
    get("meta").hidden = meta.length === 0;
    fillFacts(get("meta").querySelector("table"), meta.map(([name, value]) => [text(name), text(value)]));
    listSteps();
    showStep(0);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    playButton.textContent = "Play";
    playButton.setAttribute("aria-label", "Play");
  }

  function toggle() {
    if (timer !== null) {
      stop();
      return;
    }
    if (step === frames().length - 1) showStep(0);
    if (frames().length === 1) return;
    playButton.textContent = "Pause";
    playButton.setAttribute("aria-label", "Pause");
    timer = setInterval(() => showStep(step + 1), 450);
  }

  function moveEpisode(by) {
    const visible = rows.filter((row) => !row.hidden).map((row) => Number(row.dataset.episode));
    const place = visible.indexOf(episode);
    const next = visible[place < 0 ? 0 : Math.min(visible.length - 1, Math.max(0, place + by))];
    if (next !== undefined && next !== episode) showEpisode(next);
  }

  function filter(kind) {
    rows.forEach((row) => { row.hidden = kind !== "all" && row.dataset.outcome !== kind; });
    const visible = rows.filter((row) => !row.hidden);
    get("shown").textContent = `${visible.length} of ${rows.length} episodes`;
    if (visible.length && rows[episode].hidden) showEpisode(Number(visible[0].dataset.episode));
  }

  const moves = {
    first: () => showStep(0),
    back: () => showStep(step - 1),
    play: toggle,
    next: () => showStep(step + 1),
    last: () => showStep(frames().length - 1),
  };
  const keys = { Home: "first", ArrowLeft: "back", ArrowRight: "next", End: "last", " ": "play" };
  stage.addEventListener("click", (event) => {
    const move = moves[event.target.dataset.go];
    if (move) move();
  });
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onControl = event.key === " " && event.target.closest("button, summary");
    if (keys[event.key] && !onControl) {
      event.preventDefault();
      moves[keys[event.key]]();
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      if (event.target.closest("#steps, pre")) return;
      event.preventDefault();
      moveEpisode(event.key === "ArrowUp" ? -1 : 1);
    }
  });
  slider.addEventListener("input", () => showStep(Number(slider.value)));
  player.querySelectorAll("[name=show]").forEach((radio) => radio.addEventListener("change", () => filter(radio.value)));
  rows.forEach((row) => {
    const head = row.querySelector("th");
    const pick = make("button", head.textContent, "pick");
    pick.type = "button";
    pick.addEventListener("click", () => showEpisode(Number(row.dataset.episode)));
    head.replaceChildren(pick);
  });
  player.querySelector(".player-list").append(get("episode-list"));
  get("plain").hidden = true;
  player.hidden = false;
  filter("all");
  showEpisode(0);
}

document.querySelectorAll(".graph").forEach(startGraph);
const payload = document.getElementById("payload");
if (payload) startPlayer(JSON.parse(payload.textContent));
