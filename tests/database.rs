//! A database that comes late, changes its ways, or is replaced under the mirror's feet.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::fs;
use std::time::Instant;

use support::hermes_db::{HermesDb, Kept, Message, Summary, Version};
use support::mirror::{PATIENCE, World};
use support::shown::shown;
use support::sink::State;

const FIRST: [&str; 4] = ["1 user: one", "running 1", "1 agent: first", "idle 1"];

fn then<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&FIRST, more].concat()
}

const SECOND: [&str; 4] = ["3 user: two", "running 3", "3 agent: second", "idle 3"];

#[test]
fn a_database_and_its_directory_may_come_after_the_mirror() {
    let world = World::new();
    fs::remove_dir(world.path("hermes")).unwrap();
    let mirror = world.attach();
    mirror.wait_for_log("waiting for Hermes to create it");
    fs::create_dir(world.path("hermes")).unwrap();
    let mut db = world.hermes();
    db.turn("s", "one", "first");
    world.expect_all(mirror, &FIRST);
}

#[test]
fn tables_may_come_after_the_mirror() {
    let world = World::new();
    let mut db = HermesDb::open(&world.db_path(), Version::V19, "WAL");
    let mirror = world.attach();
    mirror.wait_for_log("waiting for Hermes to create its tables");
    db.create_tables();
    db.session("s", Some(&world.workspace()));
    db.turn("s", "one", "first");
    world.expect_all(mirror, &FIRST);
}

#[test]
fn an_empty_file_is_waited_for() {
    let world = World::new();
    support::mirror::write(&world.db_path(), "");
    let mirror = world.attach();
    mirror.wait_for_log("waiting for Hermes to create its tables");
    let mut db = world.hermes();
    db.turn("s", "one", "first");
    world.expect_all(mirror, &FIRST);
}

#[test]
fn rows_that_stand_in_the_log_alone_are_seen() {
    let world = World::new();
    let mut db = HermesDb::open(&world.db_path(), Version::V19, "WAL");
    db.conn.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    db.create_tables();
    db.session("s", Some(&world.workspace()));
    db.turn("s", "one", "first");
    assert_eq!(fs::metadata(world.db_path()).unwrap().len(), 4096);
    let mirror = world.attach();
    world.expect(&FIRST);
    db.turn("s", "two", "second");
    world.expect_all(mirror, &then(&SECOND));
}

#[test]
fn a_rollback_journal_serves_as_well_as_a_log() {
    let world = World::new();
    let mut db = HermesDb::open(&world.db_path(), Version::V20, "DELETE");
    let mirror = world.attach();
    db.create_tables();
    db.session("s", Some(&world.workspace()));
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    db.turn("s", "two", "second");
    world.expect_all(mirror, &then(&SECOND));
}

/// Leaves WAL mode, for which nobody else may hold the database.
fn leave_wal(db: &HermesDb) {
    let started = Instant::now();
    while db.conn.execute_batch("PRAGMA journal_mode = DELETE").is_err() {
        assert!(started.elapsed() < PATIENCE, "the mirror never lets go");
    }
}

#[test]
fn the_journal_mode_may_change_while_the_mirror_runs() {
    let world = World::new();
    // An idle mirror lets go of the database; one that holds it keeps Hermes from leaving WAL mode.
    world.configure("[detect]\npoll_ms = 50\nfallback_poll_ms = 200\nrelease_after_ms = 100\n");
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    leave_wal(&db);
    db.turn("s", "two", "second");
    world.expect_all(mirror, &then(&SECOND));
}

#[test]
fn columns_may_come_while_the_mirror_runs() {
    let world = World::new();
    let mut db = HermesDb::create_as(&world.db_path(), Version::V13);
    db.session("s", None);
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    let add = "ALTER TABLE messages ADD COLUMN observed INTEGER DEFAULT 0;
        ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1;
        ALTER TABLE messages ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE messages ADD COLUMN display_kind TEXT; ALTER TABLE messages ADD COLUMN display_metadata TEXT;
        ALTER TABLE messages ADD COLUMN platform_message_id TEXT; ALTER TABLE messages ADD COLUMN api_content TEXT;
        ALTER TABLE messages ADD COLUMN effect_disposition TEXT; ALTER TABLE sessions ADD COLUMN cwd TEXT;";
    db.conn.execute_batch(add).unwrap();
    db.version = Version::V20;
    let hidden = Message { display_kind: Some("hidden".to_owned()), ..Message::user("two") };
    db.append_all("s", &[hidden, Message::answer("second")]);
    let end = ["3 meta: two", "running 3", "3 agent: second", "idle 3"];
    world.expect_all(mirror, &then(&end));
}

