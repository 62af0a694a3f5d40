//! The `hermes-mirror` program: arguments, telemetry, library, exit code.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    let done = cli::telemetry::start(&arguments.log).and_then(|()| cli::dispatch(arguments.command));
    done.unwrap_or_else(|error| cli::exit::report(&error))
}
