//! A row that can't be judged before the one behind it is there.
//!
//! It is not taken: the cursor stays before it, and it is looked at again with each change and once its time is over.
//! Nothing waits for it but what stands behind it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::event::Row;
use crate::hermes::AT_ONCE;
use crate::ids::MessageId;

/// A row that is held back.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    row: MessageId,
    /// When it is judged, whatever has come by then.
    pub until: Instant,
    /// It was looked at in this look.
    pub was_seen: bool,
}

impl Held {
    /// `row`, should it have to be held back, or held back longer. What comes behind it comes within moments of its
    /// own time; a clock that is ahead prolongs nothing.
    pub fn of(row: &Row, earlier: Option<Self>) -> Self {
        if let Some(earlier) = earlier.filter(|earlier| earlier.row == row.id) {
            return Self { was_seen: true, ..earlier };
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let left = (AT_ONCE - (now - row.timestamp)).clamp(0.0, AT_ONCE);
        Self { row: row.id, until: Instant::now() + Duration::from_secs_f64(left), was_seen: true }
    }

    /// Whether its time is not over.
    pub fn may_wait(&self) -> bool {
        Instant::now() < self.until
    }
}