#[test]
fn what_a_version_cannot_tell_is_said_once_however_often_the_database_is_opened() {
    let world = World::new();
    world.configure("[detect]\npoll_ms = 50\nfallback_poll_ms = 200\nrelease_after_ms = 100\n");
    let mut db = HermesDb::create_as(&world.db_path(), Version::V13);
    db.session("s", None);
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    // The journal mode changes once nobody holds the database, which the mirror then opens anew.
    leave_wal(&db);
    db.turn("s", "two", "second");
    world.expect(&then(&SECOND));
    let log = mirror.stop();
    let said = |what: &str| log.lines().filter(|line| line.contains(" INFO ") && line.contains(what)).count();
    for gap in ["messages.active", "messages.compacted", "sessions are found by start time alone"] {
        assert_eq!(said(gap), 1, "{gap}: {log}");
    }
}

/// Copies a database with all it holds, ids included, into a file that nobody has open.
fn copy(db: &HermesDb, to: &std::path::Path) {
    db.conn.execute("VACUUM INTO ?1", [to.to_str().unwrap()]).unwrap();
}

#[test]
fn a_database_that_was_replaced_by_rename_is_read_on() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    copy(&db, &world.path("hermes/fresh.db"));
    // A writer that ends leaves no log behind, and the new file has none of its own.
    drop(db);
    fs::rename(world.path("hermes/fresh.db"), world.db_path()).unwrap();
    for left in ["-wal", "-shm"] {
        let _ = fs::remove_file(world.path(&format!("hermes/state.db{left}")));
    }
    let mut db = HermesDb::open(&world.db_path(), Version::V19, "WAL");
    db.turn("s", "two", "second");
    world.expect_all(mirror, &then(&SECOND));
}

#[test]
fn an_older_copy_that_was_restored_is_read_on_without_its_history() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "one", "first");
    copy(&db, &world.path("older.db"));
    let mirror = world.attach();
    db.turn("s", "two", "second");
    world.expect(&then(&SECOND));
    drop(db);
    fs::rename(world.path("older.db"), world.db_path()).unwrap();
    for left in ["-wal", "-shm"] {
        let _ = fs::remove_file(world.path(&format!("hermes/state.db{left}")));
    }
    mirror.wait_for_log("the database was replaced");
    let mut db = HermesDb::open(&world.db_path(), Version::V19, "WAL");
    // A first commit lets the mirror find its place; ids are used again.
    db.session("other", None);
    db.turn("s", "three", "third");
    let end = ["3 user: three", "running 3", "3 agent: third", "idle 3"];
    let expected = [then(&SECOND), end.to_vec()].concat();
    world.expect_all(mirror, &expected);
}

#[test]
fn a_copy_from_before_the_fork_that_was_followed_is_gone_on_in() {
    for running in [true, false] {
        let world = World::new();
        let mut db = world.hermes();
        let mut mirror = Some(world.attach());
        db.turn("s", "one", "first");
        world.expect(&FIRST);
        copy(&db, &world.path("older.db"));
        db.compact_by_fork("s", "child", Kept { head: 0, tail: 1 }, Summary::Row("sum"));
        world.expect(&then(&["compaction: sum"]));
        if !running {
            mirror.take().unwrap().stop();
        }
        drop(db);
        fs::rename(world.path("older.db"), world.db_path()).unwrap();
        for left in ["-wal", "-shm"] {
            let _ = fs::remove_file(world.path(&format!("hermes/state.db{left}")));
        }
        let mut db = HermesDb::open(&world.db_path(), Version::V19, "WAL");
        db.turn("s", "two", "second");
        let expected = [then(&["compaction: sum"]), SECOND.to_vec()].concat();
        world.expect_all(mirror.unwrap_or_else(|| world.attach()), &expected);
        // Also no edge.
        let mirror = world.attach();
        mirror.wait_for_log("mirroring");
        world.expect_all(mirror, &expected);
    }
}

