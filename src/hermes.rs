//! All that is known of the source: Hermes Agent's state.db.
//!
//! Only this module knows SQL, Hermes's columns and the shapes of its text.

pub mod content;
pub mod discovery;
pub mod json;
pub mod locate;
pub mod summary;
pub mod synthetic;
pub mod tool_calls;
pub mod turn;

mod activity;
mod beside;
mod connection;
mod descent;
mod facts;
mod history;
mod lineage;
mod model;
mod overview;
mod rewrite;
mod rows;
mod schema;
mod sessions;
mod successor;
mod undone;
mod usage;

pub use beside::{CompressionLock, Label};
pub use connection::{Footprint, Identity, Open, Source, SourceError, resolved, with_suffix};
pub use descent::{Descent, IGNORE_FILE, PRIVATE};
pub use facts::Facts;
pub use lineage::Judged;
pub use model::configured_beside;
pub use overview::Overview;
pub use rewrite::{AT_ONCE, Rewrites, Wave};
pub use rows::{Fate, Limits, Scan};
pub use schema::{Gap, Schema};
pub use sessions::Session;
pub use successor::Succession;
pub use undone::Undone;
