//! Edit and resend: what stood before the edited message is kept under new ids, and the rest is gone.

#![allow(clippy::unwrap_used, reason = "what can't be set up can't be tested")]

mod support;

use support::acts::{KEPT, TWO_TURNS, then, two_turns};
use support::hermes_db::{HermesDb, Message, Summary, Version};
use support::mirror::World;

/// Plays two acts around one that the mirror has seen, live and with the mirror stopped between them.
fn check(
    version: Version,
    first: impl Fn(&mut HermesDb),
    seen: &[&str],
    second: impl Fn(&mut HermesDb),
    end: &[&str],
) {
    for live in [true, false] {
        let world = World::new();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        let mut mirror = Some(world.attach());
        first(&mut db);
        world.expect(seen);
        if !live {
            mirror.take().unwrap().stop();
        }
        second(&mut db);
        world.expect_all(mirror.unwrap_or_else(|| world.attach()), &[seen, end].concat());
    }
}

#[test]
fn what_an_edit_keeps_is_not_shown_again() {
    for version in [Version::V18, Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.edit("s", 2);
            db.turn("s", "two, better", "second, better");
        };
        let end = ["7 user: two, better", "running 7", "7 agent: second, better", "idle 7"];
        check(version, two_turns, &TWO_TURNS, second, &end);
    }
}

#[test]
fn the_same_words_sent_again_are_a_new_message() {
    for version in [Version::V18, Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.edit("s", 2);
            db.turn("s", "two", "second");
        };
        let end = ["7 user: two", "running 7", "7 agent: second", "idle 7"];
        check(version, two_turns, &TWO_TURNS, second, &end);
        let second = |db: &mut HermesDb| {
            db.edit("s", 0);
            db.turn("s", "one", "first");
        };
        let end = ["5 user: one", "running 5", "5 agent: first", "idle 5"];
        check(version, two_turns, &TWO_TURNS, second, &end);
    }
}

#[test]
fn a_lone_message_that_an_edit_keeps_is_not_shown_again() {
    let first = |db: &mut HermesDb| {
        db.append("s", &Message::user("one"));
        db.turn("s", "two", "second");
    };
    let seen =
        ["1 user: one", "running 1", "idle 1", "2 user: two", "running 2", "2 agent: second", "idle 2"];
    for version in [Version::V18, Version::V19, Version::V20] {
        // The words of the one that is kept, too.
        for words in ["two, better", "two", "one"] {
            let second = |db: &mut HermesDb| {
                db.edit("s", 1);
                db.turn("s", words, "better");
            };
            let user = format!("5 user: {words}");
            check(version, first, &seen, second, &[&user, "running 5", "5 agent: better", "idle 5"]);
        }
    }
}

#[test]
fn a_first_message_sent_again_in_the_same_words_is_shown_though_its_answer_takes_long() {
    for version in [Version::V18, Version::V19] {
        let second = |db: &mut HermesDb| {
            db.edit("s", 0);
            db.append("s", &Message::user("one"));
        };
        check(version, two_turns, &TWO_TURNS, second, &["5 user: one", "running 5"]);
    }
}

#[test]
fn a_first_message_that_may_be_a_kept_one_holds_no_other_conversation_up() {
    let world = World::new();
    let other = world.sink.create_conversation();
    let mut db = world.hermes();
    db.session("t", None);
    let mirror = |conversation: &str, session: &str| {
        format!("[[mirror]]\nconversation = '{conversation}'\nsession = '{session}'\n")
    };
    let mirror = world.run(&[], &(mirror(&world.conversation, "s") + &mirror(&other, "t")));
    two_turns(&mut db);
    world.expect(&TWO_TURNS);
    db.edit("s", 0);
    db.append("s", &Message::user("one"));
    db.append("t", &Message::user("elsewhere"));
    world.expect_in(&other, &["6 user: elsewhere", "running 6"]);
    world.expect_all(mirror, &then(&["5 user: one", "running 5"]));
    let requests = world.sink.requests();
    let place = |text: &str| {
        requests.iter().rposition(|request| String::from_utf8_lossy(&request.body).contains(text)).unwrap()
    };
    assert!(place("elsewhere") < place("\"text\":\"one\""));
}

