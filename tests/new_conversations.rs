//! A conversation that the mirror makes is made once, whatever fails meanwhile, and kept.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::time::Duration;

use support::fault::{Fault, Random};
use support::hermes_db::HermesDb;
use support::mirror::{Mirror, PATIENCE, World};
use support::shown::shown;
use support::sink::{Request, State};

const OF_WORKSPACE: &str = "[[mirror]]\nconversation = 'new'\nworkspace = '{work}'\n";
const TURN: [&str; 4] = ["running 1", "1 user: q", "1 agent: a", "idle 1"];
const NEXT: [&str; 4] = ["running 3", "3 user: q2", "3 agent: a2", "idle 3"];

fn run(world: &World) -> Mirror {
    world.run(&[], OF_WORKSPACE)
}

fn is_creation(request: &Request) -> bool {
    request.method == "POST" && request.path == "/v1/sessions"
}

/// The one conversation that was made, once it shows this much.
fn expect_one(world: &World, expected: &[&str]) -> String {
    let is_shown = |state: &State| {
        state.store.made().iter().any(|made| shown(state.events(made)).len() >= expected.len())
    };
    assert!(world.sink.wait_until(is_shown, PATIENCE), "{:?}", world.sink.requests());
    let made = world.sink.made();
    assert_eq!(made.len(), 1, "{made:?}");
    world.expect_in(&made[0], expected);
    made[0].clone()
}

/// A session with one turn, and the server's first answer to its creation struck with `fault`.
fn strike_creation(world: &World, fault: &Fault) -> HermesDb {
    let (fault, mut struck) = (fault.clone(), false);
    world.sink.script(move |request| {
        if is_creation(request) && !std::mem::replace(&mut struck, true) {
            fault.clone()
        } else {
            Fault::None
        }
    });
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    db
}

#[test]
fn a_conversation_is_made_with_its_session_and_kept_over_a_restart() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    let mirror = run(&world);
    mirror.wait_for_log("no session fits yet");
    assert!(world.sink.requests().is_empty(), "without a session nothing is made");
    db.session("s", Some(&world.workspace()));
    db.turn("s", "q", "a");
    let conversation = expect_one(&world, &TURN);
    mirror.stop();
    let mirror = run(&world);
    db.turn("s", "q2", "a2");
    world.expect_in(&conversation, &[&TURN[..], &NEXT].concat());
    mirror.stop();
    assert_eq!(world.sink.made(), [conversation]);
}

#[test]
fn an_answer_that_is_lost_makes_no_second_conversation() {
    let slow = Duration::from_millis(700);
    for fault in [
        Fault::Reset,
        Fault::ResetAfterCommit,
        Fault::HalfResponse,
        Fault::Status(503),
        Fault::Status(401),
        Fault::Status(400),
        Fault::StatusAfterCommit(502),
        Fault::RetryAfter(429, "0".to_owned()),
        Fault::Html,
        Fault::OtherJson,
        Fault::Redirect,
        Fault::Stall,
        Fault::StallAfterCommit,
        Fault::Slow(slow),
    ] {
        let world = World::new();
        world.configure("[deliver]\ntimeout_ms = 500\n");
        let _db = strike_creation(&world, &fault);
        let mirror = run(&world);
        expect_one(&world, &TURN);
        mirror.stop();
        assert_eq!(world.sink.made().len(), 1, "{fault:?}");
    }
}

#[test]
fn a_kill_amid_the_creation_makes_no_second_conversation() {
    for fault in [Fault::Stall, Fault::StallAfterCommit, Fault::Slow(Duration::from_millis(50))] {
        let world = World::new();
        let mut db = strike_creation(&world, &fault);
        let mirror = run(&world);
        assert!(world.sink.wait_until(|state| state.requests.iter().any(is_creation), PATIENCE));
        mirror.kill();
        // The session that was sighted is the one that is shown, though another one is the newest by now.
        db.session("later", Some(&world.workspace()));
        let mirror = run(&world);
        expect_one(&world, &TURN);
        mirror.stop();
        assert_eq!(world.sink.made().len(), 1, "{fault:?}");
    }
}

