//! A terminal that takes up an old session, leaves one for another, or is not alone.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use rusqlite::types::Value;

use support::hermes_db::{HermesDb, Kept, Message, Summary, Version, now};
use support::mirror::{Mirror, World};

const WEEK: f64 = 7.0 * 86_400.0;

fn text(text: &str) -> Value {
    text.to_owned().into()
}

/// A session that began a week ago in the workspace and ended, with one turn: rows `1` and `2` of an empty database.
fn old(world: &World, db: &mut HermesDb, id: &str, end_reason: &str) {
    let then = world.launch - WEEK;
    let cwd = text(&world.workspace().display().to_string());
    db.session_with(id, &[("cwd", cwd), ("started_at", then.into())]);
    let stamped = |message: Message, after: f64| Message { timestamp: Some(then + after), ..message };
    db.append_all(id, &[stamped(Message::user("before"), 1.0), stamped(Message::answer("long ago"), 2.0)]);
    db.end_session(id, end_reason);
}

/// What `-c`, `-r` and `/resume` do to the session.
fn reopen(db: &mut HermesDb, id: &str) {
    db.commit(|write| {
        let reopen = "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?1";
        assert_eq!(write.execute(reopen, [id]).unwrap(), 1);
    });
}

/// `/new` and `/clear`: the session without a directory comes right after the end of the other.
fn begin_new(db: &mut HermesDb, left: &str, new: &str) {
    db.end_session(left, "new_session");
    db.session(new, None);
}

fn lines(turn: i64, asked: &str, answer: &str) -> Vec<String> {
    let turns = [
        format!("{turn} user: {asked}"),
        format!("running {turn}"),
        format!("{turn} agent: {answer}"),
        format!("idle {turn}"),
    ];
    turns.to_vec()
}

fn strs(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

#[test]
fn a_session_from_last_week_that_was_resumed_is_followed_from_where_it_stands() {
    for late in [false, true] {
        let world = World::new();
        let mut db = HermesDb::create(&world.db_path());
        old(&world, &mut db, "old", "cli_close");
        let mirror = (!late).then(|| {
            let mirror = world.attach();
            mirror.wait_for_log("located the database");
            mirror
        });
        reopen(&mut db, "old");
        db.turn("old", "again", "welcome back");
        let mirror = mirror.unwrap_or_else(|| world.attach());
        let first = lines(3, "again", "welcome back");
        world.expect(&strs(&first));
        db.turn("old", "more", "gladly");
        let all = [first, lines(5, "more", "gladly")].concat();
        world.expect_all(mirror, &strs(&all));
    }
}

#[test]
fn a_resumed_session_without_a_directory_is_taken_where_it_is_the_only_one() {
    let world = World::new();
    let mut db = HermesDb::create_as(&world.db_path(), Version::V13);
    old(&world, &mut db, "old", "cli_close");
    reopen(&mut db, "old");
    db.turn("old", "again", "welcome back");
    world.expect_all(world.attach(), &strs(&lines(3, "again", "welcome back")));
}

#[test]
fn a_resumed_session_goes_on_where_it_was_after_a_restart_even_with_its_record_lost() {
    for lost in [false, true] {
        let world = World::new();
        let mut db = HermesDb::create(&world.db_path());
        old(&world, &mut db, "old", "cli_close");
        reopen(&mut db, "old");
        db.turn("old", "again", "welcome back");
        let mirror = world.attach();
        let first = lines(3, "again", "welcome back");
        world.expect_all(mirror, &strs(&first));
        if lost {
            std::fs::remove_dir_all(world.bridge("a")).unwrap();
        }
        db.turn("old", "more", "gladly");
        let expected = [first, lines(5, "more", "gladly")].concat();
        let stored = |lines: Vec<String>| -> Vec<String> {
            lines
                .into_iter()
                .filter(|line| !line.starts_with("running") && !line.starts_with("idle"))
                .collect()
        };
        let mirror = world.attach();
        let arrived = |state: &support::sink::State| state.items(&world.conversation).len() >= 4;
        assert!(world.sink.wait_until(arrived, support::mirror::PATIENCE));
        mirror.stop();
        assert_eq!(stored(world.shown()), stored(expected), "record lost: {lost}");
    }
}

#[test]
fn a_resumed_session_that_was_compacted_into_another_since_is_shown_whole() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    old(&world, &mut db, "old", "cli_close");
    reopen(&mut db, "old");
    db.turn("old", "again", "welcome back");
    db.compact_by_fork("old", "child", Kept { head: 0, tail: 2 }, Summary::Row("sum"));
    db.turn("child", "more", "gladly");
    let end = lines(8, "more", "gladly");
    let expected = [lines(3, "again", "welcome back"), vec!["compaction: sum".to_owned()], end].concat();
    world.expect_all(world.attach(), &strs(&expected));
}

