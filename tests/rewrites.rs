//! Compactions, undo and retries: what comes back is not shown again, what is new always is.

mod support;

use support::hermes_db::{HermesDb, Kept, Message, Summary, Version};
use support::mirror::World;

/// Whether the mirror sees a rewrite as it happens, finds it after a pause, or starts after all of it; the last two
/// also with reads and a lane that hold but a row.
const WAYS: [Way; 5] = [Way::Live, Way::Down, Way::DownNarrow, Way::Late, Way::LateNarrow];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Live,
    Down,
    DownNarrow,
    Late,
    LateNarrow,
}

impl Way {
    fn is_late(self) -> bool {
        matches!(self, Self::Late | Self::LateNarrow)
    }

    fn world(self) -> World {
        let world = World::new();
        if matches!(self, Self::DownNarrow | Self::LateNarrow) {
            world.configure("[read]\nbatch_rows = 1\n[deliver]\nqueue_rows = 1\n");
        }
        world
    }
}

/// Plays two acts on a fresh database in each way and checks what is shown in the end.
/// `before`: how much of it the first act shows.
fn check(
    version: Version,
    first: impl Fn(&mut HermesDb),
    before: usize,
    second: impl Fn(&mut HermesDb),
    expected: &[&str],
) {
    for way in WAYS {
        println!("{way:?}");
        let world = way.world();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        let mut mirror = (!way.is_late()).then(|| world.attach());
        first(&mut db);
        if !way.is_late() {
            world.expect(&expected[..before]);
        }
        if matches!(way, Way::Down | Way::DownNarrow) {
            mirror.take().unwrap().stop();
        }
        second(&mut db);
        world.expect_all(mirror.unwrap_or_else(|| world.attach()), expected);
    }
}

const KEPT: Kept = Kept { head: 1, tail: 2 };

fn two_turns(db: &mut HermesDb) {
    db.turn("s", "one", "first");
    db.turn("s", "two", "second");
}

const TWO_TURNS: [&str; 8] = [
    "running 1",
    "1 user: one",
    "1 agent: first",
    "idle 1", //
    "running 3",
    "3 user: two",
    "3 agent: second",
    "idle 3",
];

fn then<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&TWO_TURNS, more].concat()
}

#[test]
fn an_in_place_compaction_is_one_boundary_and_repeats_nothing() {
    for version in [Version::V18, Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.compact_in_place("s", KEPT, Summary::Row("what was said"));
            db.turn("s", "three", "third");
        };
        let end = ["compaction: what was said", "running 9", "9 user: three", "9 agent: third", "idle 9"];
        check(version, two_turns, 8, second, &then(&end));
    }
}

#[test]
fn the_same_words_typed_again_right_after_a_compaction_are_a_new_message() {
    for version in [Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.compact_in_place("s", KEPT, Summary::Row("sum"));
            db.turn("s", "two", "second");
        };
        let end = ["compaction: sum", "running 9", "9 user: two", "9 agent: second", "idle 9"];
        check(version, two_turns, 8, second, &then(&end));
    }
}

#[test]
fn a_summary_merged_into_a_kept_row_is_a_boundary_and_no_message() {
    for version in [Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.compact_in_place("s", KEPT, Summary::Merged("sum"));
            db.turn("s", "three", "third");
        };
        let end = ["compaction: sum", "running 8", "8 user: three", "8 agent: third", "idle 8"];
        check(version, two_turns, 8, second, &then(&end));
    }
}

#[test]
fn a_merged_summary_that_is_kept_by_the_next_compaction_is_no_boundary_again() {
    let second = |db: &mut HermesDb| {
        db.compact_in_place("s", KEPT, Summary::Merged("sum 1"));
        db.turn("s", "three", "third");
        db.compact_in_place("s", Kept { head: 1, tail: 4 }, Summary::Row("sum 2"));
        db.turn("s", "four", "fourth");
    };
    let end = [
        "compaction: sum 1",
        "running 8",
        "8 user: three",
        "8 agent: third",
        "idle 8", //
        "compaction: sum 2",
        "running 16",
        "16 user: four",
        "16 agent: fourth",
        "idle 16",
    ];
    check(Version::V20, two_turns, 8, second, &then(&end));
}

