//! What a running mirror does to Hermes's database, as the system sees it: it opens state.db to read alone, changes none
//! of its files, and opens them through SQLite alone, whose locks any other descriptor would drop when it is closed.
//!
//! The -wal and -shm files are opened read-write by SQLite's own code, also for a connection that may only read (the
//! locks of readers live in the -shm; the -wal is opened the same way whoever asks). So what is shown of these two is that
//! nothing is ever written to the -wal, and that nobody but SQLite opens either.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]
#![allow(clippy::disallowed_methods, reason = "files of the test's own, never a database")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use support::mirror::{Mirror, PATIENCE, World};
use support::sink::State;

#[test]
fn a_mirror_opens_the_database_through_sqlite_alone_and_never_to_write() {
    let world = World::new();
    if let Err(reason) = can_trace() {
        println!("skipped: strace cannot run here: {reason}");
        return;
    }
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    let (trace, pid) = (world.path("trace"), world.path("pid"));
    let mirror = traced(&world, &trace, &pid);
    items(&world, 2);
    // Live rows, one commit each.
    for _ in 0..5 {
        db.turn("s", "q", "a");
    }
    items(&world, 12);
    // Another file under the same name, with more in it.
    let copy = world.path("hermes/copy.db");
    db.conn.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    drop(db);
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", world.db_path().display()));
    }
    fs::rename(&copy, world.db_path()).unwrap();
    let mut db =
        support::hermes_db::HermesDb::open(&world.db_path(), support::hermes_db::Version::V19, "WAL");
    db.turn("s", "q", "a");
    items(&world, 14);
    let term = fs::read_to_string(&pid).unwrap();
    assert!(Command::new("kill").args(["-TERM", term.trim()]).status().unwrap().success());
    let (code, log) = mirror.wait();
    assert_eq!(code, Some(0), "{log}");
    check(&fs::read_to_string(&trace).unwrap());
}

fn can_trace() -> Result<(), String> {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    match traced {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// All that opens a file or changes one. A name is left out where the machine has no such call.
const CALLS: &str = "?open,openat,?openat2,?creat,write,pwrite64,writev,pwritev,ftruncate,?truncate,fallocate,\
    ?unlink,unlinkat,?rename,renameat2,?renameat";

/// `attach` under strace; its own process id is written to `pid`.
fn traced(world: &World, trace: &std::path::Path, pid: &std::path::Path) -> Mirror {
    let attach = world.attachment("a", &world.conversation, world.launch);
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-e", &format!("trace={CALLS}"), "-o"]).arg(trace);
    command.args(["sh", "-c", &format!("echo $$ >{}; exec \"$@\"", pid.display()), "sh"]);
    command.arg(attach.get_program()).args(attach.get_args());
    command.env_clear().envs(attach.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", std::env::var_os("PATH").unwrap());
    Mirror::spawn(command)
}

fn items(world: &World, count: usize) {
    let enough = |state: &State| state.items(&world.conversation).len() >= count;
    assert!(world.sink.wait_until(enough, PATIENCE), "{:?}", world.shown());
}

/// The mark of SQLite's opens; Rust's own library never sets it.
const OF_SQLITE: &str = "O_NOFOLLOW";

fn check(trace: &str) {
    let mut opens = BTreeMap::from([("", 0), ("-wal", 0), ("-shm", 0)]);
    // A call that another thread's interrupts is told in two lines, of which the first has the arguments.
    for line in trace.lines().filter(|line| !line.contains(" resumed>")) {
        let Some((before, after)) = line.split_once("/hermes/state.db") else { continue };
        if before.contains("write") && before.contains('"') {
            // The path is in what is written: a line of the log.
            continue;
        }
        let file = ["-wal", "-shm"].into_iter().find(|suffix| after.starts_with(suffix)).unwrap_or("");
        if before.contains("open") {
            *opens.get_mut(file).unwrap() += 1;
            assert!(line.contains(OF_SQLITE), "opened past SQLite: {line}");
            let to_write =
                ["O_RDWR", "O_WRONLY", "O_CREAT", "O_TRUNC"].iter().any(|flag| line.contains(flag));
            assert!(!(file.is_empty() && to_write), "opened to write: {line}");
        } else {
            assert_eq!(file, "-shm", "changed: {line}");
        }
    }
    println!("opens: {opens:?}");
    // At the start, after the replacement, and as often as the mirror let go meanwhile: never one beside another.
    assert!(opens[""] >= 2 && opens["-wal"] <= opens[""] && opens["-shm"] <= opens[""], "{opens:?}");
}
