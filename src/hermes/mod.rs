//! All that is known of the source: how Hermes Agent stores a session in its state.db.

pub mod content;
pub mod json;
pub mod summary;
pub mod synthetic;
pub mod tool_calls;
