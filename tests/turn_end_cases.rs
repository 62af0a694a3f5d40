//! The edges that end a turn: behind its last item, told once, and never in the way of what follows.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::time::Duration;

use support::fault::Fault;
use support::hermes_db::Message;
use support::mirror::{PATIENCE, World};
use support::shown::shown;
use support::sink::{Request, State};

/// Time-outs short enough to be waited for.
const IMPATIENT: &str = "[deliver]\ntimeout_ms = 200\ndrain_ms = 4000\n\
     [deliver.retry]\ninitial_ms = 1\nmax_ms = 10\nmax_retry_after_ms = 50\n";

fn impatient() -> World {
    let world = World::new();
    world.configure(IMPATIENT);
    world
}

fn is_item(request: &Request) -> bool {
    request.json()["type"] == "external_conversation_item"
}

fn is_edge(request: &Request, status: &str) -> bool {
    let event = request.json();
    event["type"] == "external_session_status" && event["data"]["status"] == status
}

fn says(request: &Request, text: &str) -> bool {
    String::from_utf8_lossy(&request.body).contains(text)
}

#[test]
fn f4_a_turn_that_ends_while_an_item_is_under_way_is_idle_behind_its_last_item() {
    let world = World::new();
    let mut db = world.hermes();
    world.sink.script(|r| if is_item(r) { Fault::Slow(Duration::from_millis(30)) } else { Fault::None });
    let mirror = world.attach();
    db.append("s", &Message::user("q"));
    assert!(world.sink.wait_until(|state| state.requests.iter().any(is_item), PATIENCE));
    db.append("s", &Message::answer("a"));
    db.turn("s", "q", "a");
    db.turn("s", "q", "a");
    let turn = |n: u8| {
        [format!("{n} user: q"), format!("running {n}"), format!("{n} agent: a"), format!("idle {n}")]
    };
    let expected: Vec<String> = [1, 3, 5].into_iter().flat_map(turn).collect();
    let lines: Vec<&str> = expected.iter().map(String::as_str).collect();
    world.expect_all(mirror, &lines);
}

#[test]
fn f4_a_crash_between_an_idle_edge_and_its_record_repeats_no_item() {
    let world = World::new();
    let mut db = world.hermes();
    world.sink.script(|r| if is_edge(r, "idle") { Fault::StallAfterCommit } else { Fault::None });
    let mirror = world.attach();
    db.turn("s", "q", "a");
    let stalled = |state: &State| state.requests.iter().any(|r| r.fault == Fault::StallAfterCommit);
    assert!(world.sink.wait_until(stalled, PATIENCE));
    mirror.kill();
    world.sink.heal();
    let mirror = world.attach();
    db.turn("s", "q2", "a2");
    let turn = ["1 user: q", "running 1", "1 agent: a", "idle 1", "idle 1"];
    world.expect_all(mirror, &[&turn[..], &["3 user: q2", "running 3", "3 agent: a2", "idle 3"]].concat());
}

#[test]
fn f6_no_idle_while_an_item_is_still_to_be_delivered() {
    let world = impatient();
    world.sink.script(|r| if says(r, "late") { Fault::Status(503) } else { Fault::None });
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "q", "late");
    let refused = |state: &State| state.requests.iter().filter(|r| says(r, "late")).count() >= 10;
    assert!(world.sink.wait_until(refused, PATIENCE));
    assert_eq!(world.shown(), ["1 user: q", "running 1"]);
    world.sink.heal();
    world.expect_all(mirror, &["1 user: q", "running 1", "1 agent: late", "idle 1"]);
}

#[test]
fn an_idle_edge_that_is_refused_for_the_moment_holds_no_later_turn_up() {
    let world = impatient();
    let mut db = world.hermes();
    world.sink.script(|r| {
        if is_edge(r, "idle") && says(r, "hermes_turn_1") { Fault::Status(503) } else { Fault::None }
    });
    let mirror = world.attach();
    db.turn("s", "q", "a");
    db.turn("s", "q2", "a2");
    world.expect(&[
        "1 user: q",
        "running 1",
        "1 agent: a",
        "3 user: q2",
        "running 3",
        "3 agent: a2",
        "idle 3",
    ]);
    world.sink.heal();
    let told = |state: &State| {
        shown(state.events(&world.conversation)).iter().filter(|l| *l == "idle 1").count() == 1
    };
    let told = world.sink.wait_until(told, PATIENCE);
    let log = mirror.stop();
    assert!(told || log.contains("given up"), "{log}");
}

#[test]
fn an_idle_edge_that_is_refused_for_ever_is_given_up_and_said_to_be() {
    let world = impatient();
    let mut db = world.hermes();
    world.sink.script(|r| if is_edge(r, "idle") { Fault::Status(503) } else { Fault::None });
    let mirror = world.attach();
    db.turn("s", "q", "a");
    mirror.wait_for_log("the turn's closing edge was given up");
    world.sink.heal();
    db.turn("s", "q2", "a2");
    let expected =
        ["1 user: q", "running 1", "1 agent: a", "3 user: q2", "running 3", "3 agent: a2", "idle 3"];
    world.expect_all(mirror, &expected);
}

