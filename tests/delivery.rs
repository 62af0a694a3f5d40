//! A server that fails in every way, and what the whole mirror makes of it.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::time::Duration;

use support::fault::Fault;
use support::hermes_db::{HermesDb, Message};
use support::mirror::{PATIENCE, World, write};
use support::shown::{shown, usages};
use support::sink::{Request, State};

const TURN: [&str; 4] = ["1 user: q", "running 1", "1 agent: a", "idle 1"];

fn is_item(request: &Request) -> bool {
    request.json()["type"] == "external_conversation_item"
}

#[test]
fn each_binding_is_told_once_and_a_continuation_is_another() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "q", "a");
    world.expect(&TURN);
    let kept = support::hermes_db::Kept { head: 0, tail: 2 };
    db.compact_by_fork("s", "child", kept, support::hermes_db::Summary::Row("sum"));
    let told = |state: &State| state.requests.iter().filter(|r| r.method == "PATCH").count();
    assert!(world.sink.wait_until(|state| told(state) >= 2, PATIENCE));
    mirror.stop();
    let requests = world.sink.requests();
    let told: Vec<_> = requests.iter().filter(|r| r.method == "PATCH").map(Request::json).collect();
    assert_eq!(
        told,
        [
            serde_json::json!({"external_session_id": "s"}),
            serde_json::json!({"external_session_id": "child"})
        ]
    );
}

#[test]
fn a_binding_that_is_never_taken_holds_nothing_up() {
    for status in [400, 503] {
        let world = World::new();
        world.sink.script(move |request| match request.method.as_str() {
            "PATCH" => Fault::Status(status),
            _ => Fault::None,
        });
        let mut db = world.hermes();
        let mirror = world.attach();
        db.turn("s", "q", "a");
        world.expect_all(mirror, &TURN);
        let requests = world.sink.requests();
        assert_eq!(requests.iter().filter(|r| r.method == "PATCH").count(), 1, "{status}");
    }
}

#[test]
fn a_refused_token_is_read_again_and_never_shown() {
    let world = World::new();
    let token = world.path("token");
    world.configure(&format!("[deliver.auth.file]\npath = '{}'\n", token.display()));
    write(&token, "old-t0ken\n");
    world.sink.script(|request| match request.authorization.as_deref() {
        Some("Bearer new-t0ken") => Fault::None,
        _ => Fault::Status(401),
    });
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "q", "a");
    mirror.wait_for_log("log in to the server");
    write(&token, "new-t0ken\n");
    // Where the conversation stands is asked before anything is sent, so nothing of the turn was refused.
    world.expect(&TURN);
    let log = mirror.stop();
    assert!(log.contains("delivering again"), "{log}");
    assert_eq!(log.matches("log in to the server").count(), 1, "{log}");
    assert!(!log.contains("t0ken"), "{log}");
}

#[test]
fn a_redirect_to_a_login_is_never_followed() {
    let world = World::new();
    world.sink.script(|request| if request.method == "POST" { Fault::Redirect } else { Fault::None });
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "q", "a");
    mirror.wait_for_log("log in to the server");
    world.sink.heal();
    world.expect(&TURN);
    mirror.stop();
    assert!(world.sink.requests().iter().all(|request| !request.path.contains("login")));
}

#[test]
fn an_item_that_is_refused_for_good_lets_the_later_ones_by_in_order() {
    for status in [400, 413, 422] {
        let world = World::new();
        world.sink.script(move |request| {
            let poison = is_item(request) && String::from_utf8_lossy(&request.body).contains("poison");
            if poison { Fault::Status(status) } else { Fault::None }
        });
        let mut db = world.hermes();
        let mirror = world.attach();
        db.turn("s", "q", "poison");
        db.turn("s", "q2", "a2");
        world.expect(&[
            "1 user: q",
            "running 1",
            "failed 1",
            "3 user: q2",
            "running 3",
            "3 agent: a2",
            "idle 3",
        ]);
        let log = mirror.stop();
        assert_eq!(log.matches("set aside as a dead letter").count(), 1, "{log}");
    }
}

