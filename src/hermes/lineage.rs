//! What continues a session, what it continues, and which rows a rewrite may bring back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::connection::{Open, SourceError};
use super::rewrite::{self, Ghost, Rewrites, Verdict, is_summary};
use super::rows::Limits;
use super::sessions::{Marker, Session};
use super::{content, summary};
use crate::event::{Compaction, Role, Row, Standing, Trace, Usage};
use crate::ids::{HermesSessionId, MessageId};

/// Longest chain of compactions that is walked; Hermes itself stops at 100.
const LONGEST_CHAIN: usize = 100;

/// How far back the judging of rows is made up for: further than a rewrite's rows reach.
const PAST: Limits = Limits { rows: 256, bytes: 4 << 20 };

/// Asks which rows of a range were mirrored, and what they can be known again by. Hermes may have deleted them.
pub type Remembered<'a> = &'a dyn Fn(Range<MessageId>) -> Vec<(MessageId, Trace)>;

/// What is known of a session's rows up to a cursor.
#[derive(Debug, Default)]
pub struct Past {
    /// Judges the rows behind the cursor.
    pub rewrites: Rewrites,
    /// Rows that repeat others.
    pub repeated: BTreeSet<MessageId>,
}

impl Open {
    /// The session that goes on where a fork compaction ended this one; `None` where it was not, or the
    /// child has no rows yet.
    ///
    /// Among several children the one that was compacted on in turn comes first, then one that is still
    /// open, then the newest: a stale sibling can be closed and yet started later (facts/hermes.md 1.3).
    /// Sub-agents and branches are children too, and never the continuation.
    pub fn continuation(&self, session: &HermesSessionId) -> Result<Option<HermesSessionId>, SourceError> {
        if !self.session(session)?.is_some_and(|s| s.is_compacted_away()) {
            return Ok(None);
        }
        let rank = |child: &Session| match child.end_reason.as_deref() {
            _ if child.is_compacted_away() => 2,
            None => 1,
            Some(_) => 0,
        };
        let children = self.children(session)?.into_iter();
        let mut real: Vec<_> =
            children.filter(|c| c.has_rows && c.id != *session && !c.is_side_session()).collect();
        real.sort_by(|a, b| rank(a).cmp(&rank(b)).then(a.started_at.total_cmp(&b.started_at)));
        Ok(real.pop().map(|child| child.id))
    }

    /// The sessions this one continues by fork compactions, nearest first.
    pub fn ancestors(&self, session: &HermesSessionId) -> Result<Vec<Session>, SourceError> {
        let mut chain: Vec<Session> = Vec::new();
        let mut next =
            self.session(session)?.filter(|s| s.marker != Some(Marker::Branch)).and_then(|s| s.parent);
        while let Some(id) = next.take() {
            if chain.len() >= LONGEST_CHAIN || chain.iter().any(|s| s.id == id) {
                break;
            }
            if let Some(parent) = self.session(&id)?.filter(Session::is_compacted_away) {
                next.clone_from(&parent.parent);
                chain.push(parent);
            }
        }
        Ok(chain)
    }

    /// Marks a row's standing: new, re-inserted, or the summary of a compaction.
    ///
    /// `next` is the timestamp of the session's row behind it.
    pub fn judge(
        &self,
        rewrites: &mut Rewrites,
        row: &mut Row,
        next: Option<f64>,
        remembered: Remembered<'_>,
    ) -> Result<(), SourceError> {
        row.trace = Some(rewrite::trace(row));
        let verdict = self.verdict(rewrites, row, next, remembered)?;
        row.standing = match verdict {
            Verdict::New => Standing::New,
            Verdict::Repeated => Standing::Repeated,
            Verdict::Summary | Verdict::Recurring => {
                Standing::Summary(Box::new(self.compaction(rewrites, row)?))
            }
        };
        Ok(())
    }

    fn verdict(
        &self,
        rewrites: &mut Rewrites,
        row: &Row,
        next: Option<f64>,
        remembered: Remembered<'_>,
    ) -> Result<Verdict, SourceError> {
        let ghosts = |from, first| self.ghosts(&row.session, from..first, remembered);
        let verdict = rewrites.judge(row, next, ghosts)?;
        if verdict == Verdict::Recurring && self.holds_another_summary(rewrites, row)? {
            return Ok(Verdict::Repeated);
        }
        Ok(verdict)
    }

    /// Whether a summary follows behind `row` in the rewrite that is being passed.
    fn holds_another_summary(&self, rewrites: &Rewrites, row: &Row) -> Result<bool, SourceError> {
        let mut rest = rewrites.clone();
        let mut found = false;
        self.walk(&row.session, MessageId::new(row.id.get().saturating_add(1)), |at, _live| {
            let belongs = rest.belongs(&at);
            found = belongs && is_summary(&at);
            belongs && !found
        })?;
        Ok(found)
    }

    /// Where the judging of a session's rows stands behind the row `last`, as if all of them had been judged:
    /// a mirror may have been stopped amid the rows of a rewrite.
    pub fn past(
        &self,
        session: &HermesSessionId,
        last: MessageId,
        remembered: Remembered<'_>,
    ) -> Result<Past, SourceError> {
        let rows = self.rows_up_to(session, last, PAST)?;
        let mut past = Past::default();
        let mut rows = rows.iter().peekable();
        while let Some(row) = rows.next() {
            let next = match rows.peek() {
                Some(next) => Some(next.timestamp),
                None => self.next_timestamp(session, row.id)?,
            };
            if row.standing != Standing::TakenBack
                && self.verdict(&mut past.rewrites, row, next, remembered)? == Verdict::Repeated
            {
                past.repeated.insert(row.id);
            }
        }
        Ok(past)
    }

