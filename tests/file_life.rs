//! What can happen to the files under a mirror, and what the mirror does to them.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]
#![allow(
    clippy::disallowed_methods,
    reason = "what befalls a database file is done to it from outside SQLite"
)]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hermes_mirror::hermes::Source;
use support::fault::Fault;
use support::hermes_db::{HermesDb, Version};
use support::mirror::{Mirror, PATIENCE, World};
use support::shown::shown;

/// The database is held all through a test, and never let go for quietness.
const HOLDING: &str = "[detect]\npoll_ms = 50\nfallback_poll_ms = 100\nrelease_after_ms = 60000\n";

fn lines(turn: i64, asked: &str, answer: &str) -> Vec<String> {
    let lines = [
        format!("{turn} user: {asked}"),
        format!("running {turn}"),
        format!("{turn} agent: {answer}"),
        format!("idle {turn}"),
    ];
    lines.to_vec()
}

fn expect(world: &World, expected: &[String]) {
    world.expect(&expected.iter().map(String::as_str).collect::<Vec<_>>());
}

fn expect_all(world: &World, mirror: Mirror, expected: &[String]) {
    world.expect_all(mirror, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Waits for a condition that nothing announces.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", database.display()))
}

/// Removes what SQLite keeps beside the database.
fn remove_beside(database: &Path) {
    for suffix in ["-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(beside(database, suffix));
    }
}

/// The inodes of the database's files that the mirror has open.
fn held(mirror: &Mirror, world: &World) -> Vec<u64> {
    let directory = world.path("hermes");
    let links = fs::read_dir(format!("/proc/{}/fd", mirror.pid())).unwrap().flatten();
    let inodes = links.filter_map(|link| {
        let target = fs::read_link(link.path()).ok()?;
        let inode = fs::metadata(link.path()).ok()?.ino();
        target.starts_with(&directory).then_some(inode)
    });
    inodes.collect()
}

/// Copies a database with all it holds, ids included, into a file that nobody has open.
fn copy(db: &HermesDb, to: &Path) {
    db.conn.execute("VACUUM INTO ?1", [to.to_str().unwrap()]).unwrap();
}

fn reopen(world: &World) -> HermesDb {
    HermesDb::open(&world.db_path(), Version::V19, "WAL")
}

/// A mirror that has shown one turn, rows 1 and 2, and holds the database.
fn holding() -> (World, HermesDb, Mirror) {
    let world = World::new();
    world.configure(HOLDING);
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    expect(&world, &lines(1, "one", "first"));
    (world, db, mirror)
}

#[test]
fn the_journal_mode_may_change_to_and_fro_while_the_mirror_runs() {
    let world = World::new();
    world.configure("[detect]\npoll_ms = 50\nfallback_poll_ms = 200\nrelease_after_ms = 100\n");
    let mut db = HermesDb::open(&world.db_path(), Version::V20, "DELETE");
    db.create_tables();
    db.session("s", Some(&world.workspace()));
    let mirror = world.attach();
    let mut expected = Vec::new();
    for (at, mode) in (0..).zip(["DELETE", "WAL", "DELETE", "WAL"]) {
        let set = format!("PRAGMA journal_mode = {mode}");
        wait_until("the mirror lets go", || {
            db.conn
                .query_row(&set, [], |row| row.get::<_, String>(0))
                .is_ok_and(|now| now == mode.to_lowercase())
        });
        db.turn("s", mode, "answer");
        expected.extend(lines(2 * at + 1, mode, "answer"));
        expect(&world, &expected);
    }
    expect_all(&world, mirror, &expected);
}

#[test]
fn log_and_shared_memory_that_were_deleted_and_made_again_are_read_on() {
    let (world, db, mirror) = holding();
    db.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(db);
    remove_beside(&world.db_path());
    let mut db = reopen(&world);
    db.turn("s", "two", "second");
    let expected = [lines(1, "one", "first"), lines(3, "two", "second")].concat();
    expect(&world, &expected);
    db.turn("s", "three", "third");
    expect_all(&world, mirror, &[expected, lines(5, "three", "third")].concat());
}

#[test]
fn a_file_that_is_replaced_is_left_at_once_and_read_on_without_a_replay() {
    for mode in ["auto", "poll"] {
        let world = World::new();
        world.configure(&format!("{HOLDING}mode = '{mode}'\n"));
        let mut db = world.hermes();
        let mirror = world.attach();
        db.turn("s", "one", "first");
        let mut expected = lines(1, "one", "first");
        expect(&world, &expected);
        for round in 1..=3 {
            copy(&db, &world.path("fresh.db"));
            drop(db);
            let dead = fs::metadata(world.db_path()).unwrap().ino();
            assert!(held(&mirror, &world).contains(&dead), "the test is void: nothing is held");
            fs::rename(world.path("fresh.db"), world.db_path()).unwrap();
            wait_until("the dead file is left", || !held(&mirror, &world).contains(&dead));
            remove_beside(&world.db_path());
            db = reopen(&world);
            let asked = format!("q{round}");
            db.turn("s", &asked, "answer");
            expected.extend(lines(2 * round + 1, &asked, "answer"));
            expect(&world, &expected);
            let sound: String = db.conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(sound, "ok");
        }
        expect_all(&world, mirror, &expected);
    }
}

#[test]
fn a_restore_in_place_that_gives_ids_again_loses_and_repeats_nothing() {
    for (down, swept) in [(false, true), (false, false), (true, true), (true, false)] {
        let (world, mut db, mirror) = holding();
        copy(&db, &world.path("older.db"));
        db.turn("s", "two", "second");
        db.turn("s", "three", "third");
        let mut expected =
            [lines(1, "one", "first"), lines(3, "two", "second"), lines(5, "three", "third")].concat();
        expect(&world, &expected);
        let mut mirror = Some(mirror);
        if down {
            mirror.take().unwrap().stop();
        }
        db.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(db);
        // The same inode; what stands beside it may be swept away or not.
        let inode = fs::metadata(world.db_path()).unwrap().ino();
        fs::copy(world.path("older.db"), world.db_path()).unwrap();
        assert_eq!(fs::metadata(world.db_path()).unwrap().ino(), inode);
        if swept {
            remove_beside(&world.db_path());
        }
        let mut db = reopen(&world);
        // As many ids as before, and the last of them another session's.
        db.session("other", None);
        db.turn("s", "four", "fourth");
        db.turn("other", "not", "this");
        let mirror = mirror.unwrap_or_else(|| world.attach());
        expected.extend(lines(3, "four", "fourth"));
        expect(&world, &expected);
        db.turn("s", "five", "fifth");
        expected.extend(lines(7, "five", "fifth"));
        expect(&world, &expected);
        mirror.stop();
        // What was restored is what the next start goes on from.
        let mirror = world.attach();
        db.turn("s", "six", "sixth");
        expected.extend(lines(9, "six", "sixth"));
        expect_all(&world, mirror, &expected);
    }
}

#[test]
fn a_restore_amid_a_turn_settles_the_turn_that_is_gone() {
    let (world, mut db, mirror) = holding();
    copy(&db, &world.path("older.db"));
    db.append("s", &support::hermes_db::Message::user("lost"));
    let mut expected = lines(1, "one", "first");
    expected.extend(["3 user: lost".to_owned(), "running 3".to_owned()]);
    expect(&world, &expected);
    drop(db);
    fs::copy(world.path("older.db"), world.db_path()).unwrap();
    remove_beside(&world.db_path());
    let mut db = reopen(&world);
    db.turn("s", "four", "fourth");
    wait_until("the turn after the restore is shown", || world.shown().last().unwrap() == "idle 3");
    mirror.stop();
    let shown = world.shown();
    assert!(shown.ends_with(&lines(3, "four", "fourth")[2..]), "{shown:?}");
    assert_eq!(shown.iter().filter(|line| *line == "3 user: four").count(), 1);
}

#[test]
fn a_directory_that_is_moved_away_and_back_is_read_on() {
    let (world, mut db, mirror) = holding();
    let mut expected = lines(1, "one", "first");
    for round in 1..=2 {
        drop(db);
        fs::rename(world.path("hermes"), world.path("moved")).unwrap();
        if round == 1 {
            mirror.wait_for_log("waiting for Hermes to create it");
        }
        fs::rename(world.path("moved"), world.path("hermes")).unwrap();
        db = reopen(&world);
        db.turn("s", "back", "again");
        expected.extend(lines(2 * round + 1, "back", "again"));
        expect(&world, &expected);
    }
    expect_all(&world, mirror, &expected);
}

#[test]
fn a_file_that_was_truncated_or_damaged_is_named_once_and_read_on_once_it_is_repaired() {
    for (damage, state) in [(&[][..], "no tables"), (&[0xAA; 8192][..], "damaged")] {
        let world = World::new();
        world.configure("[detect]\npoll_ms = 50\nfallback_poll_ms = 100\nrelease_after_ms = 100\n");
        let mut db = world.hermes();
        let mirror = world.attach();
        db.turn("s", "one", "first");
        expect(&world, &lines(1, "one", "first"));
        db.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(db);
        wait_until("the mirror lets go", || held(&mirror, &world).is_empty());
        remove_beside(&world.db_path());
        let sound = fs::read(world.db_path()).unwrap();
        fs::write(world.db_path(), damage).unwrap();
        mirror.wait_for_log(&format!("state={state}"));
        fs::write(world.db_path(), sound).unwrap();
        // The repair is no single step: an empty file may be seen in between, and is a state of its own.
        mirror.wait_for_log(&format!("reading the database database={} was=", world.db_path().display()));
        let mut db = reopen(&world);
        db.turn("s", "two", "second");
        expect(&world, &[lines(1, "one", "first"), lines(3, "two", "second")].concat());
        let log = mirror.stop();
        assert_eq!(log.matches(&format!("state={state}")).count(), 1, "{log}");
    }
}

#[test]
fn a_file_that_is_damaged_while_it_is_held_does_not_end_the_mirror() {
    let (world, db, mirror) = holding();
    db.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(db);
    let sound = fs::read(world.db_path()).unwrap();
    fs::write(world.db_path(), vec![0xAA; sound.len()]).unwrap();
    remove_beside(&world.db_path());
    mirror.wait_for_log("not a sound SQLite database");
    fs::write(world.db_path(), sound).unwrap();
    let mut db = reopen(&world);
    db.turn("s", "two", "second");
    expect_all(&world, mirror, &[lines(1, "one", "first"), lines(3, "two", "second")].concat());
}

#[test]
fn a_directory_without_events_is_polled() {
    let world = World::new();
    world.configure("[detect]\nmode = 'poll'\npoll_ms = 20\nrelease_after_ms = 100\n");
    let mut db = world.hermes();
    let mirror = world.attach();
    let mut expected = Vec::new();
    for round in 0..3 {
        db.turn("s", "q", "a");
        expected.extend(lines(2 * round + 1, "q", "a"));
        expect(&world, &expected);
        wait_until("the mirror lets go", || held(&mirror, &world).is_empty());
    }
    expect_all(&world, mirror, &expected);
}

/// The program in a user namespace of its own that grants it nothing of `limit`, an inotify limit.
fn attach_without(world: &World, limit: &str) -> Option<Mirror> {
    let set = format!("echo 0 > /proc/sys/user/{limit}");
    let may = Command::new("unshare").args(["-Ur", "sh", "-c", &set]).status();
    if !may.is_ok_and(|status| status.success()) {
        return None;
    }
    let plain = world.attachment("a", &world.conversation, world.launch);
    let mut command = Command::new("unshare");
    command.args(["-Ur", "sh", "-c", &format!("{set} && exec \"$0\" \"$@\"")]);
    command.arg(plain.get_program()).args(plain.get_args());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(Mirror::spawn(command))
}

#[test]
fn where_a_limit_refuses_the_watch_it_is_named_once_and_the_poll_serves() {
    for (limit, name) in
        [("max_inotify_instances", "max_user_instances"), ("max_inotify_watches", "max_user_watches")]
    {
        let world = World::new();
        let mut db = world.hermes();
        // Where no namespaces are to be had, the unit tests of the detector say the same.
        let Some(mirror) = attach_without(&world, limit) else { return };
        mirror.wait_for_log(name);
        db.turn("s", "one", "first");
        expect(&world, &lines(1, "one", "first"));
        db.turn("s", "two", "second");
        expect(&world, &[lines(1, "one", "first"), lines(3, "two", "second")].concat());
        let log = mirror.stop();
        assert_eq!(log.matches("state=unwatched").count(), 1, "{log}");
    }
}

#[test]
fn a_vacuum_shows_nothing_again() {
    let (world, mut db, mirror) = holding();
    db.commit(|write| write.execute("DELETE FROM messages WHERE id = 1", []).unwrap());
    db.conn.execute_batch("VACUUM").unwrap();
    db.turn("s", "two", "second");
    let expected = [lines(1, "one", "first"), lines(3, "two", "second")].concat();
    expect(&world, &expected);
    mirror.stop();
    db.conn.execute_batch("VACUUM").unwrap();
    expect_all(&world, world.attach(), &expected);
}

#[test]
fn a_mirrored_session_that_is_deleted_ends_nothing_else() {
    let world = World::new();
    world.configure(HOLDING);
    let other = world.sink.create_conversation();
    let mut db = world.hermes();
    db.session("kept", None);
    let mirrors = [("s", &world.conversation), ("kept", &other)].map(|(session, conversation)| {
        format!("[[mirror]]\nconversation = '{conversation}'\nsession = '{session}'\n")
    });
    let run = || world.run(&[], &mirrors.concat());
    let mirror = run();
    let mut kept = Vec::new();
    let mut expect_kept = |db: &mut HermesDb, turn| {
        db.turn("kept", "q", "a");
        kept.extend(lines(turn, "q", "a"));
        world.expect_in(&other, &kept.iter().map(String::as_str).collect::<Vec<_>>());
    };
    expect_kept(&mut db, 1);
    db.turn("s", "one", "first");
    expect(&world, &lines(3, "one", "first"));
    db.commit(|write| {
        write.execute("DELETE FROM messages WHERE session_id = 's'", []).unwrap();
        write.execute("DELETE FROM sessions WHERE id = 's'", []).unwrap();
    });
    expect_kept(&mut db, 5);
    mirror.stop();
    let mirror = run();
    expect_kept(&mut db, 7);
    mirror.stop();
    assert_eq!(world.shown(), lines(3, "one", "first"));
}

#[test]
fn a_lock_that_is_held_for_long_amid_a_run_is_named_once_and_costs_no_row() {
    let world = World::new();
    world.configure("[detect]\npoll_ms = 20\nfallback_poll_ms = 100\nsettle_ms = 5\n[read]\nbusy_ms = 1\n");
    let mut db = HermesDb::open(&world.db_path(), Version::V20, "DELETE");
    db.create_tables();
    db.session("s", Some(&world.workspace()));
    let mirror = world.attach();
    db.turn("s", "one", "first");
    let mut expected = lines(1, "one", "first");
    expect(&world, &expected);
    db.conn.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let insert = "INSERT INTO messages (session_id, role, content, timestamp, finish_reason) \
                  VALUES ('s', ?1, ?2, 0, ?3)";
    db.conn.execute(insert, ["user", "two", ""]).unwrap();
    db.conn.execute(insert, ["assistant", "second", "stop"]).unwrap();
    mirror.wait_for_log("state=locked");
    db.conn.execute_batch("COMMIT").unwrap();
    expected.extend(lines(3, "two", "second"));
    expect(&world, &expected);
    mirror.wait_for_log("was=locked");
    let log = mirror.stop();
    assert_eq!((world.shown(), log.matches("state=locked").count()), (expected, 1), "{log}");
}

#[test]
fn a_thousand_readers_beside_a_writer_never_cost_it_its_log() {
    let world = World::new();
    let mut db = world.hermes();
    db.conn.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
    db.turn("s", "one", "first");
    let inode = || fs::metadata(beside(&world.db_path(), "-wal")).unwrap().ino();
    let before = inode();
    let mut source = Source::new(world.db_path(), Duration::from_secs(1));
    for round in 1..=1_000 {
        if round % 10 == 0 {
            db.turn("s", "q", "a");
        }
        let newest = source.open().unwrap().newest_row().unwrap().get();
        assert_eq!(newest, 2 + 2 * (round / 10));
        source.close();
        assert!(!source.is_open());
    }
    assert_eq!(inode(), before);
    let sound: String = db.conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn a_server_that_hangs_pins_no_snapshot_and_the_log_stays_bounded() {
    const COMMITS: usize = 1_500;
    let world = World::new();
    world.configure("[deliver]\ntimeout_ms = 600000\n[deliver.retry]\ninitial_ms = 10\nmax_ms = 100\n");
    let mut db = world.hermes();
    db.conn.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
    world.sink.script(|_| Fault::Stall);
    let mirror = world.attach();
    db.turn("s", "q0", "a0");
    wait_until("a request hangs", || !world.sink.requests().is_empty());
    for n in 1..COMMITS / 2 {
        db.turn("s", &format!("q{n}"), &format!("a{n}"));
    }
    // SQLite starts its log over at about 1,000 pages unless a reader stands in the way.
    let size = fs::metadata(beside(&world.db_path(), "-wal")).unwrap().len();
    assert!(size < 6 << 20, "the log has grown to {size} bytes");
    let busy: i64 = db.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0, "a reader pins the log");
    mirror.kill();
    world.sink.heal();
    let mirror = world.attach();
    let all: Vec<String> = (0..COMMITS / 2)
        .flat_map(|n| lines(i64::try_from(2 * n + 1).unwrap(), &format!("q{n}"), &format!("a{n}")))
        .collect();
    let arrived = |state: &support::sink::State| shown(state.events(&world.conversation)).len() >= all.len();
    assert!(world.sink.wait_until(arrived, 3 * PATIENCE));
    expect_all(&world, mirror, &all);
}

#[test]
fn its_own_reads_never_wake_the_mirror() {
    let world = World::new();
    world.configure(
        "[detect]\npoll_ms = 20\nfallback_poll_ms = 100\nsettle_ms = 20\nrelease_after_ms = 100\n",
    );
    let mut db = world.hermes();
    let mirror = world.attach_logging("trace");
    db.turn("s", "one", "first");
    expect(&world, &lines(1, "one", "first"));
    wait_until("the mirror lets go", || held(&mirror, &world).is_empty());
    let announced = |log: &str| log.matches("woken announced=true").count();
    let polled = |log: &str| log.matches("woken announced=false").count();
    // A mirror that is started beside it looks at the same files for the first time.
    let before = mirror.log();
    assert!(announced(&before) > 0, "{before}");
    wait_until("twenty polls", || polled(&mirror.log()) >= polled(&before) + 20);
    assert_eq!(announced(&mirror.log()), announced(&before));
    mirror.stop();
}

#[test]
fn an_idle_mirror_holds_none_of_hermes_s_files() {
    let world = World::new();
    world.configure("[detect]\npoll_ms = 20\nfallback_poll_ms = 100\nrelease_after_ms = 100\n");
    let mut db = world.hermes();
    let mirror = world.attach();
    for round in 0..3 {
        db.turn("s", "q", "a");
        let id = 2 * round + 2;
        let arrived = move |state: &support::sink::State, conversation: &str| {
            shown(state.events(conversation)).iter().any(|line| *line == format!("idle {}", id - 1))
        };
        assert!(world.sink.wait_until(|state| arrived(state, &world.conversation), PATIENCE));
        wait_until("the mirror lets go", || held(&mirror, &world).is_empty());
        // What a person's maintenance needs: the database for itself alone.
        db.conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT;").unwrap();
        db.conn.execute_batch("PRAGMA locking_mode = NORMAL").unwrap();
        db.live("s");
    }
    mirror.stop();
}
