//! What was reported of stored sessions: rows that come back or come twice, bytes that are no text, a database that
//! changes without saying so, children of several kinds.

#![allow(clippy::unwrap_used, reason = "what can't be set up can't be tested")]
#![allow(clippy::disallowed_methods, reason = "gives a database a second name, whose writer needs no log")]

mod support;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use rusqlite::types::Value;
use support::acts::{KEPT, then, two_turns};
use support::hermes_db::{HermesDb, Kept, Message, Summary, Version, now};
use support::mirror::{PATIENCE, World};

/// The lines of a plain turn.
fn lines(opener: i64, asked: &str, answer: &str) -> Vec<String> {
    let say = |what: &str| what.replace('@', &opener.to_string());
    vec![
        say(&format!("@ user: {asked}")),
        say("running @"),
        say(&format!("@ agent: {answer}")),
        say("idle @"),
    ]
}

fn borrowed(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

#[test]
fn a1_of_fifty_rows_that_a_compaction_archives_the_ten_it_inserts_again_are_not_shown_again() {
    for version in [Version::V19, Version::V20] {
        let world = World::new();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        let mirror = world.attach();
        let mut expected = Vec::new();
        for (n, opener) in (0..25).zip((1..).step_by(2)) {
            db.turn("s", &format!("q{n}"), &format!("a{n}"));
            expected.extend(lines(opener, &format!("q{n}"), &format!("a{n}")));
        }
        world.expect(&borrowed(&expected));
        db.compact_in_place("s", Kept { head: 0, tail: 10 }, Summary::Row("sum"));
        expected.push("compaction: sum".to_owned());
        world.expect(&borrowed(&expected));
        db.turn("s", "q24", "a24");
        expected.extend(lines(62, "q24", "a24"));
        world.expect_all(mirror, &borrowed(&expected));
    }
}

#[test]
fn a6_the_same_words_typed_twice_within_a_moment_are_two_messages() {
    for late in [false, true] {
        let world = World::new();
        let mut db = world.hermes();
        let mirror = (!late).then(|| world.attach());
        let at = now();
        db.append("s", &Message { timestamp: Some(at), ..Message::user("go on") });
        db.append("s", &Message { timestamp: Some(at + 0.3), ..Message::user("go on") });
        db.append("s", &Message::answer("done"));
        let expected = [
            "1 user: go on",
            "running 1",
            "idle 1", //
            "2 user: go on",
            "running 2",
            "2 agent: done",
            "idle 2",
        ];
        world.expect_all(mirror.unwrap_or_else(|| world.attach()), &expected);
    }
}

#[test]
fn c7_a_watch_that_stays_silent_is_named_and_the_poll_serves() {
    let world = World::new();
    world.configure("[detect]\npoll_ms = 50\nrelease_after_ms = 60000\n");
    let mut db = HermesDb::open(&world.db_path(), Version::V19, "DELETE");
    db.create_tables();
    db.session("s", Some(&world.workspace()));
    db.turn("s", "one", "first");
    drop(db);
    let mirror = world.attach();
    let mut expected = lines(1, "one", "first");
    world.expect(&borrowed(&expected));
    // The same file by another name: what is written through it raises no event where the mirror watches.
    let elsewhere = world.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::hard_link(world.db_path(), elsewhere.join("state.db")).unwrap();
    let mut db = HermesDb::reopen(&elsewhere.join("state.db"), Version::V19);
    for opener in (3..11).step_by(2) {
        db.turn("s", "again", "more");
        expected.extend(lines(opener, "again", "more"));
        world.expect(&borrowed(&expected));
    }
    mirror.wait_for_log("changes arrive without file-system events");
    world.expect_all(mirror, &borrowed(&expected));
}

#[test]
fn c8_a_commit_that_leaves_size_and_time_of_every_file_as_they_were_is_seen() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    let mut expected = lines(1, "one", "first");
    world.expect(&borrowed(&expected));
    db.conn.execute_batch("PRAGMA wal_checkpoint(RESTART)").unwrap();
    let wal = world.path("hermes/state.db-wal");
    let before = [world.db_path(), wal].map(|path| stamp(&path));
    // The log is written over from its beginning.
    db.turn("s", "two", "other");
    for (path, size, modified) in &before {
        set_time(path, *modified);
        assert_eq!(stamp(path).1, *size, "{}", path.display());
    }
    expected.extend(lines(3, "two", "other"));
    world.expect(&borrowed(&expected));
    // What was rolled back is nothing.
    db.conn.execute_batch("BEGIN IMMEDIATE; DELETE FROM messages; ROLLBACK;").unwrap();
    db.turn("s", "three", "third");
    expected.extend(lines(5, "three", "third"));
    world.expect_all(mirror, &borrowed(&expected));
}

fn stamp(path: &Path) -> (std::path::PathBuf, u64, SystemTime) {
    let meta = fs::metadata(path).unwrap();
    (path.to_owned(), meta.len(), meta.modified().unwrap())
}

fn set_time(path: &Path, time: SystemTime) {
    let touched =
        std::process::Command::new("touch").arg("-d").arg(seconds(time)).arg(path).status().unwrap();
    assert!(touched.success());
}

fn seconds(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    format!("@{}.{:09}", since.as_secs(), since.subsec_nanos())
}

