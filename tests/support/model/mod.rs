//! The model-based test: who plays, what a person saw of it, and the mirror that is held against that.

pub mod play;
pub mod reference;
pub mod watch;
