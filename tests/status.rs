//! Watching a running mirror: the command, the page, and what machines ask there.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]

mod support;

#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/request.rs"]
mod request;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;
use support::fault::Fault;
use support::hermes_db::{HermesDb, Message};
use support::mirror::{Mirror, PATIENCE, World};

/// `run` over one mirror of this world's session.
fn run(world: &World) -> Mirror {
    let mirror = format!("[[mirror]]\nconversation = '{}'\nworkspace = '{{work}}'\n", world.conversation);
    world.run(&[], &mirror)
}

/// Exit code and output of `status`.
fn ask(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = world.command();
    command
        .env("RUST_LOG", "error")
        .arg("status")
        .args(arguments)
        .arg("--config")
        .arg(world.path("run.toml"));
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Asks until the answer is what it has to become. Returns the exit code and the answer.
fn ask_until(world: &World, holds: impl Fn(&Value) -> bool) -> (Option<i32>, Value) {
    let started = Instant::now();
    loop {
        let (code, text) = ask(world, &["--json"]);
        let answer: Value = serde_json::from_str(&text).unwrap();
        if holds(&answer) {
            return (code, answer);
        }
        assert!(started.elapsed() < PATIENCE, "never: {answer:#}");
    }
}

/// Whether the first turn is delivered, its edge too.
fn is_done(answer: &Value) -> bool {
    let one = &answer["mirrors"][0];
    one["state"] == "live" && one["items"]["delivered"] == 2
}

#[test]
fn a_running_mirror_says_how_it_stands() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    let mirror = run(&world);
    ask_until(&world, |answer| answer["mirrors"][0]["state"] == "discovering");
    db.session("s", Some(&world.workspace()));
    db.turn("s", "q", "my key is ghp_0123456789abcdefghijABCDEFGHIJ012345");
    let (code, answer) = ask_until(&world, |answer| answer["mirrors"][0]["items"]["delivered"] == 2);
    assert_eq!(
        (code, &answer["version"], &answer["running"], &answer["well"]),
        (Some(0), &Value::from(1), &Value::from(true), &Value::from(true))
    );
    assert_eq!(answer["pid"], mirror.pid());
    assert_eq!(answer["sources"][0]["fault"], Value::Null);
    let (_, answer) = ask_until(&world, is_done);
    let one = &answer["mirrors"][0];
    assert_eq!((&one["conversation"], &one["session"]), (&world.conversation.clone().into(), &"s".into()));
    assert_eq!((&one["rows"]["read"], &one["rows"]["waiting"]), (&2.into(), &0.into()));
    assert_eq!((&one["last_row"]["id"], &one["secrets_masked"]), (&2.into(), &1.into()));
    let times = &one["read_to_acknowledged"];
    let counted: u64 =
        times["buckets"].as_array().unwrap().iter().map(|b| b["count"].as_u64().unwrap()).sum();
    assert_eq!((times["count"].as_u64(), counted), (Some(2), 2));

    let (code, text) = ask(&world, &[]);
    assert_eq!(code, Some(0));
    for line in
        [&format!("{}  live", world.conversation), "  session   s", "  items     2 delivered of 2 rows"]
    {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    mirror.stop();
}

#[test]
fn who_does_not_run_is_said_not_to_after_a_kill_too() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = run(&world);
    db.turn("s", "q", "a");
    ask_until(&world, |answer| answer["running"] == true);
    mirror.kill();
    assert_eq!(ask(&world, &["--json"]), (Some(1), "{\"version\":1,\"running\":false}\n".to_owned()));
    let (code, text) = ask(&world, &[]);
    assert!(code == Some(1) && text.starts_with("not running: "), "{text}");
    // What the killed one left behind is in nobody's way.
    let again = run(&world);
    ask_until(&world, |answer| answer["running"] == true && answer["mirrors"][0]["state"] == "live");
    again.stop();
    assert_eq!(ask(&world, &["--json"]).0, Some(1));
}