#[test]
fn a_lone_summary_that_an_edit_keeps_is_no_boundary_again() {
    for version in [Version::V19, Version::V20] {
        let first = |db: &mut HermesDb| {
            two_turns(db);
            db.compact_in_place("s", support::hermes_db::Kept { head: 0, tail: 2 }, Summary::Row("sum"));
        };
        let second = |db: &mut HermesDb| {
            db.edit("s", 1);
            db.append("s", &Message::user("three"));
        };
        check(version, first, &then(&["compaction: sum"]), second, &["9 user: three", "running 9"]);
    }
}

#[test]
fn a_compaction_behind_an_edit_repeats_nothing() {
    for version in [Version::V18, Version::V19, Version::V20] {
        let second = |db: &mut HermesDb| {
            db.edit("s", 2);
            db.turn("s", "two", "better");
            db.compact_in_place("s", KEPT, Summary::Row("sum"));
            db.append("s", &Message::user("three"));
        };
        let end = [
            "7 user: two",
            "running 7",
            "7 agent: better",
            "idle 7", //
            "compaction: sum",
            "13 user: three",
            "running 13",
        ];
        check(version, two_turns, &TWO_TURNS, second, &end);
    }
}

#[test]
fn what_is_typed_first_after_an_edit_in_a_forks_child_is_shown_whatever_its_words() {
    for version in [Version::V18, Version::V19, Version::V20] {
        let world = World::new();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        two_turns(&mut db);
        db.compact_by_fork("s", "child", KEPT, Summary::Row("sum"));
        db.edit("child", 0);
        // The words of the parent's first row.
        db.append("child", &Message::user("one"));
        world.expect_all(world.attach(), &then(&["9 user: one", "running 9"]));
    }
}

#[test]
fn what_was_taken_back_unseen_and_is_live_again_while_the_mirror_is_down_is_shown_once_it_is_up() {
    for seen in [false, true] {
        let world = World::new();
        let mut db = world.hermes();
        two_turns(&mut db);
        db.undo("s", 3);
        let mirror = world.attach();
        let mut expected = TWO_TURNS[..4].to_vec();
        let third = ["5 user: three", "running 5", "5 agent: third", "idle 5"];
        world.expect(&expected);
        if seen {
            db.turn("s", "three", "third");
            expected.extend(third);
            world.expect(&expected);
        }
        mirror.stop();
        db.commit(|write| write.execute("UPDATE messages SET active = 1", []).unwrap());
        expected.extend(&TWO_TURNS[4..]);
        if !seen {
            db.turn("s", "three", "third");
            expected.extend(third);
        }
        world.expect_all(world.attach(), &expected);
        db.turn("s", "four", "fourth");
        expected.extend(["7 user: four", "running 7", "7 agent: fourth", "idle 7"]);
        world.expect_all(world.attach(), &expected);
    }
}

#[test]
fn what_was_taken_back_unseen_and_is_live_again_is_shown_after_all() {
    let world = World::new();
    let mut db = world.hermes();
    two_turns(&mut db);
    db.undo("s", 3);
    let mirror = world.attach();
    world.expect(&TWO_TURNS[..4]);
    db.turn("s", "three", "third");
    let third = ["5 user: three", "running 5", "5 agent: third", "idle 5"];
    let shown = [&TWO_TURNS[..4], &third].concat();
    world.expect(&shown);
    db.commit(|write| write.execute("UPDATE messages SET active = 1", []).unwrap());
    let shown = [&shown[..], &TWO_TURNS[4..]].concat();
    world.expect(&shown);
    db.turn("s", "four", "fourth");
    world.expect_all(
        mirror,
        &[&shown[..], &["7 user: four", "running 7", "7 agent: fourth", "idle 7"]].concat(),
    );
    world.expect_all(
        world.attach(),
        &[&shown[..], &["7 user: four", "running 7", "7 agent: fourth", "idle 7"]].concat(),
    );
}
