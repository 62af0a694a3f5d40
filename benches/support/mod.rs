//! What the benchmarks share: a writer that behaves as Hermes does, a sink that answers as Omnigent does, the
//! subjects that carry rows from one to the other, and the check that comes before any figure.
#![allow(dead_code, reason = "each benchmark uses its part")]
#![allow(clippy::disallowed_methods, reason = "databases and scratch files of the benchmark's own")]

pub mod bare;
pub mod check;
pub mod child;
pub mod delay;
pub mod fault;
pub mod hermes_db;
pub mod http;
pub mod options;
pub mod proc;
pub mod python;
pub mod report;
pub mod rig;
pub mod role;
pub mod run;
pub mod scratch;
pub mod script;
pub mod sink;
pub mod stage;
pub mod subject;
pub mod tail;
pub mod tls;
pub mod writer;

mod floor;
mod forwarder;
mod look;