#[test]
fn two_processes_on_one_session_keep_their_turns_apart_wherever_the_mirror_is_restarted() {
    // Rows, and what is shown of each.
    let rows: [(Message, &[&str]); 12] = [
        (Message::user("q"), &["1 user: q"]),
        (Message::tools("", &[("c1", "terminal", "{}")]), &["1 call c1 terminal {}"]),
        (Message::user("q2"), &["3 user: q2"]),
        (Message::tools("", &[("c2", "terminal", "{}")]), &["3 call c2 terminal {}"]),
        (Message::result("c1", "out 1"), &["1 output c1: out 1"]),
        (Message::answer("a"), &["1 agent: a", "idle 1"]),
        (Message::result("c2", "out 2"), &["3 output c2: out 2"]),
        (Message::tools("", &[("c3", "terminal", "{}")]), &["3 call c3 terminal {}"]),
        (Message::user("q3"), &["9 user: q3"]),
        (Message::answer("a3"), &["9 agent: a3", "idle 3", "idle 9"]),
        (Message::result("c3", "out 3"), &["3 output c3: out 3"]),
        (Message::answer("a2"), &["3 agent: a2", "idle 3"]),
    ];
    for stopped_behind in 1..rows.len() {
        let world = World::new();
        let mut db = world.hermes();
        // How often a turn is said to run depends on the restart.
        let told = |events: &[serde_json::Value]| -> Vec<String> {
            shown(events).into_iter().filter(|line| !line.starts_with("running")).collect()
        };
        let mut expected: Vec<&str> = Vec::new();
        let (before, behind) = rows.split_at(stopped_behind);
        for part in [before, behind] {
            let mirror = world.attach();
            mirror.wait_for_log("mirroring");
            for (row, lines) in part {
                db.append("s", row);
                expected.extend(*lines);
            }
            let all = |state: &State| told(state.events(&world.conversation)).len() >= expected.len();
            let _ = world.sink.wait_until(all, PATIENCE);
            mirror.stop();
            let found = told(&world.sink.events(&world.conversation));
            assert_eq!(found, expected, "restarted behind row {stopped_behind}");
        }
    }
}

#[test]
fn an_answer_that_was_cut_off_and_gone_on_with_is_one_turn() {
    let go_on = "[System: Your previous response was truncated by the output length limit. Continue]";
    let cut_off = |text: &str| Message { finish_reason: Some("length".to_owned()), ..Message::answer(text) };
    let world = World::new();
    // Each row in a look of its own.
    world.configure("[read]\nbatch_rows = 1\n[deliver]\nqueue_rows = 1\n");
    let mut db = world.hermes();
    let rows = [Message::user("q"), cut_off("one"), Message::user(go_on), cut_off("two")];
    db.append_all("s", &rows);
    db.append_all("s", &[Message::user(go_on), Message::answer("three")]);
    let meta = format!("1 meta: {go_on}");
    let mut expected = vec![
        "1 user: q",
        "running 1",
        "1 agent: one",
        &meta,
        "1 agent: two",
        &meta,
        "1 agent: three",
        "idle 1",
    ];
    world.expect_all(world.attach(), &expected);
    // One that nobody goes on with is the last of its turn.
    db.append_all("s", &[Message::user("q2"), cut_off("half")]);
    expected.extend(["7 user: q2", "running 7", "7 agent: half", "idle 7"]);
    world.expect_all(world.attach(), &expected);
    // Killed amid the parts, the mirror goes on with the turn.
    db.append_all("s", &[Message::user("q3"), cut_off("one"), Message::user(go_on), Message::answer("two")]);
    world.sink.script(|r| if says(r, "hermes:11:") { Fault::StallAfterCommit } else { Fault::None });
    let mirror = world.attach();
    let stalled = |state: &State| state.requests.iter().any(|r| r.fault == Fault::StallAfterCommit);
    assert!(world.sink.wait_until(stalled, PATIENCE));
    mirror.kill();
    world.sink.heal();
    let meta = format!("9 meta: {go_on}");
    expected.extend(["9 user: q3", "running 9", "9 agent: one", &meta, "9 agent: two", "idle 9"]);
    world.expect_all(world.attach(), &expected);
}

/// What a crash takes with it.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Ledger,
    Bridge,
}

#[test]
fn a_refused_edge_is_still_owed_after_a_crash_that_took_the_ledger_or_the_bridge_file() {
    for lost in [Lost::Ledger, Lost::Bridge] {
        let world = World::new();
        // The next try is far off: the crash comes before it.
        world.configure("[deliver.retry]\ninitial_ms = 60000\nmax_ms = 60000\n");
        let mut db = world.hermes();
        let turn_1 = |r: &Request| is_edge(r, "idle") && says(r, "hermes_turn_1");
        world.sink.script(move |r| if turn_1(r) { Fault::Status(503) } else { Fault::None });
        let mirror = world.attach();
        db.turn("s", "q", "a");
        db.turn("s", "q2", "a2");
        // What was acknowledged before this one is on record.
        db.append("s", &Message::user("q3"));
        let shows = |line: &'static str| {
            let conversation = world.conversation.clone();
            move |state: &State| shown(state.events(&conversation)).iter().any(|l| l == line)
        };
        assert!(world.sink.wait_until(shows("5 user: q3"), PATIENCE), "{lost:?}");
        mirror.kill();
        world.sink.heal();
        world.configure("[deliver.retry]\ninitial_ms = 1\nmax_ms = 10\n");
        let bridge = world.bridge("a");
        match lost {
            Lost::Ledger => std::fs::remove_file(bridge.join("ledger.db")).unwrap(),
            Lost::Bridge => std::fs::remove_file(bridge.join("hermes_forwarder.json")).unwrap(),
        }
        let mirror = world.attach();
        assert!(world.sink.wait_until(shows("idle 1"), PATIENCE), "{lost:?}: {:?}", world.shown());
        mirror.stop();
        let idle: Vec<String> = world.shown().into_iter().filter(|line| line.starts_with("idle")).collect();
        assert_eq!(idle, ["idle 3", "idle 1"], "{lost:?}");
    }
}
