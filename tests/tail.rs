//! A session's items on the terminal: what a mirror would send, and nothing is written anywhere.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use support::hermes_db::{Kept, Message, Summary};
use support::mirror::{World, write};

/// A running `tail`; killed when dropped.
struct Tail {
    child: Child,
    /// None once nobody reads any more.
    lines: Option<BufReader<ChildStdout>>,
}

impl Tail {
    fn start(world: &World, arguments: &[&str]) -> Self {
        let mut command = world.command();
        command.env("RUST_LOG", "error").arg("tail").arg("--db").arg(world.db_path()).args(arguments);
        command.current_dir(world.workspace());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines }
    }

    /// The next line, waited for.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    fn object(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_session_is_shown_from_its_start_and_then_as_it_goes_on() {
    let world = World::new();
    let mut db = world.hermes();
    db.append("s", &Message::user("look"));
    db.append("s", &Message::tools("let me", &[("c1", "terminal", r#"{"a": 1}"#)]).thinking("a file"));
    let mut tail = Tail::start(&world, &[]);
    for expected in [
        "      1  user        look",
        "      2  thinks      a file",
        "      2  assistant   let me",
        "      2  call        terminal {\"a\": 1}",
    ] {
        assert_eq!(tail.line(), expected);
    }
    db.append("s", &Message::result("c1", "one\ntwo \u{1b}[2J"));
    assert_eq!(tail.line(), "      3  output      one\\ntwo \\u{1b}[2J");
    db.append("s", &Message::answer(&"ä".repeat(1_000)));
    assert_eq!(tail.line(), format!("      4  assistant   {}…", "ä".repeat(400)));
    tail.stop();
    let left: Vec<_> = std::fs::read_dir(world.path("home")).unwrap().collect();
    assert!(left.is_empty(), "it writes no state: {left:?}");
    assert!(world.sink.requests().is_empty(), "it asks no server");
}

#[test]
fn items_are_objects_whole_and_masked_and_none_is_shown_twice() {
    let world = World::new();
    let mut db = world.hermes();
    db.session("other", None);
    db.turn("other", "of another session", "a");
    let long = "x".repeat(1_000);
    db.append("s", &Message::user(&format!("{long} ghp_0123456789abcdefghijABCDEFGHIJ012345 \u{9b}")));
    db.append("s", &Message::answer("a"));
    let mut tail = Tail::start(&world, &["--json", "--session", "s"]);
    let first = tail.line();
    assert!(first.contains("\\u009b"), "{first}");
    let text = format!("{long} ghp_[masked] \u{9b}");
    assert_eq!(
        serde_json::from_str::<Value>(&first).unwrap(),
        json!({"session": "s", "turn": "hermes_turn_3",
        "row": 3, "place": 1, "kind": "user", "text": text, "images": [], "meta": false})
    );
    let answer = tail.object();
    assert_eq!((&answer["kind"], &answer["turn"]), (&"assistant".into(), &"hermes_turn_3".into()));
    db.compact_in_place("s", Kept { head: 1, tail: 1 }, Summary::Row("all of it"));
    let boundary = tail.object();
    assert_eq!((&boundary["kind"], &boundary["summary"]), (&"compaction".into(), &"all of it".into()));
    db.append("s", &Message::user("next"));
    assert_eq!(tail.object()["text"], "next");
    tail.stop();
}

#[test]
fn who_reads_no_further_ends_it() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    let mut tail = Tail::start(&world, &[]);
    tail.line();
    tail.lines = None;
    db.turn("s", "q", "a");
    assert_eq!(tail.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_settings_of_the_file_hold_here_too() {
    let world = World::new();
    write(
        &world.path("t.toml"),
        "[transform]\nreasoning = false\n[transform.egress]\npatterns = ['EMP-\\d+']\n",
    );
    let mut db = world.hermes();
    db.append("s", &Message::user("EMP-7"));
    db.append("s", &Message::answer("a").thinking("unsaid"));
    let config = world.path("t.toml");
    let mut tail = Tail::start(&world, &["--config", config.to_str().unwrap()]);
    assert_eq!(tail.line(), "      1  user        [masked]");
    assert_eq!(tail.line(), "      2  assistant   a");
    tail.stop();
}
