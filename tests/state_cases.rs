//! Kinds of trouble with the mirror's own files and locks, each named after the case it was seen in.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]
#![allow(clippy::disallowed_methods, reason = "the mirror's files, never a state.db")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::{Connection, OpenFlags};
use support::fault::Fault;
use support::hermes_db::{HermesDb, Message};
use support::mirror::{Mirror, PATIENCE, World, write};
use support::shown::shown;
use support::sink::State;

const CURSOR: &str = "hermes_forwarder.json";

/// What becomes of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    None,
    Missing,
    Empty,
    Nuls,
    Half,
    OtherKind,
    Future,
}

const DAMAGES: [Damage; 7] = [
    Damage::None,
    Damage::Missing,
    Damage::Empty,
    Damage::Nuls,
    Damage::Half,
    Damage::OtherKind,
    Damage::Future,
];

fn damage_cursor(path: &Path, damage: Damage) {
    let text = fs::read_to_string(path).unwrap();
    match damage {
        Damage::None => {}
        Damage::Missing => fs::remove_file(path).unwrap(),
        Damage::Empty => write(path, ""),
        Damage::Nuls => write(path, &"\0".repeat(text.len())),
        Damage::Half => write(path, &text[..text.len() / 2]),
        Damage::OtherKind => write(path, "[1, 2]"),
        Damage::Future => write(path, r#"{"version": 99, "sessions": {"s": {"cursor": "5f"}}}"#),
    }
}

fn damage_ledger(path: &Path, damage: Damage) {
    let bytes = fs::read(path).unwrap();
    match damage {
        Damage::None => {}
        Damage::Missing => fs::remove_file(path).unwrap(),
        Damage::Empty => fs::write(path, "").unwrap(),
        Damage::Nuls => fs::write(path, vec![0; bytes.len()]).unwrap(),
        Damage::Half => fs::write(path, &bytes[..bytes.len() / 2]).unwrap(),
        Damage::OtherKind => {
            fs::remove_file(path).unwrap();
            ledger(path, OpenFlags::SQLITE_OPEN_CREATE).execute_batch("CREATE TABLE mirror (x)").unwrap();
        }
        Damage::Future => {
            ledger(path, OpenFlags::empty()).pragma_update(None, "user_version", 99).unwrap();
        }
    }
}

fn ledger(path: &Path, more: OpenFlags) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | more).unwrap()
}

/// A turn that is open, with equal items side by side.
fn first_act(db: &mut HermesDb) {
    db.turn("s", "q", "a");
    db.append("s", &Message::user("q"));
    db.append("s", &Message::tools("ok", &[("c", "ls", "{}")]));
    db.append_all("s", &[Message::result("c", "out"), Message::result("c", "out")]);
}

/// The same items again, then the turn's end, and a turn that equals the first.
fn second_act(db: &mut HermesDb) {
    db.append("s", &Message::result("c", "out"));
    db.append("s", &Message::tools("ok", &[("c", "ls", "{}")]));
    db.append("s", &Message::answer("ok"));
    db.turn("s", "q", "a");
}

const FIRST_ACT: [&str; 7] = [
    "1 user: q",
    "1 agent: a",
    "3 user: q",
    "3 agent: ok",
    "3 call c ls {}",
    "3 output c: out",
    "3 output c: out",
];

const BOTH_ACTS: [&str; 13] = [
    "1 user: q",
    "1 agent: a",
    "3 user: q",
    "3 agent: ok",
    "3 call c ls {}",
    "3 output c: out",
    "3 output c: out",
    "3 output c: out",
    "3 agent: ok",
    "3 call c ls {}",
    "3 agent: ok",
    "10 user: q",
    "10 agent: a",
];

/// The items among the lines of a conversation.
fn items(state: &State, world: &World) -> Vec<String> {
    let live =
        |line: &String| ["running", "idle", "failed", "think"].iter().any(|word| line.starts_with(word));
    shown(state.events(&world.conversation)).into_iter().filter(|line| !live(line)).collect()
}

fn expect_items(world: &World, expected: &[&str], what: &str) {
    let held = std::cell::RefCell::new(Vec::new());
    let _ = world.sink.wait_until(
        |state| {
            held.replace(items(state, world));
            held.borrow().len() >= expected.len()
        },
        PATIENCE,
    );
    assert_eq!(held.into_inner(), expected, "{what}");
}

