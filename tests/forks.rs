//! A compaction that goes on in another session, and a mirror that stops amid the rows of a rewrite.

mod support;

use support::acts::{KEPT, TWO_TURNS, check, then, turn_with_a_tool, two_turns};
use support::hermes_db::{HermesDb, Kept, Message, Summary, Version};
use support::mirror::World;

#[test]
fn a_fork_compaction_is_followed_into_its_child() {
    for version in [Version::V13, Version::V18, Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.compact_by_fork("s", "child", KEPT, Summary::Row("sum"));
            db.turn("child", "three", "third");
        };
        let end = ["compaction: sum", "9 user: three", "running 9", "9 agent: third", "idle 9"];
        check(version, two_turns, 8, second, &then(&end));
    }
}

#[test]
fn a_child_whose_rows_came_one_by_one_repeats_nothing() {
    for version in [Version::V13, Version::V18] {
        let second = |db: &mut HermesDb| {
            db.compact_by_fork_row_by_row("s", "child", KEPT, Summary::Row("sum"));
            // A person types no faster.
            let later = support::hermes_db::now() + 1.0;
            let yes = Message { timestamp: Some(later), ..Message::user("two") };
            db.append("child", &yes);
            db.append("child", &Message { timestamp: Some(later + 0.1), ..Message::answer("second") });
        };
        let end = ["compaction: sum", "9 user: two", "running 9", "9 agent: second", "idle 9"];
        check(version, two_turns, 8, second, &then(&end));
    }
}

#[test]
fn a_summary_that_a_fork_keeps_is_no_boundary_again() {
    let second = |db: &mut HermesDb| {
        db.compact_by_fork_row_by_row("s", "c1", KEPT, Summary::Row("sum 1"));
        db.compact_by_fork_row_by_row("c1", "c2", Kept { head: 2, tail: 1 }, Summary::Row("sum 2"));
        db.append("c2", &Message::user("three"));
    };
    let end = ["compaction: sum 1", "compaction: sum 2", "13 user: three", "running 13"];
    check(Version::V13, two_turns, 8, second, &then(&end));
    let second = |db: &mut HermesDb| {
        db.compact_by_fork("s", "c1", KEPT, Summary::Row("sum 1"));
        db.compact_by_fork("c1", "c2", Kept { head: 2, tail: 1 }, Summary::Row("sum 2"));
        db.append("c2", &Message::user("three"));
    };
    check(Version::V19, two_turns, 8, second, &then(&end));
}

#[test]
fn the_same_words_right_behind_a_fork_are_a_new_message_however_soon() {
    for version in [Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.turn("s", "two", "second");
            db.compact_by_fork("s", "child", Kept { head: 0, tail: 2 }, Summary::Row("sum"));
            db.turn("child", "two", "second");
        };
        let again = ["5 user: two", "running 5", "5 agent: second", "idle 5"];
        let end = ["compaction: sum", "10 user: two", "running 10", "10 agent: second", "idle 10"];
        check(version, two_turns, 8, second, &then(&[&again[..], &end].concat()));
    }
}

#[test]
fn what_is_typed_right_behind_a_fork_that_kept_nothing_is_a_new_message() {
    let second = |db: &mut HermesDb| {
        db.compact_by_fork("s", "child", Kept { head: 0, tail: 0 }, Summary::Row("sum"));
        db.turn("child", "two", "second");
    };
    let end = ["compaction: sum", "6 user: two", "running 6", "6 agent: second", "idle 6"];
    check(Version::V19, two_turns, 8, second, &then(&end));
}

#[test]
fn compactions_right_behind_a_fork_are_boundaries_of_their_own() {
    let second = |db: &mut HermesDb| {
        db.compact_by_fork("s", "child", Kept { head: 0, tail: 1 }, Summary::Merged("sum 1"));
        db.compact_in_place("child", Kept { head: 0, tail: 1 }, Summary::Merged("sum 2"));
        db.compact_in_place("child", Kept { head: 0, tail: 1 }, Summary::Row("sum 3"));
        db.append("child", &Message::user("three"));
    };
    let end = ["compaction: sum 1", "compaction: sum 2", "compaction: sum 3", "9 user: three", "running 9"];
    check(Version::V19, two_turns, 8, second, &then(&end));
}

