//! A row that can't be judged before the one behind it is there.
//!
//! It is not taken: the cursor stays before it, and it is looked at again with each change and once its time is over.
//! Nothing waits for it but what stands behind it.

use std::time::{Duration, Instant};

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
    /// `row`, should it have to be held back, or held back longer.
    pub fn of(row: MessageId, earlier: Option<Self>) -> Self {
        let known = earlier.filter(|earlier| earlier.row == row).map(|earlier| earlier.until);
        let until = known.unwrap_or_else(|| Instant::now() + Duration::from_secs_f64(AT_ONCE));
        Self { row, until, was_seen: true }
    }

    /// Whether its time is not over.
    pub fn may_wait(&self) -> bool {
        Instant::now() < self.until
    }
}