#[test]
fn a_summary_that_is_kept_by_the_next_compaction_is_no_boundary_again() {
    // Kept in the head, as after a resume, and in the tail.
    for kept in [Kept { head: 2, tail: 1 }, Kept { head: 0, tail: 5 }] {
        let second = |db: &mut HermesDb| {
            db.compact_in_place("s", KEPT, Summary::Row("sum 1"));
            db.turn("s", "three", "third");
            db.compact_in_place("s", kept, Summary::Row("sum 2"));
            db.append("s", &Message::user("four"));
        };
        let opener = 12 + kept.head + kept.tail;
        let lines = [format!("running {opener}"), format!("{opener} user: four")];
        let mut end = vec![
            "compaction: sum 1",
            "running 9",
            "9 user: three",
            "9 agent: third",
            "idle 9",
            "compaction: sum 2",
        ];
        end.extend(lines.iter().map(String::as_str));
        check(Version::V19, two_turns, 8, second, &then(&end));
        check(Version::V20, two_turns, 8, second, &then(&end));
    }
}

#[test]
fn two_compactions_in_the_same_words_are_two_boundaries() {
    let second = |db: &mut HermesDb| {
        db.compact_in_place("s", KEPT, Summary::Row("sum"));
        db.turn("s", "three", "third");
        db.compact_in_place("s", KEPT, Summary::Row("sum"));
        db.append("s", &Message::user("four"));
    };
    let end = [
        "compaction: sum",
        "running 9",
        "9 user: three",
        "9 agent: third",
        "idle 9", //
        "compaction: sum",
        "running 15",
        "15 user: four",
    ];
    check(Version::V19, two_turns, 8, second, &then(&end));
}

#[test]
fn five_compactions_in_a_session_are_five_boundaries() {
    let mut expected: Vec<String> = TWO_TURNS.iter().map(|line| (*line).to_owned()).collect();
    // Each leaves head, summary and tail: four rows, and two more for the turn behind it.
    for (n, opener) in (1..=5).zip((9..).step_by(6)) {
        expected.push(format!("compaction: sum {n}"));
        for line in ["running @", "@ user: q", "@ agent: a", "idle @"] {
            expected.push(line.replace('@', &opener.to_string()));
        }
    }
    let second = |db: &mut HermesDb| {
        for n in 1..=5 {
            db.compact_in_place("s", KEPT, Summary::Row(&format!("sum {n}")));
            db.turn("s", "q", "a");
        }
    };
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(Version::V19, two_turns, 8, second, &expected);
    check(Version::V20, two_turns, 8, second, &expected);
}

fn turn_with_a_tool(db: &mut HermesDb) {
    db.turn("s", "one", "first");
    db.append("s", &Message::user("look"));
    db.append("s", &Message::tools("", &[("c1", "terminal", "{}")]));
    db.append("s", &Message::result("c1", "out 1"));
}

#[test]
fn two_compactions_within_a_turn_leave_the_turn_whole() {
    for version in [Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.compact_in_place("s", Kept { head: 0, tail: 3 }, Summary::Row("sum 1"));
            db.append("s", &Message::tools("", &[("c2", "terminal", "{}")]));
            db.append("s", &Message::result("c2", "out 2"));
            db.compact_in_place("s", Kept { head: 0, tail: 5 }, Summary::Row("sum 2"));
            db.append("s", &Message::answer("done"));
        };
        let expected = [
            "running 1",
            "1 user: one",
            "1 agent: first",
            "idle 1", //
            "running 3",
            "3 user: look",
            "3 call c1 terminal {}",
            "3 output c1: out 1",
            "compaction: sum 1",
            "3 call c2 terminal {}",
            "3 output c2: out 2",
            "compaction: sum 2",
            "3 agent: done",
            "idle 3",
        ];
        check(version, turn_with_a_tool, 8, second, &expected);
    }
}

#[test]
fn rows_archived_before_they_were_shown_are_shown() {
    let second = |db: &mut HermesDb| {
        db.append("s", &Message::answer("unseen"));
        db.compact_in_place("s", KEPT, Summary::Row("sum"));
        db.turn("s", "three", "third");
    };
    let expected = [
        "running 1",
        "1 user: one",
        "1 agent: first",
        "idle 1", //
        "running 3",
        "3 user: look",
        "3 call c1 terminal {}",
        "3 output c1: out 1",
        "3 agent: unseen",
        "idle 3",
        "compaction: sum",
        "running 11",
        "11 user: three",
        "11 agent: third",
        "idle 11",
    ];
    check(Version::V19, turn_with_a_tool, 8, second, &expected);
}

