//! Where a terminal goes on that has left its session by `/new`, `/clear` or `/resume`.
//!
//! Hermes marks the session that was left and not the one it was left for. That one is certain only where nothing
//! else can be meant; a person's conversation is not the place to guess.

use super::connection::{Open, SourceError};
use super::discovery::same_directory;
use super::sessions::{LEFT_FOR_NEW, LEFT_FOR_OTHER, Session};
use crate::ids::{HermesSessionId, MessageId};

/// How long after a session was left for a new one that one begins, in s. Hermes lets its plug-ins end the old one first.
const MOMENTS_S: f64 = 10.0;
/// What a terminal interface's session ends with when it is closed, and also when it is left for another one.
const CLOSED: &str = "tui_close";

/// What is known of a terminal's whereabouts.
#[derive(Clone, Debug, PartialEq)]
pub enum Succession {
    /// It is in the session still, or has shown up nowhere else.
    Stays,
    /// It goes on in `session`, from behind the row `behind`.
    Goes {
        /// The session.
        session: HermesSessionId,
        /// The last row that is not to be shown.
        behind: MessageId,
    },
    /// It has left, and may be in any of these.
    Unsure(Vec<HermesSessionId>),
}

/// A session that may be the one, where it begins, and whether all speaks for it.
struct Candidate {
    session: HermesSessionId,
    behind: MessageId,
    fits: bool,
}

impl Open {
    /// Where the terminal goes on that sat in the session `left`. `taken` says whether a session is another mirror's.
    pub fn successor(
        &self,
        left: &HermesSessionId,
        taken: impl Fn(&HermesSessionId) -> bool,
    ) -> Result<Succession, SourceError> {
        let Some(left) = self.session(left)? else { return Ok(Succession::Stays) };
        let (Some(at), Some(reason)) = (left.ended_at, left.end_reason.as_deref()) else {
            return Ok(Succession::Stays);
        };
        let mut candidates = match reason {
            LEFT_FOR_NEW => self.begun_after(&left, at, |session| session.started_at <= at + MOMENTS_S)?,
            CLOSED => self.begun_after(&left, at, |_| false)?,
            LEFT_FOR_OTHER => self.taken_up_after(&left, at)?,
            _ => return Ok(Succession::Stays),
        };
        candidates.retain(|candidate| !taken(&candidate.session));
        Ok(match candidates.as_slice() {
            [] => Succession::Stays,
            [only] if only.fits => Succession::Goes { session: only.session.clone(), behind: only.behind },
            several => Succession::Unsure(several.iter().map(|one| one.session.clone()).collect()),
        })
    }

    /// New sessions that could be the one.
    fn begun_after(
        &self,
        left: &Session,
        at: f64,
        fits: impl Fn(&Session) -> bool,
    ) -> Result<Vec<Candidate>, SourceError> {
        let mut sessions = self.sessions_since(at)?;
        sessions.retain(|session| is_like(session, left));
        // What began in these moments is meant, whatever begins later.
        if sessions.iter().any(&fits) {
            sessions.retain(&fits);
            if is_chain(&sessions) {
                sessions.truncate(1);
            }
        } else if left.end_reason.as_deref() == Some(LEFT_FOR_NEW) {
            sessions.clear();
        }
        let mut candidates = Vec::new();
        for session in sessions {
            let first = self.first_row(&session.id)?;
            let behind = match first {
                Some(first) => MessageId::new(first.get().saturating_sub(1)),
                None => self.newest_row()?,
            };
            let fits = fits(&session);
            candidates.push(Candidate { session: session.id, behind, fits });
        }
        Ok(candidates)
    }

    /// Older sessions in which something was asked since. One where something was said while the terminal sat in the
    /// session it left is another terminal's, or was left by this one before: that can't be told.
    fn taken_up_after(&self, left: &Session, at: f64) -> Result<Vec<Candidate>, SourceError> {
        let mut candidates = Vec::new();
        for id in self.active_since(at)? {
            let Some(session) = self.session(&id)? else { continue };
            let is_open = session.ended_at.is_none() || session.is_compacted_away();
            if session.started_at >= at || !is_open || !is_like(&session, left) {
                continue;
            }
            let Some(first) = self.begun_since(&id, at)? else { continue };
            let fits = !self.was_active(&id, left.started_at, at)?;
            candidates.push(Candidate {
                session: id,
                behind: MessageId::new(first.get().saturating_sub(1)),
                fits,
            });
        }
        Ok(candidates)
    }
}

/// Whether each of the sessions, oldest first, was left before the next one began: one terminal that went on and on.
fn is_chain(sessions: &[Session]) -> bool {
    sessions.iter().zip(sessions.iter().skip(1)).all(|(one, next)| {
        let left = one.ended_at.filter(|_| one.end_reason.as_deref() == Some(LEFT_FOR_NEW));
        left.is_some_and(|left| left <= next.started_at)
    })
}

/// Whether one terminal could have sat in both.
fn is_like(session: &Session, left: &Session) -> bool {
    let same_place = match (&session.cwd, &left.cwd) {
        (Some(here), Some(there)) => same_directory(here.as_ref(), there.as_ref()),
        _ => true,
    };
    let is_child = session.parent.as_ref().is_some_and(|parent| *parent != left.id);
    session.id != left.id
        && session.source == left.source
        && same_place
        && !is_child
        && !session.is_side_session()
}
