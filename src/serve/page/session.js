// What is known of a conversation as a whole: its head, its task list, and the list of all of them.

import { count, element } from "./text.js";

const STATUS = { idle: "Idle", running: "Running", waiting: "Waiting for you", failed: "Failed" };
const at = (id) => document.getElementById(id);

/** The head of one conversation. */
export class Head {
  #model = "";
  #usage = {};

  constructor() {
    this.title("");
    at("about").textContent = "";
    at("status").hidden = true;
    at("working").hidden = true;
    this.tasks([]);
  }

  title(title) {
    at("title").textContent = title || "New conversation";
    document.title = title ? `${title} · hermes-mirror` : "hermes-mirror";
  }

  status(status, blockedOn) {
    const shown = at("status");
    shown.hidden = false;
    shown.className = `status ${status}`;
    shown.textContent = status === "waiting" && blockedOn ? `Waiting: ${blockedOn}` : STATUS[status] ?? status;
  }

  model(model) {
    this.#model = model ?? "";
    this.#about();
  }

  usage(usage) {
    this.#usage = usage;
    this.#about();
  }

  #about() {
    const usage = this.#usage;
    const said = [this.#model];
    if (usage.cumulative_input_tokens !== undefined) {
      said.push(`${count(usage.cumulative_input_tokens)} tokens in`);
      if (usage.cumulative_cache_read_input_tokens) {
        said.push(`${count(usage.cumulative_cache_read_input_tokens)} of them cached`);
      }
      said.push(`${count(usage.cumulative_output_tokens ?? 0)} out`);
    }
    if (usage.cumulative_cost_usd !== undefined) said.push(`$${usage.cumulative_cost_usd.toFixed(2)}`);
    at("about").textContent = said.filter(Boolean).join(" · ");
  }

  tasks(todos) {
    const [summary, list] = at("tasks").children;
    at("tasks").hidden = todos.length === 0;
    const done = todos.filter((todo) => todo.status === "completed").length;
    const now = todos.find((todo) => todo.status === "in_progress");
    summary.textContent = `Tasks ${done} of ${todos.length}${now ? `: ${now.activeForm}` : ""}`;
    list.replaceChildren(...todos.map((todo) => element("li", todo.status, todo.content)));
  }

  compacting(runs) {
    at("working").hidden = !runs;
    at("working").lastElementChild.textContent = "Compacting the context";
  }
}

/** Shows the list of conversations, the current one marked. */
export function showList(sessions, current, choose) {
  at("list").replaceChildren(...sessions.map((session) => {
    const when = element("span", "when");
    if (session.status !== "idle") {
      when.append(element("span", `dot ${session.status}`), STATUS[session.status] ?? session.status, " · ");
    }
    when.append(time(session.updated_at));
    const name = element("span", "name", session.title ?? session.preview ?? "New conversation");
    const link = element("a", "", name, when);
    link.href = `/c/${encodeURIComponent(session.id)}`;
    if (session.id === current) link.setAttribute("aria-current", "page");
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
      event.preventDefault();
      choose(session.id);
    });
    return element("li", "", link);
  }));
}

function time(s) {
  const then = new Date(s * 1000);
  const today = then.toDateString() === new Date().toDateString();
  return today ? then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : then.toLocaleDateString();
}
