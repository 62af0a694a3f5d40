//! How a mirror ends: by itself once all is delivered, or within its deadline when it is told to.

mod support;

use support::fault::Fault;
use support::mirror::{PATIENCE, World};

const TURN: [&str; 4] = ["1 user: q", "running 1", "1 agent: a", "idle 1"];

fn mirror_of(world: &World) -> String {
    format!("[[mirror]]\nconversation = '{}'\nsession = 's'\n", world.conversation)
}

#[test]
fn once_delivers_what_is_there_and_exits_well() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    let (code, log) = world.run(&["--once"], &mirror_of(&world)).wait();
    assert_eq!((code, log.contains("panicked")), (Some(0), false), "{log}");
    assert_eq!(world.shown(), TURN);
}

#[test]
fn once_without_a_session_says_so_and_exits_well() {
    let world = World::new();
    let (code, log) = world.run(&["--once"], &mirror_of(&world)).wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("1 of 1 mirrors found no session"), "{log}");
}

#[test]
fn once_waits_for_a_server_that_is_away_and_obeys_a_signal() {
    let world = World::new();
    world.configure("[deliver]\ndrain_ms = 100\n");
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    world.sink.stop();
    let mirror = world.run(&["--once"], &mirror_of(&world));
    mirror.wait_for_log("trying again, nothing is lost");
    let log = mirror.stop();
    assert!(log.contains("stopped before everything was delivered"), "{log}");
    assert!(!log.contains("found no session"), "{log}");
    world.sink.restart();
    let mirror = world.run(&["--once"], &mirror_of(&world));
    assert_eq!(mirror.wait().0, Some(0));
    assert_eq!(world.shown(), TURN);
}

#[test]
fn a_signal_ends_a_mirror_whose_server_is_away_within_its_deadline() {
    let world = World::new();
    world.configure("[deliver]\ndrain_ms = 100\n");
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    world.sink.stop();
    let mirror = world.attach();
    mirror.wait_for_log("trying again, nothing is lost");
    let log = mirror.stop();
    assert!(
        log.contains("stopped before everything was delivered; the rest follows at the next start"),
        "{log}"
    );
    world.sink.restart();
    world.expect_all(world.attach(), &TURN);
}

#[test]
fn a_signal_ends_a_mirror_that_has_found_nothing_yet() {
    let world = World::new();
    let mirror = world.attach();
    mirror.wait_for_log("waiting for Hermes to create it");
    mirror.stop();
}

#[test]
fn a_signal_lets_a_backlog_drain_and_a_restart_doubles_nothing() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    for n in 0..100 {
        db.turn("s", &format!("q{n}"), &format!("a{n}"));
        if n == 50 {
            let some = |state: &support::sink::State| !state.events(&world.conversation).is_empty();
            assert!(world.sink.wait_until(some, PATIENCE));
            mirror.terminate();
        }
    }
    let (code, log) = mirror.wait();
    assert_eq!(code, Some(0), "{log}");
    let expected: Vec<String> = (0..100)
        .flat_map(|n| {
            let id = 2 * n + 1;
            [
                format!("{id} user: q{n}"),
                format!("running {id}"),
                format!("{id} agent: a{n}"),
                format!("idle {id}"),
            ]
        })
        .collect();
    world.expect_all(world.attach(), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_signal_during_a_slow_answer_waits_for_it() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    world.sink.script(|_| Fault::Slow(std::time::Duration::from_millis(100)));
    let mirror = world.attach();
    let begun =
        |state: &support::sink::State| support::shown::shown(state.events(&world.conversation)).len() >= 2;
    assert!(world.sink.wait_until(begun, PATIENCE));
    mirror.stop();
    world.sink.heal();
    world.expect_all(world.attach(), &TURN);
}
