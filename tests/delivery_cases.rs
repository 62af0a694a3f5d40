//! Kinds of trouble between the mirror and the server, each named after the case it was seen in.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use hermes_mirror::state::ledger::{DeadLetter, DeadLetters};
use serde_json::json;
use support::fault::Fault;
use support::hermes_db::{HermesDb, Message};
use support::mirror::{PATIENCE, World, write};
use support::shown::shown;
use support::sink::{Request, Sink, State};

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

fn says(request: &Request, text: &str) -> bool {
    String::from_utf8_lossy(&request.body).contains(text)
}

/// A turn with a row of five items, equal ones among them.
fn long_turn(db: &mut HermesDb) {
    let calls = ["a", "b", "b", "c"].map(|id| (id, "ls", "{}"));
    db.append("s", &Message::user("go"));
    db.append("s", &Message::tools("ok", &calls));
    db.append_all("s", &["a", "b", "b", "c"].map(|id| Message::result(id, "out")));
    db.append("s", &Message::answer("ok"));
}

const LONG_TURN: [&str; 13] = [
    "1 user: go",
    "running 1",
    "1 agent: ok",
    "1 call a ls {}",
    "1 call b ls {}",
    "1 call b ls {}",
    "1 call c ls {}",
    "1 output a: out",
    "1 output b: out",
    "1 output b: out",
    "1 output c: out",
    "1 agent: ok",
    "idle 1",
];

/// The items among the lines of a conversation.
fn items(shown: &[String]) -> Vec<&str> {
    let live = |line: &&str| ["running", "idle", "failed", "think"].iter().any(|word| line.starts_with(word));
    shown.iter().map(String::as_str).filter(|line| !live(line)).collect()
}

fn dead_letters(directory: &Path) -> Vec<DeadLetter> {
    DeadLetters::open(directory).unwrap().map(|letters| letters.list().unwrap()).unwrap_or_default()
}

#[test]
fn g1_server_commits_and_the_response_is_lost_neither_lost_nor_doubled() {
    let faults = [
        Fault::ResetAfterCommit,
        Fault::HalfResponse,
        Fault::StatusAfterCommit(500),
        Fault::StatusAfterCommit(502),
        Fault::OtherJson,
        Fault::StallAfterCommit,
    ];
    for fault in faults {
        let world = impatient();
        let (mut seen, strike) = (BTreeSet::new(), fault.clone());
        world.sink.script(move |request| {
            let first = is_item(request) && seen.insert(request.body.clone());
            if first { strike.clone() } else { Fault::None }
        });
        long_turn(&mut world.hermes());
        println!("{fault:?}");
        world.expect_all(world.attach(), &LONG_TURN);
        let struck = world.sink.requests().iter().filter(|request| request.fault == fault).count();
        assert_eq!(struck, 11, "each item's answer was lost once: {fault:?}");
    }
}

#[test]
fn g1_an_item_that_was_not_stored_is_sent_again() {
    for fault in [Fault::Reset, Fault::Status(500), Fault::Status(503), Fault::Html, Fault::Stall] {
        let world = impatient();
        let (mut seen, strike) = (BTreeSet::new(), fault.clone());
        world.sink.script(move |request| {
            let first = is_item(request) && seen.insert(request.body.clone());
            if first { strike.clone() } else { Fault::None }
        });
        long_turn(&mut world.hermes());
        println!("{fault:?}");
        world.expect_all(world.attach(), &LONG_TURN);
    }
}

#[test]
fn g1_a_commit_after_the_client_has_left_is_not_doubled_where_source_ids_are_known() {
    let world = impatient();
    world.sink.dedupe_source_ids(true);
    let mut seen = BTreeSet::new();
    world.sink.script(move |request| {
        let first = is_item(request) && seen.insert(request.body.clone());
        if first { Fault::LateCommit(Duration::from_millis(230)) } else { Fault::None }
    });
    long_turn(&mut world.hermes());
    world.expect_all(world.attach(), &LONG_TURN);
}

#[test]
fn g1_the_lost_item_is_found_behind_pages_of_another_writers() {
    let world = impatient();
    let mut db = world.hermes();
    world.sink.script(|request| if says(request, "lost") { Fault::StallAfterCommit } else { Fault::None });
    let mirror = world.attach();
    db.turn("s", "q", "lost");
    let stalled = |state: &State| state.requests.iter().any(|r| r.fault == Fault::StallAfterCommit);
    assert!(world.sink.wait_until(stalled, PATIENCE));
    let other = json!({"type": "message", "response_id": "resp_other", "role": "assistant",
        "content": [{"type": "output_text", "text": "lost"}]});
    for _ in 0..450 {
        world.sink.add_item(&world.conversation, &other);
    }
    db.turn("s", "q2", "a2");
    let lines = ["1 user: q", "running 1", "1 agent: lost", "idle 1"];
    let more = ["3 user: q2", "running 3", "3 agent: a2", "idle 3"];
    world.expect_all(mirror, &[lines, more].concat());
}

