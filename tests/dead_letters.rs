//! What a server would not take: seen, sent again and thrown away, through the program.
#![allow(clippy::unwrap_used, reason = "what can't be set up can't be tested")]

mod support;

use std::process::Command;

use serde_json::{Value, json};
use support::fault::Fault;
use support::hermes_db::{HermesDb, Kept, Message, Summary};
use support::mirror::{PATIENCE, World};

/// What the person asks that the server refuses.
const ASKED: &str = "tell me";

/// Refuses each item that holds one of `words`.
fn refuse(world: &World, words: &'static [&'static str]) {
    world.sink.script(move |request| {
        let body = String::from_utf8_lossy(&request.body);
        let refused = request.method == "POST" && words.iter().any(|word| body.contains(word));
        if refused { Fault::Status(422) } else { Fault::None }
    });
}

fn mirrors(world: &World) -> String {
    format!("[[mirror]]\nconversation = '{}'\nsession = 's'\n", world.conversation)
}

fn deliver(world: &World) {
    let (code, log) = world.run(&["--once"], &mirrors(world)).wait();
    assert_eq!(code, Some(0), "{log}");
}

/// A world in which `run --once` has set the rows with these words aside.
fn with_letters(turns: &[(&str, &str)], words: &'static [&'static str]) -> (World, HermesDb) {
    let world = World::new();
    let mut db = world.hermes();
    for (asked, answer) in turns {
        db.turn("s", asked, answer);
    }
    refuse(&world, words);
    deliver(&world);
    world.sink.heal();
    (world, db)
}

fn one_letter() -> (World, HermesDb) {
    with_letters(&[(ASKED, "no")], &[ASKED])
}

/// What `dead-letters` says and how it ends, whatever the arguments.
fn plain(world: &World, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hermes-mirror"));
    command.env_clear().env("HOME", world.path("home")).current_dir(world.path("work"));
    let output = command.arg("dead-letters").args(arguments).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| std::str::from_utf8(text).unwrap());
    format!("exit code {}\n--- stdout\n{out}--- stderr\n{err}", output.status.code().unwrap())
}

/// The same over the configuration that made the letters.
fn said(world: &World, arguments: &[&str]) -> String {
    let config = world.path("run.toml");
    plain(world, &[arguments, &["--config", config.to_str().unwrap()]].concat())
}

fn json_of(answer: &str) -> Value {
    let (_, text) = answer.split_once("--- stdout\n").unwrap();
    serde_json::from_str(text.split("--- stderr").next().unwrap()).unwrap()
}

