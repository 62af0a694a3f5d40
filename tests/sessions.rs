//! What there is to mirror, as a person and a script are told.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]

mod support;

use rusqlite::types::Value as Sql;
use serde_json::{Value, json};
use support::hermes_db::{HermesDb, Kept, Message, Summary, Version, now};
use support::mirror::{World, write};

/// What `sessions` says, and with which exit code.
fn sessions(world: &World, arguments: &[&str]) -> (i32, String, String) {
    let mut command = world.command();
    command.env("RUST_LOG", "error").arg("sessions").arg("--db").arg(world.db_path()).args(arguments);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn objects(world: &World, arguments: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = sessions(world, &[arguments, &["--json"]].concat());
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn ids(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|one| one["session"].as_str().unwrap()).collect()
}

/// A session that began so many seconds ago, and its rows then.
fn session(db: &mut HermesDb, id: &str, age_s: f64, columns: &[(&str, Sql)], rows: &[Message]) {
    let at = now() - age_s;
    let columns: Vec<_> = [("started_at", Sql::from(at))].iter().chain(columns).cloned().collect();
    db.session_with(id, &columns);
    for row in rows {
        let mut row = row.clone();
        row.timestamp = Some(at);
        db.append(id, &row);
    }
}

fn text(text: &str) -> Sql {
    text.to_owned().into()
}

#[test]
fn each_has_a_line_the_newest_first_and_no_title_steers_the_terminal() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    let home = world.path("home");
    let work = home.join("work");
    let turn = [Message::user("q"), Message::answer("a")];
    let columns = [("title", text("older \u{1b}[2J")), ("cwd", text(work.to_str().unwrap()))];
    session(&mut db, "a", 90_000.0, &columns, &turn);
    session(&mut db, "b", 7_300.0, &[("source", text("tui"))], &turn);
    let expected = "\
SESSION  TITLE            CWD     SOURCE  AGE  MESSAGES  LIVE  MIRRORED TO
b        -                -       tui     2 h  2         -     -
a        older \\u{1b}[2J  ~/work  cli     1 d  2         -     -
";
    assert_eq!(sessions(&world, &[]), (0, expected.to_owned(), String::new()));
}

#[test]
fn live_is_what_has_an_open_turn_or_a_recent_row() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    session(&mut db, "given up", 90_000.0, &[], &[Message::user("q")]);
    session(&mut db, "done", 1_200.0, &[], &[Message::user("q"), Message::answer("a")]);
    session(&mut db, "works", 1_100.0, &[], &[Message::tools("", &[("c", "terminal", "{}")])]);
    session(&mut db, "lately", 10.0, &[], &[Message::user("q"), Message::answer("a")]);
    let listed = objects(&world, &[]);
    assert_eq!(ids(&listed), ["lately", "works", "done", "given up"]);
    let live: Vec<_> = listed.iter().map(|one| [&one["live"], &one["turn_open"]]).collect();
    assert_eq!(json!(live), json!([[true, false], [true, true], [false, false], [false, false]]));
}

#[test]
fn a_compaction_is_one_session_of_the_directory_it_began_in_and_what_nobody_sits_at_needs_all() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    db.compact_by_fork("s", "child", Kept { head: 1, tail: 1 }, Summary::Row("all"));
    db.session_with("sub", &[("source", text("subagent"))]);
    db.session("empty", None);
    let listed = objects(&world, &[]);
    assert_eq!(ids(&listed), ["child"]);
    assert_eq!(listed[0]["cwd"], world.workspace().to_str().unwrap());
    assert_eq!(listed[0]["messages"], 3);
    let mut all = objects(&world, &["--all"]);
    all.sort_by_key(|one| one["session"].to_string());
    assert_eq!(ids(&all), ["child", "empty", "s", "sub"]);
}

#[test]
fn the_newest_rows_count_and_not_when_a_session_began() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    for number in 0..25 {
        session(&mut db, &format!("n{number:02}"), 1_000.0 - f64::from(number), &[], &[Message::user("q")]);
    }
    db.append("n00", &Message::user("taken up again"));
    let listed = objects(&world, &[]);
    assert_eq!((listed.len(), ids(&listed)[0], ids(&listed)[1]), (20, "n00", "n24"));
    assert_eq!(objects(&world, &["--all"]).len(), 25);
}

#[test]
fn the_conversation_that_shows_a_session_stands_beside_it() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    let mirrors = format!("[[mirror]]\nconversation = '{}'\nworkspace = '{{work}}'\n", world.conversation);
    let (code, log) = world.run(&["--once"], &mirrors).wait();
    assert_eq!(code, Some(0), "{log}");
    let config = world.path("run.toml");
    let listed = objects(&world, &["--config", config.to_str().unwrap()]);
    let expected = json!([{"server": world.sink.url(), "conversation": world.conversation}]);
    assert_eq!(listed[0]["mirrors"], expected);
}

#[test]
fn any_version_of_hermes_has_a_list() {
    for version in [Version::V13, Version::V18, Version::V19, Version::V20] {
        let world = World::new();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session_with("s", &[("title", text("t"))]);
        db.turn("s", "q", "a");
        let listed = objects(&world, &[]);
        assert_eq!((&listed[0]["messages"], &listed[0]["title"]), (&json!(2), &json!("t")), "{version:?}");
    }
}

#[test]
fn where_there_is_nothing_to_list_one_message_says_what_to_do() {
    let world = World::new();
    let path = world.db_path().display().to_string();
    let answer = |arguments: &[&str]| {
        let (code, stdout, stderr) = sessions(&world, arguments);
        format!("{code} {stdout}{stderr}").replace(&path, "state.db")
    };
    assert_eq!(
        answer(&[]),
        "1 error: state.db does not exist yet\nhelp: start Hermes; the mirror waits for the file. If Hermes runs \
         already, it keeps its sessions elsewhere: set `db` in [source]\n"
    );
    write(&world.db_path(), "");
    let foreign = answer(&[]);
    assert!(foreign.starts_with("1 error: state.db does not hold Hermes's tables"), "{foreign}");
    assert_eq!(foreign.matches("help: ").count(), 1, "{foreign}");
    std::fs::remove_file(world.db_path()).unwrap();
    let mut db = HermesDb::create(&world.db_path());
    assert_eq!(answer(&[]), "0 no sessions in state.db yet: say something in Hermes\n");
    assert_eq!(answer(&["--json"]), "0 []\n");
    db.session_with("sub", &[("source", text("subagent"))]);
    assert_eq!(
        answer(&[]),
        "0 no sessions of a terminal in state.db: say something in Hermes; --all lists 1 more\n"
    );
}
