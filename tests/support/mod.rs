//! What the integration tests share.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken test server is to fail the test")]

pub mod acts;
pub mod fault;
pub mod hermes_beside;
pub mod hermes_db;
pub mod hermes_message;
pub mod http;
pub mod mirror;
pub mod proxy;
pub mod recording;
pub mod sessions;
pub mod shown;
pub mod sink;
pub mod transcript;
