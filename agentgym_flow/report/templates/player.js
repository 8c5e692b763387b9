/* The episode player. `data` holds texts, and for each episode its frames with indices of texts. */
const KEYS = { Home: "first", ArrowLeft: "back", ArrowRight: "next", End: "last", " ": "play" };
const MILLISECONDS_A_FRAME = 450;
const LEAST_SCALE = 0.8; // of a picture whose letters can still be read
const ADDRESS = /^#episode-(\d+)(?:-step-(\d+))?$/; // episodes count from 1, step 0 is the start

const get = (id) => document.getElementById(id);
const show = (value) => value === null ? "–" : String(Number(value.toPrecision(4))).replace("-", "−");

const flagsOf = (frame) => frame.flags?.join(", ") ?? "start";

function fillTable(table, pairs) {
  table.tBodies[0].replaceChildren(...pairs.map(([name, value]) => {
    const row = make("tr");
    const head = make("th", name);
    head.scope = "row";
    row.append(head, make("td", value));
    return row;
  }));
}

function pickButton(label, action) {
  const button = make("button", label, "pick");
  button.type = "button";
  button.addEventListener("click", action);
  return button;
}

class Player {
  constructor(data) {
    this.data = data;
    this.root = get("player");
    this.playButton = this.root.querySelector("[data-go=play]");
    this.rows = [...document.querySelectorAll("#episode-list tr[data-episode]")];
    this.moves = {
      first: () => this.showStep(0),
      back: () => this.showStep(this.step - 1),
      play: () => this.toggle(),
      next: () => this.showStep(this.step + 1),
      last: () => this.showStep(this.last),
    };
    this.timer = null;
    this.listenToStage(this.root.querySelector(".player-stage"));
    this.startList();
    get("plain").hidden = true;
    this.root.hidden = false;
    this.showEpisode(0);
    window.addEventListener("hashchange", () => this.follow());
    this.follow();
  }

  /* Go to the episode and the step that the address names, if it does. */
  follow() {
    const [, episode, step] = ADDRESS.exec(location.hash) ?? [];
    if (this.data.episodes[episode - 1] === undefined) return;
    this.showEpisode(episode - 1);
    this.showStep(Number(step ?? 0));
    (get("workflow").hidden ? this.root.querySelector(".player-stage") : this.root).scrollIntoView();
  }

  text(index) {
    return this.data.texts[index];
  }

  get frames() {
    return this.data.episodes[this.episode].frames;
  }

  get last() {
    return this.frames.length - 1;
  }