#[test]
fn a_chain_of_three_forks_is_followed_to_its_end() {
    let second = |db: &mut HermesDb| {
        for (parent, child) in [("s", "c1"), ("c1", "c2"), ("c2", "c3")] {
            db.compact_by_fork(parent, child, KEPT, Summary::Row(child));
            db.turn(child, "q", child);
        }
    };
    let mut end = Vec::new();
    for (child, opener) in [("c1", 9), ("c2", 15), ("c3", 21)] {
        end.push(format!("compaction: {child}"));
        end.extend([format!("{opener} user: q"), format!("running {opener}")]);
        end.extend([format!("{opener} agent: {child}"), format!("idle {opener}")]);
    }
    let end: Vec<&str> = end.iter().map(String::as_str).collect();
    check(Version::V19, two_turns, 8, second, &then(&end));
}

#[test]
fn a_fork_amid_a_turn_leaves_the_turn_whole() {
    let second = |db: &mut HermesDb| {
        db.compact_by_fork("s", "child", Kept { head: 0, tail: 3 }, Summary::Merged("sum"));
        db.append("child", &Message::answer("done"));
    };
    let expected = [
        "1 user: one",
        "running 1",
        "1 agent: first",
        "idle 1", //
        "3 user: look",
        "running 3",
        "3 call c1 terminal {}",
        "3 output c1: out 1",
        "compaction: sum",
        "3 agent: done",
        "idle 3",
    ];
    check(Version::V19, turn_with_a_tool, 8, second, &expected);
}

#[test]
fn a_child_seen_before_its_rows_is_followed_once_they_come() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    two_turns(&mut db);
    world.expect(&TWO_TURNS);
    db.begin_fork("s", "child");
    // Another session's row shows that the mirror has looked since.
    db.session("other", None);
    db.turn("other", "x", "y");
    db.finish_fork("s", "child", KEPT, Summary::Row("sum"));
    db.turn("child", "three", "third");
    let end = ["compaction: sum", "11 user: three", "running 11", "11 agent: third", "idle 11"];
    world.expect_all(mirror, &then(&end));
}

/// A mirror that was killed anywhere within the rows of a rewrite goes on as if it had not been.
fn check_every_start(rewrite: impl Fn(&mut HermesDb), session: &str, rows: std::ops::Range<i64>) {
    for last in rows {
        println!("killed behind row {last}");
        let world = World::new();
        let mut db = world.hermes();
        two_turns(&mut db);
        rewrite(&mut db);
        let cursor = format!(r#"{{"hermes_session_id": "{session}", "last_id": {last}, "heartbeat_ms": 1}}"#);
        support::mirror::write(&world.bridge("a").join("hermes_forwarder.json"), &cursor);
        // The boundary needs an item to stand behind.
        let before =
            serde_json::json!({"type": "message", "role": "user", "response_id": "r", "content": []});
        world.sink.add_item(&world.conversation, &before);
        let mirror = world.attach();
        db.turn(session, "three", "third");
        let wait = |state: &support::sink::State| {
            support::shown::shown(state.events(&world.conversation)).iter().any(|line| line == "idle 9")
        };
        assert!(world.sink.wait_until(wait, support::mirror::PATIENCE), "{:?}", world.shown());
        mirror.stop();
        let turn = ["9 user: three", "running 9", "9 agent: third", "idle 9"];
        let boundary = if last < 6 { vec!["compaction: sum"] } else { vec![] };
        assert_eq!(world.shown(), [boundary, turn.to_vec()].concat());
    }
}

#[test]
fn a_restart_amid_the_rows_of_a_compaction_repeats_none() {
    check_every_start(|db| db.compact_in_place("s", KEPT, Summary::Row("sum")), "s", 4..9);
}

#[test]
fn a_restart_amid_the_rows_of_a_fork_repeats_none() {
    check_every_start(|db| db.compact_by_fork("s", "child", KEPT, Summary::Row("sum")), "child", 5..9);
}

#[test]
fn a_turn_that_was_opened_before_a_fork_keeps_its_id_though_nobody_recorded_it() {
    let world = World::new();
    let mut db = world.hermes();
    db.append("s", &Message::user("look"));
    db.append("s", &Message::tools("", &[("c1", "terminal", "{}")]));
    db.compact_by_fork("s", "child", Kept { head: 0, tail: 2 }, Summary::Row("sum"));
    // Rows 3 to 5 of the child: the summary and the copies.
    let cursor = r#"{"hermes_session_id": "child", "last_id": 5, "heartbeat_ms": 1}"#;
    support::mirror::write(&world.bridge("a").join("hermes_forwarder.json"), cursor);
    let mirror = world.attach();
    db.append("child", &Message::result("c1", "out"));
    db.append("child", &Message::answer("done"));
    world.expect_all(mirror, &["running 1", "1 output c1: out", "1 agent: done", "idle 1"]);
}