#[test]
fn g1_a_read_back_that_is_refused_or_fails_condemns_no_item() {
    for status in [400, 404, 422, 500, 302] {
        let world = impatient();
        let mut reads = 0;
        world.sink.script(move |request| {
            if request.method == "GET" {
                reads += 1;
                return if reads % 4 == 0 { Fault::None } else { Fault::Status(status) };
            }
            if says(request, "lost") { Fault::ResetAfterCommit } else { Fault::None }
        });
        world.hermes().turn("s", "q", "lost");
        world.expect_all(world.attach(), &["1 user: q", "running 1", "1 agent: lost", "idle 1"]);
        assert_eq!(dead_letters(&world.bridge("a")), [], "{status}");
    }
}

#[test]
fn g2_a_connection_that_the_server_closed_meanwhile_costs_no_item() {
    let mut world = impatient();
    // Each side's limit is the other's: whatever the server closes, the mirror still takes for open.
    world.sink = Sink::with_keep_alive(Duration::from_millis(20));
    world.conversation = world.sink.create_conversation();
    let mut db = world.hermes();
    let mirror = world.attach();
    let mut expected = Vec::new();
    for turn in 0..15 {
        db.turn("s", "q", "a");
        let opener = 1 + 2 * turn;
        expected.extend([format!("{opener} user: q"), format!("{opener} agent: a")]);
        let closed =
            |state: &State| shown(state.events(&world.conversation)).contains(&format!("idle {opener}"));
        assert!(world.sink.wait_until(closed, PATIENCE));
        // The case itself: the next post comes when the server is about to hang up.
        std::thread::sleep(Duration::from_millis(18 + turn % 5));
    }
    mirror.stop();
    // A `running` edge that met the closed connection is left out; a silent turn is called running again.
    assert_eq!(items(&world.shown()), expected);
    let default = hermes_mirror::config::Deliver::default();
    assert!(default.keep_alive_ms < 5_000, "below what uvicorn allows");
}

#[test]
fn g4_a_poison_item_becomes_a_dead_letter_and_the_later_ones_go_on_in_order() {
    for status in [400, 413, 422] {
        let world = impatient();
        world.sink.script(move |request| {
            if is_item(request) && says(request, "poison") { Fault::Status(status) } else { Fault::None }
        });
        let mut db = world.hermes();
        let mirror = world.attach();
        db.append_all("s", &[Message::user("q"), Message::tools("poison", &[("c", "ls", "{}")])]);
        db.append_all("s", &[Message::result("c", "out"), Message::answer("done")]);
        db.turn("s", "q2", "a2");
        let poisoned =
            ["1 user: q", "running 1", "1 call c ls {}", "1 output c: out", "1 agent: done", "failed 1"];
        let sound = ["5 user: q2", "running 5", "5 agent: a2", "idle 5"];
        world.expect_all(mirror, &[&poisoned[..], &sound[..]].concat());
        let letters = dead_letters(&world.bridge("a"));
        assert_eq!(letters.len(), 1);
        assert_eq!((letters[0].row.get(), letters[0].place, letters[0].maybe_delivered), (2, 1, false));
        assert!(letters[0].reason.contains(&status.to_string()), "{}", letters[0].reason);
    }
}

#[test]
fn g4_an_item_refused_after_its_answer_was_lost_is_said_to_be_perhaps_delivered() {
    let world = impatient();
    let mut posts = 0;
    world.sink.script(move |request| {
        if !says(request, "poison") {
            return Fault::None;
        }
        posts += 1;
        if posts == 1 { Fault::Reset } else { Fault::Status(400) }
    });
    world.hermes().turn("s", "q", "poison");
    world.expect_all(world.attach(), &["1 user: q", "running 1", "failed 1"]);
    assert!(dead_letters(&world.bridge("a"))[0].maybe_delivered);
}

#[test]
fn g5_an_expired_login_holds_the_queue_until_somebody_logs_in() {
    for refusal in [Fault::Redirect, Fault::Status(401), Fault::Status(403)] {
        let world = World::new();
        let token = world.path("token");
        write(&token, "old");
        let auth = format!("[deliver.auth.file]\npath = '{}'\n", token.display());
        world.configure(&format!("[deliver.retry]\ninitial_ms = 1\nmax_ms = 10\n{auth}"));
        let strike = refusal.clone();
        world.sink.script(move |request| {
            if request.authorization.as_deref() == Some("Bearer new") { Fault::None } else { strike.clone() }
        });
        let mut db = world.hermes();
        let mirror = world.attach();
        db.turn("s", "q", "a");
        mirror.wait_for_log("log in to the server");
        std::fs::remove_file(&token).unwrap();
        let tries = world.sink.requests().len();
        assert!(world.sink.wait_until(|state| state.requests.len() > tries + 5, PATIENCE));
        assert_eq!(world.shown(), Vec::<String>::new());
        write(&token, "new");
        world.expect(&["1 user: q", "running 1", "1 agent: a", "idle 1"]);
        let log = mirror.stop();
        assert_eq!(log.matches("log in to the server").count(), 1, "{log}");
        assert!(world.sink.requests().iter().all(|r| !r.path.contains("login")), "a redirect was followed");
        assert_eq!(dead_letters(&world.bridge("a")), []);
    }
}

