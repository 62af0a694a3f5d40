//! How much of a thing the Sessions API takes, as Omnigent 0.19.1 was seen to do.

/// The longest title, in characters.
pub const TITLE_CHARS: usize = 200;
/// The longest task list, in entries.
pub const TASKS: usize = 100;