#[test]
fn an_old_session_in_which_a_turn_was_running_at_the_launch_is_another_terminal_s() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    old(&world, &mut db, "theirs", "cli_close");
    reopen(&mut db, "theirs");
    let asked = Message { timestamp: Some(world.launch - 60.0), ..Message::user("theirs") };
    db.append_all("theirs", &[asked, Message::answer("not ours")]);
    let mirror = world.attach();
    mirror.wait_for_log("located the database");
    db.session("ours", Some(&world.workspace()));
    db.turn("ours", "q", "a");
    world.expect_all(mirror, &strs(&lines(5, "q", "a")));
}

#[test]
fn an_old_session_that_has_ended_again_is_nobody_s() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    old(&world, &mut db, "old", "cli_close");
    db.turn("old", "someone", "else");
    let (code, log) = world.run(&["--once"], &mirror_of_workspace(&world, "")).wait();
    assert_eq!((code, world.shown()), (Some(0), Vec::new()), "{log}");
}

#[test]
fn among_two_resumed_sessions_none_is_guessed_and_that_is_said_once() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    for id in ["one", "two"] {
        old(&world, &mut db, id, "cli_close");
        reopen(&mut db, id);
        db.turn(id, "q", "a");
    }
    let mirror = world.attach();
    mirror.wait_for_log("several sessions could be this terminal's and nothing tells them apart: one, two");
    db.turn("one", "q", "a");
    let log = mirror.stop();
    assert_eq!(log.matches("several sessions").count(), 1, "{log}");
    assert!(log.contains("name one as `session` in [[mirror]]"), "{log}");
    assert_eq!(world.shown(), Vec::<String>::new());
}

#[test]
fn a_new_session_is_taken_before_an_old_one_that_someone_uses() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    old(&world, &mut db, "old", "cli_close");
    reopen(&mut db, "old");
    db.turn("old", "someone", "else");
    db.session("ours", Some(&world.workspace()));
    db.turn("ours", "q", "a");
    world.expect_all(world.attach(), &strs(&lines(5, "q", "a")));
}

#[test]
fn a_terminal_that_begins_anew_is_followed_live_and_after_a_pause() {
    for down in [false, true] {
        let world = World::new();
        let mut db = world.hermes();
        db.turn("s", "one", "first");
        let mut mirror = Some(world.attach());
        let mut expected = lines(1, "one", "first");
        world.expect(&strs(&expected));
        if down {
            mirror.take().unwrap().stop();
        }
        db.turn("s", "two", "second");
        begin_new(&mut db, "s", "second");
        db.turn("second", "three", "third");
        begin_new(&mut db, "second", "third");
        db.turn("third", "four", "fourth");
        let mirror = mirror.unwrap_or_else(|| world.attach());
        let more = [lines(3, "two", "second"), lines(5, "three", "third"), lines(7, "four", "fourth")];
        expected.extend(more.concat());
        world.expect(&strs(&expected));
        mirror.stop();
        // It stays there, and does not go back.
        let mirror = world.attach();
        db.session("elsewhere", Some(&world.workspace()));
        db.turn("elsewhere", "not", "this");
        db.turn("third", "five", "fifth");
        expected.extend(lines(11, "five", "fifth"));
        world.expect_all(mirror, &strs(&expected));
    }
}

