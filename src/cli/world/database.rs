//! The database, and which of its sessions a mirror would follow.

use std::fs;
use std::path::Path;
use std::time::Duration;

use hermes_mirror::config::{Config, Mirror};
use hermes_mirror::hermes::{Facts, Open, Schema, Source, SourceError};
use hermes_mirror::ids::{HermesSessionId, MessageId};
use hermes_mirror::pipeline::prospect::{self, Prospect, prospect};

use super::subject;
use crate::cli::finding::Finding;

const DATABASE: &str = "database";

/// How long a lock may last before it is worth a word. A commit of Hermes takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many sessions a finding lists.
const LISTED: usize = 8;

/// The database, not opened yet.
pub fn source(config: &Config, path: &Path) -> Source {
    Source::new(path.to_owned(), PATIENCE.max(Duration::from_millis(config.read.busy_ms)))
}

/// Opens the database, if it can be read, and says what it is.
pub fn look(source: &mut Source) -> (Vec<Finding>, Option<&Open>) {
    let path = source.path().to_owned();
    // By its path: opening it is for SQLite alone.
    if fs::metadata(&path).is_ok_and(|kind| !kind.is_file()) {
        let message = format!("{} is not a file", path.display());
        let help = "name state.db itself in [source] db, HERMES_STATE_DB or --db";
        return (vec![Finding::fail(DATABASE, message, help)], None);
    }
    let described = source.open().and_then(|open| open.facts().map(|facts| (facts, &*open)));
    match described {
        Ok((facts, open)) => (describe(&facts, open.schema()), Some(open)),
        Err(error) => (vec![trouble(&error)], None),
    }
}

fn describe(facts: &Facts, schema: &Schema) -> Vec<Finding> {
    let Facts { schema_version, journal_mode, sessions } = facts;
    let version =
        schema_version.map_or("schema without a version".to_owned(), |version| format!("schema {version}"));
    let count = if *sessions == 1 { "1 session".to_owned() } else { format!("{sessions} sessions") };
    let mut findings = vec![
        Finding::ok(DATABASE, format!("readable, {count}")),
        Finding::info(DATABASE, format!("{version}, journal mode {journal_mode}")),
    ];
    let gaps = schema.gaps();
    if !gaps.is_empty() {
        findings.push(Finding::warn(
            DATABASE,
            format!("this schema lacks {} of the columns that newer ones have", gaps.len()),
            "the mirror works without them, but for what the next lines say; to mend that, update Hermes",
        ));
    }
    let gap = |column, consequence| Finding::info(DATABASE, format!("without {column}, {consequence}"));
    findings.extend(gaps.iter().map(|found| gap(found.column, found.consequence)));
    findings
}

/// Why the database can't be read, and what to do about it.
pub fn trouble(error: &SourceError) -> Finding {
    match error {
        SourceError::Missing(path) => Finding::warn(
            DATABASE,
            format!("{} does not exist yet", path.display()),
            "start Hermes; the mirror waits for the file. If Hermes runs already, it keeps its sessions elsewhere: \
             set `db` in [source]",
        ),
        SourceError::NotFile(path) => Finding::fail(
            DATABASE,
            format!("{} is not a file", path.display()),
            "let `db` in [source] name the database itself, not its directory",
        ),
        SourceError::NotHermes { path, lacks } => Finding::warn(
            DATABASE,
            format!("{} does not hold Hermes's tables: {lacks}", path.display()),
            "if Hermes is just starting, all is well: the mirror waits for them. If not, this is another \
             program's file: correct `db` in [source]",
        ),
        SourceError::Busy(path) => Finding::warn(
            DATABASE,
            format!("{} is locked by another process", path.display()),
            "the mirror waits and loses nothing; if it stays so, find the process with `lsof` and the file's name",
        ),
        SourceError::Damaged { path, cause } => Finding::fail(
            DATABASE,
            format!("{} is not a sound SQLite database: {cause}", path.display()),
            "check that `db` in [source] names Hermes's state.db; if it does, stop Hermes, and repair the file \
             with `hermes sessions repair` or restore a backup",
        ),
        SourceError::Unreadable { path, cause } => Finding::fail(
            DATABASE,
            format!("{} can't be opened: {cause}", path.display()),
            "let the user that runs hermes-mirror read it and enter the directories above it; simplest is to run \
             it as the user that runs Hermes",
        ),
        SourceError::Sealed { path, .. } => Finding::fail(
            DATABASE,
            format!("{} can't be read: SQLite may not make or write -wal and -shm beside it", path.display()),
            "start Hermes, which makes them, or let the user that runs hermes-mirror write the directory; simplest is \
             to run it as the user that runs Hermes",
        ),
        SourceError::Sql { path, cause } => Finding::fail(
            DATABASE,
            format!("{} can't be read: {cause}", path.display()),
            "see whether Hermes itself can read it: `hermes sessions list`",
        ),
    }
}