#[test]
fn a_server_that_is_busy_is_asked_again() {
    let world = World::new();
    let later = |status| Fault::RetryAfter(status, "0".to_owned());
    let mut faults: Vec<Fault> = [429, 503].into_iter().map(later).collect();
    faults.extend([408, 425, 500, 502, 504].map(Fault::Status));
    faults.push(Fault::Reset);
    let mut faults = faults.into_iter();
    world.sink.script(
        move |request| if is_item(request) { faults.next().unwrap_or(Fault::None) } else { Fault::None },
    );
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "q", "a");
    world.expect(&TURN);
    let log = mirror.stop();
    assert_eq!(world.shown(), TURN);
    assert_eq!(log.matches("trying again, nothing is lost").count(), 1, "{log}");
    assert_eq!(log.matches("delivering again").count(), 1, "{log}");
}

#[test]
fn a_server_that_starts_later_gets_everything() {
    let world = World::new();
    world.sink.stop();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "q", "a");
    mirror.wait_for_log("trying again, nothing is lost");
    world.sink.restart();
    world.expect(&TURN);
    db.turn("s", "q2", "a2");
    let end = ["3 user: q2", "running 3", "3 agent: a2", "idle 3"];
    world.expect_all(mirror, &[&TURN[..], &end].concat());
}

