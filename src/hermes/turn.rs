//! The turn that a cursor stands in, recovered from the rows before it.

use std::collections::BTreeSet;

use super::connection::{Open, SourceError};
use super::rewrite::is_summary;
use super::{content, synthetic, tool_calls};
use crate::event::{OpenTurn, Resume, Role, Row, Standing, Waiting};
use crate::ids::{HermesSessionId, MessageId, ResponseId};

/// How many rows before the newest opener are looked at for turns that were set aside.
const FURTHER: u32 = 64;

/// Why an answer ended that was cut off, by a limit or with the connection.
const CUT_OFF: &str = "length";

/// Whether a row is the last of its turn: the model spoke, calls no tool, and is not asked to go on. A list of calls that
/// is broken beyond parsing counts as calls, unless Hermes recorded that the model had finished.
#[must_use]
pub fn closes(row: &Row) -> bool {
    let calls = row.tool_calls.as_deref();
    row.role == Role::Assistant
        && !row.goes_on
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

/// Whether Hermes has its model go on by a row in the user's role. The person sees one answer.
#[must_use]
pub fn is_continuation(row: &Row) -> bool {
    let text = row.content.as_deref().filter(|_| row.role == Role::User);
    text.is_some_and(|stored| synthetic::is_continuation(&content::decode_user(stored).text))
}

impl Open {
    /// Whether an answer was cut off and is gone on with behind it; `None` where it was cut off and nothing is there
    /// yet. Hermes writes all of its parts at once.
    pub(super) fn goes_on(&self, row: &Row) -> Result<Option<bool>, SourceError> {
        if row.finish_reason.as_deref() != Some(CUT_OFF) || !closes(row) {
            return Ok(Some(false));
        }
        let mut goes_on = None;
        self.walk(&row.session, MessageId::new(row.id.get().saturating_add(1)), |behind, _live| {
            goes_on = Some(is_continuation(&behind));
            false
        })?;
        Ok(goes_on)
    }

    /// Completes what is known of the turn at the cursor: its opener where nobody recorded it, and whether
    /// only its idle edge is owed. `repeated`: rows that a rewrite re-inserted, which do nothing to a turn.
    pub fn recover_turn(
        &self,
        session: &HermesSessionId,
        repeated: &BTreeSet<MessageId>,
        resume: &mut Resume,
    ) -> Result<(), SourceError> {
        let (standing, waiting) = self.turn_at(session, repeated, resume.last)?;
        resume.waiting = waiting;
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

    /// The turn of the row at `last` and the turns that wait then, from the rows up to its opener and some before it.
    fn turn_at(
        &self,
        session: &HermesSessionId,
        repeated: &BTreeSet<MessageId>,
        last: MessageId,
    ) -> Result<(Option<OpenTurn>, Vec<Waiting>), SourceError> {
        let (mut at, mut further) = (last, None);
        let mut rows = Vec::new();
        let mut lineage = vec![session.clone()];
        while let Some(mut row) = self.row_before_in(&mut lineage, session, at)? {
            at = MessageId::new(row.id.get().saturating_sub(1));
            let beside = repeated.contains(&row.id) || is_summary(&row) || is_aside(&row);
            if row.standing != Standing::TakenBack && !beside && row.role != Role::Other {
                let opens = row.role == Role::User && !is_continuation(&row);
                further = further.map(|rows: u32| rows + 1).or(opens.then_some(0));
                row.goes_on = self.goes_on(&row)?.unwrap_or(false);
                rows.push(row);
            }
            if further.is_some_and(|rows| rows >= FURTHER) {
                break;
            }
        }
        let mut passed = Passed::default();
        for row in rows.iter().rev() {
            passed.row(row);
        }
        Ok(passed.end())
    }
}

/// Turns as rows pass by: what the stage that follows them makes of rows, without their items.
#[derive(Default)]
struct Passed {
    open: Option<Turn>,
    /// Oldest first.
    aside: Vec<Turn>,
    /// The turn that the newest row closed.
    closed: Option<ResponseId>,
}

struct Turn {
    id: ResponseId,
    /// Calls that have no result yet.
    calls: BTreeSet<String>,
    settled: bool,
}

impl Turn {
    fn of(row: &Row) -> Self {
        Self { id: ResponseId::for_turn(row.id), calls: BTreeSet::new(), settled: false }
    }
}

impl Passed {
    fn row(&mut self, row: &Row) {
        match row.role {
            Role::User if is_continuation(row) => {
                self.open.get_or_insert_with(|| Turn::of(row));
            }
            Role::User => {
                let left = self.open.replace(Turn::of(row));
                self.aside.extend(left.filter(|left| !left.calls.is_empty()));
            }
            Role::Tool => self.result(row),
            Role::Assistant => self.speech(row),
            Role::Other => {}
        }
    }

    fn result(&mut self, row: &Row) {
        let Some(call) = row.tool_call_id.as_deref().and_then(tool_calls::pairing_id) else { return };
        let late = self.aside.iter().position(|turn| turn.calls.contains(call));
        if let Some(late) = late.filter(|_| self.open.is_none()) {
            self.open = Some(Turn { settled: false, ..self.aside.remove(late) });
        }
        let aside = self.aside.iter_mut().find(|turn| turn.calls.contains(call));
        aside.unwrap_or_else(|| self.open.get_or_insert_with(|| Turn::of(row))).calls.remove(call);
    }

    fn speech(&mut self, row: &Row) {
        let calls = tool_calls::parse(row.tool_calls.as_deref(), row.id).into_iter().map(|call| call.call_id);
        let waits = self.open.as_ref().is_some_and(|turn| !turn.calls.is_empty());
        let answered = |turn: &Turn| waits && !turn.settled && turn.calls.is_empty();
        let aside = self.aside.iter().position(answered);
        if !closes(row) {
            let turn = aside.and_then(|aside| self.aside.get_mut(aside));
            turn.unwrap_or_else(|| self.open.get_or_insert_with(|| Turn::of(row))).calls.extend(calls);
        } else if let Some(aside) = aside {
            self.aside.remove(aside);
        } else {
            self.closed = Some(self.open.take().unwrap_or_else(|| Turn::of(row)).id);
            self.aside.retain(|turn| !turn.calls.is_empty());
            self.aside.iter_mut().for_each(|turn| turn.settled = true);
        }
    }

    /// The turn at the end, and those that wait.
    fn end(self) -> (Option<OpenTurn>, Vec<Waiting>) {
        let turn = match (&self.open, self.closed) {
            (Some(open), _) => Some(OpenTurn { id: open.id.clone(), closed: false }),
            (None, closed) => closed.map(|id| OpenTurn { id, closed: true }),
        };
        let turns = self.aside.into_iter().chain(self.open.filter(|open| !open.calls.is_empty()));
        let waiting = turns.map(|Turn { id, calls, settled }| Waiting {
            turn: id,
            calls: calls.into_iter().collect(),
            settled,
        });
        (turn, waiting.collect())
    }
}