#[test]
fn h1_whatever_was_damaged_nothing_is_replayed_and_nothing_lost() {
    for cursor in DAMAGES {
        for of_ledger in DAMAGES {
            let world = World::new();
            let mut db = world.hermes();
            let mirror = world.attach();
            first_act(&mut db);
            expect_items(&world, &FIRST_ACT, "at first");
            mirror.stop();
            damage_cursor(&world.bridge("a").join(CURSOR), cursor);
            damage_ledger(&world.bridge("a").join("ledger.db"), of_ledger);
            let mirror = world.attach();
            second_act(&mut db);
            expect_items(&world, &BOTH_ACTS, &format!("cursor {cursor:?}, ledger {of_ledger:?}"));
            let log = mirror.stop();
            expect_items(&world, &BOTH_ACTS, &format!("cursor {cursor:?}, ledger {of_ledger:?}"));
            let moved = matches!(of_ledger, Damage::Nuls | Damage::Half | Damage::OtherKind | Damage::Future);
            assert_eq!(log.contains("cannot be used"), moved, "{of_ledger:?}: {log}");
            assert_eq!(world.bridge("a").join("ledger.db.bad-1").exists(), moved, "{of_ledger:?}");
        }
    }
}

#[test]
fn h1_a_kill_and_a_lost_ledger_repeat_nothing_either() {
    for damage in [Damage::Missing, Damage::Half] {
        for which in 0..3 {
            let world = World::new();
            let mut db = world.hermes();
            world.sink.script(|request| {
                let third = String::from_utf8_lossy(&request.body).contains("hermes:6:");
                if third { Fault::StallAfterCommit } else { Fault::None }
            });
            let mirror = world.attach();
            first_act(&mut db);
            let stalled = |state: &State| state.requests.iter().any(|r| r.fault == Fault::StallAfterCommit);
            assert!(world.sink.wait_until(stalled, PATIENCE));
            mirror.kill();
            world.sink.heal();
            if which != 0 {
                damage_cursor(&world.bridge("a").join(CURSOR), damage);
            }
            if which != 1 {
                // A kill leaves the log behind; it would restore what was damaged.
                for name in ["ledger.db-wal", "ledger.db-shm"] {
                    let _ = fs::remove_file(world.bridge("a").join(name));
                }
                damage_ledger(&world.bridge("a").join("ledger.db"), damage);
            }
            let mirror = world.attach();
            second_act(&mut db);
            expect_items(&world, &BOTH_ACTS, &format!("{damage:?} of {which}"));
            mirror.stop();
            expect_items(&world, &BOTH_ACTS, &format!("{damage:?} of {which}"));
        }
    }
}

#[test]
fn h1_the_start_behind_the_one_that_lost_all_records_repeats_no_edge() {
    let world = World::new();
    let mut db = world.hermes();
    let turn = |n: i64| {
        [format!("{n} user: q"), format!("running {n}"), format!("{n} agent: a"), format!("idle {n}")]
    };
    let (mut expected, mut mirror) = (Vec::new(), world.attach());
    for opener in [1, 3, 5] {
        db.turn("s", "q", "a");
        expected.extend(turn(opener));
        let lines: Vec<&str> = expected.iter().map(String::as_str).collect();
        world.expect(&lines);
        mirror.stop();
        if opener == 3 {
            fs::remove_file(world.bridge("a").join(CURSOR)).unwrap();
            fs::remove_file(world.bridge("a").join("ledger.db")).unwrap();
            // At its opener, the last turn is gone on with; its edge is not on record.
            expected.extend(["running 3", "idle 3"].map(str::to_owned));
        }
        mirror = world.attach();
        mirror.wait_for_log("mirroring");
    }
    mirror.stop();
    assert_eq!(world.shown(), expected);
}

const TURN: [&str; 4] = ["1 user: q", "running 1", "1 agent: a", "idle 1"];

#[test]
fn h5_of_ten_that_start_at_once_one_mirrors_and_the_others_say_who() {
    for same_bridge in [true, false] {
        let world = World::new();
        let mut db = world.hermes();
        let bridge = |n: usize| if same_bridge { "a".to_owned() } else { format!("b{n}") };
        let start = |n| world.attach_as(&bridge(n), &world.conversation, world.launch);
        let ten: Vec<(usize, Mirror)> = (0..10).map(|n| (n, start(n))).collect();
        db.turn("s", "q", "a");
        world.expect(&TURN);
        let (mut owner, others): (Vec<_>, Vec<_>) =
            ten.into_iter().partition(|(_, mirror)| mirror.log().contains("mirroring"));
        let (place, owner) = owner.pop().filter(|_| owner.is_empty()).expect("one owner");
        for (_, other) in others {
            let (code, log) = other.wait();
            assert_eq!(code, Some(1), "{log}");
            assert!(log.contains(&format!("in the hands of process {}", owner.pid())), "{log}");
        }
        assert_eq!(world.shown(), TURN);
        // A killed owner is taken over at once; there is nothing to wait out.
        owner.kill();
        let next = start(place);
        db.turn("s", "q2", "a2");
        let done =
            |state: &State| shown(state.events(&world.conversation)).iter().any(|line| line == "idle 3");
        assert!(world.sink.wait_until(done, PATIENCE));
        next.stop();
        let mut shown = world.shown();
        // An edge whose record the kill prevented is told again; that can't be seen at the server.
        shown.dedup();
        assert_eq!(shown, [TURN, ["3 user: q2", "running 3", "3 agent: a2", "idle 3"]].concat());
    }
}

