//! The states in which the source is followed less well, or not at all, each with the name that logs give it.
//!
//! All of them heal by themselves once their cause is gone.

use std::fmt;

use crate::hermes::SourceError;

/// A state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degraded {
    /// There is no database yet.
    Missing,
    /// There is a database, without Hermes's tables.
    NoTables,
    /// Another process holds a lock for longer than a read waits.
    Locked,
    /// The database is damaged.
    Damaged,
    /// The database can't be opened.
    Unreadable,
    /// The files that SQLite keeps beside the database can't be made or written.
    Sealed,
    /// SQLite reports something else.
    Failing,
    /// The file system can't be asked for events; a timed poll stands in for them.
    Unwatched,
    /// Events were promised and do not arrive; a timed poll stands in for them.
    Mute,
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::NoTables => "no tables",
            Self::Locked => "locked",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
            Self::Sealed => "sealed",
            Self::Failing => "failing",
            Self::Unwatched => "unwatched",
            Self::Mute => "mute",
        })
    }
}

impl From<&SourceError> for Degraded {
    fn from(error: &SourceError) -> Self {
        match error {
            SourceError::Missing(_) => Self::Missing,
            SourceError::NotHermes { .. } => Self::NoTables,
            SourceError::Busy(_) => Self::Locked,
            SourceError::Damaged { .. } => Self::Damaged,
            SourceError::Unreadable { .. } | SourceError::NotFile(_) => Self::Unreadable,
            SourceError::Sealed { .. } => Self::Sealed,
            SourceError::Sql { .. } => Self::Failing,
        }
    }
}
