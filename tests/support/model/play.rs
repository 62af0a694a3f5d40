//! Random conversations, played through Hermes's own `SessionDB` while a mirror runs, pauses or is yet to come.

use serde_json::{Value, json};

use super::reference::{Holdings, Reference};
use super::watch::Watch;
use crate::hermes::HermesWriter;
use crate::support::fault::Random;
use crate::support::hermes_message::merged_into;

/// A live row: what it says, and the summary that was merged into it.
#[derive(Clone)]
struct Entry {
    said: usize,
    boundary: Option<usize>,
    message: Value,
}

impl Entry {
    fn is(&self, role: &str) -> bool {
        self.message["role"] == role
    }

    fn said(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.said).chain(self.boundary)
    }
}

/// Where things stood when a copy of the database was made.
struct Copy {
    session: String,
    live: Vec<Entry>,
    held: Holdings,
}

/// One conversation.
pub struct Play<'a> {
    writer: &'a mut HermesWriter,
    version: (u32, u32),
    random: Random,
    reference: Reference,
    watch: Watch,
    session: String,
    live: Vec<Entry>,
    copy: Option<Copy>,
    /// How many things were numbered.
    count: u32,
    /// Rows were taken back in this session.
    taken_back: bool,
}

impl<'a> Play<'a> {
    /// Begins the session `s` in a new database.
    pub fn begin(writer: &'a mut HermesWriter, version: (u32, u32), seed: u64, watch: Watch) -> Self {
        writer.open(&watch.world.db_path());
        writer.create_session("s", &json!({"cwd": watch.world.workspace()}));
        let mut play = Self {
            writer,
            version,
            random: Random::new(seed),
            reference: Reference::default(),
            watch,
            session: "s".to_owned(),
            live: Vec::new(),
            copy: None,
            count: 0,
            taken_back: false,
        };
        play.turn();
        play
    }

