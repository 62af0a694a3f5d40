//! A scripted conversation: writes it with Hermes's own code and keeps, apart from the program under test, what a person
//! must see of it.

use std::path::Path;

use serde_json::{Value, json};

use crate::hermes::HermesWriter;

/// What the model's messages carry.
pub const AGENT: &str = "hermes";

/// A conversation that is being written.
pub struct Conversation<'a> {
    writer: &'a mut HermesWriter,
    /// The session written to now; a fork compaction changes it.
    session: String,
    /// The transcript as Hermes holds it in memory, in the form in which it is written again.
    live: Vec<Value>,
    /// What the items of the current turn carry.
    turn: String,
    /// Whether the current turn has had its closing row.
    closed: bool,
    calls: usize,
    rows: usize,
    seen: Seen,
}

/// What a person must see.
#[derive(Default)]
pub struct Seen {
    /// The stored items, as [`essence`] leaves them.
    pub items: Vec<Value>,
    /// The status edges, each with its response id.
    pub edges: Vec<(String, String)>,
    /// Turns that the next one cut off before they were closed.
    pub cut_off: Vec<String>,
    /// The model's reasoning, shown live and not stored.
    pub reasoning: Vec<String>,
}

impl<'a> Conversation<'a> {
    /// Begins one in a session that was just made.
    pub fn new(writer: &'a mut HermesWriter, session: &str) -> Self {
        Self {
            writer,
            session: session.to_owned(),
            live: Vec::new(),
            turn: String::new(),
            closed: true,
            calls: 0,
            rows: 0,
            seen: Seen::default(),
        }
    }

    /// Ends the script; gives the number of rows written and what must be seen.
    pub fn end(self) -> (usize, Seen) {
        (self.rows, self.seen)
    }

    /// The person types `text`.
    pub fn user(&mut self, text: &str) {
        self.user_shown(&json!(text), &[json!({"type": "input_text", "text": text})], false);
    }

    /// A user row with the stored `content` that is shown as `parts`, and is the person's unless `meta`.
    pub fn user_shown(&mut self, content: &Value, parts: &[Value], meta: bool) {
        if !self.closed {
            self.seen.cut_off.push(self.turn.clone());
        }
        let id = self.append(json!({"role": "user", "content": content}));
        self.turn = format!("hermes_turn_{id}");
        self.closed = false;
        self.edge("running");
        let mut item = json!({"type": "message", "role": "user", "content": parts});
        if meta {
            item["is_meta"] = json!(true);
        }
        self.show(item);
    }

    /// The model's last word in a turn; `finish` is null where the person interrupted it.
    pub fn answer(&mut self, text: &str, finish: Option<&str>) {
        self.answer_after_thinking(text, finish, None);
    }

    /// The same with the reasoning before it.
    pub fn answer_after_thinking(&mut self, text: &str, finish: Option<&str>, reasoning: Option<&str>) {
        self.append(json!({
            "role": "assistant", "content": text, "finish_reason": finish,
            "reasoning": reasoning, "reasoning_content": reasoning,
        }));
        self.seen.reasoning.extend(reasoning.map(str::to_owned));
        self.prose(text);
        self.closed = true;
        self.edge("idle");
    }

    /// The model calls tools, perhaps with some prose before; gives the ids of the calls.
    pub fn calls(&mut self, prose: &str, tools: &[(&str, &str)]) -> Vec<String> {
        let ids: Vec<_> = tools.iter().map(|_| self.next_call()).collect();
        let calls: Vec<_> = std::iter::zip(&ids, tools)
            .map(|(id, (name, arguments))| {
                json!({"id": id, "call_id": id, "response_item_id": format!("fc_{id}"), "type": "function",
                       "function": {"name": name, "arguments": arguments}})
            })
            .collect();
        self.append(json!({
            "role": "assistant", "content": prose, "tool_calls": calls, "finish_reason": "tool_calls",
        }));
        self.prose(prose);
        for (id, (name, arguments)) in std::iter::zip(&ids, tools) {
            self.show(json!({"type": "function_call", "model": AGENT, "name": name, "arguments": arguments,
                             "call_id": id}));
        }
        ids
    }

    /// A tool answers.
    pub fn result(&mut self, call: &str, tool: &str, output: &str) {
        self.append(json!({"role": "tool", "content": output, "tool_call_id": call, "tool_name": tool}));
        self.show(json!({"type": "function_call_output", "call_id": call, "output": output}));
    }

