//! One read-only connection to a state.db, held while it is needed and no longer.
//!
//! Contract (ARCHITECTURE.md, rule 4):
//! - opened `SQLITE_OPEN_READ_ONLY` on every path; never `immutable`, never a fallback to read-write;
//! - at most one at a time, dropped before the next is opened: closing a second descriptor on the file
//!   would drop this process's POSIX locks and let the writer delete the WAL under us;
//! - no statement is left open between calls, so no snapshot is pinned;
//! - whether the file under the path is still the one that was opened is asked by `stat`, never by opening it.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::ffi::SQLITE_READONLY_ROLLBACK;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::schema::Schema;

/// Which file stands under a path: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Asks by `stat`; `None` where there is no such file.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::metadata(path) {
            Ok(meta) => Ok(Some(Self { device: meta.dev(), inode: meta.ino() })),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// What `stat` tells of a database and its log without opening either. A change means "look";
/// no change means nothing, since a commit can leave all of it as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    database: Option<Stamp>,
    wal: Option<Stamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Footprint {
    /// Takes the footprint of the database at `path`.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let path = &resolved(path);
        let stamp = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some(Stamp { inode: meta.ino(), size: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) })
        };
        Self { database: stamp(path), wal: stamp(&with_suffix(path, "-wal")) }
    }
}

/// Where the database itself is, if `path` is a link: there, and not beside the link, SQLite keeps its other files.
/// While nothing is there, the path as it is.
#[must_use]
pub fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The path of a file that SQLite keeps beside the database: `-wal`, `-shm` or `-journal`.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Why the source can't be read now. All of these heal by themselves once their cause is gone.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no file yet. Hermes makes it when it first starts.
    #[error("{0}: no such file; waiting for Hermes to create it")]
    Missing(PathBuf),
    /// Something else than a file stands there. A pipe is never opened: that would wait for its writer for ever.
    #[error("{0}: not a file; name the database itself")]
    NotFile(PathBuf),
    /// The file is there, Hermes's tables are not (yet).
    #[error("{path}: {lacks}; waiting for Hermes to create its tables")]
    NotHermes {
        /// The database.
        path: PathBuf,
        /// What is missing.
        lacks: String,
    },
    /// A lock that Hermes holds outlasted the wait.
    #[error("{0}: locked by another process; trying again")]
    Busy(PathBuf),
    /// The file is not an SQLite database, or a damaged one.
    #[error("{path}: not a sound SQLite database ({cause}); let Hermes repair it, or restore a backup")]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        cause: rusqlite::Error,
    },
    /// The file or its directory can't be opened.
    #[error(
        "{path}: cannot be opened ({cause}); the user who runs the mirror needs to read the file, and to write \
         its directory while Hermes is not running"
    )]
    Unreadable {
        /// The database.
        path: PathBuf,
        /// What the system or SQLite said.
        cause: String,
    },
    /// The file can be opened, but the files that SQLite keeps beside it are missing or can't be written.
    /// Reading on without them could show torn data, so nothing is read.
    #[error(
        "{path}: its -wal and -shm files cannot be made or written there ({cause}); start Hermes, which makes \
         them, or let the user who runs the mirror write the directory"
    )]
    Sealed {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        cause: rusqlite::Error,
    },
    /// Anything else that SQLite reports.
    #[error("{path}: {cause}")]
    Sql {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        cause: rusqlite::Error,
    },
}

impl SourceError {
    fn from_sql(path: &Path, cause: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match cause.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(path),
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged { path, cause },
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                Self::Unreadable { path, cause: cause.to_string() }
            }
            _ => Self::Sql { path, cause },
        }
    }

    /// The first read is what needs the files beside the database: the database itself is open by then.
    fn from_first_read(path: &Path, cause: rusqlite::Error) -> Self {
        // What an interrupted writer left in a -journal is for Hermes to roll back, whoever may write here.
        let rollback = cause.sqlite_error().is_some_and(|e| e.extended_code == SQLITE_READONLY_ROLLBACK);
        match cause.sqlite_error_code() {
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) if !rollback => {
                Self::Sealed { path: path.to_owned(), cause }
            }
            _ => Self::from_sql(path, cause),
        }
    }

    /// Whether the source is merely not there yet, which is no fault.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::NotHermes { .. })
    }
}

/// The -shm beside the database, where there is one.
fn shared(path: &Path) -> io::Result<Option<Identity>> {
    Identity::of(&with_suffix(path, "-shm"))
}

