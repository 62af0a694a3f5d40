//! The ledger: what was delivered, item by item, and what could not be.
//!
//! One `SQLite` file of our own for each state directory, opened by one process at a time. It is written after
//! each acknowledged item, before the next one is sent. No write is forced to the disk: what a power cut takes,
//! read-back restores, as it does after a kill between an acknowledgement and its record.
//!
//! A ledger that is damaged, or that a newer program wrote, is moved aside and begun anew; where a conversation
//! stands is then read back from the server, never replayed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{StateError, dir, lock};

mod dead_letters;
mod followed;
mod made;
mod progress;
mod remembered;
mod schema;

pub use dead_letters::{DeadLetter, DeadLetters, NewDeadLetter};
pub use followed::{Followed, followed};
pub use made::{Left, Made, Making, of_session, session_of};
pub use progress::{Account, DeliveredItem, EdgeStatus, Key, OwedEdge, Record, Standing};

/// The ledger's file name in a state directory.
pub const FILE: &str = "ledger.db";
/// The lock beside it, held by the process that has it open.
pub const LOCK: &str = "ledger.lock";

/// An open ledger, shared by the lanes of one process.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    conn: Mutex<Connection>,
    path: PathBuf,
    /// Held while the ledger is open; a second process is told who has it.
    _lock: lock::Held,
}

/// A file that was put out of the way, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedAside {
    /// What was wrong with it.
    pub reason: String,
    /// Where it is now.
    pub to: PathBuf,
}

impl Ledger {
    /// Opens the ledger of a state directory for this process alone, making both if need be.
    pub fn open(directory: &Path) -> Result<(Self, Option<MovedAside>), StateError> {
        dir::create(directory)?;
        let held = lock::take(&directory.join(LOCK), &format!("state directory {}", directory.display()))?;
        let path = directory.join(FILE);
        let (conn, moved) = match open_sound(&path) {
            Ok(conn) => (conn, None),
            Err(Unsound::Fault(cause)) => return Err(StateError::Ledger { path, cause }),
            Err(Unsound::Unusable(reason)) => {
                let to = move_aside(&path)?;
                let conn = open_sound(&path).map_err(|unsound| match unsound {
                    Unsound::Fault(cause) => StateError::Ledger { path: path.clone(), cause },
                    Unsound::Unusable(_) => {
                        StateError::Ledger { path: path.clone(), cause: rusqlite::Error::InvalidQuery }
                    }
                })?;
                (conn, Some(MovedAside { reason, to }))
            }
        };
        Ok((Self(Arc::new(Inner { conn: Mutex::new(conn), path, _lock: held })), moved))
    }

    fn conn(&self) -> MutexGuard<'_, Connection> {
        // Each use is one statement or one transaction, so a lane that failed has left nothing half done.
        self.0.conn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, cause: rusqlite::Error) -> StateError {
        StateError::Ledger { path: self.0.path.clone(), cause }
    }
}

enum Unsound {
    /// The system or `SQLite` fails; the file may be good.
    Fault(rusqlite::Error),
    /// The file is no ledger that this program can use.
    Unusable(String),
}

fn open_sound(path: &Path) -> Result<Connection, Unsound> {
    dir::create_database(path).map_err(|cause| {
        Unsound::Fault(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
            Some(cause.to_string()),
        ))
    })?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sort)?;
    // Who writes here waits on the thread that all lanes share; what can't be written now is written later.
    conn.busy_timeout(Duration::from_millis(250)).map_err(sort)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sort)?;
    conn.pragma_update(None, "journal_mode", "WAL").map_err(sort)?;
    conn.pragma_update(None, "synchronous", "NORMAL").map_err(sort)?;
    let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sort)?;
    if verdict != "ok" {
        return Err(Unsound::Unusable(format!("it is damaged ({verdict})")));
    }
    schema::migrate(&conn).map_err(|refusal| match refusal {
        schema::Refusal::Sql(cause) => sort(cause),
        schema::Refusal::Version(found) => {
            Unsound::Unusable(format!("a newer hermes-mirror wrote it (version {found})"))
        }
        schema::Refusal::Foreign => Unsound::Unusable("it is another program's database".to_owned()),
    })?;
    conn.set_prepared_statement_cache_capacity(32);
    Ok(conn)
}

fn sort(cause: rusqlite::Error) -> Unsound {
    match cause.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
            Unsound::Unusable(format!("it is damaged ({cause})"))
        }
        _ => Unsound::Fault(cause),
    }
}

/// Renames the ledger and what `SQLite` keeps beside it to names that are free.
fn move_aside(path: &Path) -> Result<PathBuf, StateError> {
    let name = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let mut number = 1;
    while name(&format!(".bad-{number}")).exists() {
        number += 1;
    }
    let to = name(&format!(".bad-{number}"));
    fs::rename(path, &to).map_err(|cause| StateError::Write { path: path.to_owned(), cause })?;
    for suffix in ["-wal", "-shm"] {
        // They belong to the damaged file; left behind, they would be played into the new one.
        let _ = fs::rename(name(suffix), name(&format!(".bad-{number}{suffix}")));
    }
    Ok(to)
}
