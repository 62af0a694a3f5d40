//! What the real Hermes was seen to do that a tailer gets wrong, a test each: a run recorded from it is played again, live
//! and after the fact, and the conversation shows exactly what the person saw.
//!
//! The runs are in `tests/data/recorded`, each with what is shown of it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what can't be set up can't be tested")]
#![allow(
    clippy::disallowed_methods,
    reason = "restores a database as Hermes does, and reads the mirror's own file"
)]

mod support;

use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use support::hermes_db::HermesDb;
use support::mirror::{Mirror, PATIENCE, World};
use support::recording::{Recording, Step, commit};

/// How the mirror is told which terminal is its own.
#[derive(Clone, Copy)]
enum Known {
    /// By the session's name.
    Named,
    /// By its workspace, and when it was launched, in s since the epoch.
    Launched(f64),
}

/// A run, the database that it is played into, and the mirror beside.
struct Play {
    world: World,
    db: Option<HermesDb>,
    run: Recording,
    known: Known,
    journal: &'static str,
}

impl Play {
    fn new(name: &str, known: Known) -> Self {
        let world = World::new();
        let run = Recording::load(name, &world.workspace());
        Self { world, db: None, run, known, journal: "WAL" }
    }

    fn start(&self) -> Mirror {
        let target = match self.known {
            Known::Named => format!("session = '{}'", self.run.sessions[0]),
            Known::Launched(launch) => format!("workspace = '{{work}}'\nlaunch_epoch = {launch:?}"),
        };
        let conversation = &self.world.conversation;
        self.world.run(&[], &format!("[[mirror]]\nconversation = '{conversation}'\n{target}\n"))
    }

