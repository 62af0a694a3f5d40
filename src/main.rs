//! The `hermes-mirror` program: arguments, telemetry, library, exit code.
#![forbid(unsafe_code)]

fn main() {}
