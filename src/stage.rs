//! The stages, in flow order: detect, read, transform, turns, deliver.
//!
//! A stage knows its input and its output type, not its neighbours. `wake` is the channel between the first
//! two; `feed` is the reading half of one mirror, `search` how it finds its session and `seek` the rule by which it does,
//! `scout` the search for a session that has no conversation yet, `beside` what a mirror is told that no row says, `recall` what it takes back of what waits on its lane, `backlog` how much is still to come,
//! `lacking` what is said of a database that can't tell everything.

pub mod backlog;
pub mod beside;
pub mod degraded;
pub mod deliver;
pub mod detect;
pub mod feed;
pub mod lacking;
pub mod memory;
pub mod pressure;
pub mod pump;
pub mod read;
pub mod recall;
pub mod scout;
pub mod search;
pub mod seek;
pub mod transform;
pub mod turns;
pub mod wake;