#[test]
fn a_fork_compaction_is_followed_into_its_child() {
    for version in [Version::V13, Version::V18, Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.compact_by_fork("s", "child", KEPT, Summary::Row("sum"));
            db.turn("child", "three", "third");
        };
        let end = ["compaction: sum", "running 9", "9 user: three", "9 agent: third", "idle 9"];
        check(version, two_turns, 8, second, &then(&end));
    }
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
        end.extend([format!("running {opener}"), format!("{opener} user: q")]);
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
        "running 1",
        "1 user: one",
        "1 agent: first",
        "idle 1", //
        "running 3",
        "3 user: look",
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
    let end = ["compaction: sum", "running 11", "11 user: three", "11 agent: third", "idle 11"];
    world.expect_all(mirror, &then(&end));
}

#[test]
fn a_boundary_names_the_item_before_it_and_the_transcript_after_it() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    two_turns(&mut db);
    world.expect(&TWO_TURNS);
    db.compact_in_place("s", KEPT, Summary::Row("sum"));
    world.expect(&then(&["compaction: sum"]));
    mirror.stop();
    let items = world.sink.items(&world.conversation);
    let boundary = items.last().unwrap();
    assert_eq!(boundary["last_item_id"], items[3]["id"]);
    assert_eq!(boundary["model"], "stub-model");
    let texts = boundary["compacted_messages"].as_array().unwrap().iter();
    let texts: Vec<_> = texts.map(|m| m["content"][0]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, ["one", &support::hermes_db::framed("sum"), "two", "second"]);
}

#[test]
fn what_was_taken_back_unseen_is_not_shown_and_a_retry_is() {
    let second = |db: &mut HermesDb| {
        db.turn("s", "mistake", "oops");
        db.undo("s", 5);
        db.turn("s", "two", "again");
    };
    let expected = then(&["running 7", "7 user: two", "7 agent: again", "idle 7"]);
    for way in [Way::Down, Way::Late] {
        let world = World::new();
        let mut db = world.hermes();
        if way == Way::Down {
            let mirror = world.attach();
            two_turns(&mut db);
            world.expect_all(mirror, &TWO_TURNS);
        } else {
            two_turns(&mut db);
        }
        second(&mut db);
        world.expect_all(world.attach(), &expected);
    }
}

#[test]
fn rows_that_a_turn_inserts_again_as_they_were_are_shown_once() {
    let second = |db: &mut HermesDb| {
        let mut history = db.live("s");
        for text in ["three", "four"] {
            db.append_all("s", &history);
            db.turn("s", text, "answer");
            let live = db.live("s");
            history.extend_from_slice(&live[live.len() - 2..]);
        }
    };
    let end = [
        "running 9",
        "9 user: three",
        "9 agent: answer",
        "idle 9", //
        "running 17",
        "17 user: four",
        "17 agent: answer",
        "idle 17",
    ];
    check(Version::V19, two_turns, 8, second, &then(&end));
}

#[test]
fn what_was_taken_back_after_it_was_shown_stays_shown_and_a_compaction_repeats_nothing() {
    let second = |db: &mut HermesDb| {
        db.undo("s", 3);
        db.turn("s", "two", "better");
        db.compact_in_place("s", KEPT, Summary::Row("sum"));
        db.turn("s", "three", "third");
    };
    let end = [
        "running 5",
        "5 user: two",
        "5 agent: better",
        "idle 5", //
        "compaction: sum",
        "running 11",
        "11 user: three",
        "11 agent: third",
        "idle 11",
    ];
    for version in [Version::V19, Version::V20] {
        let world = World::new();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        let mirror = world.attach();
        two_turns(&mut db);
        world.expect(&TWO_TURNS);
        second(&mut db);
        world.expect_all(mirror, &then(&end));
    }
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
        let turn = ["running 9", "9 user: three", "9 agent: third", "idle 9"];
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