#[test]
fn e1_bytes_that_are_no_text_are_replaced_visibly_and_hold_nothing_up() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    for (content, role) in [
        ("X'68ff69'", "user"),
        ("CAST(X'c328' AS TEXT)", "assistant"),
        ("'a' || char(0) || 'b'", "user"),
        ("X'F09F9880'", "assistant"),
    ] {
        let finish = if role == "assistant" { "'stop'" } else { "NULL" };
        let insert = format!(
            "INSERT INTO messages (session_id, role, content, finish_reason, timestamp)
             VALUES ('s', '{role}', {content}, {finish}, {})",
            now()
        );
        db.commit(|write| write.execute(&insert, []).unwrap());
    }
    let expected = [
        "1 user: h\u{fffd}i",
        "running 1",
        "1 agent: \u{fffd}(",
        "idle 1", //
        "3 user: a\u{fffd}b",
        "running 3",
        "3 agent: \u{1f600}",
        "idle 3",
    ];
    world.expect_all(mirror, &expected);
}

#[test]
fn f1_a_compaction_goes_on_in_its_real_child_beside_a_newer_sub_agent_and_a_branch() {
    for late in [false, true] {
        let world = World::new();
        let mut db = world.hermes();
        let mirror = (!late).then(|| world.attach());
        two_turns(&mut db);
        db.compact_by_fork("s", "real", KEPT, Summary::Row("sum"));
        for (id, source, config) in [
            ("delegated", "subagent", r#"{"_delegate_from": "s"}"#),
            ("branched", "cli", r#"{"_branched_from": "s"}"#),
        ] {
            let text = |text: &str| Value::from(text.to_owned());
            let columns =
                [("parent_session_id", text("s")), ("source", text(source)), ("model_config", text(config))];
            db.session_with(id, &columns);
            db.turn(id, "elsewhere", "elsewhere");
        }
        db.turn("real", "three", "third");
        let end = ["compaction: sum", "13 user: three", "running 13", "13 agent: third", "idle 13"];
        world.expect_all(mirror.unwrap_or_else(|| world.attach()), &then(&end));
    }
}

#[test]
fn f3_a_session_that_a_compaction_ended_without_a_child_is_followed_on() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    two_turns(&mut db);
    world.expect(&then(&[]));
    db.end_session("s", "compression");
    db.turn("s", "three", "third");
    let end = ["5 user: three", "running 5", "5 agent: third", "idle 5"];
    world.expect(&then(&end));
    // The child may yet come.
    db.session_with("child", &[("parent_session_id", Value::from("s".to_owned()))]);
    db.finish_fork("s", "child", KEPT, Summary::Row("sum"));
    db.turn("child", "four", "fourth");
    let more = ["compaction: sum", "11 user: four", "running 11", "11 agent: fourth", "idle 11"];
    world.expect_all(mirror, &then(&[&end[..], &more].concat()));
}

#[test]
fn c1_commits_to_a_log_that_stays_open_are_found_where_the_watch_is_accepted_and_mute() {
    let world = World::new();
    let theirs = world.path("theirs.db");
    let mut db = HermesDb::create(&theirs);
    db.session("s", Some(&world.workspace()));
    db.turn("s", "one", "first");
    // Events go to the names by which the writer knows its files, and the mirror knows others.
    for suffix in ["", "-wal", "-shm"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        fs::hard_link(name(&theirs), name(&world.db_path())).unwrap();
    }
    let mirror = world.attach();
    let mut expected = lines(1, "one", "first");
    world.expect(&borrowed(&expected));
    for opener in [3, 5, 7, 9, 11] {
        db.turn("s", "q", "a");
        expected.extend(lines(opener, "q", "a"));
        world.expect(&borrowed(&expected));
    }
    mirror.wait_for_log("state=mute");
    let log = mirror.stop();
    assert_eq!((log.matches("state=mute").count(), world.shown()), (1, expected), "{log}");
}

#[test]
fn e4_input_that_waits_on_the_web_page_is_taken_by_the_row_that_holds_it_alone() {
    let world = World::new();
    // The version that marks rows which nobody typed.
    let mut db = HermesDb::create_as(&world.db_path(), Version::V20);
    db.session("s", Some(&world.workspace()));
    for input in ["from the web", "and again"] {
        world.sink.await_input(&world.conversation, input);
    }
    let mirror = world.attach();
    let said = |text: &str| [Message::user(text), Message::answer("ok")];
    db.append_all("s", &said("[IMPORTANT: Background process proc_1 completed normally (exit code 0).]"));
    db.append_all("s", &said("from the web"));
    db.compact_in_place("s", KEPT, Summary::Row("sum"));
    db.append_all("s", &said("[ASYNC DELEGATION COMPLETE — deleg_1]"));
    let hidden = Message { display_kind: Some("auto_continue".to_owned()), ..Message::user("go on") };
    db.append_all("s", &[hidden, Message::answer("ok")]);
    db.append_all("s", &said("[Continuing toward your standing goal]"));
    db.append_all("s", &said("and again"));
    let done = |state: &support::sink::State| {
        let last = state.events(&world.conversation).last();
        last.is_some_and(|event| event["data"]["status"] == "idle")
            && state.answered(&world.conversation).len() >= 2
    };
    assert!(world.sink.wait_until(done, PATIENCE), "{:?}", world.shown());
    mirror.stop();
    let pairs = [("from the web", "from the web"), ("and again", "and again")];
    let answered = world.sink.answered(&world.conversation);
    assert_eq!(answered, pairs.map(|(input, text)| (input.to_owned(), text.to_owned())));
}