/// Which session the mirror would follow if it were started now.
pub fn session(config: &Config, mirror: &Mirror, open: &Open) -> (Finding, Option<HermesSessionId>) {
    let subject = subject(mirror);
    if mirror.matching.is_some() {
        return (matching(subject, mirror, open), None);
    }
    let finding = match prospect(config, mirror, open) {
        Ok(Prospect::Follow { session, after }) => {
            let message = match after {
                MessageId::ZERO => format!("follows session {session}, from its first message"),
                row => format!("stays with session {session}, going on after row {row}"),
            };
            return (Finding::ok(subject, message), Some(session));
        }
        Ok(Prospect::Wait) => nothing_fits(subject, mirror),
        Ok(Prospect::Unknown(session)) => Finding::fail(
            subject,
            format!("there is no session {session} in this database"),
            "`hermes sessions list` shows what there is; correct `session`, or give `workspace` instead",
        ),
        Ok(Prospect::Ambiguous(several)) => Finding::fail(
            subject,
            format!("{} sessions could be its terminal's (newest first): {}", several.len(), list(&several)),
            "the mirror never guesses: name one as `session` in [[mirror]], or give `launch_epoch` so that older \
             ones drop out",
        ),
        Ok(Prospect::Taken { session, by }) => Finding::warn(
            subject,
            format!("another mirror follows session {session}; its claim is in {}", by.display()),
            "this one waits until that one ends; stop that one, or remove this [[mirror]]",
        ),
        Err(error) => {
            let message = format!("its session can't be looked for: {error}");
            Finding::fail(subject, message, "mend that, then check again")
        }
    };
    (finding, None)
}

/// How many sessions a mirror of many would take, were something said in them.
fn matching(subject: String, mirror: &Mirror, open: &Open) -> Finding {
    match prospect::matching(mirror, open) {
        Ok((count, of)) => Finding::ok(
            subject,
            format!("{count} of {of} sessions match; each is mirrored once there is a new message in it"),
        ),
        Err(error) => {
            let message = format!("its sessions can't be looked for: {error}");
            Finding::fail(subject, message, "mend that, then check again")
        }
    }
}

fn nothing_fits(subject: String, mirror: &Mirror) -> Finding {
    let help = if mirror.launch_epoch.is_some() {
        "start Hermes in `workspace`; the mirror waits for it. If it runs there already, it was started before \
         `launch_epoch`: correct that, or name its id from `hermes sessions list` as `session`"
    } else {
        "start Hermes in `workspace`; the mirror waits for it. If it runs there already, name its id from \
         `hermes sessions list` as `session`"
    };
    Finding::warn(subject, "no session fits yet", help)
}

fn list(sessions: &[HermesSessionId]) -> String {
    let newest = sessions.iter().rev().take(LISTED).map(HermesSessionId::as_str);
    let mut text = newest.collect::<Vec<_>>().join(", ");
    if sessions.len() > LISTED {
        text.push_str(", …");
    }
    text
}
