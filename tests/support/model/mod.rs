//! The model-based test: who plays, what a person saw of it, and the mirror that is held against that.

mod acts;
pub mod play;
pub mod reference;
pub mod watch;
