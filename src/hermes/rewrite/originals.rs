//! The ghosts of a rewrite, found by what they say: a row is compared with those that say the same, however many
//! there are in all.

use std::collections::HashMap;

use super::Ghost;

/// Ghosts in the order in which they were live.
#[derive(Debug, Default)]
pub struct Originals {
    ghosts: Vec<Ghost>,
    places: HashMap<u64, Vec<usize>>,
}

impl Originals {
    pub fn new(ghosts: Vec<Ghost>) -> Self {
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, ghost) in ghosts.iter().enumerate() {
            places.entry(ghost.key).or_default().push(at);
        }
        Self { ghosts, places }
    }

    /// Those with this key from the place `from` on, each with its place.
    pub fn of(&self, key: u64, from: usize) -> impl Iterator<Item = (usize, Ghost)> {
        let places = self.places.get(&key).map_or(&[][..], Vec::as_slice);
        let first = places.partition_point(|at| *at < from);
        let rest = places.get(first..).unwrap_or_default();
        rest.iter().filter_map(|at| Some((*at, *self.ghosts.get(*at)?)))
    }

    /// The one at this place.
    pub fn get(&self, at: usize) -> Option<&Ghost> {
        self.ghosts.get(at)
    }

    /// Whether the one at this place has this key.
    pub fn is_at(&self, at: usize, key: u64) -> bool {
        self.get(at).is_some_and(|ghost| ghost.key == key)
    }
}