#[test]
fn g5_a_source_that_gives_another_token_each_time_is_asked_once_and_then_waited_for() {
    let world = World::new();
    let auth = "[deliver.auth.command]\nargv = ['sh', '-c', 'date +%s%N']\n";
    world.configure(&format!("[deliver.retry]\ninitial_ms = 60000\nmax_ms = 60000\n{auth}"));
    world.sink.script(|_| Fault::Status(401));
    let mut db = world.hermes();
    let mirror = world.attach();
    db.append("s", &Message::user("q"));
    mirror.wait_for_log("log in to the server");
    let requests = world.sink.requests();
    let tokens: BTreeSet<_> = requests.iter().filter_map(|r| r.authorization.clone()).collect();
    // The read-back at the start, with two tokens.
    assert_eq!(requests.iter().filter(|r| r.method == "GET").count(), 2, "{requests:?}");
    assert!(tokens.len() >= 2);
    mirror.kill();
}

#[test]
fn g8_a_server_that_asks_for_time_gets_it_and_every_item_once() {
    let answers = [
        Fault::Status(408),
        Fault::Status(425),
        Fault::RetryAfter(429, "0".to_owned()),
        Fault::RetryAfter(429, "99999999999999999999".to_owned()),
        Fault::RetryAfter(503, "Fri, 31 Dec 9999 23:59:59 GMT".to_owned()),
        Fault::RetryAfter(503, "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
        Fault::RetryAfter(429, "soon".to_owned()),
        Fault::Status(501),
        Fault::Status(502),
    ];
    let world = impatient();
    let mut faults = answers.clone().into_iter();
    world.sink.script(move |r| if is_item(r) { faults.next().unwrap_or(Fault::None) } else { Fault::None });
    long_turn(&mut world.hermes());
    world.expect_all(world.attach(), &LONG_TURN);
    let struck = world.sink.requests().iter().filter(|request| request.fault != Fault::None).count();
    assert_eq!(struck, answers.len());
}

#[test]
fn g9_a_crash_behind_each_item_of_a_row_that_is_archived_meanwhile() {
    for lost_answer in [false, true] {
        for crash_after in 1..=11 {
            let world = World::new();
            let mut db = world.hermes();
            let mut posts = 0;
            world.sink.script(move |request| {
                posts += usize::from(is_item(request));
                match posts.cmp(&crash_after) {
                    std::cmp::Ordering::Less => Fault::None,
                    std::cmp::Ordering::Equal if !lost_answer => Fault::None,
                    std::cmp::Ordering::Equal => Fault::StallAfterCommit,
                    std::cmp::Ordering::Greater => Fault::Stall,
                }
            });
            let mirror = world.attach();
            long_turn(&mut db);
            let there = |state: &State| {
                let stalls = |r: &Request| matches!(r.fault, Fault::Stall | Fault::StallAfterCommit);
                let stalled = state.requests.iter().any(stalls) || (crash_after == 11 && !lost_answer);
                stalled && state.items(&world.conversation).len() == crash_after
            };
            assert!(world.sink.wait_until(there, PATIENCE));
            mirror.kill();
            world.sink.heal();
            db.conn.execute_batch("UPDATE messages SET active = 0, compacted = 1").unwrap();
            let mirror = world.attach();
            let done =
                |state: &State| shown(state.events(&world.conversation)).iter().any(|line| line == "idle 1");
            assert!(world.sink.wait_until(done, PATIENCE), "{crash_after}: {:?}", world.shown());
            mirror.stop();
            assert_eq!(items(&world.shown()), items(&LONG_TURN.map(str::to_owned)), "after {crash_after}");
        }
    }
}

#[test]
fn a_conversation_that_is_unknown_for_a_while_is_waited_for() {
    let world = impatient();
    let mut posts = 0;
    world.sink.script(move |request| {
        posts += usize::from(is_item(request));
        if is_item(request) && posts <= 10 { Fault::Status(404) } else { Fault::None }
    });
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "q", "a");
    world.expect(&["1 user: q", "running 1", "1 agent: a", "idle 1"]);
    let log = mirror.stop();
    assert_eq!(log.matches("does the conversation still exist?").count(), 1, "{log}");
    assert_eq!(dead_letters(&world.bridge("a")), []);
}