#[test]
fn a_turn_that_was_left_behind_in_the_old_session_is_settled() {
    let world = World::new();
    let mut db = world.hermes();
    db.append("s", &Message::user("unanswered"));
    let mirror = world.attach();
    world.expect(&["1 user: unanswered", "running 1"]);
    begin_new(&mut db, "s", "new");
    world.expect(&["1 user: unanswered", "running 1", "idle 1"]);
    db.turn("new", "q", "a");
    let settled = ["1 user: unanswered", "running 1", "idle 1"].map(str::to_owned).to_vec();
    world.expect_all(mirror, &strs(&[settled, lines(2, "q", "a")].concat()));
}

#[test]
fn where_two_sessions_begin_at_once_the_mirror_stays_and_says_so_once() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "one", "first");
    let mirror = world.attach();
    world.expect(&strs(&lines(1, "one", "first")));
    db.end_session("s", "new_session");
    db.commit(|write| {
        let add = "INSERT INTO sessions (id, source, started_at) VALUES (?1, 'cli', ?2)";
        for id in ["new-a", "new-b"] {
            write.execute(add, (id, now())).unwrap();
        }
    });
    mirror.wait_for_log("it is not certain that it went on in new-a, new-b");
    db.turn("new-a", "not", "this");
    db.turn("s", "another process", "writes on");
    let expected = [lines(1, "one", "first"), lines(5, "another process", "writes on")].concat();
    world.expect(&strs(&expected));
    let log = mirror.stop();
    assert_eq!(log.matches("it is not certain").count(), 1, "{log}");
}

#[test]
fn what_others_begin_at_the_same_moment_is_not_taken_for_it() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "one", "first");
    let mirror = world.attach();
    world.expect(&strs(&lines(1, "one", "first")));
    db.end_session("s", "new_session");
    db.session("there", Some(&world.path("home")));
    db.session_with("other", &[("started_at", 1.0.into())]);
    let parent = ("parent_session_id", text("other"));
    for (id, columns) in [
        ("tui", vec![("source", text("tui"))]),
        ("cron_1", vec![("source", text("cron"))]),
        ("sub", vec![("source", text("subagent")), parent.clone()]),
        ("bg_120000_abcdef", vec![]),
        ("telegram", vec![("source", text("telegram"))]),
        ("branch", vec![("model_config", text(r#"{"_branched_from": "other"}"#)), parent.clone()]),
    ] {
        db.session_with(id, &columns);
    }
    db.session("new", None);
    db.turn("new", "q", "a");
    world.expect_all(mirror, &strs(&[lines(1, "one", "first"), lines(3, "q", "a")].concat()));
}

#[test]
fn an_empty_session_that_is_discarded_makes_room_for_the_next() {
    for down in [false, true] {
        let world = World::new();
        let mut db = world.hermes();
        let mut mirror = Some(world.attach());
        mirror.as_ref().unwrap().wait_for_log("mirroring");
        if down {
            mirror.take().unwrap().stop();
        }
        db.end_session("s", "new_session");
        db.commit(|write| write.execute("DELETE FROM sessions WHERE id = 's'", []).unwrap());
        db.session("next", None);
        db.turn("next", "q", "a");
        let mirror = mirror.unwrap_or_else(|| world.attach());
        world.expect_all(mirror, &strs(&lines(1, "q", "a")));
    }
}

#[test]
fn a_terminal_that_takes_up_another_session_is_followed_without_that_one_s_history() {
    for down in [false, true] {
        let world = World::new();
        let mut db = HermesDb::create(&world.db_path());
        old(&world, &mut db, "old", "cli_close");
        db.session("s", Some(&world.workspace()));
        db.turn("s", "one", "first");
        let mut mirror = Some(world.attach());
        let first = lines(3, "one", "first");
        world.expect(&strs(&first));
        if down {
            mirror.take().unwrap().stop();
        }
        db.end_session("s", "resumed_other");
        reopen(&mut db, "old");
        db.turn("old", "again", "welcome back");
        let mirror = mirror.unwrap_or_else(|| world.attach());
        world.expect_all(mirror, &strs(&[first, lines(5, "again", "welcome back")].concat()));
    }
}

#[test]
fn where_another_terminal_was_busy_all_along_the_mirror_stays() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    old(&world, &mut db, "theirs", "cli_close");
    reopen(&mut db, "theirs");
    db.session("s", Some(&world.workspace()));
    db.turn("s", "one", "first");
    let mirror = world.attach();
    world.expect(&strs(&lines(3, "one", "first")));
    db.turn("theirs", "meanwhile", "elsewhere");
    db.end_session("s", "resumed_other");
    db.turn("theirs", "and again", "elsewhere");
    mirror.wait_for_log("it is not certain that it went on in theirs");
    mirror.stop();
    assert_eq!(world.shown(), lines(3, "one", "first"));
}

#[test]
fn a_session_that_a_person_named_is_not_left() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = format!("[[mirror]]\nconversation = '{}'\nsession = 's'\n", world.conversation);
    let mirror = world.run(&[], &mirror);
    db.turn("s", "one", "first");
    world.expect(&strs(&lines(1, "one", "first")));
    begin_new(&mut db, "s", "new");
    db.turn("new", "not", "this");
    reopen(&mut db, "s");
    db.turn("s", "two", "second");
    world.expect_all(mirror, &strs(&[lines(1, "one", "first"), lines(5, "two", "second")].concat()));
}

#[test]
fn a_named_session_without_a_cursor_begins_at_its_first_row() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    old(&world, &mut db, "old", "cli_close");
    let mirror = format!("[[mirror]]\nconversation = '{}'\nsession = 'old'\n", world.conversation);
    world.expect_all(world.run(&[], &mirror), &strs(&lines(1, "before", "long ago")));
}

