//! Whether a transcript is being appended once more, row behind row.
//!
//! No verdict hangs on it: copies with their originals' times are left out and others are shown, since nothing tells
//! those from the same words typed again. But whoever reads the log should learn that something writes them.

use std::collections::{HashMap, HashSet, VecDeque};

/// As many rows that repeat earlier ones in their order make a wave …
const LONG: usize = 32;
/// … if as many of them differ: a few words that come again and again are no transcript.
const VARIED: usize = 8;
/// As many rows are remembered.
const REMEMBERED: usize = 1_024;

/// Watches one session's rows. Each costs one step, and what is remembered is bounded.
#[derive(Debug, Default)]
pub struct Wave {
    keys: VecDeque<u64>,
    /// The newest place of each key, counted over all rows that were ever passed.
    places: HashMap<u64, usize>,
    passed: usize,
    /// The place whose key would go on with the run.
    next: Option<usize>,
    run: usize,
    varied: HashSet<u64>,
    told: bool,
}

impl Wave {
    /// Passes a row, by its key. `is_copy`: it stands beside its original, which is remembered already. Returns how
    /// many rows repeat earlier ones in a row, once for a session, when those are many.
    pub fn pass(&mut self, key: u64, is_copy: bool) -> Option<usize> {
        if self.told {
            return None;
        }
        let goes_on = self.next.filter(|next| self.key_at(*next) == Some(key));
        let place = goes_on.or_else(|| self.places.get(&key).copied());
        if goes_on.is_none() {
            self.run = 0;
            self.varied.clear();
        }
        self.next = place.map(|place| place + 1);
        if place.is_some() {
            self.run += 1;
            if self.varied.len() < VARIED {
                self.varied.insert(key);
            }
        }
        if !is_copy {
            self.remember(key);
        }
        if self.run < LONG || self.varied.len() < VARIED {
            return None;
        }
        let run = self.run;
        *self = Self { told: true, ..Self::default() };
        Some(run)
    }

    fn key_at(&self, place: usize) -> Option<u64> {
        let first = self.passed - self.keys.len();
        self.keys.get(place.checked_sub(first)?).copied()
    }

    fn remember(&mut self, key: u64) {
        if self.keys.len() >= REMEMBERED {
            let oldest = self.passed - self.keys.len();
            if let Some(key) = self.keys.pop_front()
                && self.places.get(&key) == Some(&oldest)
            {
                self.places.remove(&key);
            }
        }
        self.keys.push_back(key);
        self.places.insert(key, self.passed);
        self.passed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each row of a session, given by keys, is told.
    fn pass(keys: impl IntoIterator<Item = u64>, is_copy: bool) -> Vec<usize> {
        let mut wave = Wave::default();
        let original = (0..40).filter_map(|key| wave.pass(key, false)).count();
        assert_eq!(original, 0);
        keys.into_iter().filter_map(|key| wave.pass(key, is_copy)).collect()
    }

    #[test]
    fn a_transcript_that_is_appended_again_is_told_of_once() {
        assert_eq!(pass((0..40).chain(0..40), false), [LONG]);
        assert_eq!(pass((0..40).chain(0..40), true), [LONG]);
    }

    #[test]
    fn a_short_transcript_that_is_appended_again_and_again_is_told_of() {
        let mut wave = Wave::default();
        let told: Vec<_> = (0..100).filter_map(|n| wave.pass(n % 10, false)).collect();
        assert_eq!(told, [LONG]);
    }

    #[test]
    fn words_that_come_again_are_no_transcript() {
        assert_eq!(pass((100..200).flat_map(|new| [1, new]), false), [] as [usize; 0]);
        assert_eq!(pass((0..200).map(|n| n % 2), false), [] as [usize; 0]);
        assert_eq!(pass((0..31).chain([99]).chain(31..40), false), [] as [usize; 0]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut wave = Wave::default();
        for key in 0..10_000 {
            assert_eq!(wave.pass(key, false), None);
        }
        assert_eq!((wave.keys.len(), wave.places.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(wave.pass(0, false), None);
        assert_eq!(wave.run, 0, "long forgotten");
    }
}
