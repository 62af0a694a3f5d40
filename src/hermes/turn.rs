//! The turn that a cursor stands in, recovered from the rows before it.

use std::collections::BTreeSet;

use super::connection::{Open, SourceError};
use super::rewrite::is_summary;
use super::tool_calls;
use crate::event::{OpenTurn, Resume, Role, Row, Standing};
use crate::ids::{HermesSessionId, MessageId, ResponseId};

/// Whether a row is the last of its turn: the model spoke and calls no tool. A list of calls that is broken
/// beyond parsing counts as calls, unless Hermes recorded that the model had finished.
#[must_use]
pub fn closes(row: &Row) -> bool {
    let calls = row.tool_calls.as_deref();
    row.role == Role::Assistant
        && (tool_calls::parse(calls, row.id).is_empty()
            || (row.finish_reason.as_deref() == Some("stop") && !tool_calls::is_well_formed_list(calls)))
}

impl Open {
    /// Completes what is known of the turn at the cursor: its opener where nobody recorded it, and whether
    /// only its idle edge is owed. `repeated`: rows that a rewrite re-inserted, which do nothing to a turn.
    pub fn recover_turn(
        &self,
        session: &HermesSessionId,
        repeated: &BTreeSet<MessageId>,
        resume: &mut Resume,
    ) -> Result<(), SourceError> {
        let standing = self.turn_at(session, repeated, resume.last)?;
        let counted = self.closed_turns(session, resume.last)?;
        let owed = resume.closed_turns.is_some_and(|delivered| delivered < counted);
        resume.turn = match (resume.turn.take(), standing) {
            (Some(known), Some(found)) => Some(OpenTurn { id: known.id, closed: found.closed }),
            (None, Some(found)) if !found.closed || owed => Some(found),
            (known, _) => known,
        };
        resume.closed_turns = Some(counted);
        Ok(())
    }

    /// The turn of the row at `last`, from the rows up to its opener.
    fn turn_at(
        &self,
        session: &HermesSessionId,
        repeated: &BTreeSet<MessageId>,
        last: MessageId,
    ) -> Result<Option<OpenTurn>, SourceError> {
        let mut at = last;
        let mut closed = false;
        let mut earliest = None;
        while let Some(row) = self.row_before(session, at)? {
            at = MessageId::new(row.id.get().saturating_sub(1));
            if row.standing == Standing::TakenBack || repeated.contains(&row.id) || is_summary(&row) {
                continue;
            }
            match row.role {
                Role::User => return Ok(Some(OpenTurn { id: ResponseId::for_turn(row.id), closed })),
                Role::Assistant if closes(&row) => {
                    if earliest.is_some() {
                        break;
                    }
                    closed = true;
                }
                Role::Assistant | Role::Tool => {}
                Role::Other => continue,
            }
            earliest = Some(row.id);
        }
        Ok(earliest.map(|row| OpenTurn { id: ResponseId::for_turn(row), closed }))
    }
}