#[test]
fn the_rows_behind_an_older_copy_are_read_whoever_had_their_ids_before() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    copy(&db, &world.path("older.db"));
    // Ids of rows that the mirror does not show, and then one that it does.
    db.session("other", None);
    for _ in 0..4 {
        db.turn("other", "x", "y");
    }
    db.append("s", &Message::user("late"));
    world.expect(&then(&["11 user: late", "running 11"]));
    drop(db);
    fs::rename(world.path("older.db"), world.db_path()).unwrap();
    for left in ["-wal", "-shm"] {
        let _ = fs::remove_file(world.path(&format!("hermes/state.db{left}")));
    }
    let mut db = HermesDb::open(&world.db_path(), Version::V19, "WAL");
    db.turn("s", "two", "second");
    let expected = [then(&["11 user: late", "running 11"]), SECOND.to_vec()].concat();
    world.expect_all(mirror, &expected);
}

#[test]
fn a_directory_that_was_moved_away_and_made_again_is_watched_anew() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    copy(&db, &world.path("copy.db"));
    drop(db);
    fs::rename(world.path("hermes"), world.path("moved")).unwrap();
    fs::create_dir(world.path("hermes")).unwrap();
    fs::rename(world.path("copy.db"), world.db_path()).unwrap();
    let mut db = HermesDb::open(&world.db_path(), Version::V19, "WAL");
    db.turn("s", "two", "second");
    world.expect(&then(&SECOND));
    // What happens in the old place is nothing to it.
    let mut old = HermesDb::open(&world.path("moved/state.db"), Version::V19, "WAL");
    old.turn("s", "nobody", "sees this");
    db.turn("s", "three", "third");
    let end = ["5 user: three", "running 5", "5 agent: third", "idle 5"];
    world.expect_all(mirror, &[then(&SECOND), end.to_vec()].concat());
}

#[test]
fn a_database_that_is_locked_for_long_is_waited_for() {
    let world = World::new();
    let mut db = HermesDb::open(&world.db_path(), Version::V19, "DELETE");
    db.create_tables();
    db.session("s", Some(&world.workspace()));
    db.turn("s", "one", "first");
    let lock = HermesDb::open(&world.db_path(), Version::V19, "DELETE");
    lock.conn.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mirror = world.attach();
    mirror.wait_for_log("locked by another process");
    lock.conn.execute_batch("COMMIT").unwrap();
    world.expect_all(mirror, &FIRST);
}

#[test]
fn a_hundred_starts_beside_a_writer_at_full_speed_lose_double_and_swap_nothing() {
    const STARTS: usize = 100;
    const ROWS: usize = 40;
    for start in 0..STARTS {
        let world = World::new();
        let (path, work) = (world.db_path(), world.workspace());
        let begin = std::sync::Arc::new(std::sync::Barrier::new(2));
        let theirs = std::sync::Arc::clone(&begin);
        let writer = std::thread::spawn(move || {
            theirs.wait();
            let mut db = HermesDb::create(&path);
            db.conn.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
            db.session("s", Some(&work));
            for n in 0..ROWS / 2 {
                db.turn("s", &format!("q{n}"), &format!("a{n}"));
            }
            db
        });
        // From well before the file is there to amid the rows.
        let (early, late) = (start % 2 == 0, start % 2 == 1);
        let mirror = early.then(|| world.attach());
        begin.wait();
        let mirror = if late { world.attach() } else { mirror.unwrap() };
        let all = |state: &State| shown(state.events(&world.conversation)).len() >= 2 * ROWS;
        let arrived = world.sink.wait_until(all, PATIENCE);
        let _db = writer.join().unwrap();
        let expected: Vec<String> = (0..ROWS / 2)
            .flat_map(|n| {
                let id = 2 * n + 1;
                [
                    format!("{id} user: q{n}"),
                    format!("running {id}"),
                    format!("{id} agent: a{n}"),
                    format!("idle {id}"),
                ]
            })
            .collect();
        assert_eq!(world.shown(), expected, "start {start}, all arrived: {arrived}");
        mirror.kill();
    }
}
