//! Several messages that come back as one row.
//!
//! The person's messages that follow one another, as an interrupted turn leaves them, are one message to the model: so
//! Hermes keeps them in memory, and so it writes them when it writes the transcript anew.

use super::key::typed_key;
use super::originals::Originals;
use crate::event::{Role, Row};
use crate::hermes::content;

/// What stands between messages that were joined.
const JOINT: &str = "\n\n";
/// In a text with more empty lines nothing is looked for: each costs a look at the whole of it.
const MOST_JOINTS: usize = 64;

/// The place of the last of the originals, from the place `from` on, that `row` joins; `None` where it joins none.
pub fn last_of(originals: &Originals, row: &Row, from: usize) -> Option<usize> {
    let stored = row.content.as_deref().filter(|_| row.role == Role::User)?;
    let text = content::decode_user(stored).text;
    let joints: Vec<usize> = text.match_indices(JOINT).map(|(at, _)| at).collect();
    if joints.len() > MOST_JOINTS {
        return None;
    }
    joints.iter().find_map(|end| {
        let (first, rest) = (text.get(..*end)?, text.get(end + JOINT.len()..)?);
        let places = originals.of(typed_key(first), from).filter(|(_, ghost)| !ghost.live);
        places.map(|(at, _)| at).find_map(|at| last_behind(originals, rest, at))
    })
}

/// The place of the last of the originals behind the place `at` that `text` joins, or is.
fn last_behind(originals: &Originals, text: &str, at: usize) -> Option<usize> {
    let next = at + 1;
    let key = originals.get(next).filter(|ghost| !ghost.live)?.key;
    if key == typed_key(text) {
        return Some(next);
    }
    text.match_indices(JOINT).find_map(|(end, _)| {
        let (first, rest) = (text.get(..end)?, text.get(end + JOINT.len()..)?);
        (key == typed_key(first)).then(|| last_behind(originals, rest, next))?
    })
}
