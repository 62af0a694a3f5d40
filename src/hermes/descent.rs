//! A session with those that it continues, as far as it says whose it is.

use std::path::Path;

use super::connection::{Open, SourceError};
use super::sessions::Session;
use crate::ids::{HermesSessionId, MessageId};

/// A directory with a file of this name is nobody's business, and neither are those below it.
pub const IGNORE_FILE: &str = ".hermes-mirror-ignore";
/// A session with this in its title is nobody's business.
pub const PRIVATE: &str = "[private]";

/// A terminal's session: itself first, then those that it continues by compactions, nearest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Descent(Vec<Session>);

impl Open {
    /// The descent of a session that a person began; `None` where it is none: what was branched or delegated is not
    /// shown on its own.
    pub fn descent(&self, id: &HermesSessionId) -> Result<Option<Descent>, SourceError> {
        let Some(session) = self.session(id)? else { return Ok(None) };
        let mut chain = vec![session];
        chain.extend(self.ancestors(id)?);
        let is_begun = chain.last().is_some_and(|root| root.parent.is_none());
        let by_person = chain.iter().all(|session| !session.is_side_session());
        Ok((is_begun && by_person).then_some(Descent(chain)))
    }

    /// The sessions that have rows behind `after`.
    pub fn sessions_behind(&self, after: MessageId) -> Result<Vec<HermesSessionId>, SourceError> {
        let run = || -> rusqlite::Result<Vec<HermesSessionId>> {
            // By the rows, never by a session's index: what is new is little.
            let mut statement = self.conn().prepare_cached(
                "SELECT DISTINCT +session_id FROM messages WHERE id > ?1 AND session_id <> ''",
            )?;
            let ids = statement.query_map([after.get()], |row| row.get::<_, String>(0))?;
            ids.map(|id| id.map(HermesSessionId::new)).collect()
        };
        run().map_err(|e| self.error(e))
    }
}

impl Descent {
    /// Whether a session is one of them.
    #[must_use]
    pub fn holds(&self, id: &HermesSessionId) -> bool {
        self.0.iter().any(|session| session.id == *id)
    }

    /// Where it began.
    #[must_use]
    pub fn root(&self) -> Option<&Session> {
        self.0.last()
    }

    /// The directory it works in. Hermes leaves it empty in the child that a compaction forks.
    #[must_use]
    pub fn cwd(&self) -> Option<&Path> {
        self.0.iter().find_map(|session| session.cwd.as_deref()).map(Path::new)
    }

    /// Its titles, one for each session that has one.
    pub fn titles(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|session| session.title.as_deref())
    }

    /// Whether a person has said that it is nobody's business: in its title, or by a file in its directory or above,
    /// as it is recorded or with its links resolved.
    #[must_use]
    pub fn is_private(&self) -> bool {
        let marked = |title: &str| title.to_lowercase().contains(PRIVATE);
        let ignored = |cwd: &Path| cwd.ancestors().any(|dir| dir.join(IGNORE_FILE).exists());
        let lies = |cwd: &Path| ignored(cwd) || cwd.canonicalize().is_ok_and(|resolved| ignored(&resolved));
        self.titles().any(marked) || self.cwd().is_some_and(lies)
    }
}
