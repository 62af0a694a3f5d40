//! Compactions, undo and retries: what comes back is not shown again, what is new always is.

mod support;

use support::acts::{KEPT, TWO_TURNS, check, then, turn_with_a_tool, two_turns};
use support::hermes_db::{HermesDb, Kept, Message, Summary, Version};
use support::mirror::World;

#[test]
fn an_in_place_compaction_is_one_boundary_and_repeats_nothing() {
    for version in [Version::V18, Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.compact_in_place("s", KEPT, Summary::Row("what was said"));
            db.turn("s", "three", "third");
        };
        let end = ["compaction: what was said", "9 user: three", "running 9", "9 agent: third", "idle 9"];
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
        let end = ["compaction: sum", "9 user: two", "running 9", "9 agent: second", "idle 9"];
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
        let end = ["compaction: sum", "8 user: three", "running 8", "8 agent: third", "idle 8"];
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
        "8 user: three",
        "running 8",
        "8 agent: third",
        "idle 8", //
        "compaction: sum 2",
        "16 user: four",
        "running 16",
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
        let lines = [format!("{opener} user: four"), format!("running {opener}")];
        let mut end = vec![
            "compaction: sum 1",
            "9 user: three",
            "running 9",
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
fn a_row_that_compaction_after_compaction_keeps_is_never_shown_again() {
    let second = |db: &mut HermesDb| {
        db.compact_in_place("s", Kept { head: 1, tail: 3 }, Summary::Row("sum 1"));
        db.compact_in_place("s", Kept { head: 1, tail: 3 }, Summary::Merged("sum 2"));
        db.turn("s", "three", "third");
        db.compact_in_place("s", KEPT, Summary::Row("sum 3"));
        db.append("s", &Message::user("four"));
    };
    let end = [
        "compaction: sum 1",
        "compaction: sum 2",
        "14 user: three",
        "running 14",
        "14 agent: third",
        "idle 14", //
        "compaction: sum 3",
        "20 user: four",
        "running 20",
    ];
    for version in [Version::V19, Version::V20] {
        check(version, two_turns, 8, second, &then(&end));
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
        "9 user: three",
        "running 9",
        "9 agent: third",
        "idle 9", //
        "compaction: sum",
        "15 user: four",
        "running 15",
    ];
    check(Version::V19, two_turns, 8, second, &then(&end));
}

#[test]
fn five_compactions_in_a_session_are_five_boundaries() {
    let mut expected: Vec<String> = TWO_TURNS.iter().map(|line| (*line).to_owned()).collect();
    // Each leaves head, summary and tail: four rows, and two more for the turn behind it.
    for (n, opener) in (1..=5).zip((9..).step_by(6)) {
        expected.push(format!("compaction: sum {n}"));
        for line in ["@ user: q", "running @", "@ agent: a", "idle @"] {
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
            "1 user: one",
            "running 1",
            "1 agent: first",
            "idle 1", //
            "3 user: look",
            "running 3",
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
        "1 user: one",
        "running 1",
        "1 agent: first",
        "idle 1", //
        "3 user: look",
        "running 3",
        "3 call c1 terminal {}",
        "3 output c1: out 1",
        "3 agent: unseen",
        "idle 3",
        "compaction: sum",
        "10 user: three",
        "running 10",
        "10 agent: third",
        "idle 10",
    ];
    check(Version::V19, turn_with_a_tool, 8, second, &expected);
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
    let expected = then(&["7 user: two", "running 7", "7 agent: again", "idle 7"]);
    for seen_first in [true, false] {
        let world = World::new();
        let mut db = world.hermes();
        let mirror = seen_first.then(|| world.attach());
        two_turns(&mut db);
        if let Some(mirror) = mirror {
            world.expect_all(mirror, &TWO_TURNS);
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
        "9 user: three",
        "running 9",
        "9 agent: answer",
        "idle 9", //
        "17 user: four",
        "running 17",
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
        "5 user: two",
        "running 5",
        "5 agent: better",
        "idle 5", //
        "compaction: sum",
        "11 user: three",
        "running 11",
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
