//! What should never happen, and must do no harm when it does.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::fault::Fault;
use support::hermes_db::{HermesDb, Message, Version, now};
use support::mirror::{PATIENCE, World, write};

const FIRST: [&str; 4] = ["1 user: one", "running 1", "1 agent: first", "idle 1"];

#[test]
fn times_that_are_no_numbers_hold_nothing_up() {
    let world = World::new();
    let mut db = world.hermes();
    let mut expected = Vec::new();
    // More than may go unwritten.
    for (at, time) in ["nan", "inf", "-inf", "yesterday"].iter().cycle().take(12).enumerate() {
        let id = db.append("s", &Message::user(&format!("q{at}")));
        db.conn.execute("UPDATE messages SET timestamp = ?2 WHERE id = ?1", (id, time)).unwrap();
        // The next message settles the turn before it.
        expected.extend([format!("{id} user: q{at}"), format!("running {id}"), format!("idle {id}")]);
    }
    expected.pop();
    db.conn.execute("UPDATE messages SET timestamp = 9e999 WHERE id = 12", []).unwrap();
    let mirror = world.attach();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    world.expect_all(mirror, &expected);
}

#[test]
fn counters_that_overflow_do_not_end_the_reader() {
    let world = World::new();
    let mut db = world.hermes();
    db.count_tokens("s", i64::MAX, i64::MAX, i64::MAX);
    db.conn.execute("UPDATE sessions SET cache_write_tokens = ?1", [i64::MAX]).unwrap();
    db.turn("s", "one", "first");
    let mirror = world.attach();
    world.expect(&FIRST);
    let log = mirror.stop();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_pipe_in_the_database_s_place_is_not_waited_for() {
    let world = World::new();
    let made = Command::new("mkfifo").arg(world.db_path()).status().unwrap();
    assert!(made.success());
    let mirror = world.attach();
    mirror.wait_for_log("not a file");
    fs::remove_file(world.db_path()).unwrap();
    let mut db = world.hermes();
    db.turn("s", "one", "first");
    world.expect_all(mirror, &FIRST);
}

#[test]
fn a_database_behind_a_link_is_watched_where_it_is() {
    let world = World::new();
    // No timer would find the commit in time.
    world.configure("[detect]\nfallback_poll_ms = 60000\n");
    let elsewhere = world.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut db = HermesDb::create_as(&elsewhere.join("real.db"), Version::V19);
    db.session("s", Some(&world.workspace()));
    symlink(elsewhere.join("real.db"), world.db_path()).unwrap();
    let mirror = world.attach();
    mirror.wait_for_log("mirroring");
    db.turn("s", "one", "first");
    world.expect_all(mirror, &FIRST);
}

#[test]
fn a_backlog_of_large_rows_waits_in_the_database_and_not_in_memory() {
    let world = World::new();
    world.configure("[transform]\nmax_output_chars = 256\n");
    let mut db = world.hermes();
    db.append("s", &Message::user("q"));
    for n in 0..32 {
        db.append("s", &Message::result(&format!("c{n}"), &"x".repeat(6_000_000)));
    }
    world.sink.script(|_| Fault::Status(503));
    let mirror = world.attach();
    // By the time it has tried so often, it has read as much as it will.
    assert!(world.sink.wait_until(|state| state.requests.len() >= 25, PATIENCE));
    world.sink.heal();
    let all = |state: &support::sink::State| state.items(&world.conversation).len() == 33;
    assert!(world.sink.wait_until(all, PATIENCE));
    let peak = mirror.peak_memory_kb();
    assert!(peak < 100_000, "{peak} kB for 33 rows of 6 MB");
    mirror.stop();
}

#[test]
fn rows_that_waited_while_the_session_was_a_sibling_s_are_shown_once() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "one", "first");
    let mirror = world.attach();
    world.expect(&FIRST);
    world.sink.script(|_| Fault::Status(503));
    db.turn("s", "two", "second");
    mirror.wait_for_log("trying again, nothing is lost");
    let claim = world.bridge("python").join("hermes_forwarder.json");
    let theirs = |heartbeat_ms: f64| {
        let launch = world.launch - 1.0;
        format!(
            r#"{{"hermes_session_id": "s", "last_id": 0, "launch_epoch_s": {launch}, "heartbeat_ms": {heartbeat_ms:.0}}}"#
        )
    };
    write(&claim, &theirs(now() * 1_000.0));
    mirror.wait_for_log("leaving it to that one");
    write(&claim, &theirs(0.0));
    world.sink.heal();
    db.turn("s", "three", "third");
    let more = ["3 user: two", "running 3", "3 agent: second", "idle 3"];
    let last = ["5 user: three", "running 5", "5 agent: third", "idle 5"];
    world.expect_all(mirror, &[&FIRST[..], &more, &last].concat());
}

#[test]
fn a_log_that_nobody_reads_holds_up_neither_delivery_nor_the_end() {
    let world = World::new();
    let mut db = world.hermes();
    let mut command = world.attachment("a", &world.conversation, world.launch);
    let mut mirror = command.env("RUST_LOG", "trace").stderr(Stdio::piped()).spawn().unwrap();
    // Each turn logs some kB; a pipe holds 64.
    for n in 0..60 {
        db.turn("s", &format!("q{n}"), "a");
    }
    let all = |state: &support::sink::State| state.items(&world.conversation).len() == 120;
    let delivered = world.sink.wait_until(all, PATIENCE);
    let asked = Command::new("kill").args(["-TERM", &mirror.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let ended = (0..PATIENCE.as_millis() / 10).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        mirror.try_wait().unwrap()
    });
    // Before anything is asserted: a failing test leaves no process behind.
    mirror.kill().unwrap();
    mirror.wait().unwrap();
    assert!(delivered, "delivery stands still");
    assert_eq!(ended.and_then(|status| status.code()), Some(0), "did not end");
}
