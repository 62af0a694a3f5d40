//! What continues a session, what it continues, and which rows a rewrite may bring back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::connection::{Open, SourceError};
use super::rewrite::{self, AT_ONCE, Ghost, Ghosts, Kind, Rewrites, Verdict, is_summary};
use super::rows::Limits;
use super::sessions::{Marker, Session};
use super::{content, summary};
use crate::event::{Compaction, Role, Row, Standing, Trace};
use crate::ids::{HermesSessionId, MessageId};

/// Longest chain of compactions that is walked; Hermes itself stops at 100.
const LONGEST_CHAIN: usize = 100;

/// How far back the judging of rows is made up for: further than a rewrite's rows reach.
const PAST: Limits = Limits { rows: 256, bytes: 4 << 20 };

/// Asks which rows of a range were mirrored, and what they can be known again by. Hermes may have deleted them.
pub type Remembered<'a> = &'a dyn Fn(Range<MessageId>) -> Vec<(MessageId, Trace)>;

/// Whether a row could be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Its standing is known.
    Now,
    /// What comes behind it decides. It comes within [`AT_ONCE`], or not at all.
    Later,
}

/// Why a row has no verdict.
enum NoVerdict {
    /// What decides is still to come.
    Early,
    /// The database can't be read.
    Source(SourceError),
}

impl From<SourceError> for NoVerdict {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

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
    /// `next` is the timestamp of the session's row behind it. `may_wait`: what comes behind the row may be on its way.
    pub fn judge(
        &self,
        rewrites: &mut Rewrites,
        row: &mut Row,
        next: Option<f64>,
        may_wait: bool,
        remembered: Remembered<'_>,
    ) -> Result<Judged, SourceError> {
        row.trace = Some(rewrite::trace(row));
        let verdict = match self.verdict(rewrites, row, next, may_wait, remembered) {
            Ok(verdict) => verdict,
            Err(NoVerdict::Early) => return Ok(Judged::Later),
            Err(NoVerdict::Source(error)) => return Err(error),
        };
        row.standing = match verdict {
            Verdict::New => Standing::New,
            Verdict::Repeated => Standing::Repeated,
            Verdict::Summary | Verdict::Recurring => {
                Standing::Summary(Box::new(self.compaction(rewrites, row)?))
            }
        };
        if row.standing == Standing::New {
            row.goes_on = match self.goes_on(row)? {
                None if may_wait => return Ok(Judged::Later),
                goes_on => goes_on.unwrap_or(false),
            };
        }
        Ok(Judged::Now)
    }

    fn verdict(
        &self,
        rewrites: &mut Rewrites,
        row: &Row,
        next: Option<f64>,
        may_wait: bool,
        remembered: Remembered<'_>,
    ) -> Result<Verdict, NoVerdict> {
        let ghosts = |from, first| self.ghosts(&row.session, from..first, may_wait, remembered);
        let vanished = match rewrites.last() {
            Some(last) => !self.has_row(last)?,
            None => false,
        };
        let verdict = rewrites.judge(row, next, vanished, ghosts)?;
        if verdict == Verdict::Recurring && self.holds_another_summary(rewrites, row)? {
            return Ok(Verdict::Repeated);
        }
        Ok(verdict)
    }

    /// Whether a summary follows behind `row` in the rewrite that is being passed.
    fn holds_another_summary(&self, rewrites: &Rewrites, row: &Row) -> Result<bool, SourceError> {
        let mut found = false;
        self.walk_rewrite(rewrites, row, |at| {
            found = is_summary(at);
            !found
        })?;
        Ok(found)
    }

    /// Calls `visit` with each row behind `row` of the rewrite that is being passed, until it says `false`.
    fn walk_rewrite(
        &self,
        rewrites: &Rewrites,
        row: &Row,
        mut visit: impl FnMut(&Row) -> bool,
    ) -> Result<(), SourceError> {
        let mut rest = rewrites.clone();
        let mut belongs = |at: &Row, next: Option<f64>| rest.belongs(at, next) && visit(at);
        // The last row that was read: whether it belongs may depend on the one behind it.
        let mut last: Option<Row> = None;
        self.walk(&row.session, MessageId::new(row.id.get().saturating_add(1)), |at, _live| {
            let goes_on = last.as_ref().is_none_or(|last| belongs(last, Some(at.timestamp)));
            last = goes_on.then_some(at);
            goes_on
        })?;
        if let Some(last) = last {
            belongs(&last, None);
        }
        Ok(())
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
        // What was taken back after it was shown was judged in its time.
        let from = rows.first().map_or(last, |row| row.id);
        let shown: BTreeSet<MessageId> = remembered(from..MessageId::new(last.get().saturating_add(1)))
            .into_iter()
            .map(|(row, _)| row)
            .collect();
        let mut rows = rows.iter().peekable();
        while let Some(row) = rows.next() {
            let next = match rows.peek() {
                Some(next) => Some(next.timestamp),
                None => self.next_timestamp(session, row.id)?,
            };
            if row.standing == Standing::TakenBack && !shown.contains(&row.id) {
                continue;
            }
            match self.verdict(&mut past.rewrites, row, next, false, remembered) {
                Ok(Verdict::Repeated) => {
                    past.repeated.insert(row.id);
                }
                Err(NoVerdict::Source(error)) => return Err(error),
                Ok(_) | Err(NoVerdict::Early) => {}
            }
        }
        Ok(past)
    }