    /// Plays the steps of a range; `seen`: each waits until the mirror has read the one before.
    fn play(&mut self, steps: std::ops::Range<usize>, seen: bool) {
        for at in steps {
            let step = self.run.steps[at].clone();
            self.step(&step);
            if let Some(row) = self.run.newest(&step).filter(|_| seen && !is_cut_off(&step)) {
                self.wait_for_row(row);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let (path, backup) = (self.world.db_path(), self.world.path("backup.db"));
        match step {
            Step::Commit(changes) => commit(self.db.as_mut().expect("open"), changes),
            Step::BackUp => {
                let save = format!("VACUUM INTO '{}'", backup.display());
                self.db.as_ref().expect("open").conn.execute_batch(&save).unwrap();
                // As Hermes's own backups are.
                drop(HermesDb::open(&backup, self.run.version, self.journal));
            }
            Step::Restore => {
                let db = self.db.take().expect("open");
                db.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
                let version = db.version;
                drop(db);
                // Over the old one, which keeps its inode.
                std::fs::copy(&backup, &path).unwrap();
                // Its mode is in the file. To set it would take a lock that a reader of the old content may hold.
                self.db = Some(HermesDb::reopen(&path, version));
            }
        }
    }

    /// Waits until the mirror has put a row behind it.
    fn wait_for_row(&self, row: i64) {
        let started = Instant::now();
        while self.cursor() < row {
            assert!(started.elapsed() < PATIENCE, "row {row} was never passed: {:#?}", self.world.shown());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The last row that was delivered, by the mirror's own record.
    fn cursor(&self) -> i64 {
        let ledger = self.world.path("state/ledger.db");
        let read = Connection::open_with_flags(ledger, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .and_then(|ledger| ledger.query_row("SELECT max(last_row) FROM mirror", [], |row| row.get(0)));
        read.ok().flatten().unwrap_or(0)
    }

    fn create(&mut self) {
        let db = HermesDb::open(&self.world.db_path(), self.run.version, self.journal);
        db.create_tables();
        self.db = Some(db);
    }

    /// What is shown in the end, a line each, and nothing behind it.
    fn end(self, mirror: Mirror, expected: &[String]) {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        self.world.expect_all(mirror, &expected);
    }
}

/// Whether Hermes goes on with the step's last answer before anyone could look.
fn is_cut_off(step: &Step) -> bool {
    let Step::Commit(changes) = step else { return false };
    let last = changes["messages"].as_array().and_then(|messages| messages.last());
    last.is_some_and(|message| message["finish_reason"] == "length")
}

/// Plays a run live, but for the steps `before` the mirror starts, and after the fact. Where something is gone by then,
/// `{name}.late.shown` says what is left.
fn check(name: &str, known: Known, before: usize, prepare: impl Fn(&mut Play)) {
    let live = Recording::shown(name);
    let late = Recording::shown_late(name).unwrap_or_else(|| live.clone());

    let mut play = Play::new(name, known);
    prepare(&mut play);
    play.create();
    play.play(0..before, false);
    let mirror = play.start();
    play.play(before..play.run.steps.len(), true);
    play.end(mirror, &live);

    let mut play = Play::new(name, known);
    prepare(&mut play);
    play.create();
    play.play(0..play.run.steps.len(), false);
    let mirror = play.start();
    play.end(mirror, &late);
}

fn check_named(name: &str) {
    check(name, Known::Named, 0, |_| {});
}

#[test]
fn an_in_place_compaction_and_two_within_a_turn_repeat_nothing() {
    check_named("in_place_compaction");
}

#[test]
fn an_in_place_compaction_that_keeps_the_times_repeats_nothing() {
    check_named("in_place_compaction_0_20");
}

#[test]
fn a_reinserted_row_that_differs_from_its_original_is_no_new_message() {
    check_named("changed_copies");
}

#[test]
fn a_chain_of_fork_compactions_is_one_conversation() {
    check_named("fork_compaction");
}

#[test]
fn undo_takes_back_what_was_not_shown_yet() {
    check_named("undo");
}

#[test]
fn the_undo_of_the_tui_that_leaves_the_database_alone_changes_nothing() {
    check_named("undo_in_the_tui");
}

#[test]
fn a_retry_is_a_second_message() {
    check_named("retry");
}

#[test]
fn an_edit_and_resend_shows_only_what_was_sent_anew() {
    check_named("edit");
}

#[test]
fn what_an_edit_keeps_is_not_shown_again_where_hermes_joined_two_messages() {
    check_named("edit_behind_joined_rows");
}

#[test]
fn a_backup_that_is_restored_in_place_is_gone_on_from() {
    check_named("restore");
}

#[test]
fn a_branch_shows_nothing_in_the_conversation_that_it_left() {
    check_named("branch");
}

#[test]
fn a_branch_of_the_tui_shows_nothing_in_the_conversation_that_it_left() {
    check_named("branch_in_the_tui");
}

#[test]
fn a_session_without_a_directory_is_found() {
    check("no_cwd", Known::Launched(1_795_984_230.0), 0, |_| {});
}

#[test]
fn a_session_that_is_resumed_is_shown_from_where_it_stands() {
    // The second terminal's launch. What the first one said is history.
    check("resumed", Known::Launched(1_795_984_355.0), 24, |_| {});
}

#[test]
fn a_session_that_was_marked_as_ended_goes_on() {
    check_named("ended");
}

#[test]
fn a_background_session_in_the_same_directory_is_not_taken_for_the_terminal_s() {
    check("background", Known::Launched(1_795_985_490.0), 0, |_| {});
}

#[test]
fn two_processes_on_one_session_keep_their_turns_apart() {
    check_named("two_processes");
}

#[test]
fn a_failed_turn_of_which_only_the_question_is_stored_is_settled_by_the_next() {
    check_named("failed_turns");
}

#[test]
fn a_commit_that_is_seen_only_after_its_event_is_not_missed() {
    // No poll comes to the rescue.
    check("retry", Known::Named, 0, |play| play.world.configure("[detect]\npoll_ms = 60000\n"));
}

#[test]
fn a_database_with_a_rollback_journal_is_followed() {
    check("in_place_compaction_0_20", Known::Named, 0, |play| play.journal = "DELETE");
}