#[test]
fn a_slow_server_gets_everything_in_order() {
    let world = World::new();
    world.sink.script(|_| Fault::Slow(Duration::from_millis(5)));
    let mut db = world.hermes();
    let mirror = world.attach();
    for n in 0..20 {
        db.turn("s", &format!("q{n}"), "a");
    }
    let expected: Vec<String> = (0..20)
        .flat_map(|n| {
            let id = 2 * n + 1;
            [
                format!("{id} user: q{n}"),
                format!("running {id}"),
                format!("{id} agent: a"),
                format!("idle {id}"),
            ]
        })
        .collect();
    world.expect_all(mirror, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn lanes_do_not_wait_for_one_another() {
    let world = World::new();
    let (stalled, refusing) = (world.sink.create_conversation(), world.sink.create_conversation());
    let (one, two) = (stalled.clone(), refusing.clone());
    world.sink.script(move |request| match &request.path {
        path if path.contains(&one) => Fault::Stall,
        path if path.contains(&two) => Fault::Status(403),
        _ => Fault::None,
    });
    let mut db = HermesDb::create(&world.db_path());
    let mirrors =
        [("x", &stalled), ("y", &refusing), ("s", &world.conversation)].map(|(session, conversation)| {
            db.session(session, None);
            format!("[[mirror]]\nconversation = '{conversation}'\nsession = '{session}'\n")
        });
    let mirror = world.run(&[], &mirrors.concat());
    // More than a lane holds, so that the reader meets two that are full.
    for n in 0..100 {
        for session in ["x", "y", "s"] {
            db.turn(session, &format!("q{n}"), "a");
        }
    }
    let all = |state: &State, id: &str| shown(state.events(id)).len() >= 400;
    assert!(world.sink.wait_until(|state| all(state, &world.conversation), PATIENCE));
    assert_eq!(shown(&world.sink.events(&stalled)), Vec::<String>::new());
    world.sink.heal();
    let healed = |state: &State| [&stalled, &refusing].iter().all(|id| shown(state.events(id)).len() >= 399);
    assert!(world.sink.wait_until(healed, PATIENCE));
    mirror.stop();
    for (place, id) in [(1, &stalled), (3, &refusing), (5, &world.conversation)] {
        let texts: Vec<_> =
            shown(&world.sink.events(id)).into_iter().filter(|line| line.contains("user")).collect();
        let expected: Vec<_> = (0..100).map(|n| format!("{} user: q{n}", 6 * n + place)).collect();
        assert_eq!(texts, expected);
    }
}

#[test]
fn a_backlog_waits_in_the_database_and_not_in_memory() {
    const ROWS: usize = 5_000;
    let world = World::new();
    world.configure("[transform]\nmax_output_chars = 100000\n");
    let mut db = world.hermes();
    let filler = "x".repeat(20_000);
    for rows in 0..ROWS / 100 {
        db.commit(|write| {
            for n in 0..100 {
                let n = rows * 100 + n;
                let at = world.launch + f64::from(u32::try_from(n).unwrap());
                let sql = "INSERT INTO messages (session_id, role, content, timestamp, tool_call_id) \
                           VALUES ('s', 'tool', ?1, ?2, 'c')";
                write.prepare_cached(sql).unwrap().execute((format!("{n} {filler}"), at)).unwrap();
            }
        });
    }
    world.sink.script(|request| if is_item(request) { Fault::Stall } else { Fault::None });
    let mirror = world.attach();
    let held = |state: &State| state.requests.iter().any(|request| request.fault == Fault::Stall);
    assert!(world.sink.wait_until(held, PATIENCE));
    world.sink.heal();
    let all = |state: &State| state.items(&world.conversation).len() >= ROWS;
    assert!(world.sink.wait_until(all, 3 * PATIENCE), "{}", world.sink.items(&world.conversation).len());
    let peak = mirror.peak_memory_kb();
    mirror.stop();
    println!("{peak} kB at most");
    assert!(peak < 60_000, "{peak} kB");
    let numbers: Vec<usize> = world.sink.items(&world.conversation).iter().map(number).collect();
    assert_eq!(numbers, (0..ROWS).collect::<Vec<_>>());
}

fn number(item: &serde_json::Value) -> usize {
    let text = item["output"].as_str().unwrap();
    text.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn usage_counts_what_a_continued_session_used_before() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.append("s", &Message::user("q"));
    db.count_tokens("s", 900, 10, 100);
    db.append("s", &Message::answer("a"));
    let told = |n: usize| {
        let enough = |state: &State| usages(state.events(&world.conversation)).len() >= n;
        assert!(world.sink.wait_until(enough, PATIENCE));
    };
    told(1);
    let kept = support::hermes_db::Kept { head: 0, tail: 1 };
    db.compact_by_fork("s", "child", kept, support::hermes_db::Summary::Row("sum"));
    db.append("child", &Message::user("q2"));
    db.count_tokens("child", 90, 1, 10);
    db.append("child", &Message::answer("a2"));
    told(2);
    mirror.stop();
    let told = usages(&world.sink.events(&world.conversation));
    assert_eq!(told, ["1000/10/100 stub-model", "1100/11/110 stub-model"]);
}

#[test]
fn no_log_holds_a_word_of_the_transcript_or_a_token() {
    let world = World::new();
    let token = world.path("token");
    world.configure(&format!("[deliver.auth.file]\npath = '{}'\n", token.display()));
    write(&token, "s3cret-t0ken\n");
    let mut db = world.hermes();
    let refused = [Fault::None, Fault::Status(500), Fault::Status(401), Fault::Status(400), Fault::Html];
    world.sink.next_posts(refused);
    let mirror = world.attach_logging("trace");
    db.append("s", &Message::user("private words"));
    db.append(
        "s",
        &Message::tools("private words", &[("c1", "terminal", "private words")]).thinking("private words"),
    );
    db.append("s", &Message::result("c1", "private words"));
    db.append("s", &Message::answer("private words"));
    let done = |state: &State| shown(state.events(&world.conversation)).iter().any(|line| line == "failed 1");
    assert!(world.sink.wait_until(done, PATIENCE));
    let log = mirror.stop();
    assert!(log.contains("TRACE"));
    assert!(!log.contains("s3cret"), "{log}");
    assert!(!log.contains("private words"), "{log}");
}