#[test]
fn what_holds_a_mirror_up_is_named_and_is_no_success() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = run(&world);
    for (fault, state, reason) in [
        (Fault::Status(503), "held", "server away"),
        (Fault::Status(401), "held", "log in"),
        (Fault::Status(404), "held", "no conversation"),
    ] {
        world.sink.script(move |_| fault.clone());
        db.append("s", &Message::user("q"));
        let stands = |answer: &Value| {
            let one = &answer["mirrors"][0];
            one["reason"] == reason && one["rows"]["waiting"].as_u64() >= Some(1)
        };
        let (code, answer) = ask_until(&world, stands);
        assert_eq!(
            (code, &answer["mirrors"][0]["state"], &answer["well"]),
            (Some(3), &state.into(), &false.into())
        );
        world.sink.heal();
        ask_until(&world, |answer| answer["mirrors"][0]["state"] == "live");
    }
    let (_, answer) = ask_until(&world, |_| true);
    assert!(answer["mirrors"][0]["failed_attempts"].as_u64() >= Some(3), "{answer:#}");
    mirror.stop();
}

#[test]
fn a_source_that_cannot_be_read_is_named() {
    let world = World::new();
    let mirror = run(&world);
    let (code, answer) = ask_until(&world, |answer| answer["sources"][0]["fault"] == "missing");
    assert_eq!((code, &answer["mirrors"][0]["state"]), (Some(3), &"degraded".into()));
    let _db = world.hermes();
    let (code, _) = ask_until(&world, |answer| answer["sources"][0]["fault"] == Value::Null);
    assert_eq!(code, Some(0));
    mirror.stop();
}

#[test]
fn the_page_tells_people_and_machines_the_same_and_nobody_from_elsewhere() {
    let world = World::new();
    world.configure("[status]\nlisten = '127.0.0.1:0'\n");
    let mut db = world.hermes();
    let mirror = run(&world);
    db.turn("s", "q", "a");
    let (_, answer) = ask_until(&world, is_done);
    let page = answer["page"].as_str().unwrap();
    let address: SocketAddr = page.strip_prefix("http://").unwrap().trim_end_matches('/').parse().unwrap();
    let get = |path: &str| request::request(address, "GET", path, None).unwrap();
    assert_eq!(get("/healthz"), (200, "ok\n".into()));
    assert_eq!(get("/status.json").1["mirrors"][0]["items"], answer["mirrors"][0]["items"]);
    let (status, text) = get("/metrics");
    assert_eq!(status, 200);
    let line = format!("hermes_mirror_items_delivered_total{{conversation=\"{}\"}} 2\n", world.conversation);
    assert!(text.as_str().unwrap().contains(&line), "{text}");
    let (status, text) = get("/");
    assert!(status == 200 && text.as_str().unwrap().contains(&world.conversation), "{text}");
    assert_eq!(get("/nowhere").0, 404);

    let mut stream = TcpStream::connect(address).unwrap();
    let port = address.port();
    write!(stream, "GET /status.json HTTP/1.1\r\nHost: evil.example:{port}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");

    world.sink.script(|_| Fault::Status(503));
    db.append("s", &Message::user("held"));
    ask_until(&world, |answer| answer["well"] == false);
    assert_eq!(get("/healthz").0, 503);
    world.sink.heal();
    mirror.stop();
}

#[test]
fn a_page_that_cannot_be_had_stops_no_mirror() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    world.configure(&format!("[status]\nlisten = '{}'\n", taken.local_addr().unwrap()));
    let mut db = world.hermes();
    let mirror = run(&world);
    mirror.wait_for_log("mirroring without");
    db.turn("s", "q", "a");
    let (_, answer) = ask_until(&world, |answer| answer["mirrors"][0]["items"]["delivered"] == 2);
    assert_eq!(answer["page"], Value::Null);
    mirror.stop();
}

#[test]
fn one_that_a_runner_started_is_found_by_its_bridge_directory_and_can_be_watched() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    mirror.wait_for_log("started");
    let mut command = world.command();
    command.args(["status", "--json", "--watch", "--state-dir"]).arg(world.bridge("a"));
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["mirrors"][0]["conversation"], world.conversation.as_str());
    db.turn("s", "q", "a");
    while next()["mirrors"][0]["items"]["delivered"] != 2 {}
    mirror.stop();
    while next()["running"] != false {}
    watching.kill().unwrap();
    watching.wait().unwrap();
}
