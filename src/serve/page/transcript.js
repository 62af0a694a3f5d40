// The transcript: what has come, in order, older parts put before it when they are asked for.

import { element, image, plain, prose } from "./text.js";
import { Tools } from "./tools.js";

/** The entries of one conversation, as nodes. */
export class Transcript {
  #root;
  #tools = new Tools();
  #waiting = [];
  #drawing = false;
  #drawn;
  /** The numbers of the first and the last entry. */
  first = null;
  last = 0;

  /** `drawn` is called after new nodes have been put in. */
  constructor(root, drawn) {
    this.#root = root;
    this.#drawn = drawn;
    root.replaceChildren();
  }

  /** Adds an entry at the end, with the next frame. One that was there already is left out. */
  append(event) {
    if (event.seq <= this.last) return;
    this.last = event.seq;
    this.first ??= event.seq;
    this.#waiting.push(event);
    if (this.#drawing) return;
    this.#drawing = true;
    // A page in the background gets no frames, and has to stay current all the same.
    const draw = () => this.#draw();
    if (document.hidden) setTimeout(draw, 50);
    else requestAnimationFrame(draw);
  }

  #draw() {
    this.#drawing = false;
    const part = document.createDocumentFragment();
    for (const event of this.#waiting) part.append(...this.#nodes(event));
    this.#waiting = [];
    this.#root.append(part);
    this.#drawn();
  }

  /** Puts older entries before all others. */
  prepend(events) {
    const older = events.filter((event) => this.first === null || event.seq < this.first);
    if (older.length === 0) return;
    const part = document.createDocumentFragment();
    for (const event of older) part.append(...this.#nodes(event));
    this.#root.prepend(part);
    this.first = older[0].seq;
    this.last = Math.max(this.last, older[older.length - 1].seq);
  }

  /** Says which turn runs. */
  run(turn) {
    this.#tools.run(turn);
  }

  #nodes(event) {
    switch (event.type) {
      case "session.input.consumed": return [person(event.data.data)];
      case "response.reasoning_text.delta": return [folded("Reasoning", event.delta)];
      case "session.interrupted": return [element("p", "mark-line", "Interrupted")];
      case "response.output_item.done": return this.#item(event.item, event.at_ms);
      default: return [];
    }
  }

  #item(item, atMs) {
    switch (item.type) {
      case "message": return [agent(item)];
      case "function_call": return [this.#tools.call(item, atMs)].filter(Boolean);
      case "function_call_output": return [this.#tools.output(item, atMs)].filter(Boolean);
      case "compaction": return [boundary(item)];
      default: return [];
    }
  }
}

function parts(item, write) {
  return item.content.map((part) => (part.type === "input_image" ? image(part.image_url) : write(part.text ?? "")));
}

function person(item) {
  if (item.is_meta) return folded("Note to the model", item.content.map((part) => part.text ?? "").join(""));
  return element("article", "user", element("div", "", ...parts(item, plain)));
}

function agent(item) {
  return element("article", "agent", ...parts(item, prose));
}

function folded(title, text) {
  return element("details", "aside", element("summary", "", title), plain(text));
}

function boundary(item) {
  const summary = element("details", "", element("summary", "", "Context compacted"), prose(item.summary));
  return element("div", "boundary", summary);
}
