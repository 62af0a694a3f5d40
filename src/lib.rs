//! hermes-mirror shows a Hermes Agent terminal session in an Omnigent conversation, the instant each message is stored.
#![forbid(unsafe_code)]

pub mod config;
pub mod demo;
pub mod event;
pub mod hermes;
pub mod hooks;
pub mod ids;
pub mod loopback;
pub mod omnigent;
pub mod pipeline;
pub mod printable;
pub mod retry;
pub mod serve;
pub mod stage;
pub mod state;
pub mod stats;
pub mod status;
