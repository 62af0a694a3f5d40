//! A mirror that is killed again and again while a conversation with every kind of rewrite is written.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use support::fault::Random;
use support::hermes_db::{HermesDb, Kept, Message, Summary, Version};
use support::mirror::{PATIENCE, World};
use support::sink::State;

/// One conversation, in so many steps; the session that is live changes with each fork.
struct Play {
    db: HermesDb,
    session: String,
    forks: usize,
    /// What is to be stored of it, in the end.
    expected: Vec<String>,
}

const STEPS: u64 = 40;
const SEEDS: u64 = 10;

impl Play {
    fn begin(world: &World, version: Version) -> Self {
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        let mut play = Self { db, session: "s".to_owned(), forks: 0, expected: Vec::new() };
        play.turn("the", "beginning");
        play
    }

    fn step(&mut self, n: u64, random: &mut Random) {
        match random.below(8) {
            0 => self.compact(n, random),
            1 => self.fork(n, random),
            2 | 3 => self.turn_with_tools(n, random),
            // The same words each time.
            4 => self.turn("go on", "gone on"),
            _ => self.turn(&format!("q {n}"), &format!("a {n}")),
        }
    }

    fn say(&mut self, turn: i64, message: &Message, line: &str) {
        self.db.append(&self.session, message);
        self.expected.push(format!("{turn} {line}"));
    }

    fn open(&mut self, text: &str) -> i64 {
        let turn = self.db.append(&self.session, &Message::user(text));
        self.expected.push(format!("{turn} user: {text}"));
        turn
    }

    fn turn(&mut self, asked: &str, answer: &str) {
        let turn = self.open(asked);
        self.say(turn, &Message::answer(answer), &format!("agent: {answer}"));
    }

    fn turn_with_tools(&mut self, n: u64, random: &mut Random) {
        let turn = self.open(&format!("look {n}"));
        let calls = [format!("a{n}"), format!("b{n}")];
        let [a, b] = calls.each_ref().map(|id| (id.as_str(), "terminal", "{}"));
        self.db.append(&self.session, &Message::tools("hm", &[a, b]));
        self.expected.push(format!("{turn} agent: hm"));
        self.expected.extend(calls.iter().map(|id| format!("{turn} call {id} terminal {{}}")));
        if random.below(3) == 0 {
            let kept = Kept { head: 0, tail: 2 };
            self.db.compact_in_place(&self.session, kept, Summary::Row(&format!("mid {n}")));
            self.expected.push(format!("compaction: mid {n}"));
        }
        for id in &calls {
            self.say(turn, &Message::result(id, "ok"), &format!("output {id}: ok"));
        }
        self.say(turn, &Message::answer("done"), "agent: done");
    }

    fn compact(&mut self, n: u64, random: &mut Random) {
        let text = format!("sum {n}");
        let (kept, summary) = cut(&text, random);
        self.db.compact_in_place(&self.session, kept, summary);
        self.expected.push(format!("compaction: {text}"));
    }

    fn fork(&mut self, n: u64, random: &mut Random) {
        let text = format!("sum {n}");
        let (kept, summary) = cut(&text, random);
        self.forks += 1;
        let child = format!("c{}", self.forks);
        self.db.compact_by_fork(&self.session, &child, kept, summary);
        self.session = child;
        self.expected.push(format!("compaction: {text}"));
    }
}

fn cut<'a>(text: &'a str, random: &mut Random) -> (Kept, Summary<'a>) {
    let kept = Kept { head: below(random, 2), tail: below(random, 4) };
    let merge = random.below(3) == 0;
    (kept, if merge { Summary::Merged(text) } else { Summary::Row(text) })
}

fn below(random: &mut Random, n: u64) -> usize {
    usize::try_from(random.below(n)).unwrap()
}

/// What the server stores, told apart by everything but its own ids.
fn stored(world: &World) -> Vec<String> {
    let live = ["running", "idle", "think"];
    world.shown().into_iter().filter(|line| !live.iter().any(|start| line.starts_with(start))).collect()
}

fn ended(state: &State, world: &World) -> bool {
    state.items(&world.conversation).last().is_some_and(|item| item["content"][0]["text"] == "end")
}

#[test]
fn kills_at_any_moment_lose_nothing_and_repeat_at_most_the_item_in_doubt() {
    for seed in 0..SEEDS {
        let version = if seed % 2 == 0 { Version::V19 } else { Version::V20 };
        let world = World::new();
        let mut play = Play::begin(&world, version);
        let (mut random, mut moments) = (Random::new(seed), Random::new(seed + 1_000));
        let mut mirror = world.attach();
        let mut kills = 0;
        for n in 0..STEPS {
            if moments.below(3) == 0 {
                // Somewhere within what the next moments bring.
                let more = world.sink.requests().len() + below(&mut moments, 12);
                let _ = world
                    .sink
                    .wait_until(|state| state.requests.len() > more, std::time::Duration::from_millis(100));
                mirror.kill();
                kills += 1;
                mirror = world.attach();
            }
            play.step(n, &mut random);
        }
        play.turn("the", "end");
        assert!(
            world.sink.wait_until(|state| ended(state, &world), PATIENCE),
            "{seed}: {:?}",
            stored(&world)
        );
        mirror.stop();
        let mut stored = stored(&world);
        let doubled = stored.len();
        stored.dedup();
        assert_eq!(stored, play.expected, "seed {seed}");
        assert!(doubled - stored.len() <= kills, "seed {seed}: {doubled} stored after {kills} kills");
    }
}
