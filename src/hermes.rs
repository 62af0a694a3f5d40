//! All that is known of the source: Hermes Agent's state.db.

pub mod locate;