    /// The mirrored rows of `range` that a rewrite beginning at its end may re-insert.
    ///
    /// The first rows of a continuation are copies of what was live in its parent. Within a session they are
    /// copies of rows that were archived, deleted or taken back by the same transaction, or of live ones with their
    /// own times.
    fn ghosts(
        &self,
        session: &HermesSessionId,
        range: Range<MessageId>,
        may_wait: bool,
        remembered: Remembered<'_>,
    ) -> Result<Ghosts, NoVerdict> {
        let mut ghosts = Ghosts::default();
        // A session's own rows stand behind those of the one it continues.
        let mut own = range.start;
        let parent = if self.begins_session(session, range.end)? {
            self.ancestors(session)?.into_iter().next()
        } else {
            None
        };
        if let Some(parent) = parent {
            self.history(&parent.id, MessageId::ZERO..range.end, |row, live| {
                own = own.max(MessageId::new(row.id.get().saturating_add(1)));
                if live {
                    ghosts.rows.push(Ghost::of(&row, false));
                }
                true
            })?;
            // From 0.19 on, which has this column, a child's rows come in one transaction, and are known by that.
            // Where rows stood before, what a person edited and sent again may come first by now.
            let one_by_one = !self.schema().has("messages.api_content");
            if one_by_one
                && (self.has_foreign_row(session, MessageId::new(range.end.get() - 1))?
                    || self.hands_over(session, range.end, &ghosts.rows)?)
            {
                ghosts.kind = Kind::Handover;
            }
        }
        let (mut in_order, mut shown) = (BTreeMap::new(), BTreeSet::new());
        for (row, trace) in remembered(own..range.end) {
            shown.insert(row);
            if !self.has_row(row)? {
                in_order.insert(row, Ghost::gone(trace));
            }
        }
        let (mut any_gone, mut any_held) = (!in_order.is_empty(), false);
        self.history(session, range.clone(), |row, live| {
            let taken_back = row.standing == Standing::TakenBack;
            if !taken_back || shown.contains(&row.id) {
                any_gone |= taken_back;
                any_held |= !taken_back;
                in_order.insert(row.id, Ghost::of(&row, live));
            }
            true
        })?;
        ghosts.rows.extend(in_order.into_values());
        if any_gone && !any_held {
            let kept_one = self.is_kept_alone(session, range.end, &ghosts.rows)?;
            ghosts.kind = match kept_one {
                None if may_wait => return Err(NoVerdict::Early),
                kept_one => Kind::Edit { kept_one: kept_one.unwrap_or(false) },
            };
        }
        Ok(ghosts)
    }

    /// Whether the row `first` is the person's and the only one that an edit kept; `None` where nothing stands behind
    /// it yet.
    ///
    /// By itself it could as well be the first message, sent again in the same words. But the message that was edited
    /// follows a kept one within moments, and an answer takes its place where none was kept. Asked seldom: from 0.20 on
    /// what is kept has its old time.
    fn is_kept_alone(
        &self,
        session: &HermesSessionId,
        first: MessageId,
        originals: &[Ghost],
    ) -> Result<Option<bool>, SourceError> {
        let mut rows = Vec::new();
        self.walk(session, first, |row, _live| {
            rows.push(row);
            rows.len() < 2
        })?;
        let may_be = |row: &Row| row.role == Role::User && originals.iter().any(|o| o.is_said_again(row));
        if self.schema().has("messages.display_kind") || !rows.first().is_some_and(may_be) {
            return Ok(Some(false));
        }
        Ok(match rows.as_slice() {
            [kept, sent] => Some(sent.role == Role::User && sent.timestamp - kept.timestamp < AT_ONCE),
            _ => None,
        })
    }

    /// Whether no row of the session before `first` is left but what was taken back.
    fn begins_session(&self, session: &HermesSessionId, first: MessageId) -> Result<bool, SourceError> {
        let mut begins = true;
        if self.first_row(session)? != Some(first) {
            self.history(session, MessageId::ZERO..first, |row, _live| {
                begins = row.standing == Standing::TakenBack;
                begins
            })?;
        }
        Ok(begins)
    }

    /// Whether there is a row of this id, and it is not this session's.
    fn has_foreign_row(&self, session: &HermesSessionId, id: MessageId) -> Result<bool, SourceError> {
        Ok(self.session_of(id)?.is_some_and(|owner| owner != *session))
    }

    /// Whether the rows from `first` on are those that a parent handed over: the first of its own, at once behind one
    /// another, and a summary.
    fn hands_over(
        &self,
        session: &HermesSessionId,
        first: MessageId,
        originals: &[Ghost],
    ) -> Result<bool, SourceError> {
        let (mut originals, mut last, mut summed) = (originals.iter(), None, false);
        self.walk(session, first, |row, _live| {
            summed = is_summary(&row);
            let original = originals.next();
            !summed && original.is_some_and(|original| original.is_of(&row, last.replace(row.timestamp)))
        })?;
        Ok(summed)
    }

    /// What the boundary of the compaction whose summary is `row` shows.
    fn compaction(&self, rewrites: &Rewrites, row: &Row) -> Result<Compaction, SourceError> {
        let (mut live, mut token_count) = (Vec::new(), 0_u64);
        let mut add = |at: &Row| {
            token_count = token_count.saturating_add(at.token_count.unwrap_or(0));
            if let (Role::User | Role::Assistant, Some(stored)) = (at.role, &at.content) {
                let text = content::decode(stored).into_text();
                if !text.is_empty() {
                    live.push((at.role, text));
                }
            }
            true
        };
        let first = rewrites.first().unwrap_or(row.id);
        self.walk(&row.session, first, |at, _live| at.id <= row.id && add(&at))?;
        self.walk_rewrite(rewrites, row, add)?;
        let text = row.content.as_deref().map(content::decode).unwrap_or_default().into_text();
        let summary = summary::parse(&text).map(|parsed| parsed.summary).unwrap_or(text);
        let model = self.session(&row.session)?.and_then(|session| session.model);
        Ok(Compaction { summary, live, token_count, model })
    }
}