    /// Plays on for so many steps, then has the mirror show it all.
    pub fn run(mut self, steps: usize) {
        for _ in 0..steps {
            self.mirror();
            self.step();
        }
        self.note("the end");
        self.watch.start();
        self.ask("the end");
        self.answer("bye");
        self.catch_up();
        self.watch.finish();
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0..=5 => self.turn(),
            6 | 7 => self.retry(),
            8..=10 => self.compact(),
            11 | 12 => self.fork(),
            13..=15 => self.undo(),
            16 | 17 => self.edit(),
            18 => self.branch(),
            19 => self.elsewhere(),
            20 => self.resume(),
            21 => self.copy(),
            22 => self.restore(),
            _ => {
                self.note("vacuum");
                self.writer.call(&json!({"do": "vacuum"}));
            }
        }
    }

    /// Stops or starts the mirror, perhaps.
    fn mirror(&mut self) {
        let wish = self.watch.wish();
        if wish == self.watch.is_on() {
            return;
        }
        if wish {
            self.note("mirror starts");
            self.watch.start();
        } else {
            self.catch_up();
            self.note("mirror stops");
            self.watch.stop();
        }
    }

    /// Where a mirror runs, waits until it has shown all there is.
    fn catch_up(&mut self) {
        if self.watch.is_on() {
            let live: Vec<usize> = self.live.iter().flat_map(Entry::said).collect();
            self.reference.catch_up(&live);
            self.watch.expect(self.reference.transcript());
        }
    }

    fn note(&mut self, what: &str) {
        self.watch.note(what);
    }

    fn later(&mut self, from_ms: u32, to_ms: u32) -> f64 {
        let ms = from_ms + u32::try_from(self.random.below(u64::from(to_ms - from_ms))).unwrap();
        let now = self.writer.call(&json!({"do": "later", "seconds": f64::from(ms) / 1000.0}));
        now.as_f64().unwrap()
    }

    fn append(&mut self, mut message: Value, lines: &[String]) {
        let now = self.later(50, 2_000);
        // From 0.20 on a message has its time from its beginning, and keeps it.
        if self.version >= (0, 20) {
            message["timestamp"] = json!(now);
        }
        self.writer.append(&self.session, &message);
        let said = self.reference.say(lines.to_vec());
        self.live.push(Entry { said, boundary: None, message });
    }

    fn ask(&mut self, words: &str) {
        self.note(&format!("user: {words}"));
        self.later(1_000, 30_000);
        self.append(json!({"role": "user", "content": words}), &[format!("user: {words}")]);
    }

    fn answer(&mut self, words: &str) {
        self.note(&format!("agent: {words}"));
        let message = json!({"role": "assistant", "content": words, "finish_reason": "stop"});
        self.append(message, &[format!("agent: {words}")]);
    }

    /// What a person types: mostly the same few words.
    fn words(&mut self) -> String {
        match self.random.below(5) {
            0 | 1 => "yes".to_owned(),
            2 => "continue".to_owned(),
            3 => "ok".to_owned(),
            _ => format!("q{}", self.number()),
        }
    }

    fn number(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    fn turn(&mut self) {
        let words = self.words();
        self.turn_about(&words);
    }

    fn turn_about(&mut self, words: &str) {
        self.ask(words);
        if self.random.happens(10) {
            return; // Interrupted before the first word.
        }
        for _ in 0..self.random.below(6).saturating_sub(3) {
            self.tools();
        }
        let words = if self.random.happens(50) { "done".to_owned() } else { format!("a{}", self.number()) };
        self.answer(&words);
    }

    fn tools(&mut self) {
        let calls: Vec<String> = (0..=self.random.below(3)).map(|_| format!("c{}", self.number())).collect();
        let prose = self.random.one_of(&["", "let me see"]);
        let list: Vec<Value> = calls.iter().map(|id| call(id)).collect();
        let mut lines: Vec<String> =
            (!prose.is_empty()).then(|| format!("agent: {prose}")).into_iter().collect();
        lines.extend(calls.iter().map(|id| format!("call {id} terminal {{}}")));
        self.note(&format!("calls {calls:?}"));
        let message =
            json!({"role": "assistant", "content": prose, "tool_calls": list, "finish_reason": "tool_calls"});
        self.append(message, &lines);
        for id in &calls {
            if self.random.happens(5) {
                self.compact();
            }
            if self.random.happens(10) {
                self.delegate();
            }
            let message =
                json!({"role": "tool", "content": "fine", "tool_call_id": id, "tool_name": "terminal"});
            self.append(message, &[format!("output {id}: fine")]);
        }
        if self.random.happens(10) {
            self.compact();
        }
    }

    fn retry(&mut self) {
        let asked = self.live.iter().rev().find(|entry| entry.is("user") && entry.boundary.is_none());
        let words = asked.and_then(|entry| entry.message["content"].as_str()).map(str::to_owned);
        if let Some(words) = words.filter(|words| words.len() < 20) {
            self.note("retry");
            self.turn_about(&words);
        }
    }

    /// The live rows after a compaction: some of the head, the summary, some of the tail.
    fn compacted(&mut self) -> Option<Vec<Entry>> {
        let head = self.below(3);
        let mut tail = 1 + self.below(4);
        let len = self.live.len();
        // A result is not kept without its call.
        while tail < len && self.live[len - tail].is("tool") {
            tail += 1;
        }
        if head + tail >= len {
            return None;
        }
        let text = format!("sum {}", self.number());
        let framed = self.writer.framed(&text);
        self.note(&format!("compaction {text}: {head} and {tail} of {len}"));
        let boundary = self.reference.sum_up(vec![format!("compaction: {text}")]);
        let mut after: Vec<Entry> = self.live[..head].to_vec();
        let mut kept = self.live[len - tail..].to_vec();
        if self.version >= (0, 19)
            && self.random.happens(25)
            && kept[0].boundary.is_none()
            && !is_summary(&kept[0])
        {
            let old = kept[0].message["content"].as_str().unwrap().to_owned();
            kept[0].message["content"] = json!(merged_into(&old, &framed));
            kept[0].boundary = Some(boundary);
            self.note("merged");
        } else {
            let role = if self.version >= (0, 20) { "user" } else { "assistant" };
            let message = json!({"role": role, "content": framed});
            after.push(Entry { said: boundary, boundary: None, message });
        }
        after.extend(kept);
        Some(after)
    }

    fn compact(&mut self) {
        // Before, Hermes could but fork.
        if self.version < (0, 18) {
            return;
        }
        let Some(after) = self.compacted() else { return };
        self.later(500, 5_000);
        self.writer.archive_and_compact(&self.session, &messages(&after));
        self.reference.archive(&said(&after));
        self.live = after;
    }

    fn fork(&mut self) {
        let Some(after) = self.compacted() else { return };
        self.later(500, 5_000);
        let child = format!("fork{}", self.number());
        self.note(&format!("forked into {child}"));
        self.writer.call(
            &json!({"do": "fork", "parent": self.session, "child": child, "messages": messages(&after)}),
        );
        self.reference.leave_behind(&said(&after));
        self.live = after;
        self.session = child;
        self.taken_back = false;
    }

    /// The places of what the person typed, among the live rows.
    fn typed(&self) -> Vec<usize> {
        let typed = self.live.iter().enumerate();
        typed
            .filter(|(_, e)| e.is("user") && e.boundary.is_none() && !is_summary(e))
            .map(|(at, _)| at)
            .collect()
    }

    fn undo(&mut self) {
        let typed = self.typed();
        if self.version < (0, 17) || typed.len() < 2 {
            return;
        }
        self.catch_up();
        let at = typed[typed.len() - 1 - self.below(2).min(typed.len() - 1)];
        let select =
            "SELECT id FROM messages WHERE session_id = ? AND active = 1 ORDER BY id LIMIT 1 OFFSET ?";
        let id = self.writer.call(&json!({"do": "sql", "script": [[select, [self.session, at]]]}))[0][0][0]
            .clone();
        self.note(&format!("undo of {} rows", self.live.len() - at));
        self.writer
            .call(&json!({"do": "rewind_to_message", "session_id": self.session, "target_message_id": id}));
        let gone = self.live.split_off(at);
        self.reference.take_back(&said(&gone));
        let for_the_first_time = !std::mem::replace(&mut self.taken_back, true);
        if for_the_first_time && self.random.happens(25) {
            self.mirror();
            self.catch_up();
            self.note("undo undone");
            self.writer
                .call(&json!({"do": "restore_rewound", "session_id": self.session, "since_message_id": id}));
            self.reference.give_back(&said(&gone));
            self.live.extend(gone);
            self.taken_back = false;
            self.catch_up();
        }
    }

    /// Edit and resend: what was typed once is typed anew, and all behind it is gone.
    fn edit(&mut self) {
        let typed = self.typed();
        if self.version < (0, 17) || typed.is_empty() {
            return;
        }
        self.catch_up();
        // A summary that was merged into a row unseen hides the row, and its original would be gone.
        let hidden = |e: &Entry| e.boundary.is_some_and(|boundary| !self.reference.was_shown(boundary));
        if self.live.iter().any(hidden) {
            return;
        }
        let at = typed[typed.len() - 1 - self.below(3).min(typed.len() - 1)];
        self.note(&format!("edit: {at} of {} rows kept", self.live.len()));
        self.later(1_000, 5_000);
        let kept = &self.live[..at];
        self.writer.call(&json!({"do": "edit", "session_id": self.session, "messages": messages(kept)}));
        self.live.truncate(at);
        self.reference.cut(&said(&self.live), self.version < (0, 20));
        let words = self.words();
        self.turn_about(&words);
    }

    fn branch(&mut self) {
        let branch = format!("branch{}", self.number());
        self.note(&branch);
        let session = self.session.clone();
        self.writer.end_session(&session, "branched");
        let origin = json!({"parent_session_id": session, "model_config": {"_branched_from": session}});
        self.writer.create_session(&branch, &origin);
        for message in messages(&self.live) {
            self.writer.append(&branch, &message);
        }
        self.writer.append(&branch, &json!({"role": "user", "content": "yes"}));
        self.writer.call(&json!({"do": "reopen_session", "session_id": session}));
    }

    fn delegate(&mut self) {
        let child = format!("sub{}", self.number());
        self.note(&child);
        let session = self.session.clone();
        let origin = json!({"source": "subagent", "parent_session_id": session,
                            "model_config": {"_delegate_from": session}});
        self.writer.create_session(&child, &origin);
        self.writer.append(&child, &json!({"role": "user", "content": "look"}));
        self.writer.append(&child, &json!({"role": "assistant", "content": "done", "finish_reason": "stop"}));
    }

    fn elsewhere(&mut self) {
        let other = format!("other{}", self.number());
        self.note(&other);
        self.writer.create_session(&other, &json!({"cwd": "/elsewhere"}));
        self.writer.burst(&other, 5, "row");
    }

    /// Hermes is left and started again on the same session; it then knows its messages from the database.
    fn resume(&mut self) {
        self.note("resume");
        let session = self.session.clone();
        self.writer.end_session(&session, "cli_close");
        self.later(1_000, 60_000);
        self.writer.call(&json!({"do": "reopen_session", "session_id": session}));
        let loaded = self.writer.call(&json!({"do": "get_messages_as_conversation", "session_id": session}));
        let loaded = loaded.as_array().unwrap();
        assert_eq!(loaded.len(), self.live.len(), "{}", self.watch.story());
        for (entry, message) in self.live.iter_mut().zip(loaded) {
            entry.message = message.clone();
        }
    }

    fn copy(&mut self) {
        self.note("copy");
        self.writer.call(&json!({"do": "keep", "path": self.watch.world.path("copy.db")}));
        self.copy = Some(Copy {
            session: self.session.clone(),
            live: self.live.clone(),
            held: self.reference.holdings(),
        });
    }

    fn restore(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        self.catch_up();
        self.note("restore");
        self.later(1_000, 5_000);
        self.writer.call(&json!({"do": "restore", "path": self.watch.world.path("copy.db")}));
        self.reference.restore(&copy.held);
        (self.session, self.live) = (copy.session, copy.live);
        self.turn();
    }

    fn below(&mut self, n: u64) -> usize {
        usize::try_from(self.random.below(n)).unwrap()
    }
}

fn call(id: &str) -> Value {
    json!({"id": id, "call_id": id, "type": "function", "function": {"name": "terminal", "arguments": "{}"}})
}

fn is_summary(entry: &Entry) -> bool {
    entry.message["content"].as_str().is_some_and(|text| text.starts_with("[CONTEXT COMPACTION"))
}

fn said(entries: &[Entry]) -> Vec<usize> {
    entries.iter().flat_map(Entry::said).collect()
}

fn messages(entries: &[Entry]) -> Vec<Value> {
    entries.iter().map(|entry| entry.message.clone()).collect()
}
