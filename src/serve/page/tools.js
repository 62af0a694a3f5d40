// Tool cards: a call, and its output once that is there. While its turn runs, a call without output is live.

import { duration, element } from "./text.js";

/** The cards of one transcript. */
export class Tools {
  /** Cards by turn and call. */
  #cards = new Map();
  /** Cards without an output. */
  #open = new Set();
  /** The turn that runs. */
  #active = null;
  #timer = null;

  /** The card of a call; `undefined` where its output came first and has one already. */
  call(item, atMs) {
    const card = this.#card(item);
    const isNew = !card.placed;
    card.placed = true;
    card.startedMs = atMs;
    card.tool.textContent = item.name;
    card.what.textContent = oneLine(item.arguments);
    card.body.prepend(element("h2", "", "Arguments"), element("pre", "", readable(item.arguments)));
    if (card.endedMs === null) this.#open.add(card);
    this.#show(card);
    return isNew ? card.node : undefined;
  }

  /** Puts an output into its call's card, or into one of its own where the call is not shown. */
  output(item, atMs) {
    const card = this.#card(item);
    const isNew = !card.placed;
    card.placed = true;
    card.endedMs = atMs;
    card.body.append(element("h2", "", "Output"), element("pre", "", item.output));
    this.#open.delete(card);
    this.#show(card);
    return isNew ? card.node : undefined;
  }

  /** Says which turn runs; the calls of all others are live no more. */
  run(turn) {
    this.#active = turn;
    for (const card of this.#open) this.#show(card);
  }

  #card(item) {
    const key = `${item.response_id}\n${item.call_id}`;
    let card = this.#cards.get(key);
    if (!card) {
      card = { turn: item.response_id, placed: false, startedMs: null, endedMs: null };
      card.state = element("span", "state");
      card.tool = element("span", "tool", "Result");
      card.what = element("span", "what");
      card.time = element("span", "time");
      card.body = element("div", "body");
      const summary = element("summary", "", card.state, card.tool, card.what, card.time);
      card.node = element("details", "card", summary, card.body);
      this.#cards.set(key, card);
    }
    return card;
  }

  #show(card) {
    const done = card.endedMs !== null;
    const live = !done && card.turn === this.#active;
    card.node.classList.toggle("live", live);
    card.node.classList.toggle("lost", !done && !live);
    if (live) {
      if (!card.state.firstElementChild) card.state.replaceChildren(element("span", "spinner"));
      card.state.title = "Running";
      card.time.textContent = duration(Date.now() - card.startedMs);
    } else {
      card.state.replaceChildren(done ? "✓" : "–");
      card.state.title = done ? "Done" : "No output";
      const took = done && card.startedMs !== null;
      card.time.textContent = took ? duration(card.endedMs - card.startedMs) : done ? "" : "no output";
    }
    this.#tick();
  }

  /** Counts the time of live cards, as long as there are any. */
  #tick() {
    const live = [...this.#open].some((card) => card.turn === this.#active);
    if (live && this.#timer === null) {
      this.#timer = setInterval(() => {
        for (const card of this.#open) this.#show(card);
      }, 100);
    } else if (!live && this.#timer !== null) {
      clearInterval(this.#timer);
      this.#timer = null;
    }
  }
}

function oneLine(text) {
  const shown = values(text) ?? text;
  return shown.replace(/\s+/g, " ").slice(0, 200);
}

/** What is said to the tool, without the names: the best single line there is. */
function values(text) {
  try {
    const parsed = JSON.parse(text);
    if (parsed === null || typeof parsed !== "object") return null;
    return Object.values(parsed).map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join("  ");
  } catch {
    return null;
  }
}

function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
