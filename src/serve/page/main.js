// Joins the parts: which conversation is shown, its history, its live stream, and where the person looks.

import { Head, showList } from "./session.js";
import { Transcript } from "./transcript.js";

const PAGE = 200;
const NEAR_PX = 80;
const AGAIN_MS = 1000;
const at = (id) => document.getElementById(id);
const scroller = at("scroller");

let current = null;

/** One conversation, while it is shown. */
class Conversation {
  #head = new Head();
  #transcript;
  #source = null;
  #again = null;
  #loading = false;
  #following = true;
  #over = false;

  constructor(id) {
    this.id = id;
    this.#transcript = new Transcript(at("transcript"), () => {
      if (this.#following) toEnd();
      else at("latest").hidden = false;
    });
    at("earlier").hidden = true;
    at("latest").hidden = true;
    at("empty").hidden = true;
  }

  async open() {
    if (this.id !== null && !(await this.#load())) return;
    if (!this.#over) this.#listen();
  }

  close() {
    this.#over = true;
    this.#source?.close();
    clearTimeout(this.#again);
  }

  /** Loads the newest entries, or those before the ones that are shown. */
  async #load() {
    this.#loading = true;
    const before = this.#transcript.first;
    const query = before === null ? "" : `&before=${before}`;
    try {
      const answer = await fetch(`/page/entries/${encodeURIComponent(this.id)}?limit=${PAGE}${query}`);
      if (this.#over) return false;
      if (!answer.ok) {
        say(answer.status === 404 ? "There is no such conversation here." : "The conversation cannot be read.");
        return false;
      }
      const { data, has_more: more } = await answer.json();
      if (this.#over) return false;
      const height = scroller.scrollHeight;
      this.#transcript.prepend(data);
      at("earlier").hidden = !more;
      if (before === null) toEnd();
      else scroller.scrollTop += scroller.scrollHeight - height;
      return true;
    } catch {
      if (!this.#over) this.#lost(() => this.open());
      return false;
    } finally {
      this.#loading = false;
    }
  }

  /** Follows the stream. The browser comes back by itself; where it gives up, this does not. */
  #listen() {
    const query = new URLSearchParams();
    if (this.id !== null) {
      query.set("conversation", this.id);
      query.set("after", this.#transcript.last);
    }
    this.#source?.close();
    const source = new EventSource(`/page/updates?${query}`);
    this.#source = source;
    source.addEventListener("open", () => { at("connection").hidden = true; });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) this.#lost(() => this.#listen());
      else connection();
    });
    const on = (type, act) => source.addEventListener(type, (event) => act(JSON.parse(event.data)));
    for (const type of ["session.input.consumed", "response.output_item.done", "response.reasoning_text.delta",
      "session.interrupted"]) {
      on(type, (event) => this.#transcript.append(event));
    }
    on("session.status", (event) => {
      this.#head.status(event.status, event.blocked_on);
      this.#transcript.run(event.response_id);
    });
    on("session.title", (event) => this.#head.title(event.title));
    on("session.model", (event) => this.#head.model(event.model));
    on("session.usage", (event) => this.#head.usage(event.usage));
    on("session.todos", (event) => this.#head.tasks(event.todos));
    on("response.compaction.in_progress", () => this.#head.compacting(true));
    on("response.compaction.completed", () => this.#head.compacting(false));
    on("response.compaction.failed", () => this.#head.compacting(false));
    on("sessions.changed", refreshList);
  }

  #lost(again) {
    connection();
    clearTimeout(this.#again);
    this.#again = setTimeout(() => { if (!this.#over) again(); }, AGAIN_MS);
  }

  /** Older messages, when the person comes near the first one. */
  earlier() {
    if (!this.#loading && !at("earlier").hidden) this.#load();
  }

  /** Stays at the end as long as the person does. */
  scrolled() {
    this.#following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
    if (this.#following) at("latest").hidden = true;
    if (scroller.scrollTop < NEAR_PX) this.earlier();
  }

  follow() {
    this.#following = true;
    at("latest").hidden = true;
    toEnd();
  }
}

function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
}

function say(text) {
  at("empty").textContent = text;
  at("empty").hidden = false;
}

function connection() {
  at("connection").textContent = "The server is away. Trying again.";
  at("connection").hidden = false;
}

let refreshing = false;
let refreshAgain = false;

/** Reads the list again; once more where it changed meanwhile. */
async function refreshList() {
  refreshAgain = true;
  if (refreshing) return;
  refreshing = true;
  while (refreshAgain) {
    refreshAgain = false;
    try {
      const answer = await fetch("/v1/sessions?limit=200");
      const { data } = await answer.json();
      if (current.id === null && data.length > 0) {
        history.replaceState(null, "", `/c/${encodeURIComponent(data[0].id)}`);
        show(data[0].id);
      }
      showList(data, current.id, choose);
      if (data.length === 0) say("No conversation yet. Point a mirror at this server, and it appears here.");
    } catch {
      // The stream says when the server is back, and the list has changed by then.
    }
    await new Promise((go) => setTimeout(go, 250));
  }
  refreshing = false;
}

function choose(id) {
  history.pushState(null, "", `/c/${encodeURIComponent(id)}`);
  menu(false);
  show(id);
  refreshList();
}

function show(id) {
  current?.close();
  current = new Conversation(id);
  current.open();
}

function menu(open) {
  at("menu").setAttribute("aria-expanded", String(open));
  at("conversations").classList.toggle("open", open);
}

function fromAddress() {
  const found = /^\/c\/([^/]+)$/.exec(location.pathname);
  return found ? decodeURIComponent(found[1]) : null;
}

scroller.addEventListener("scroll", () => current.scrolled(), { passive: true });
at("earlier").addEventListener("click", () => current.earlier());
at("latest").addEventListener("click", () => current.follow());
at("menu").addEventListener("click", () => menu(at("menu").getAttribute("aria-expanded") !== "true"));
addEventListener("popstate", () => { show(fromAddress()); refreshList(); });
addEventListener("keydown", (event) => { if (event.key === "Escape") menu(false); });

show(fromAddress());
refreshList();