#[test]
fn kills_and_faults_at_any_moment_leave_one_conversation_that_shows_all() {
    for seed in 0..12 {
        let world = World::new();
        world.configure("[deliver]\ntimeout_ms = 200\ndrain_ms = 4000\n");
        world.sink.random_faults(seed, 250);
        let mut random = Random::new(seed + 100);
        let mut db = world.hermes();
        db.turn("s", "q", "a");
        for _ in 0..4 {
            let mirror = run(&world);
            let more = world.sink.requests().len() + usize::try_from(random.below(6)).unwrap();
            let reached = |state: &State| state.requests.len() > more;
            let _ = world.sink.wait_until(reached, Duration::from_millis(300));
            mirror.kill();
        }
        world.sink.heal();
        let mirror = run(&world);
        let stored = |state: &State| state.store.made().iter().any(|made| state.items(made).len() >= 2);
        assert!(world.sink.wait_until(stored, PATIENCE), "seed {seed}");
        mirror.stop();
        let made = world.sink.made();
        assert_eq!(made.len(), 1, "seed {seed}");
        assert_eq!(world.sink.items(&made[0]).len(), 2, "seed {seed}");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the mirror's state, while no mirror runs")]
fn a_conversation_whose_record_was_lost_is_found_again() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    let mirror = run(&world);
    let conversation = expect_one(&world, &TURN);
    mirror.stop();
    // Those of others are newer.
    for n in 0..5 {
        let session = format!("other {n}");
        db.session(&session, None);
        db.append(&session, &support::hermes_db::Message::user("x"));
    }
    let others =
        [0, 1, 2, 3, 4].map(|n| format!("[[mirror]]\nconversation = 'new'\nsession = 'other {n}'\n"));
    world.run(&["--once"], &others.concat()).wait();
    assert_eq!(world.sink.made().len(), 6);
    std::fs::remove_dir_all(world.path("state")).unwrap();
    db.turn("s", "q2", "a2");
    let mirror = run(&world);
    mirror.wait_for_log("found again");
    let stored = |state: &State| state.items(&conversation).len() >= 4;
    assert!(world.sink.wait_until(stored, PATIENCE));
    mirror.stop();
    let items = world.sink.items(&conversation);
    let said: Vec<_> = items.iter().map(|item| item["content"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(said, ["q", "a", "q2", "a2"]);
    assert_eq!(world.sink.made().len(), 6);
}

#[test]
fn a_terminal_that_goes_on_in_another_session_stays_in_its_conversation() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = run(&world);
    db.turn("s", "q", "a");
    let conversation = expect_one(&world, &TURN);
    db.end_session("s", "new_session");
    db.session("next", Some(&world.workspace()));
    db.turn("next", "q2", "a2");
    world.expect_in(&conversation, &[&TURN[..], &NEXT].concat());
    mirror.stop();
    assert_eq!(world.sink.made(), [conversation]);
}

#[test]
fn a_server_that_is_away_is_waited_for_and_each_mirror_has_a_conversation_of_its_own() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    world.sink.stop();
    for session in ["a", "b", "c"] {
        db.session(session, None);
        db.turn(session, session, "yes");
    }
    let mirrors =
        ["a", "b", "c"].map(|session| format!("[[mirror]]\nconversation = 'new'\nsession = '{session}'\n"));
    let mirror = world.run(&["--once"], &mirrors.concat());
    mirror.wait_for_log("trying again, nothing is lost");
    world.sink.restart();
    let (code, log) = mirror.wait();
    assert_eq!(code, Some(0), "{log}");
    let made = world.sink.made();
    let asked = |id: &String| world.sink.items(id)[0]["content"][0]["text"].as_str().unwrap().to_owned();
    let mut shown: Vec<String> = made.iter().map(asked).collect();
    shown.sort();
    assert_eq!(shown, ["a", "b", "c"]);
}
