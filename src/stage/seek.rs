//! Which session a mirror follows: the rule alone, which looks and changes nothing.

use crate::config::History;
use crate::event::{Binding, Resume};
use crate::hermes::discovery::{self, Found};
use crate::hermes::{Open, SourceError};
use crate::ids::{HermesSessionId, MessageId};

use super::search::Target;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sought {
    /// The session to follow, and where to go on in it.
    pub binding: Option<Binding>,
    /// A session that was known, by name or from before, and is left to a live sibling.
    pub left: Option<HermesSessionId>,
    /// Sessions among which a person must choose.
    pub several: Vec<HermesSessionId>,
}

/// The session to follow: the one a person named, else the one bound before (`known`), else the one that fits.
/// One that a sibling mirrors is left to it, and one of `others` is not found a second time.
pub fn seek(
    open: &Open,
    target: &Target,
    known: Option<&Binding>,
    others: &[HermesSessionId],
    taken: impl Fn(&HermesSessionId) -> bool,
) -> Result<Sought, SourceError> {
    let mut sought = Sought::default();
    let found = match target {
        Target::Session(named) => match known {
            Some(known) if leads_to(open, named, &known.session)? => Some(known.clone()),
            _ => open.session(named)?.map(|session| from_the_start(session.id)),
        },
        Target::Terminal(_) => match known {
            Some(known) if !is_discarded(open, known)? => Some(known.clone()),
            _ => None,
        },
    };
    match found {
        Some(binding) if taken(&binding.session) => sought.left = Some(binding.session),
        found => sought.binding = found,
    }
    if let (Target::Terminal(terminal), None) = (target, &sought.binding) {
        let taken = |session: &HermesSessionId| others.contains(session) || taken(session);
        match discovery::discover(open, terminal, taken)? {
            Found::Session(session) => sought.binding = Some(from_the_start(session)),
            Found::Resumed(session, behind) => sought.binding = Some(from_behind(session, behind)),
            Found::Nothing => {}
            Found::Ambiguous(several) => sought.several = several,
        }
    }
    Ok(sought)
}

/// Where a mirror begins in a session of which nothing was shown, as `history` says. Rows up to `there` are history.
pub fn with_history(
    open: &Open,
    binding: Binding,
    history: Option<History>,
    there: MessageId,
) -> Result<Binding, SourceError> {
    let (session, first) = match history {
        None => return Ok(binding),
        Some(History::All) => return Ok(from_the_start(binding.session)),
        Some(_) => {
            let session = open.newest_continuation(&binding.session)?;
            let last = open.row_from_end(&session, there, 0)?;
            (session, last)
        }
    };
    let Some(last) = first else { return Ok(from_the_start(session)) };
    let before = |row: MessageId| MessageId::new(row.get().saturating_sub(1));
    let first = match history {
        Some(History::OpenTurn) => open.opener_at(&session, last)?,
        Some(History::Rows(rows)) => match open.row_from_end(&session, there, rows.saturating_sub(1))? {
            Some(row) => Some(open.opener_at(&session, before(row))?.unwrap_or(row)),
            None => None,
        },
        Some(History::All | History::None) | None => None,
    };
    let behind = first.map_or(last, before);
    Ok(if behind == MessageId::ZERO { from_the_start(session) } else { from_behind(session, behind) })
}

/// A session of which nothing was shown and all is to be.
pub(super) fn from_the_start(session: HermesSessionId) -> Binding {
    Binding { session, resume: Resume::default() }
}

/// A session of which nothing was shown, and what lies behind the row `last` is to be.
pub(super) fn from_behind(session: HermesSessionId, last: MessageId) -> Binding {
    Binding { session, resume: Resume { last, begins: true, ..Resume::default() } }
}

/// Whether a session that was bound while it was empty is gone: Hermes discards an empty one that is left.
fn is_discarded(open: &Open, known: &Binding) -> Result<bool, SourceError> {
    Ok(known.resume.last == MessageId::ZERO && open.session(&known.session)?.is_none())
}

/// Whether `bound` is the named session or one that continues it.
fn leads_to(open: &Open, named: &HermesSessionId, bound: &HermesSessionId) -> Result<bool, SourceError> {
    Ok(named == bound || open.ancestors(bound)?.iter().any(|session| session.id == *named))
}
