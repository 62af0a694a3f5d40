//! A random transcript: rows as Hermes stores them, and what the conversation must hold of them in the end.

use super::fault::Random;
use super::hermes_db::{HermesDb, Kept, Message, Summary};
use super::mirror::World;

/// A transcript in the making.
pub struct Transcript {
    db: HermesDb,
    session: String,
    opener: Option<i64>,
    calls: u32,
    forks: u32,
    compactions: u32,
    /// Where in the live rows the last compaction's summary stands.
    summary_at: Option<usize>,
    items: Vec<String>,
    closed: Vec<i64>,
}

impl Transcript {
    /// An empty one, in the session `s` of a new database.
    pub fn new(world: &World) -> Self {
        let db = world.hermes();
        // The rows are the test's own; a power cut is not among the faults.
        db.conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
        let session = "s".to_owned();
        Self {
            db,
            session,
            opener: None,
            calls: 0,
            forks: 0,
            compactions: 0,
            summary_at: None,
            items: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// The items that are due by now, in order, in the words of [`super::shown`].
    pub fn items(&self) -> &[String] {
        &self.items
    }

    /// The opening rows of the turns that are over, each to be followed by an idle edge.
    pub fn closed(&self) -> &[i64] {
        &self.closed
    }

    /// Writes what comes next: a turn or a part of one, a compaction, a fork.
    pub fn go_on(&mut self, random: &mut Random) {
        match random.below(10) {
            0 => self.compact(random, false),
            1 => self.compact(random, true),
            2 | 3 => self.step(random),
            _ => {
                self.ask(random);
                for _ in 0..random.below(3) {
                    self.step(random);
                }
                if random.happens(80) {
                    self.answer(random);
                }
            }
        }
    }

    /// A user row. Few words, so that many messages are equal.
    pub fn ask(&mut self, random: &mut Random) {
        let words = random.one_of(&["go on", "again", "and now?"]);
        let row = self.append(&Message::user(words));
        self.opener = Some(row);
        self.items.push(format!("{row} user: {words}"));
    }

    /// An assistant row of up to five items and its tools' results. In an open turn; opens one where there is none.
    pub fn step(&mut self, random: &mut Random) {
        if self.opener.is_none() {
            self.ask(random);
        }
        let prose = random.one_of(&["", "let me see", "let me see"]);
        let calls: Vec<String> = (0..=random.below(3)).map(|_| self.call(random)).collect();
        let list: Vec<(&str, &str, &str)> =
            calls.iter().map(|id| (id.as_str(), "terminal", r#"{"command": "ls"}"#)).collect();
        let mut message = Message::tools(prose, &list);
        if random.happens(20) {
            message = message.thinking("hm");
        }
        self.append(&message);
        if !prose.is_empty() {
            self.show(&format!("agent: {prose}"));
        }
        for id in &calls {
            self.show(&format!(r#"call {id} terminal {{"command": "ls"}}"#));
        }
        for id in &calls {
            self.append(&Message::result(id, "one file"));
            self.show(&format!("output {id}: one file"));
        }
    }

    /// A call's id: usually a new one, sometimes the same as before, so that items of one turn are equal.
    fn call(&mut self, random: &mut Random) -> String {
        if random.happens(20) {
            return "same".to_owned();
        }
        self.calls += 1;
        format!("c{}", self.calls)
    }

    /// The row that ends a turn; it may say nothing.
    pub fn answer(&mut self, random: &mut Random) {
        let Some(opener) = self.opener else { return };
        let words = random.one_of(&["", "done", "done", "let me see"]);
        self.append(&Message::answer(words));
        if !words.is_empty() {
            self.show(&format!("agent: {words}"));
        }
        self.opener = None;
        self.closed.push(opener);
    }

    /// A compaction, in place or by fork, where there is enough to compact.
    fn compact(&mut self, random: &mut Random, fork: bool) {
        let size = |random: &mut Random, most| usize::try_from(random.below(most)).unwrap();
        // An earlier summary is never among what is kept: the new one takes its place.
        let head = size(random, 3).min(self.summary_at.unwrap_or(usize::MAX));
        let tail = 1 + size(random, 4);
        let live = self.db.live(&self.session).len();
        if live <= self.summary_at.unwrap_or(head) + tail {
            return self.ask(random);
        }
        let kept = Kept { head, tail };
        self.summary_at = Some(head);
        self.compactions += 1;
        let text = format!("summary {}", self.compactions);
        if fork {
            self.forks += 1;
            let child = format!("fork-{}", self.forks);
            self.db.compact_by_fork(&self.session, &child, kept, Summary::Row(&text));
            self.session = child;
        } else {
            self.db.compact_in_place(&self.session, kept, Summary::Row(&text));
        }
        self.items.push(format!("compaction: {text}"));
    }

    fn append(&mut self, message: &Message) -> i64 {
        self.db.append(&self.session, message)
    }

    fn show(&mut self, what: &str) {
        let opener = self.opener.expect("an open turn");
        self.items.push(format!("{opener} {what}"));
    }
}
