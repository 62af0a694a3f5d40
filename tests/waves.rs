//! Whole transcripts that something appends again and again.

#![allow(clippy::unwrap_used, reason = "what can't be set up can't be tested")]

mod support;

use support::hermes_db::HermesDb;
use support::mirror::World;

/// What the log says of it.
const WARNING: &str = "repeat earlier ones in their order";
/// Turns of a transcript that is long enough.
const TURNS: i64 = 20;

/// Writes a transcript, then appends it two times more, and returns what is shown of the first.
fn play(db: &mut HermesDb, keeps_times: bool) -> Vec<String> {
    for turn in 0..TURNS {
        db.turn("s", &format!("question {turn}"), &format!("answer {turn}"));
    }
    let mut transcript = db.live("s");
    for message in transcript.iter_mut().filter(|_| !keeps_times) {
        message.timestamp = None;
    }
    for _ in 0..2 {
        db.append_all("s", &transcript);
    }
    shown(1)
}

/// What is shown of a transcript whose first row is this.
fn shown(first: i64) -> Vec<String> {
    let turn = |n: i64| {
        let opener = first + 2 * n;
        [
            format!("{opener} user: question {n}"),
            format!("running {opener}"),
            format!("{opener} agent: answer {n}"),
            format!("idle {opener}"),
        ]
    };
    (0..TURNS).flat_map(turn).collect()
}

fn check(keeps_times: bool) {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    let mut expected = play(&mut db, keeps_times);
    if !keeps_times {
        expected.extend(shown(1 + 2 * TURNS));
        expected.extend(shown(1 + 4 * TURNS));
    }
    db.turn("s", "now", "then");
    let opener = 1 + 6 * TURNS;
    for line in ["@ user: now", "running @", "@ agent: then", "idle @"] {
        expected.push(line.replace('@', &opener.to_string()));
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    world.expect(&expected);
    let log = mirror.stop();
    assert_eq!(log.matches(WARNING).count(), 1, "{log}");
}

#[test]
fn a_transcript_that_is_appended_again_with_its_times_is_not_shown_again_and_is_warned_of_once() {
    check(true);
}

#[test]
fn a_transcript_that_is_appended_again_with_new_times_is_shown_and_warned_of_once() {
    check(false);
}
