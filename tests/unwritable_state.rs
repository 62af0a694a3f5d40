//! State that can't be written: the mirror says so, delivers no further than a small window, and recovers by itself.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::process::Command;
use std::time::Duration;

use hermes_mirror::state::keeper::UNWRITTEN;
use rusqlite::{Connection, OpenFlags};
use support::hermes_db::{HermesDb, Message};
use support::mirror::{Mirror, PATIENCE, World};
use support::shown::shown;
use support::sink::State;

/// What makes the ledger refuse every change, as a full disk would.
const FULL: &str = "CREATE TRIGGER full_1 BEFORE INSERT ON item BEGIN SELECT RAISE(ABORT, 'full'); END;
    CREATE TRIGGER full_2 BEFORE UPDATE ON mirror BEGIN SELECT RAISE(ABORT, 'full'); END;";
const FREE: &str = "DROP TRIGGER full_1; DROP TRIGGER full_2;";

/// A turn of more items than may go unwritten.
fn write_a_long_turn(db: &mut HermesDb) -> Vec<String> {
    db.append("s", &Message::user("q"));
    let mut expected = vec!["1 user: q".to_owned()];
    for n in 0..40 {
        db.append("s", &Message::result("c", &format!("out {n}")));
        expected.push(format!("1 output c: out {n}"));
    }
    db.append("s", &Message::answer("a"));
    expected.push("1 agent: a".to_owned());
    expected
}

fn items(state: &State, world: &World) -> Vec<String> {
    let live = |line: &String| line.starts_with("running") || line.starts_with("idle");
    shown(state.events(&world.conversation)).into_iter().filter(|line| !live(line)).collect()
}

fn wait_for_items(world: &World, count: usize) {
    let enough = |state: &State| items(state, world).len() >= count;
    assert!(world.sink.wait_until(enough, PATIENCE), "{:?}", world.shown());
}

/// A kill when all is delivered: a next start repeats nothing, so all of it was written down in the end.
fn kill_and_start_again(world: &World, mirror: Mirror, expected: &[String]) {
    wait_for_items(world, expected.len());
    mirror.kill();
    let mirror = world.attach();
    mirror.wait_for_log("mirroring");
    mirror.stop();
    let held = world.sink.wait_until(|state| items(state, world) == expected, PATIENCE);
    assert!(held, "{:?}", world.shown());
}

#[test]
fn a_ledger_that_takes_nothing_holds_delivery_and_lets_it_go_on_by_itself() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    mirror.wait_for_log("mirroring");
    let path = world.bridge("a").join("ledger.db");
    let ledger = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    ledger.busy_timeout(PATIENCE).unwrap();
    ledger.execute_batch(FULL).unwrap();
    let expected = write_a_long_turn(&mut db);
    mirror.wait_for_log("check that the disk is not full");
    // The binding may be among what is unwritten.
    wait_for_items(&world, UNWRITTEN - 1);
    // Each retry is another moment in which it could have gone on.
    let beyond = |state: &State| items(state, &world).len() > UNWRITTEN;
    assert!(!world.sink.wait_until(beyond, Duration::from_millis(500)), "{:?}", world.shown());
    ledger.execute_batch(FREE).unwrap();
    mirror.wait_for_log("the state is being written again");
    kill_and_start_again(&world, mirror, &expected);
}

/// The same through the system: no file of the process may grow, which is what a full disk comes to.
struct NoRoom {
    pid: String,
}

impl NoRoom {
    /// `None` where the system has no `prlimit`.
    fn of(mirror: &Mirror) -> Option<Self> {
        let room = Self { pid: mirror.pid().to_string() };
        if room.limit("0:unlimited") {
            return Some(room);
        }
        println!("skipped: prlimit (util-linux) is missing or may not be used");
        None
    }

    fn limit(&self, size: &str) -> bool {
        let prlimit = Command::new("prlimit").args(["--pid", &self.pid, &format!("--fsize={size}")]).status();
        prlimit.is_ok_and(|status| status.success())
    }
}

/// A mirror to which a file that may not grow is an error, not a signal.
fn attach(world: &World) -> Mirror {
    let attach = world.attachment("a", &world.conversation, world.launch);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(attach.get_program()).args(attach.get_args());
    command.env_clear().envs(attach.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Mirror::spawn(command)
}

#[test]
fn a_full_disk_holds_delivery_and_lets_it_go_on_by_itself() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = attach(&world);
    mirror.wait_for_log("mirroring");
    let Some(room) = NoRoom::of(&mirror) else { return };
    let expected = write_a_long_turn(&mut db);
    mirror.wait_for_log("check that the disk is not full");
    wait_for_items(&world, 1);
    let beyond = |state: &State| items(state, &world).len() > UNWRITTEN;
    assert!(!world.sink.wait_until(beyond, Duration::from_millis(200)), "{:?}", world.shown());
    assert!(room.limit("unlimited:unlimited"));
    mirror.wait_for_log("the state is being written again");
    kill_and_start_again(&world, mirror, &expected);
}

#[test]
fn a_session_that_was_bound_while_the_disk_was_full_is_not_replayed_after_a_kill() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    let mirror = attach(&world);
    mirror.wait_for_log("started");
    let Some(room) = NoRoom::of(&mirror) else { return };
    db.session("s", Some(&world.workspace()));
    let expected = write_a_long_turn(&mut db);
    mirror.wait_for_log("check that the disk is not full");
    assert!(room.limit("unlimited:unlimited"));
    mirror.wait_for_log("the state is being written again");
    kill_and_start_again(&world, mirror, &expected);
}
