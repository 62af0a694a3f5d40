//! Taking the rows that a scan found, one by one, as far as the lane has room and what they are is known.

use std::time::Instant;

use super::Feed;
use super::held::Held;
use crate::event::{Reading, Row, Standing};
use crate::hermes::{Judged, Open, SourceError, turn};
use crate::ids::MessageId;

impl Feed {
    /// Takes the rows of its session that one scan found. Returns whether it took them all.
    pub fn take(&mut self, open: &Open, rows: &[Row], more: bool) -> Result<bool, SourceError> {
        let Some(session) = self.following.as_ref().map(|f| f.session.clone()) else { return Ok(true) };
        let mine: Vec<&Row> = rows.iter().filter(|row| row.session == session).collect();
        if !mine.is_empty() && !self.may_take(open)? {
            return Ok(false);
        }
        for (at, row) in mine.iter().enumerate() {
            let next = match mine.get(at + 1) {
                Some(next) => Some(next.timestamp),
                None if more => open.next_timestamp(&session, row.id)?,
                None => None,
            };
            if !self.take_row(open, row, next)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take_row(&mut self, open: &Open, row: &Row, next: Option<f64>) -> Result<bool, SourceError> {
        let Some(following) = &mut self.following else { return Ok(true) };
        if row.id <= following.read_to {
            return Ok(true);
        }
        if !self.lane.has_room() {
            return Ok(false);
        }
        let mut row = row.clone();
        if row.standing == Standing::TakenBack {
            following.watch_taken_back(row.id);
        } else {
            // A lock that interrupts the judging must leave no half of it.
            let mut rewrites = following.rewrites.clone();
            let held = Held::of(row.id, following.held);
            let remembered = |range| self.memory.range(range);
            let judged = open.judge(&mut rewrites, &mut row, next, held.may_wait(), &remembered)?;
            if judged == Judged::Later {
                following.held = Some(held);
                return Ok(false);
            }
            following.rewrites = rewrites;
        }
        following.held = None;
        if row.id <= following.highest && self.memory.holds(row.id) {
            // Read again for the sake of one before it.
            following.read_to = row.id;
            return Ok(true);
        }
        self.heard = Instant::now();
        self.memory.note(row.id, row.trace);
        self.watch.note(&row);
        following.read_to = row.id;
        following.first.get_or_insert(row.id);
        if row.standing != Standing::TakenBack {
            following.newest = following.newest.max(Some(row.id));
        }
        following.highest = following.highest.max(row.id);
        following.turn_closed |= row.standing == Standing::New && turn::closes(&row);
        match row.standing {
            Standing::New => self.lane.recall.put(row.id),
            // Its original may wait on the lane, and is all that will be shown of the two.
            Standing::Repeated => self.lane.recall.keep(),
            Standing::TakenBack | Standing::Summary(_) => {}
        }
        self.watch_for_wave(&row);
        tracing::trace!(conversation = %self.conversation, row = %row.id, "read");
        self.send(Reading::Row(row));
        Ok(true)
    }

    /// All rows up to `scanned_to` were looked at, and none of its session is left behind.
    /// `more`: a limit ended the scan.
    pub fn advance(&mut self, scanned_to: MessageId, more: bool) {
        if let Some(following) = &mut self.following {
            following.read_to = scanned_to;
            following.highest = following.highest.max(scanned_to);
            following.caught_up = !more;
            following.held = None;
            self.stats.read_to(scanned_to);
            if !more {
                let waiting = self.lane.readings.max_capacity() - self.lane.readings.capacity();
                self.lane.backlog.at_most(waiting as u64);
            }
        }
    }
}
