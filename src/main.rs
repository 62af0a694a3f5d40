//! The `hermes-mirror` program: arguments, telemetry, library, exit code.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    // The log is flushed before the error is reported, so that the error stands last.
    let log = cli::telemetry::start(&arguments.log, arguments.command.is_talkative());
    let done = log.and_then(|_log| cli::dispatch(arguments.command));
    done.unwrap_or_else(|error| cli::exit::report(&error))
}