  /* ---------------------------------------------------------------- listening */
  listenToStage(stage) {
    get("slider").addEventListener("input", () => this.showStep(Number(get("slider").value)));
    stage.addEventListener("click", (event) => this.moves[event.target.dataset.go]?.());
    stage.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const presses = event.key === " " && event.target.closest("button, summary");
      const scrolls = event.target.closest("#steps, pre");
      if (KEYS[event.key] && !presses) {
        event.preventDefault();
        this.moves[KEYS[event.key]]();
      } else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && !scrolls) {
        event.preventDefault();
        this.moveEpisode(event.key === "ArrowUp" ? -1 : 1);
      }
    });
  }

  startList() {
    for (const row of this.rows) {
      const head = row.querySelector("th");
      head.replaceChildren(pickButton(head.textContent, () => this.showEpisode(Number(row.dataset.episode))));
    }
    this.root.querySelector(".player-list").append(get("episode-list"));
    for (const radio of this.root.querySelectorAll("[name=show]")) {
      radio.addEventListener("change", () => this.filter(radio.value));
    }
    get("shown").textContent = `${this.rows.length} of ${this.rows.length} episodes`;
  }

  /* ---------------------------------------------------------------- episodes */
  filter(kind) {
    this.rows.forEach((row) => { row.hidden = kind !== "all" && row.dataset.outcome !== kind; });
    const visible = this.rows.filter((row) => !row.hidden);
    get("shown").textContent = `${visible.length} of ${this.rows.length} episodes`;
    if (visible.length && this.rows[this.episode].hidden) this.showEpisode(Number(visible[0].dataset.episode));
  }

  moveEpisode(by) {
    const visible = this.rows.filter((row) => !row.hidden).map((row) => Number(row.dataset.episode));
    const next = visible[visible.indexOf(this.episode) + by];
    if (next !== undefined) this.showEpisode(next);
  }

  showEpisode(number) {
    this.stop();
    this.episode = number;
    const { goal, meta } = this.data.episodes[number];
    this.rows.forEach((row) => {
      const current = Number(row.dataset.episode) === number;
      row.classList.toggle("selected", current);
      row.setAttribute("aria-current", String(current));
    });
    get("player-title").textContent = this.rows[number].querySelector("th").textContent;
    get("player-goal").textContent = this.text(goal);
    get("meta").hidden = meta.length === 0;
    fillTable(get("meta").querySelector("table"), meta.map((pair) => pair.map((index) => this.text(index))));
    this.listSteps();
    this.makeRoom();
    this.showStep(0);
  }

  listSteps() {
    const table = make("table");
    const head = table.createTHead().insertRow();
    const numeric = ["Reward", "Return", "φ"];
    for (const name of ["Step", "Action", ...numeric, "Flags"]) {
      const cell = make("th", name, numeric.includes(name) ? "number" : "");
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    let total = 0;
    this.frames.forEach((frame, step) => {
      total += frame.r ?? 0;
      const row = body.insertRow();
      row.insertCell().append(pickButton(String(step), () => this.showStep(step)));
      row.append(
        make("td", frame.a === undefined ? "" : this.text(frame.a)),
        make("td", frame.r === undefined ? "" : show(frame.r), "number"),
        make("td", show(total), "number"),
        make("td", show(frame.phi), "number"),
        make("td", flagsOf(frame)),
      );
    });
    get("steps").replaceChildren(table);
  }

  /* ---------------------------------------------------------------- steps */
  showStep(wanted) {
    this.step = Math.min(this.last, Math.max(0, wanted));
    const frame = this.frames[this.step];
    const place = `step ${this.step} of ${this.last}`;
    get("slider").max = this.last;
    get("slider").value = this.step;
    get("slider").setAttribute("aria-valuetext", place);
    get("counter").textContent = place;
    get("here").href = `#episode-${this.episode + 1}-step-${this.step}`;
    showText(get("observation"), this.text(frame.o));
    this.root.querySelector(".frame").classList.toggle("prose", !isBoard(this.text(frame.o)));
    fillTable(get("facts"), this.facts(frame));
    this.showWritten("reasoning", frame.t);
    this.showWritten("completion", frame.c);
    this.showWorkflow(frame);
    [...get("steps").querySelectorAll("tbody tr")].forEach((row, i) => row.classList.toggle("selected", i === this.step));
    for (const node of document.querySelectorAll(".at")) {
      node.classList.toggle("current", node.dataset.key === this.text(frame.k));
    }
    if (this.step === this.last) this.stop();
  }

  /* What the model wrote, or what the server separated from it. */
  showWritten(id, index) {
    get(id).hidden = (index ?? null) === null;
    get(id).querySelector("pre").textContent = this.text(index) ?? "";
  }

  /* ---------------------------------------------------------------- workflows */
  /* Make room for the highest picture of the episode, so that nothing jumps from step to step. */
  makeRoom() {
    const pictures = this.frames.map((frame) => this.picture(frame)).filter(Boolean);
    const heights = pictures.map((svg) => svg.height.baseVal.value);
    get("workflow").hidden = this.frames.every((frame) => frame.w === undefined);
    get("workflow").querySelector("div").style.minHeight = `${Math.max(0, ...heights)}px`;
  }

  picture(frame) {
    return Number.isInteger(frame.w) ? get(`workflow-${frame.w}`).querySelector("svg") : null;
  }

  /* The pictures are in the page already; what is shown is a copy, made a little smaller where that makes it fit. */
  showWorkflow(frame) {
    const box = get("workflow").querySelector("div");
    const picture = this.picture(frame)?.cloneNode(true);
    if (!picture) {
      const why = frame.w === null ? "There are too many pictures in this page for one here." : "There is none yet.";
      box.replaceChildren(make("p", why, "muted"));
      return;
    }
    const { width, height } = picture.viewBox.baseVal;
    const scale = Math.min(1, Math.max(LEAST_SCALE, box.clientWidth / width));
    picture.setAttribute("width", width * scale);
    picture.setAttribute("height", height * scale);
    box.replaceChildren(picture);
  }

  facts(frame) {
    const total = this.frames.slice(1, this.step + 1).reduce((sum, past) => sum + (past.r ?? 0), 0);
    const before = this.step > 0 ? this.frames[this.step - 1].phi : null;
    const change = frame.phi === null || before === null ? null : frame.phi - before;
    const sign = change === null ? "" : ` (${change > 0 ? "+" : ""}${show(change)})`;
    const step = frame.a === undefined ? [] : [["action", this.text(frame.a)], ["reward", show(frame.r)]];
    return [
      ...step,
      ...(frame.p === undefined ? [] : [["policy", this.text(frame.p)]]),
      ...(frame.x ?? []).map(([name, value]) => [`credit, ${this.text(name)}`, show(value)]),
      ["return so far", show(total)],
      ["potential φ", frame.phi === null ? "not known" : show(frame.phi) + sign],
      ["state key", this.text(frame.k)],
      ["flags", flagsOf(frame) || "none"],
    ];
  }

  /* ---------------------------------------------------------------- playing */
  toggle() {
    if (this.timer !== null) {
      this.stop();
      return;
    }
    if (this.step === this.last) this.showStep(0);
    if (this.last === 0) return;
    this.label("Pause");
    this.timer = setInterval(() => this.showStep(this.step + 1), MILLISECONDS_A_FRAME);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.label("Play");
  }

  label(name) {
    this.playButton.textContent = name;
    this.playButton.setAttribute("aria-label", name);
  }
}

if (get("payload")) new Player(JSON.parse(get("payload").textContent));