fn mirror_of_workspace(world: &World, more: &str) -> String {
    let (work, launch) = (world.workspace().display().to_string(), world.launch);
    let conversation = &world.conversation;
    format!(
        "[[mirror]]\nconversation = '{conversation}'\nworkspace = '{work}'\nlaunch_epoch = {launch}\n{more}"
    )
}

#[test]
fn only_the_sources_of_terminals_are_taken_unless_others_are_named() {
    let foreign = ["telegram", "discord", "cron", "api_server", "acp", "webhook", "tool"];
    for (more, expected) in [("", Vec::new()), ("sources = ['telegram']\n", lines(1, "q", "telegram"))] {
        let world = World::new();
        let mut db = HermesDb::create(&world.db_path());
        let cwd = text(&world.workspace().display().to_string());
        for source in foreign {
            db.session_with(source, &[("source", text(source)), ("cwd", cwd.clone())]);
            db.turn(source, "q", source);
        }
        let (code, log) = world.run(&["--once"], &mirror_of_workspace(&world, more)).wait();
        assert_eq!((code, world.shown()), (Some(0), expected), "{more}{log}");
    }
}

#[test]
fn attach_takes_the_sources_that_it_is_given() {
    for (given, expected) in
        [(&[][..], Vec::new()), (&["--source", "cli", "--source", "telegram"], lines(1, "q", "a"))]
    {
        let world = World::new();
        let mut db = HermesDb::create(&world.db_path());
        let cwd = text(&world.workspace().display().to_string());
        db.session_with("s", &[("source", text("telegram")), ("cwd", cwd)]);
        db.turn("s", "q", "a");
        let mut command = world.attachment("a", &world.conversation, world.launch);
        command.args(given);
        let mirror = Mirror::spawn(command);
        let sought = if given.is_empty() { "no session fits yet" } else { "mirroring" };
        mirror.wait_for_log(sought);
        world.expect(&strs(&expected));
        mirror.stop();
        assert_eq!(world.shown(), expected);
    }
}

#[test]
fn a_directory_that_changes_or_goes_does_not_move_a_mirror_that_is_bound() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    let mut expected = lines(1, "one", "first");
    world.expect(&strs(&expected));
    let set = |db: &mut HermesDb, cwd: Option<&str>| {
        db.commit(|write| write.execute("UPDATE sessions SET cwd = ?1 WHERE id = 's'", [cwd]).unwrap());
    };
    set(&mut db, Some("/somewhere/else"));
    db.session("other", Some(&world.workspace()));
    db.turn("other", "not", "this");
    db.turn("s", "two", "second");
    expected.extend(lines(5, "two", "second"));
    world.expect(&strs(&expected));
    mirror.stop();
    set(&mut db, None);
    let mirror = world.attach();
    db.turn("s", "three", "third");
    expected.extend(lines(7, "three", "third"));
    world.expect_all(mirror, &strs(&expected));
}
