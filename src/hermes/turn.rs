//! The turn that a cursor stands in, recovered from the rows before it.

use std::collections::BTreeSet;

use super::connection::{Open, SourceError};
use super::rewrite::is_summary;
use super::{content, synthetic, tool_calls};
use crate::event::{OpenTurn, Resume, Role, Row, Standing};
use crate::ids::{HermesSessionId, MessageId, ResponseId};

/// How many rows behind the opener of the turn at a cursor are looked at for calls that wait for their results.
const FURTHER: u32 = 64;

/// Whether a row is the last of its turn: the model spoke and calls no tool. A list of calls that is broken
/// beyond parsing counts as calls, unless Hermes recorded that the model had finished.
#[must_use]
pub fn closes(row: &Row) -> bool {
    let calls = row.tool_calls.as_deref();
    row.role == Role::Assistant
        && (tool_calls::parse(calls, row.id).is_empty()
            || (row.finish_reason.as_deref() == Some("stop") && !tool_calls::is_well_formed_list(calls)))
}

/// Whether Hermes put a row in the user's role beside the turns: what a compaction adds to the transcript for the
/// model's sake, amid a turn or between two.
#[must_use]
pub fn is_aside(row: &Row) -> bool {
    let text = row.content.as_deref().filter(|_| row.role == Role::User);
    text.is_some_and(|stored| synthetic::is_aside(&content::decode_user(stored).text))
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
        let (standing, calls) = self.turn_at(session, repeated, resume.last)?;
        resume.calls = calls;
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

    /// The row at or before `at` in a session or, before its first row, in those that it continues: a turn may have
    /// been opened before a compaction went on in another session. `lineage` is what is left of them.
    fn row_before_in(
        &self,
        lineage: &mut Vec<HermesSessionId>,
        session: &HermesSessionId,
        at: MessageId,
    ) -> Result<Option<Row>, SourceError> {
        while let Some(current) = lineage.last() {
            if let Some(row) = self.row_before(current, at)? {
                return Ok(Some(row));
            }
            let reached = current == session;
            lineage.pop();
            if reached {
                lineage.extend(self.ancestors(session)?.into_iter().rev().map(|ancestor| ancestor.id));
            }
        }
        Ok(None)
    }

    /// The turn of the row at `last`, from the rows up to its opener, and the calls that wait for their results: its
    /// own, and those of turns before it that no row closed.
    fn turn_at(
        &self,
        session: &HermesSessionId,
        repeated: &BTreeSet<MessageId>,
        last: MessageId,
    ) -> Result<(Option<OpenTurn>, Calls), SourceError> {
        let mut at = last;
        let (mut turn, mut closed, mut earliest, mut further) = (None, false, None, 0);
        let mut calls = Waiting::default();
        let mut lineage = vec![session.clone()];
        while let Some(row) = self.row_before_in(&mut lineage, session, at)? {
            at = MessageId::new(row.id.get().saturating_sub(1));
            further += u32::from(turn.is_some());
            let beside = repeated.contains(&row.id) || is_summary(&row) || is_aside(&row);
            if row.standing == Standing::TakenBack || beside || row.role == Role::Other {
                continue;
            }
            if closed && turn.is_some() || further > FURTHER {
                break;
            }
            match row.role {
                Role::User => {
                    let id = ResponseId::for_turn(row.id);
                    calls.reach(&id);
                    turn = turn.or(Some(OpenTurn { id, closed }));
                }
                Role::Assistant if closes(&row) => {
                    if earliest.is_some() {
                        break;
                    }
                    closed = true;
                }
                _ => calls.pass(&row),
            }
            earliest = Some(row.id);
        }
        let turn = turn.or_else(|| earliest.map(|row| OpenTurn { id: ResponseId::for_turn(row), closed }));
        if let Some(turn) = &turn {
            calls.reach(&turn.id);
        }
        // What a closed turn left without a result stays so.
        let calls = if closed { Calls::new() } else { calls.by_turn };
        Ok((turn, calls))
    }
}

/// Calls by turn, newest turn first.
type Calls = Vec<(ResponseId, Vec<String>)>;

/// Calls without results, found on the way from the newest row to older ones.
#[derive(Default)]
struct Waiting {
    answered: BTreeSet<String>,
    calls: Vec<String>,
    by_turn: Calls,
}

impl Waiting {
    fn pass(&mut self, row: &Row) {
        if row.role == Role::Tool {
            self.answered
                .extend(row.tool_call_id.as_deref().and_then(tool_calls::pairing_id).map(str::to_owned));
        } else {
            let calls =
                tool_calls::parse(row.tool_calls.as_deref(), row.id).into_iter().map(|call| call.call_id);
            self.calls.extend(calls.filter(|call| !self.answered.contains(call)));
        }
    }

    /// The opener of the turn whose rows were passed.
    fn reach(&mut self, turn: &ResponseId) {
        if !self.calls.is_empty() {
            self.by_turn.push((turn.clone(), std::mem::take(&mut self.calls)));
        }
    }
}
