//! How full a lane is, seen from both of its ends: the pressure that flows back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::mpsc::{self, Receiver, Sender};

use super::backlog::Share;
use super::recall::Recall;
use crate::event::Reading;

/// A row may be followed by one more reading, so a lane has room only while two fit.
const ROOM: usize = 2;

/// A reading in the lane.
#[derive(Debug)]
pub struct Queued {
    /// What is told.
    pub reading: Reading,
    /// When it was read.
    pub at: Instant,
}

/// The sending end of a lane, as the reader holds it.
#[derive(Clone, Debug)]
pub struct LaneSender {
    /// Readings for the lane, bounded.
    pub readings: Sender<Queued>,
    /// Set while the lane is full, so that it wakes the reader once it has room.
    pub starved: Arc<AtomicBool>,
    /// Bytes of the rows that wait in the lane.
    pub waiting: Arc<AtomicU64>,
    /// The lane is full once so many bytes wait: a few rows may hold as much as all others together.
    pub most_bytes: u64,
    /// The rows that wait in the lane, should they be taken back.
    pub recall: Recall,
    /// The rows that are still to be delivered, of those that were there.
    pub backlog: Share,
}

/// What the lane itself sees of its fullness.
#[derive(Clone, Debug)]
pub struct Pressure {
    starved: Arc<AtomicBool>,
    waiting: Arc<AtomicU64>,
    capacity: usize,
    most_bytes: u64,
    backlog: Share,
}

impl Pressure {
    /// A row was delivered.
    pub fn pass(&self) {
        self.backlog.pass();
    }

    /// A reading was taken, and so many are left. Whether the reader is to be told that there is room again: once
    /// half of a full lane is free.
    #[must_use]
    pub fn eases(&self, taken: &Reading, left: usize) -> bool {
        let bytes = if let Reading::Row(row) = taken { row.bytes() } else { 0 };
        let waiting = self.waiting.fetch_sub(bytes, Ordering::SeqCst).saturating_sub(bytes);
        left <= self.capacity / 2
            && waiting <= self.most_bytes / 2
            && self.starved.swap(false, Ordering::SeqCst)
    }
}

/// A lane's two ends. It has room for `rows` rows, and for what may follow one, beyond those that are to wait.
#[must_use]
pub fn lane(rows: usize, most_bytes: u64, backlog: Share) -> (LaneSender, Receiver<Queued>) {
    let (readings, queue) = mpsc::channel(rows.saturating_add(1));
    let (starved, waiting) = (Arc::default(), Arc::default());
    (LaneSender { readings, starved, waiting, most_bytes, recall: Recall::default(), backlog }, queue)
}

impl LaneSender {
    /// The lane's view of it.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        Pressure {
            starved: Arc::clone(&self.starved),
            waiting: Arc::clone(&self.waiting),
            capacity: self.readings.max_capacity(),
            most_bytes: self.most_bytes,
            backlog: self.backlog.clone(),
        }
    }

    /// Puts a reading there. Room was asked for, and only one thread sends. A lane that has ended is found by
    /// `is_closed`.
    pub(super) fn send(&self, reading: Reading) {
        if let Reading::Row(row) = &reading {
            self.waiting.fetch_add(row.bytes(), Ordering::SeqCst);
        }
        let _ = self.readings.try_send(Queued { reading, at: Instant::now() });
    }

    /// Whether a row and what may follow it fit. Arranges to be woken where they do not.
    pub(super) fn has_room(&self) -> bool {
        if self.fits() {
            return true;
        }
        self.starved.store(true, Ordering::SeqCst);
        // The lane may have drained between the two lines, and then sent no wake.
        self.fits()
    }

    fn fits(&self) -> bool {
        self.readings.capacity() >= ROOM && self.waiting.load(Ordering::SeqCst) < self.most_bytes
    }
}
