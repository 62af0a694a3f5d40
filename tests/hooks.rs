//! Commands of the person's own: what they are told, and that nothing waits for them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]
#![allow(clippy::disallowed_methods, reason = "files of the tests' own")]

mod support;

use std::path::Path;
use std::time::Instant;

use support::fault::Fault;
use support::hermes_db::{Message, now};
use support::mirror::{Mirror, PATIENCE, World, write};

/// A hook that runs this script, written as a setting.
fn script(world: &World, hook: &str, text: &str) -> String {
    let path = world.path(&format!("{hook}.sh"));
    write(&path, text);
    format!("{hook} = ['sh', '{}']\n", path.display())
}

/// A script that writes down what it is told, one line a run.
fn notes(world: &World, hook: &str) -> String {
    let told = world.path(hook).display().to_string();
    script(world, hook, &format!("echo $(env | grep ^HERMES_MIRROR_ | sort) >> {told}\n"))
}

/// What was written down, once there are so many lines.
fn told(path: &Path, lines: usize) -> Vec<String> {
    let started = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.lines().count() >= lines {
            return text.lines().map(str::to_owned).collect();
        }
        assert!(started.elapsed() < PATIENCE, "never {lines} lines: {text}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn start(world: &World, hooks: &[String]) -> Mirror {
    world.configure(&format!("[hooks]\ntimeout_ms = 500\n{}", hooks.concat()));
    world.attach()
}

#[test]
fn commands_are_told_what_happened() {
    let world = World::new();
    let hooks = ["turn_end", "waiting", "degraded"].map(|hook| notes(&world, hook));
    let mut db = world.hermes();
    let mirror = start(&world, &hooks);
    db.append("s", &Message::user("q"));
    db.append("s", &Message::tools("", &[("c1", "clarify", r#"{"question": "which?"}"#)]));
    let conversation = &world.conversation;
    let about = |event: &str, rest: &str| {
        format!("HERMES_MIRROR_CONVERSATION={conversation} HERMES_MIRROR_EVENT={event} {rest}")
    };
    let turn = "HERMES_MIRROR_SESSION=s HERMES_MIRROR_TURN=hermes_turn_1";
    assert_eq!(told(&world.path("waiting"), 1), [about("waiting", turn)]);
    db.append("s", &Message::result("c1", "this one"));
    db.append("s", &Message::answer("a"));
    assert_eq!(told(&world.path("turn_end"), 1), [about("turn_end", turn)]);
    world.sink.script(|_| Fault::Status(503));
    db.append("s", &Message::user("again"));
    let reason = "HERMES_MIRROR_REASON=server away HERMES_MIRROR_SESSION=s";
    assert_eq!(told(&world.path("degraded"), 1), [about("degraded", reason)]);
    world.sink.heal();
    mirror.stop();
    assert_eq!(told(&world.path("waiting"), 1).len(), 1);
}

#[test]
fn a_command_that_hangs_delays_no_message_and_is_killed() {
    let world = World::new();
    let hook = script(&world, "turn_end", "exec sleep 600\n");
    let mut db = world.hermes();
    let mirror = start(&world, &[hook]);
    let mut turns = 0;
    while !mirror.log().contains("took longer than 500 ms and was killed") {
        db.turn("s", "q", "a");
        turns += 1;
        let enough = |state: &support::sink::State| state.items(&world.conversation).len() >= 2 * turns;
        assert!(world.sink.wait_until(enough, PATIENCE));
    }
    mirror.stop();
}

#[test]
fn one_runs_at_a_time_and_a_failure_is_said_once() {
    let world = World::new();
    let ran = world.path("ran").display().to_string();
    let lock = world.path("lock").display().to_string();
    let text = format!("mkdir {lock} || echo twice >> {ran}\necho once >> {ran}\nrmdir {lock}\nexit 7\n");
    let hook = script(&world, "turn_end", &text);
    let mut db = world.hermes();
    let mirror = start(&world, &[hook]);
    for turns in 1..=3 {
        db.turn("s", "q", "a");
        told(&world.path("ran"), turns);
    }
    mirror.wait_for_log("the command failed: exit status: 7; mirroring goes on");
    let log = mirror.stop();
    assert_eq!(log.matches("mirroring goes on").count(), 1, "{log}");
    assert!(!std::fs::read_to_string(world.path("ran")).unwrap().contains("twice"));
}

#[test]
fn a_command_that_cannot_be_run_is_said_and_what_is_old_is_no_news() {
    let world = World::new();
    let mut db = world.hermes();
    let long_ago = now() - 3_600.0;
    db.append("s", &Message { timestamp: Some(long_ago), ..Message::user("old") });
    db.append("s", &Message { timestamp: Some(long_ago), ..Message::answer("old") });
    let hooks = [notes(&world, "turn_end"), "waiting = ['/nonexistent/command']\n".to_owned()];
    let mirror = start(&world, &hooks);
    let shown = |state: &support::sink::State| state.items(&world.conversation).len() >= 2;
    assert!(world.sink.wait_until(shown, PATIENCE));
    db.append("s", &Message::user("q"));
    db.append("s", &Message::tools("", &[("c1", "clarify", "{}")]));
    mirror.wait_for_log("the command cannot be run");
    db.append("s", &Message::result("c1", "this one"));
    db.append("s", &Message::answer("a"));
    let lines = told(&world.path("turn_end"), 1);
    assert!(lines.len() == 1 && lines[0].ends_with("hermes_turn_3"), "{lines:?}");
    mirror.stop();
}
