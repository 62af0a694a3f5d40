//! `demo`: it works with nothing but the program, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]
#![allow(clippy::disallowed_methods, reason = "directories of the test's own")]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A machine with nothing on it: an empty HOME and an empty directory for temporary files.
struct Bare(TempDir);

impl Bare {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home", "tmp"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self(directory)
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermes-mirror"));
        let at = |name: &str| self.0.path().join(name);
        command.env_clear().env("HOME", at("home")).env("TMPDIR", at("tmp")).arg("demo").args(arguments);
        command.current_dir(at("home")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn is_bare(&self) -> bool {
        ["home", "tmp"]
            .iter()
            .all(|name| std::fs::read_dir(self.0.path().join(name)).unwrap().next().is_none())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn ended(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn three_turns_are_shown_once_each_and_nothing_is_left_behind() {
    let bare = Bare::new();
    let output = bare.demo(&["--turns", "3", "--fast"]).output().unwrap();
    ended(&output, 0);
    let said = text(&output.stdout);
    assert!(said.starts_with("http://127.0.0.1:"), "{said}");
    for kind in ["user", "reasoning", "agent", "tool call", "tool output", "compaction"] {
        assert!(said.lines().any(|line| line.contains(&format!(" ms  {kind} "))), "{kind} is not in\n{said}");
    }
    assert!(said.contains("/undo\n"), "{said}");
    let row = |name: &str| {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(
        (row("messages"), row("duplicates"), row("compactions")),
        ("20/20".into(), "0".into(), "1".into())
    );
    assert!(!said.contains('\u{1b}'), "no colour where there is no terminal");
    assert_eq!(text(&output.stderr), "");
    assert!(bare.is_bare());
}

#[test]
fn the_summary_as_json_says_where_polling_goes_wrong() {
    let bare = Bare::new();
    let output = bare.demo(&["--turns", "3", "--fast", "--json"]).output().unwrap();
    ended(&output, 0);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |pointer: &str| summary.pointer(pointer).and_then(Value::as_u64).unwrap();
    assert_eq!((count("/messages"), count("/mirror/shown"), count("/mirror/missing")), (20, 20, 0));
    assert_eq!((count("/mirror/duplicates"), count("/boundaries")), (0, 1));
    assert_eq!((&summary["complete"], &summary["stopped"]), (&Value::Bool(true), &Value::Bool(false)));
    // What the compaction wrote again, it shows again, and the summary as an answer.
    assert_eq!((count("/polling/shown"), count("/polling_summaries")), (20, 1));
    assert!(count("/polling/duplicates") > 0);
}

#[test]
fn an_interrupt_ends_it_well_and_sweeps_up() {
    let bare = Bare::new();
    let mut child = bare.demo(&[]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains(" ms  user") {
        assert!(lines.read_line(&mut said).unwrap() > 0, "it ended early: {said}");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    lines.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("stopped before its end"), "{said}");
    assert!(bare.is_bare());
}

#[test]
fn a_port_that_is_taken_is_said_and_nothing_is_left_behind() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let bare = Bare::new();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = bare.demo(&["--port", &port]).output().unwrap();
    ended(&output, 1);
    let said = text(&output.stderr);
    assert!(said.contains("cannot listen on 127.0.0.1") && said.contains("help: "), "{said}");
    assert!(bare.is_bare());
    ended(&bare.demo(&["--turns", "0"]).output().unwrap(), 2);
}

#[test]
fn a_reader_that_went_away_does_not_stop_it() {
    let bare = Bare::new();
    let mut child = bare.demo(&["--turns", "1", "--fast"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(bare.is_bare());
}