    /// Hermes compacts in place: the first `head` and last `tail` rows of the live transcript stay, a summary between them.
    pub fn compact_in_place(&mut self, head: usize, tail: usize, summary: &str) {
        let kept = self.kept(head, tail, summary);
        self.writer.archive_and_compact(&self.session, &kept);
        self.compacted(kept, summary);
    }

    /// Hermes compacts into a session that continues this one.
    pub fn compact_by_fork(&mut self, child: &str, head: usize, tail: usize, summary: &str) {
        let kept = self.kept(head, tail, summary);
        self.writer.end_session(&self.session, "compression");
        self.writer.create_session(
            child,
            &json!({"parent_session_id": self.session, "model_config": {"max_iterations": 90}}),
        );
        child.clone_into(&mut self.session);
        self.writer.call(&json!({"do": "set_session_title", "session_id": child, "title": "Scripted #2"}));
        self.writer.call(&json!({"do": "update_system_prompt", "session_id": child, "system_prompt": "Be."}));
        self.writer.replace_messages(child, &kept);
        self.compacted(kept, summary);
    }

    /// A background task's session in the same working directory begins: no continuation of this one.
    pub fn background(&mut self, session: &str, workspace: &Path) {
        self.writer.create_session(session, &json!({"cwd": workspace}));
    }

    /// A row in another session of the same database: never shown.
    pub fn elsewhere(&mut self, session: &str, text: &str) {
        self.writer.append(session, &json!({"role": "user", "content": text}));
        self.rows += 1;
    }

    fn kept(&self, head: usize, tail: usize, summary: &str) -> Vec<Value> {
        let mut kept = self.live[..head].to_vec();
        kept.push(json!({"role": "assistant", "content": self.writer.framed(summary)}));
        kept.extend_from_slice(&self.live[self.live.len() - tail..]);
        kept
    }

    fn compacted(&mut self, kept: Vec<Value>, summary: &str) {
        self.rows += kept.len();
        let said: Vec<_> = kept.iter().filter(|m| is_said(m)).map(said).collect();
        self.live = kept;
        self.seen.items.push(json!({"type": "compaction", "summary": summary, "model": "stub-model",
                                    "compacted_messages": said}));
    }

    /// Writes a row as Hermes does in a turn: what the model call used first, then the row.
    fn append(&mut self, message: Value) -> i64 {
        if message["role"] == "assistant" {
            self.writer.call(&json!({
                "do": "update_token_counts", "session_id": self.session, "model": "stub-model",
                "input_tokens": 900, "output_tokens": 15, "cache_read_tokens": 100, "api_call_count": 1,
            }));
        }
        let id = self.writer.append(&self.session, &message);
        self.live.push(message);
        self.rows += 1;
        id
    }

    fn prose(&mut self, text: &str) {
        if !text.is_empty() {
            let content = json!([{"type": "output_text", "text": text}]);
            self.show(json!({"type": "message", "role": "assistant", "content": content, "model": AGENT}));
        }
    }

    fn show(&mut self, mut item: Value) {
        item["response_id"] = json!(self.turn);
        self.seen.items.push(item);
    }

    fn edge(&mut self, status: &str) {
        self.seen.edges.push((status.to_owned(), self.turn.clone()));
    }

    fn next_call(&mut self) -> String {
        self.calls += 1;
        format!("call_{}", self.calls)
    }
}

/// What of a stored item is the mirror's doing: all but the server's own id, state and time of it.
///
/// A compaction's response id is the server's too; of its transcript, what the two sides said is compared.
pub fn essence(item: &Value) -> Value {
    let mut item = item.clone();
    let fields = item.as_object_mut().expect("an item");
    for of_the_server in ["id", "status", "created_at", "created_by"] {
        fields.remove(of_the_server);
    }
    if fields["type"] == "compaction" {
        for apart in ["response_id", "last_item_id", "token_count"] {
            fields.remove(apart);
        }
        if let Some(messages) = fields.get_mut("compacted_messages").and_then(Value::as_array_mut) {
            *messages = messages.iter().filter(|m| is_said(m)).map(said).collect();
        }
    }
    item
}

/// Whether a message of a transcript is text of the person or the model, and not the summary itself.
fn is_said(message: &Value) -> bool {
    let speaks = message["role"] == "user" || message["role"] == "assistant";
    let text = text(message);
    speaks && !text.is_empty() && !text.contains("SUMMARY OF")
}

/// Who said what.
fn said(message: &Value) -> Value {
    json!({"role": message["role"], "text": text(message)})
}

/// The text of a message, which Hermes stores plain and the server in parts.
fn text(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}
