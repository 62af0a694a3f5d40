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
}

const STEPS: u64 = 40;

impl Play {
    fn begin(world: &World, version: Version) -> Self {
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        Self { db, session: "s".to_owned(), forks: 0 }
    }

    fn step(&mut self, n: u64, random: &mut Random) {
        let session = self.session.clone();
        let kept = Kept { head: below(random, 2), tail: below(random, 4) };
        let summary = format!("sum {n}");
        let summary = if kept.tail > 0 && random.below(3) == 0 {
            Summary::Merged(&summary)
        } else {
            Summary::Row(&summary)
        };
        match random.below(8) {
            0 => self.db.compact_in_place(&session, kept, summary),
            1 => {
                self.forks += 1;
                let child = format!("c{}", self.forks);
                self.db.compact_by_fork(&session, &child, kept, summary);
                self.session = child;
            }
            2 | 3 => {
                self.db.append(&session, &Message::user(&format!("look {n}")));
                let (a, b) = (format!("a{n}"), format!("b{n}"));
                self.db.append(
                    &session,
                    &Message::tools("hm", &[(&a, "terminal", "{}"), (&b, "terminal", "{}")]),
                );
                if random.below(3) == 0 {
                    self.db.compact_in_place(
                        &session,
                        Kept { head: 0, tail: 2 },
                        Summary::Row(&format!("mid {n}")),
                    );
                }
                self.db.append_all(&session, &[Message::result(&a, "ok"), Message::result(&b, "ok")]);
                self.db.append(&session, &Message::answer("done"));
            }
            // The same words each time.
            4 => self.db.turn(&session, "go on", "gone on"),
            _ => self.db.turn(&session, &format!("q {n}"), &format!("a {n}")),
        }
    }
}

fn below(random: &mut Random, n: u64) -> usize {
    usize::try_from(random.below(n)).unwrap()
}

/// What the server stores, told apart by everything but its own ids.
fn stored(world: &World) -> Vec<String> {
    let live = ["running", "idle", "think"];
    world.shown().into_iter().filter(|line| !live.iter().any(|start| line.starts_with(start))).collect()
}

/// Each compaction has its one boundary, in order; those without anything between them are told apart by their words.
fn check_boundaries(stored: &[String]) {
    let mut boundaries: Vec<&String> = stored.iter().filter(|line| line.starts_with("compaction")).collect();
    let all = boundaries.len();
    boundaries.sort();
    boundaries.dedup();
    assert_eq!(boundaries.len(), all, "{stored:?}");
}

/// What a mirror stores that is never killed and sees all of it at once.
fn expected(version: Version, seed: u64) -> Vec<String> {
    let world = World::new();
    let mut play = Play::begin(&world, version);
    let mut random = Random::new(seed);
    for n in 0..STEPS {
        play.step(n, &mut random);
    }
    play.db.turn(&play.session.clone(), "the", "end");
    let mirror = world.attach();
    assert!(world.sink.wait_until(|state| ended(state, &world), PATIENCE), "{:?}", stored(&world));
    mirror.stop();
    let stored = stored(&world);
    check_boundaries(&stored);
    stored
}

fn ended(state: &State, world: &World) -> bool {
    state.items(&world.conversation).last().is_some_and(|item| item["content"][0]["text"] == "end")
}

#[test]
fn kills_at_any_moment_lose_nothing_and_repeat_at_most_the_item_in_doubt() {
    for seed in 0..12 {
        let version = if seed % 2 == 0 { Version::V19 } else { Version::V20 };
        let expected = expected(version, seed);
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
        play.db.turn(&play.session.clone(), "the", "end");
        assert!(
            world.sink.wait_until(|state| ended(state, &world), PATIENCE),
            "{seed}: {:?}",
            stored(&world)
        );
        mirror.stop();
        let mut stored = stored(&world);
        let doubled = stored.len();
        stored.dedup();
        assert_eq!(stored, expected, "seed {seed}");
        assert!(doubled - stored.len() <= kills, "seed {seed}: {doubled} stored after {kills} kills");
    }
}