/// Compares with the snapshot, without what differs from run to run.
fn snapshot(world: &World, name: &str, answer: &str) {
    let root = world.path("");
    let answer = answer
        .replace(&world.sink.url(), "http://[server]")
        .replace(&world.conversation, "[conversation]")
        .replace(root.to_str().unwrap().trim_end_matches('/'), "[dir]");
    let filters = vec![
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[when]"),
        (r#""at_ms": \d+"#, r#""at_ms": [ms]"#),
        (r"\b[0-9a-f]{32}\b", "[item]"),
        (r"process \d+", "process [pid]"),
        (r" \(os error \d+\)", ""),
    ];
    insta::with_settings!({ filters => filters }, {
        insta::assert_snapshot!(name, answer);
    });
}

/// What is said in the conversation, tool calls apart.
fn texts(world: &World) -> Vec<String> {
    let text = |item: &Value| item["content"][0]["text"].as_str().map(str::to_owned);
    world.sink.items(&world.conversation).iter().filter_map(text).collect()
}

#[test]
fn without_a_letter_or_a_ledger_there_is_nothing_to_do() {
    let (world, _db) = with_letters(&[("hello", "hi")], &["never"]);
    snapshot(&world, "none", &said(&world, &["list"]));
    assert_eq!(json_of(&said(&world, &["list", "--json"])), json!([]));
    assert!(said(&world, &["replay", "--all"]).starts_with("exit code 0"));
    snapshot(&world, "none_purged", &said(&world, &["purge", "--all"]));
    snapshot(&world, "no_ledger", &plain(&world, &["list"]));
    assert!(!world.path("home/.local/state/hermes-mirror/ledger.db").exists(), "looking makes nothing");
}

#[test]
fn a_letter_is_listed_and_shown_with_all_there_is_to_it() {
    let (world, _db) = one_letter();
    snapshot(&world, "list", &said(&world, &["list"]));
    snapshot(&world, "list_json", &said(&world, &["list", "--json"]));
    snapshot(&world, "show", &said(&world, &["show", "1"]));
    snapshot(&world, "show_json", &said(&world, &["--json", "show", "1"]));
    for action in ["show", "replay", "purge"] {
        snapshot(&world, "unknown", &said(&world, &[action, "9"]));
    }
}

#[test]
fn a_letter_whose_first_answer_was_lost_may_have_been_delivered() {
    let world = World::new();
    world.hermes().turn("s", ASKED, "no");
    let mut tries = 0;
    world.sink.script(move |request| {
        if request.method != "POST" || !String::from_utf8_lossy(&request.body).contains(ASKED) {
            return Fault::None;
        }
        tries += 1;
        if tries == 1 { Fault::Status(500) } else { Fault::Status(413) }
    });
    deliver(&world);
    snapshot(&world, "list_doubtful", &said(&world, &["list"]));
}

#[test]
fn letters_are_delivered_in_the_order_of_their_rows_and_leave_the_list() {
    let (world, _db) = with_letters(&[("one a", "one b"), ("two a", "two b")], &["one b", "two a"]);
    assert_eq!(texts(&world), ["one a", "two b"]);
    snapshot(&world, "replay_delivered", &said(&world, &["replay", "2", "1", "2"]));
    assert_eq!(texts(&world), ["one a", "two b", "one b", "two a"]);
    assert!(said(&world, &["list"]).contains("no dead letters"));
}

#[test]
fn a_letter_that_is_there_already_is_not_sent_again() {
    let (world, _db) = one_letter();
    let body = json_of(&said(&world, &["show", "1", "--json"]))["body"].clone();
    let mut item = body["data"]["item_data"].clone();
    item["type"] = json!("message");
    // The same words in another turn are another message.
    item["response_id"] = json!("hermes_turn_77");
    world.sink.add_item(&world.conversation, &item);
    item["response_id"] = body["data"]["response_id"].clone();
    world.sink.add_item(&world.conversation, &item);
    snapshot(&world, "replay_found", &said(&world, &["replay", "--all"]));
    assert_eq!(texts(&world), ["no", ASKED, ASKED]);
    assert!(said(&world, &["list"]).contains("no dead letters"));
}

#[test]
fn an_item_on_record_settles_no_letter_and_each_item_only_one() {
    // Three equal messages in one turn, of which one is delivered in its time, and one without our knowing.
    let world = World::new();
    let mut db = world.hermes();
    db.append("s", &Message::user("go"));
    for call in ["c1", "c2", "c3"] {
        db.append("s", &Message::tools("same", &[(call, "ls", "{}")]));
    }
    let mut seen = 0;
    world.sink.script(move |request| {
        if request.method == "POST" && String::from_utf8_lossy(&request.body).contains("same") {
            seen += 1;
            return if seen == 1 { Fault::None } else { Fault::Status(422) };
        }
        Fault::None
    });
    deliver(&world);
    world.sink.heal();
    let delivered = world.sink.items(&world.conversation).swap_remove(1);
    world.sink.add_item(
        &world.conversation,
        &json!({"type": "message", "role": "assistant",
        "response_id": delivered["response_id"], "content": delivered["content"]}),
    );
    let fates = json_of(&said(&world, &["replay", "--all", "--json"]));
    let outcomes: Vec<&Value> = fates.as_array().unwrap().iter().map(|fate| &fate["outcome"]).collect();
    assert_eq!(outcomes, ["found", "delivered"], "{fates}");
    assert_eq!(texts(&world), ["go", "same", "same", "same"]);
}

#[test]
fn what_is_refused_again_stays_and_the_next_is_tried() {
    let (world, _db) = with_letters(&[("one a", "one b"), ("two a", "two b")], &["one b", "two a"]);
    refuse(&world, &["one b"]);
    snapshot(&world, "replay_refused", &said(&world, &["replay", "--all"]));
    snapshot(&world, "replay_refused_json", &said(&world, &["replay", "--all", "--json"]));
    assert_eq!(texts(&world), ["one a", "two b", "two a"]);
    assert_eq!(json_of(&said(&world, &["list", "--json"]))[0]["row"], 2);
}

#[test]
fn a_lost_answer_leaves_the_letter_in_doubt_and_the_next_replay_finds_the_item() {
    let (world, _db) = with_letters(&[("one a", "one b"), ("two a", "two b")], &["one b", "two a"]);
    world.sink.next_posts([Fault::StatusAfterCommit(502)]);
    snapshot(&world, "replay_lost", &said(&world, &["replay", "--all"]));
    assert_eq!(json_of(&said(&world, &["show", "1", "--json"]))["maybe_delivered"], true);
    let fates = json_of(&said(&world, &["replay", "--all", "--json"]));
    assert_eq!([&fates[0]["outcome"], &fates[1]["outcome"]], ["found", "delivered"]);
    assert_eq!(texts(&world), ["one a", "two b", "one b", "two a"]);
}

#[test]
fn a_server_that_is_away_or_another_one_is_sent_nothing() {
    let (world, _db) = one_letter();
    let elsewhere = ["replay", "--all", "--base-url", "http://127.0.0.1:9/other"];
    snapshot(&world, "replay_other_server", &said(&world, &elsewhere));
    assert!(said(&world, &["replay", "1", "--base-url", "ftp://h"]).starts_with("exit code 2"));
    world.sink.delete_conversation(&world.conversation);
    snapshot(&world, "replay_conversation_gone", &said(&world, &["replay", "1"]));
}

#[test]
fn beside_a_running_mirror_letters_are_seen_and_not_sent() {
    let world = World::new();
    world.hermes().turn("s", ASKED, "no");
    refuse(&world, &[ASKED]);
    let mirror = world.run(&[], &mirrors(&world));
    let answered = |state: &support::sink::State| state.items(&world.conversation).len() == 1;
    assert!(world.sink.wait_until(answered, PATIENCE));
    world.sink.heal();
    assert!(said(&world, &["list"]).contains("row 1"));
    let refused = said(&world, &["replay", "--all"]);
    assert!(refused.contains(&format!("process {}", mirror.pid())), "{refused}");
    snapshot(&world, "replay_held", &refused);
    mirror.stop();
    assert!(said(&world, &["replay", "--all"]).starts_with("exit code 0"));
    assert_eq!(texts(&world), ["no", ASKED]);
}

#[test]
fn the_letters_of_an_attached_mirror_are_in_its_bridge_directory() {
    let world = World::new();
    world.hermes().turn("s", ASKED, "no");
    refuse(&world, &[ASKED]);
    let mirror = world.attach();
    world.expect(&["running 1", "1 agent: no", "failed 1"]);
    mirror.stop();
    world.sink.heal();
    let bridge = world.bridge("a");
    let over =
        |arguments: &[&str]| plain(&world, &[arguments, &["--state-dir", bridge.to_str().unwrap()]].concat());
    assert!(over(&["list"]).contains("row 1"));
    let replayed = over(&["replay", "1", "--base-url", &world.sink.url()]);
    assert!(replayed.starts_with("exit code 0"), "{replayed}");
    assert_eq!(texts(&world), ["no", ASKED]);
}

#[test]
fn only_what_is_named_is_thrown_away() {
    let (world, _db) = with_letters(&[("one a", "one b"), ("two a", "two b")], &["one b", "two a"]);
    assert!(said(&world, &["purge", "1", "9"]).starts_with("exit code 2"));
    assert!(said(&world, &["purge"]).starts_with("exit code 2"));
    assert!(said(&world, &["purge", "1", "--all"]).starts_with("exit code 2"));
    assert_eq!(json_of(&said(&world, &["list", "--json"])).as_array().unwrap().len(), 2);
    snapshot(&world, "purged", &said(&world, &["purge", "1"]));
    assert_eq!(json_of(&said(&world, &["purge", "--all", "--json"])), json!({"purged": [2]}));
    assert_eq!(texts(&world), ["one a", "two b"]);
}

#[test]
fn a_compaction_is_sent_again_with_the_boundary_it_had() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "one a", "one b");
    deliver(&world);
    world.sink.script(|request| {
        let is_compaction = request.method == "POST" && request.json()["type"] == "compaction";
        if is_compaction { Fault::Status(422) } else { Fault::None }
    });
    db.compact_in_place("s", Kept { head: 0, tail: 0 }, Summary::Row("what was said"));
    deliver(&world);
    let boundary = world.sink.items(&world.conversation).pop().unwrap()["id"].clone();
    db.turn("s", "two a", "two b");
    deliver(&world);
    world.sink.heal();
    let replayed = said(&world, &["replay", "--all"]);
    assert!(replayed.contains("1: delivered\n"), "{replayed}");
    let stored = world.sink.items(&world.conversation).pop().unwrap();
    assert_eq!([&stored["type"], &stored["last_item_id"]], [&json!("compaction"), &boundary]);
}

/// A replayed letter stands behind an item that was stored without our knowing: it must not hide it.
#[test]
fn a_replayed_letter_hides_no_item_that_a_kill_left_unrecorded() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "one a", "one b");
    refuse(&world, &["one b"]);
    deliver(&world);
    // The server stores the next row, and the mirror is killed before it hears of it.
    world.sink.script(|request| match request.method.as_str() {
        "POST" if String::from_utf8_lossy(&request.body).contains("two a") => Fault::StallAfterCommit,
        _ => Fault::None,
    });
    let mirror = world.run(&[], &mirrors(&world));
    db.append("s", &Message::user("two a"));
    let stored = |state: &support::sink::State| state.items(&world.conversation).len() == 2;
    assert!(world.sink.wait_until(stored, PATIENCE));
    mirror.kill();
    world.sink.heal();
    let replayed = said(&world, &["replay", "--all"]);
    assert!(replayed.starts_with("exit code 0"), "{replayed}");
    db.append("s", &Message::answer("two b"));
    deliver(&world);
    assert_eq!(texts(&world), ["one a", "two a", "one b", "two b"]);
}
