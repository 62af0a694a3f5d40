//! Random conversations, played through Hermes's own `SessionDB` while a mirror runs, pauses or is yet to come.

use serde_json::{Value, json};

use super::reference::{Held, Reference};
use super::watch::Watch;
use crate::hermes::HermesWriter;
use crate::support::fault::Random;

/// A live row: what it says, and the summary that was merged into it.
#[derive(Clone)]
pub(super) struct Entry {
    pub said: usize,
    pub boundary: Option<usize>,
    pub message: Value,
}

impl Entry {
    pub fn is(&self, role: &str) -> bool {
        self.message["role"] == role
    }

    pub fn said(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.said).chain(self.boundary)
    }
}

/// Where things stood when a copy of the database was made.
pub(super) struct Copy {
    pub session: String,
    pub live: Vec<Entry>,
    pub held: Held,
}

/// One conversation.
pub struct Play<'a> {
    pub(super) writer: &'a mut HermesWriter,
    pub(super) version: (u32, u32),
    pub(super) random: Random,
    pub(super) reference: Reference,
    pub(super) watch: Watch,
    pub(super) session: String,
    pub(super) live: Vec<Entry>,
    pub(super) copy: Option<Copy>,
    /// How many things were numbered.
    pub(super) count: u32,
    /// Rows were taken back in this session.
    pub(super) taken_back: bool,
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
    pub(super) fn mirror(&mut self) {
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
    pub(super) fn catch_up(&mut self) {
        if self.watch.is_on() {
            self.reference.catch_up();
            self.watch.expect(&self.reference.transcript());
        }
    }

    pub(super) fn note(&mut self, what: &str) {
        self.watch.note(what);
    }

    pub(super) fn later(&mut self, from_ms: u32, to_ms: u32) -> f64 {
        let ms = from_ms + u32::try_from(self.random.below(u64::from(to_ms - from_ms))).unwrap();
        let now = self.writer.call(&json!({"do": "later", "seconds": f64::from(ms) / 1000.0}));
        now.as_f64().unwrap()
    }

    fn append(&mut self, message: &Value, lines: &[String]) {
        self.append_after(message, lines, 50, 2_000);
    }

    /// Appends a message so many ms later.
    pub(super) fn append_after(&mut self, message: &Value, lines: &[String], from_ms: u32, to_ms: u32) {
        let mut message = message.clone();
        let now = self.later(from_ms, to_ms);
        // From 0.20 on a message has its time from its beginning, and keeps it.
        if self.version >= (0, 20) {
            message["timestamp"] = json!(now);
        }
        self.writer.append(&self.session, &message);
        let lines = lines.to_vec();
        let said =
            if message["role"] == "user" { self.reference.ask(lines) } else { self.reference.say(lines) };
        self.live.push(Entry { said, boundary: None, message });
    }

    fn ask(&mut self, words: &str) {
        self.note(&format!("user: {words}"));
        self.later(1_000, 30_000);
        self.append(&json!({"role": "user", "content": words}), &[format!("user: {words}")]);
    }

    fn answer(&mut self, words: &str) {
        self.note(&format!("agent: {words}"));
        let message = json!({"role": "assistant", "content": words, "finish_reason": "stop"});
        self.append(&message, &[format!("agent: {words}")]);
    }

    /// What a person types: mostly the same few words.
    pub(super) fn words(&mut self) -> String {
        match self.random.below(5) {
            0 | 1 => "yes".to_owned(),
            2 => "continue".to_owned(),
            3 => "ok".to_owned(),
            _ => format!("q{}", self.number()),
        }
    }

    pub(super) fn number(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    pub(super) fn turn(&mut self) {
        let words = self.words();
        self.turn_about(&words);
    }

    pub(super) fn turn_about(&mut self, words: &str) {
        self.ask(words);
        self.turn_behind();
    }

    /// What comes of what the person typed.
    pub(super) fn turn_behind(&mut self) {
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
        self.append(&message, &lines);
        for id in &calls {
            if self.random.happens(5) {
                self.compact();
            }
            if self.random.happens(10) {
                self.delegate();
            }
            let message =
                json!({"role": "tool", "content": "fine", "tool_call_id": id, "tool_name": "terminal"});
            self.append(&message, &[format!("output {id}: fine")]);
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

    pub(super) fn below(&mut self, n: u64) -> usize {
        usize::try_from(self.random.below(n)).unwrap()
    }
}

fn call(id: &str) -> Value {
    json!({"id": id, "call_id": id, "type": "function", "function": {"name": "terminal", "arguments": "{}"}})
}
