//! What the benchmarks share: a writer that behaves as Hermes does, a sink that answers as Omnigent does, the
//! subjects that carry rows from one to the other, and the check that comes before any figure.

pub mod check;
pub mod child;
pub mod hermes_db;
pub mod http;
pub mod options;
pub mod proc;
pub mod report;
pub mod rig;
pub mod role;
pub mod run;
pub mod script;
pub mod sink;
pub mod subject;
pub mod tail;
pub mod writer;

mod floor;
mod forwarder;
mod look;
