//! How long deliveries took: a histogram of fixed ranges.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of the ranges, in us, each included in its own; what is longer falls into one more range.
pub const BOUNDS_US: [u64; 16] = [
    250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000, 60_000_000,
];

/// How many fell into each range, and how long all of them took together.
#[derive(Debug, Default)]
pub struct Latency {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    /// One more.
    pub fn note(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The counts by range, the last for what is longer than all bounds.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// All times added up, in us.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_range_that_it_ends() {
        let latency = Latency::default();
        for us in [0, 250, 251, 60_000_000, 60_000_001] {
            latency.note(Duration::from_micros(us));
        }
        let counts = latency.counts();
        assert_eq!((counts[0], counts[1], counts[15], counts[16]), (2, 1, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 5);
        assert_eq!(latency.sum_us(), 120_000_502);
    }
}