#[test]
fn h5_a_paused_owner_still_owns_and_goes_on_where_it_was() {
    let world = World::new();
    let mut db = world.hermes();
    let owner = world.attach();
    db.turn("s", "q", "a");
    world.expect(&TURN);
    signal(&owner, "-STOP");
    let (code, log) = world.attach_as("b", &world.conversation, world.launch).wait();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains(&format!("process {}", owner.pid())), "{log}");
    db.turn("s", "q2", "a2");
    signal(&owner, "-CONT");
    world.expect_all(owner, &[TURN, ["3 user: q2", "running 3", "3 agent: a2", "idle 3"]].concat());
}

fn signal(mirror: &Mirror, signal: &str) {
    let sent = Command::new("kill").args([signal, &mirror.pid().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The same command behind a line of shell.
fn behind(shell: &str, command: &Command) -> Command {
    let mut behind = Command::new("/bin/sh");
    behind.arg("-c").arg(format!("{shell}; exec \"$@\"")).arg("sh");
    behind.arg(command.get_program()).args(command.get_args()).env_clear();
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    behind.envs(set).env("PATH", "/usr/bin:/bin");
    behind
}

#[test]
fn j2_files_are_their_owners_alone_and_the_token_is_in_none_of_them_nor_in_a_log() {
    const TOKEN: &str = "t0ken-that-nobody-may-see";
    let world = World::new();
    write(&world.path("token"), TOKEN);
    let auth = format!("[deliver.auth.file]\npath = '{}'\n", world.path("token").display());
    world.configure(&auth);
    let mut faults =
        [Fault::Status(401), Fault::Redirect, Fault::Status(400), Fault::Reset, Fault::HalfResponse]
            .into_iter();
    world.sink.script(move |_| faults.next().unwrap_or(Fault::None));
    let mut db = world.hermes();
    let mut attach = world.attachment("new/a", &world.conversation, world.launch);
    attach.env("RUST_LOG", "trace");
    let mirror = Mirror::spawn(behind("umask 000", &attach));
    for _ in 0..5 {
        db.turn("s", "q", "a");
    }
    let all = |state: &State| shown(state.events(&world.conversation)).iter().any(|line| line == "idle 9");
    assert!(world.sink.wait_until(all, PATIENCE));
    let mut files = Vec::new();
    walk(&world.path("home"), &mut files);
    walk(&world.bridge("new"), &mut files);
    assert!(files.iter().any(|file| file.ends_with("ledger.db-wal")), "{files:?}");
    assert!(files.iter().any(|file| file.ends_with(CURSOR)), "{files:?}");
    for file in &files {
        let meta = fs::metadata(file).unwrap();
        let right = if meta.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(meta.permissions().mode() & 0o777, right, "{}", file.display());
        let bytes = if meta.is_file() { fs::read(file).unwrap() } else { Vec::new() };
        assert!(!bytes.windows(TOKEN.len()).any(|bytes| bytes == TOKEN.as_bytes()), "{}", file.display());
    }
    let log = mirror.stop();
    assert!(log.len() > 1_000 && !log.contains(TOKEN), "{log}");
    assert!(world.sink.requests().iter().all(|r| r.authorization == Some(format!("Bearer {TOKEN}"))));
}

/// Everything below a directory that the test itself has not made.
fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        }
        found.push(path);
    }
}

#[test]
fn h1_another_programs_cursor_amid_a_turn_takes_no_new_item_for_an_old_one() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    first_act(&mut db);
    expect_items(&world, &FIRST_ACT, "at first");
    mirror.stop();
    // A Python forwarder goes on in the same directory: it knows neither our ledger nor our marks.
    let path = world.bridge("a").join(CURSOR);
    let mut cursor: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for ours in ["writer", "last_item_id"] {
        assert!(cursor.as_object_mut().unwrap().remove(ours).is_some(), "{ours}");
    }
    write(&path, &cursor.to_string());
    damage_ledger(&world.bridge("a").join("ledger.db"), Damage::Missing);
    let mirror = world.attach();
    db.append("s", &Message::tools("ok", &[("c", "ls", "{}")]));
    db.append("s", &Message::answer("ok"));
    let more = ["3 agent: ok", "3 call c ls {}", "3 agent: ok"];
    expect_items(&world, &[&FIRST_ACT[..], &more[..]].concat(), "then");
    mirror.stop();
}