/// The source: a path, and the connection while there is one.
pub struct Source {
    path: PathBuf,
    busy: Duration,
    open: Option<Open>,
}

/// An open database: what queries are asked of.
pub struct Open {
    conn: Connection,
    schema: Schema,
    identity: Identity,
    /// That of the -shm. Another one is another log: the old one is written by nobody any more.
    shared: Option<Identity>,
    data_version: i64,
    path: PathBuf,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("path", &self.path)
            .field("open", &self.open.is_some())
            .finish_non_exhaustive()
    }
}

impl Source {
    /// A source at `path`, not opened yet. `busy` is how long a read waits for a lock.
    #[must_use]
    pub fn new(path: PathBuf, busy: Duration) -> Self {
        Self { path, busy, open: None }
    }

    /// The database's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a connection is held.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Lets go of the file.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// Lets go of the file if another one (or none) stands under the path now, or another -shm beside it. Returns
    /// whether it did.
    ///
    /// Called before a look, so that an old inode is neither read on nor kept alive while Hermes opens the new one.
    pub fn leave_if_replaced(&mut self) -> bool {
        let Some(open) = &self.open else { return false };
        let gone = !matches!(Identity::of(&self.path), Ok(Some(now)) if now == open.identity)
            || !matches!(shared(&self.path), Ok(now) if now == open.shared);
        if gone {
            self.open = None;
        }
        gone
    }

    /// The open database; opens it if need be.
    pub fn open(&mut self) -> Result<&mut Open, SourceError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => Open::new(&self.path, self.busy)?,
        };
        Ok(self.open.insert(open))
    }
}

impl Open {
    fn new(path: &Path, busy: Duration) -> Result<Self, SourceError> {
        let stat = |e: io::Error| SourceError::Unreadable { path: path.to_owned(), cause: e.to_string() };
        let missing = || SourceError::Missing(path.to_owned());
        let identity = Identity::of(path).map_err(stat)?.ok_or_else(missing)?;
        if !path.is_file() {
            return Err(SourceError::NotFile(path.to_owned()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sql = |e| SourceError::from_sql(path, e);
        let conn = Connection::open_with_flags(path, flags).map_err(sql)?;
        conn.busy_timeout(busy).map_err(sql)?;
        // Else a statement with `LIMIT ?` is prepared anew at each run, in the hope of a better plan.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sql)?;
        conn.set_prepared_statement_cache_capacity(32);
        let schema = Schema::read(&conn).map_err(|e| SourceError::from_first_read(path, e))?;
        if let Some(lacks) = schema.lacks() {
            return Err(SourceError::NotHermes { path: path.to_owned(), lacks });
        }
        // A replacement between the two stats would tie this identity to another file.
        if Identity::of(path).map_err(stat)? != Some(identity) {
            return Err(missing());
        }
        let shared = shared(path).map_err(stat)?;
        Ok(Self { conn, schema, identity, shared, data_version: -1, path: path.to_owned() })
    }

    /// Whether another connection has committed since the last call; true at the first.
    ///
    /// `PRAGMA data_version` is the only question that is always answered right: a commit after a checkpoint
    /// can leave size and time of every file as they were.
    pub fn changed(&mut self) -> Result<bool, SourceError> {
        let version: i64 = self
            .conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut s| s.query_row([], |r| r.get(0)))
            .map_err(|e| self.error(e))?;
        let changed = version != self.data_version;
        self.data_version = version;
        if changed {
            let cookie = Schema::cookie(&self.conn).map_err(|e| self.error(e))?;
            if cookie != self.schema.cookie_read() {
                self.conn.flush_prepared_statement_cache();
                self.schema = Schema::read(&self.conn).map_err(|e| self.error(e))?;
                // A file that is being overwritten may be read half.
                if let Some(lacks) = self.schema.lacks() {
                    return Err(SourceError::NotHermes { path: self.path.clone(), lacks });
                }
            }
        }
        Ok(changed)
    }

    /// Makes the next [`Open::changed`] true: what it announced could not be read whole.
    pub fn look_again(&mut self) {
        self.data_version = -1;
    }

    /// The connection, for the queries of this module's siblings.
    pub(super) fn conn(&self) -> &Connection {
        &self.conn
    }

    /// The database's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the tables have.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Which file this is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) fn error(&self, cause: rusqlite::Error) -> SourceError {
        SourceError::from_sql(&self.path, cause)
    }
}
