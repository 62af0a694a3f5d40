//! How many rows are still to be delivered of those that were there when a mirror began: for people who wait.
//!
//! Counted once when a session is bound, and down as its lane passes rows. It is exact enough to be shown, and nothing
//! depends on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The rows of all mirrors; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Backlog(Arc<All>);

#[derive(Debug, Default)]
struct All {
    left: AtomicU64,
    passed: AtomicU64,
    grown: Notify,
}

/// The rows of one mirror; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Share(Arc<One>);

#[derive(Debug, Default)]
struct One {
    left: AtomicU64,
    all: Backlog,
}

impl Backlog {
    /// Rows that are still to be delivered.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0.left.load(Ordering::Relaxed)
    }

    /// Rows of a backlog that were delivered since the start.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.0.passed.load(Ordering::Relaxed)
    }

    /// Waits until there is more than there was.
    pub async fn grows(&self) {
        self.0.grown.notified().await;
    }

    /// The share of another mirror; what is left of it goes away with it.
    #[must_use]
    pub fn share(&self) -> Share {
        Share(Arc::new(One { left: AtomicU64::default(), all: self.clone() }))
    }
}

impl Share {
    /// So many rows are left.
    pub fn set(&self, rows: u64) {
        let before = self.0.left.swap(rows, Ordering::Relaxed);
        let all = &self.0.all.0;
        if rows > before {
            all.left.fetch_add(rows - before, Ordering::Relaxed);
            all.grown.notify_one();
        } else {
            all.left.fetch_sub(before - rows, Ordering::Relaxed);
        }
    }

    /// No more than so many rows are left.
    pub fn at_most(&self, rows: u64) {
        let before = self.0.left.fetch_min(rows, Ordering::Relaxed);
        self.0.all.0.left.fetch_sub(before.saturating_sub(rows), Ordering::Relaxed);
    }

    /// A row was delivered, or needs no delivery. Rows that came since are none of the backlog's.
    pub fn pass(&self) {
        let one_less = |rows: u64| rows.checked_sub(1);
        if self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            let all = &self.0.all.0;
            all.left.fetch_sub(1, Ordering::Relaxed);
            all.passed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.all.0.left.fetch_sub(*self.left.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_add_up_and_none_falls_below_nothing() {
        let all = Backlog::default();
        let (a, b) = (all.share(), all.share());
        a.set(3);
        b.set(2);
        a.pass();
        assert_eq!((all.left(), all.passed()), (4, 1));
        a.set(0);
        a.pass();
        assert_eq!((all.left(), all.passed()), (2, 1));
        b.set(5);
        b.at_most(9);
        b.at_most(4);
        assert_eq!(all.left(), 4);
        drop(b);
        assert_eq!(all.left(), 0);
    }
}