    /// The mirrored rows of `range` that a rewrite beginning at its end may re-insert.
    ///
    /// The first rows of a continuation are copies of what was live in its parent. Within a session they are
    /// copies of rows that were archived or deleted by the same transaction, or of live ones with their own times.
    fn ghosts(
        &self,
        session: &HermesSessionId,
        range: Range<MessageId>,
        remembered: Remembered<'_>,
    ) -> Result<Vec<Ghost>, SourceError> {
        let mut ghosts = Vec::new();
        let begins_session = self.first_row(session)? == Some(range.end);
        let parent = if begins_session { self.ancestors(session)?.into_iter().next() } else { None };
        if let Some(parent) = parent {
            self.history(&parent.id, range.end, |row, live| {
                if live {
                    ghosts.push(Ghost::of(&row, false));
                }
            })?;
            return Ok(ghosts);
        }
        let mut in_order = BTreeMap::new();
        for (row, trace) in remembered(range.clone()) {
            if !self.has_row(row)? {
                in_order.insert(row, Ghost::deleted(trace));
            }
        }
        self.history(session, range.end, |row, live| {
            if row.id >= range.start && row.standing != Standing::TakenBack {
                in_order.insert(row.id, Ghost::of(&row, live));
            }
        })?;
        Ok(in_order.into_values().collect())
    }

    /// What the boundary of the compaction whose summary is `row` shows.
    fn compaction(&self, rewrites: &Rewrites, row: &Row) -> Result<Compaction, SourceError> {
        let mut rest = rewrites.clone();
        let first = rewrites.first().unwrap_or(row.id);
        let (mut live, mut token_count) = (Vec::new(), 0);
        self.walk(&row.session, first, |at, _live| {
            if at.id > row.id && !rest.belongs(&at) {
                return false;
            }
            token_count = at.token_count.map_or(token_count, |tokens| tokens.saturating_add(token_count));
            if let (Role::User | Role::Assistant, Some(stored)) = (at.role, &at.content) {
                let text = content::decode(stored).into_text();
                if !text.is_empty() {
                    live.push((at.role, text));
                }
            }
            true
        })?;
        let text = row.content.as_deref().map(content::decode).unwrap_or_default().into_text();
        let summary = summary::parse(&text).map(|parsed| parsed.summary).unwrap_or(text);
        let model = self.session(&row.session)?.and_then(|session| session.model);
        Ok(Compaction { summary, live, token_count, model })
    }

    /// What the session and those it continues have used.
    ///
    /// Hermes counts cached input apart from `input_tokens`, and reasoning inside `output_tokens`; a child of
    /// a fork compaction counts from zero again.
    pub fn usage(&self, session: &HermesSessionId) -> Result<Usage, SourceError> {
        let mut usage = self.own_usage(session)?;
        for ancestor in self.ancestors(session)? {
            let earlier = self.own_usage(&ancestor.id)?;
            usage.input_tokens = usage.input_tokens.saturating_add(earlier.input_tokens);
            usage.output_tokens = usage.output_tokens.saturating_add(earlier.output_tokens);
            usage.cached_tokens = usage.cached_tokens.saturating_add(earlier.cached_tokens);
            usage.cost_usd = match (usage.cost_usd, earlier.cost_usd) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
            usage.model = usage.model.or(earlier.model);
        }
        Ok(usage)
    }

    fn own_usage(&self, session: &HermesSessionId) -> Result<Usage, SourceError> {
        const COLUMNS: &[(&str, &str)] = &[
            ("model", "NULL"),
            ("input_tokens", "0"),
            ("output_tokens", "0"),
            ("cache_read_tokens", "0"),
            ("cache_write_tokens", "0"),
            ("actual_cost_usd", "NULL"),
            ("estimated_cost_usd", "NULL"),
            ("cost_status", "NULL"),
        ];
        let run = || -> rusqlite::Result<Option<Usage>> {
            let select = self.schema().select("sessions", COLUMNS);
            let mut statement =
                self.conn().prepare_cached(&format!("SELECT {select} FROM sessions WHERE id = ?1"))?;
            let mut rows = statement.query([session.as_str()])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            let count = |at| -> u64 {
                row.get::<_, Option<i64>>(at).ok().flatten().map_or(0, |n| u64::try_from(n).unwrap_or(0))
            };
            let cost = |at| row.get::<_, Option<f64>>(at).ok().flatten();
            // Hermes writes 0.0 with status 'unknown' for a model whose price it does not know: no cost, not a free one.
            let known = row.get::<_, Option<String>>(7).ok().flatten().as_deref() != Some("unknown");
            Ok(Some(Usage {
                model: row.get::<_, Option<String>>(0).ok().flatten().filter(|m| !m.is_empty()),
                input_tokens: count(1).saturating_add(count(3)).saturating_add(count(4)),
                output_tokens: count(2),
                cached_tokens: count(3),
                cost_usd: cost(5).or(cost(6).filter(|_| known)),
            }))
        };
        Ok(run().map_err(|e| self.error(e))?.unwrap_or_default())
    }
}
