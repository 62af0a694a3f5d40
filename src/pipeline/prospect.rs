//! What a mirror would follow if it were started now. Looks, and changes nothing.

use std::path::{Path, PathBuf};

use super::founding::rule;
use super::mirror::{bridge_dir, claim_epoch, purpose, target};
use crate::config::{self, Config};
use crate::event::{Binding, Resume};
use crate::hermes::discovery::{self, Found};
use crate::hermes::{Open, SourceError};
use crate::ids::{ConversationId, HermesSessionId, MessageId};
use crate::stage::deliver::now_ms;
use crate::stage::search::Target;
use crate::stage::seek::{seek, with_history};
use crate::state::bridge::Cursor;
use crate::state::ledger::Made;
use crate::state::{StateError, claims, dir};

/// What lies ahead of a mirror.
#[derive(Clone, Debug, PartialEq)]
pub enum Prospect {
    /// It follows `session` from behind row `after`; from its first row on where that is zero.
    Follow {
        /// The session.
        session: HermesSessionId,
        /// The last row that was delivered before.
        after: MessageId,
    },
    /// It waits: no session fits yet.
    Wait,
    /// It waits for a session that was named and is not there.
    Unknown(HermesSessionId),
    /// It waits for a person to choose among these.
    Ambiguous(Vec<HermesSessionId>),
    /// It leaves the session to a live sibling.
    Taken {
        /// The session.
        session: HermesSessionId,
        /// The sibling's bridge directory.
        by: PathBuf,
    },
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum ProspectError {
    /// The database can't be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It is not known where the mirror keeps its files.
    #[error(transparent)]
    State(#[from] StateError),
}

/// What `mirror`, one of the mirrors of `config`, would follow.
pub fn prospect(config: &Config, mirror: &config::Mirror, open: &Open) -> Result<Prospect, ProspectError> {
    let dir = bridge_dir(&dir::root(&config.state)?, mirror);
    let (launch, now) = (claim_epoch(mirror), now_ms());
    let holder = |session: &HermesSessionId| claims::holder(&dir, session, launch, now);
    let target = target(mirror);
    let known = known(&dir);
    let sought = seek(open, &target, known.as_ref(), &[], |session| holder(session).is_some())?;
    if let Some(binding) = sought.binding {
        let is_known = known.is_some_and(|known| known.session == binding.session);
        let history = mirror.history.filter(|_| !is_known);
        let Binding { session, resume } = with_history(open, binding, history, open.newest_row()?)?;
        return Ok(Prospect::Follow { session, after: resume.last });
    }
    if !sought.several.is_empty() {
        return Ok(Prospect::Ambiguous(sought.several));
    }
    // What would have been found but for the siblings.
    let missed = match (sought.left, &target) {
        (Some(session), _) => Some(session),
        (None, Target::Session(named)) => return Ok(Prospect::Unknown(named.clone())),
        (None, Target::Terminal(terminal)) => match discovery::discover(open, terminal, |_| false)? {
            Found::Session(session) | Found::Resumed(session, _) => Some(session),
            Found::Nothing | Found::Ambiguous(_) => None,
        },
    };
    let taken = missed.and_then(|session| holder(&session).map(|by| Prospect::Taken { session, by }));
    Ok(taken.unwrap_or(Prospect::Wait))
}

/// How many of the sessions that people began a mirror of many takes, and how many there are.
pub fn matching(mirror: &config::Mirror, open: &Open) -> Result<(usize, usize), SourceError> {
    let rule = rule(0, mirror);
    let (mut count, mut of) = (0, 0);
    for session in open.sessions_since(0.0)? {
        let Some(descent) = open.descent(&session.id)? else { continue };
        if descent.root().is_some_and(|root| root.id == session.id) {
            of += 1;
            count += usize::from(rule.as_ref().is_some_and(|rule| rule.takes(&descent)));
        }
    }
    Ok((count, of))
}

/// The conversation that was made for a mirror whose `conversation` is `new`; `None` where none was made yet.
pub fn made(config: &Config, mirror: &config::Mirror) -> Result<Option<ConversationId>, StateError> {
    let Some(database) = config.database_of(mirror) else { return Ok(None) };
    let making =
        Made::look(&dir::root(&config.state)?, &config.deliver.base_url, database, &purpose(mirror))?;
    Ok(making.and_then(|making| making.conversation))
}

/// What a bridge directory's cursor says; the directory is not made.
fn known(dir: &Path) -> Option<Binding> {
    let cursor = Cursor::read(dir);
    let resume = Resume { last: cursor.last, ..Resume::default() };
    Some(Binding { session: cursor.session?, resume })
}
