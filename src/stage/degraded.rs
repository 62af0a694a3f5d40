//! The states in which the source is followed less well, or not at all, and those in which nothing is delivered; each
//! with the name that logs and the status give it.
//!
//! All of them heal by themselves once their cause is gone.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

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
    /// The server is away, or does not answer as it should.
    ServerAway,
    /// The server does not let us in.
    LoggedOut,
    /// The server does not know the conversation.
    NoConversation,
    /// The same for long, so that it is asked for rarely.
    Parked,
    /// The mirror's own state can't be written.
    Unwritten,
}

impl Degraded {
    const ALL: [Self; 14] = [
        Self::Missing,
        Self::NoTables,
        Self::Locked,
        Self::Damaged,
        Self::Unreadable,
        Self::Sealed,
        Self::Failing,
        Self::Unwatched,
        Self::Mute,
        Self::ServerAway,
        Self::LoggedOut,
        Self::NoConversation,
        Self::Parked,
        Self::Unwritten,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NoTables => "no tables",
            Self::Locked => "locked",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
            Self::Sealed => "sealed",
            Self::Failing => "failing",
            Self::Unwatched => "unwatched",
            Self::Mute => "mute",
            Self::ServerAway => "server away",
            Self::LoggedOut => "log in",
            Self::NoConversation => "no conversation",
            Self::Parked => "parked",
            Self::Unwritten => "unwritten",
        }
    }
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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

/// The state something is in, or none: noted by one, seen by anyone.
#[derive(Debug, Default)]
pub struct Current(AtomicU8);

impl Current {
    /// Notes a state, or that it is over. Returns the state if it is news.
    #[allow(clippy::must_use_candidate, reason = "only who tells people needs to know whether it is news")]
    pub fn set(&self, state: Option<Degraded>) -> Option<Degraded> {
        let now = state.map_or(0, |state| state as u8 + 1);
        let before = self.0.swap(now, Ordering::Relaxed);
        state.filter(|_| before != now)
    }

    /// The state.
    #[must_use]
    pub fn get(&self) -> Option<Degraded> {
        let at = usize::from(self.0.load(Ordering::Relaxed)).checked_sub(1)?;
        Degraded::ALL.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_what_is_seen() {
        let current = Current::default();
        assert_eq!(current.get(), None);
        for state in Degraded::ALL {
            assert_eq!(current.set(Some(state)), Some(state));
            assert_eq!(current.get(), Some(state));
            assert_eq!(current.set(Some(state)), None, "it is no news");
        }
        current.set(None);
        assert_eq!(current.get(), None);
    }
}
