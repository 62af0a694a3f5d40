//! Where a mirror begins, and what is said while much of what was there is delivered.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use support::hermes_db::{HermesDb, Message};
use support::mirror::{Mirror, PATIENCE, World};
use support::sink::State;

fn run(world: &World, arguments: &[&str], history: &str) -> Mirror {
    let mirror = format!("[[mirror]]\nconversation = '{}'\nsession = 's'\n{history}\n", world.conversation);
    world.run(arguments, &mirror)
}

fn texts(state: &State, world: &World) -> Vec<String> {
    let items = state.items(&world.conversation).iter();
    items.filter_map(|item| item["content"][0]["text"].as_str().map(str::to_owned)).collect()
}

/// A closed turn, and one that waits for its tool.
fn amid_a_turn(world: &World) -> HermesDb {
    let mut db = world.hermes();
    db.turn("s", "q1", "a1");
    db.append("s", &Message::user("q2"));
    db.append("s", &Message::tools("look", &[("c", "terminal", "{}")]));
    db
}

#[test]
fn a_mirror_begins_where_it_is_told_to_and_a_restart_changes_nothing_of_that() {
    for (history, expected) in [
        ("", &["q1", "a1", "q2", "look", "a2", "q3", "a3"][..]),
        ("history = 'all'", &["q1", "a1", "q2", "look", "a2", "q3", "a3"]),
        ("history = 'open-turn'", &["q2", "look", "a2", "q3", "a3"]),
        ("history = 1", &["q2", "look", "a2", "q3", "a3"]),
        ("history = 3", &["q1", "a1", "q2", "look", "a2", "q3", "a3"]),
        ("history = 'none'", &["a2", "q3", "a3"]),
    ] {
        let world = World::new();
        let mut db = amid_a_turn(&world);
        let mirror = run(&world, &[], history);
        mirror.wait_for_log("mirroring");
        mirror.stop();
        db.append("s", &Message::result("c", "ok"));
        db.append("s", &Message::answer("a2"));
        let mirror = run(&world, &[], history);
        db.turn("s", "q3", "a3");
        let complete = |state: &State| texts(state, &world).last().is_some_and(|text| text == "a3");
        assert!(world.sink.wait_until(complete, PATIENCE), "{history}");
        mirror.stop();
        world.sink.see(|state| assert_eq!(texts(state, &world), expected, "{history}"));
    }
}

#[test]
fn with_nothing_open_an_open_turn_is_as_none() {
    for history in ["history = 'open-turn'", "history = 'none'"] {
        let world = World::new();
        let mut db = world.hermes();
        db.turn("s", "q1", "a1");
        let mirror = run(&world, &[], history);
        mirror.wait_for_log("mirroring");
        db.turn("s", "q2", "a2");
        world.expect_all(mirror, &["running 3", "3 user: q2", "3 agent: a2", "idle 3"]);
    }
}

#[test]
fn a_long_backlog_says_how_far_it_is_may_be_interrupted_and_goes_on_there() {
    let world = World::new();
    let mut db = world.hermes();
    let rows: Vec<_> =
        (0..600).flat_map(|n| [Message::user(&format!("q{n}")), Message::answer("a")]).collect();
    db.append_all("s", &rows);
    let mirror = run(&world, &["--once"], "");
    mirror.wait_for_log("delivering what was there: ");
    mirror.kill();
    let (code, log) = run(&world, &["--once"], "").wait();
    assert_eq!(code, Some(0), "{log}");
    world.sink.see(|state| assert_eq!(state.items(&world.conversation).len(), 1_200));
}
