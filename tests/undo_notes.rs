//! A note says that messages which are shown were taken back, where that is asked for.

#![allow(clippy::unwrap_used, reason = "what can't be set up can't be tested")]

mod support;

use support::acts::{KEPT, TWO_TURNS, then, two_turns};
use support::fault::Fault;
use support::hermes_db::{HermesDb, Summary, Version};
use support::mirror::{PATIENCE, World};

fn world() -> World {
    let world = World::new();
    world.configure("[turns]\nundo_note = true\n");
    world
}

const NOTE: &str = "4 meta: [2 messages were taken back in the terminal]";
const THIRD: [&str; 4] = ["5 user: three", "running 5", "5 agent: third", "idle 5"];

#[test]
fn an_undo_is_noted_once_and_before_what_follows_it() {
    for live in [true, false] {
        let world = world();
        let mut db = world.hermes();
        let mut mirror = Some(world.attach());
        two_turns(&mut db);
        world.expect(&TWO_TURNS);
        if !live {
            mirror.take().unwrap().stop();
        }
        db.undo("s", 3);
        db.turn("s", "three", "third");
        let expected = [&then(&[NOTE])[..], &THIRD].concat();
        world.expect_all(mirror.unwrap_or_else(|| world.attach()), &expected);
        world.expect_all(world.attach(), &expected);
        let items = world.sink.items(&world.conversation);
        assert_eq!(items[4]["is_meta"], true);
    }
}

#[test]
fn each_undo_speaks_of_its_own_messages_also_after_restarts() {
    for restarted in [false, true] {
        let world = world();
        let mut db = world.hermes();
        let mut mirror = world.attach();
        let mut expected = TWO_TURNS.to_vec();
        two_turns(&mut db);
        world.expect(&expected);
        db.undo("s", 3);
        expected.push(NOTE);
        world.expect(&expected);
        if restarted {
            mirror.stop();
            mirror = world.attach();
        }
        db.turn("s", "three", "third");
        expected.extend(THIRD);
        world.expect(&expected);
        if restarted {
            mirror.stop();
            mirror = world.attach();
        }
        // Two turns: the third, and of the first two what is left.
        db.undo("s", 1);
        expected.push("6 meta: [4 messages were taken back in the terminal]");
        world.expect_all(mirror, &expected);
        world.expect_all(world.attach(), &expected);
    }
}

#[test]
fn a_note_that_arrived_though_its_answer_was_lost_is_not_sent_again() {
    for killed in [false, true] {
        let world = world();
        let mut db = world.hermes();
        let mirror = world.attach();
        two_turns(&mut db);
        world.expect(&TWO_TURNS);
        let is_note = |body: &[u8]| String::from_utf8_lossy(body).contains("taken back in the terminal");
        let mut first = true;
        world.sink.script(move |request| {
            let strikes = is_note(&request.body) && std::mem::take(&mut first);
            if strikes && killed {
                Fault::StallAfterCommit
            } else if strikes {
                Fault::ResetAfterCommit
            } else {
                Fault::None
            }
        });
        db.undo("s", 3);
        let stored = |state: &support::sink::State| state.requests.iter().any(|r| is_note(&r.body));
        assert!(world.sink.wait_until(stored, PATIENCE));
        let mirror = if killed {
            mirror.kill();
            db.turn("s", "three", "third");
            world.attach()
        } else {
            db.turn("s", "three", "third");
            mirror
        };
        world.expect_all(mirror, &[&then(&[NOTE])[..], &THIRD].concat());
    }
}

#[test]
fn a_note_that_is_refused_is_a_dead_letter_and_not_tried_again() {
    let world = world();
    let mut db = world.hermes();
    let mirror = world.attach();
    two_turns(&mut db);
    world.expect(&TWO_TURNS);
    let is_note = |body: &[u8]| String::from_utf8_lossy(body).contains("taken back in the terminal");
    world.sink.script(move |request| if is_note(&request.body) { Fault::Status(422) } else { Fault::None });
    db.undo("s", 3);
    mirror.wait_for_log("set aside as a dead letter");
    mirror.stop();
    let tries = || world.sink.requests().iter().filter(|request| is_note(&request.body)).count();
    assert_eq!(tries(), 1);
    for _ in 0..2 {
        let mirror = world.attach();
        mirror.wait_for_log("mirroring");
        mirror.stop();
    }
    db.turn("s", "three", "third");
    world.expect_all(world.attach(), &[&TWO_TURNS[..], &THIRD].concat());
    assert_eq!(tries(), 1);
}

#[test]
fn neither_a_compaction_nor_an_edit_is_an_undo() {
    for version in [Version::V18, Version::V19, Version::V20] {
        let world = world();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        let mirror = world.attach();
        two_turns(&mut db);
        world.expect(&TWO_TURNS);
        db.compact_in_place("s", KEPT, Summary::Row("sum"));
        db.edit("s", 2);
        db.turn("s", "three", "third");
        let end = ["compaction: sum", "11 user: three", "running 11", "11 agent: third", "idle 11"];
        world.expect_all(mirror, &then(&end));
        // And the other way round: an undo behind an edit speaks of what the edit left.
        let mirror = world.attach();
        db.undo("s", 11);
        let mut expected = then(&end);
        expected.push("12 meta: [2 messages were taken back in the terminal]");
        world.expect_all(mirror, &expected);
    }
}

#[test]
fn what_was_taken_back_before_it_was_shown_is_not_noted() {
    let world = world();
    let mut db = world.hermes();
    two_turns(&mut db);
    db.undo("s", 3);
    world.expect_all(world.attach(), &TWO_TURNS[..4]);
}
