//! The log: to stderr, as text or JSON, as much as is asked for.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::exit::{self, Misuse};
use super::log_writer::{self, Flush};

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged, and how.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub struct Options {
    /// How the log is written to stderr: text or json
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    #[arg(hide_possible_values = true)]
    log_format: Format,
    /// Log more; twice for everything the mirror does. `RUST_LOG`, where set, wins
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Log warnings and errors only; twice for errors only, three times for nothing
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    quiet: u8,
}

/// Begins to log, one step less where `talkative`. To be called once, before anything else is done; what it returns is to
/// be kept until all is done.
pub fn start(options: &Options, talkative: bool) -> anyhow::Result<Flush> {
    let filter = filter(options, talkative, std::env::var_os("RUST_LOG"))?;
    let is_terminal = io::stderr().is_terminal() && options.log_format == Format::Text;
    let (lines, flush) = log_writer::start(io::stderr(), is_terminal)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines)
        .with_ansi(exit::color(&io::stderr()))
        // It would print to the very stream that can't be written to, and panic there.
        .log_internal_errors(false);
    let started = match options.log_format {
        Format::Text => log.try_init(),
        Format::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    Ok(flush)
}

fn filter(options: &Options, talkative: bool, rust_log: Option<OsString>) -> Result<EnvFilter, Misuse> {
    let wanted = match rust_log.filter(|value| !value.is_empty()) {
        Some(value) => value.to_string_lossy().into_owned(),
        None => directives(options, talkative).to_owned(),
    };
    EnvFilter::builder().parse(&wanted).map_err(|error| {
        Misuse::new(
            format!("RUST_LOG can't be understood: {error}"),
            "write a level or targets with levels, for example `info,hermes_mirror=debug`",
        )
    })
}

/// The filter that the flags ask for; other crates are kept quieter than this one.
fn directives(options: &Options, talkative: bool) -> &'static str {
    match i16::from(options.verbose) - i16::from(options.quiet) - i16::from(talkative) {
        ..=-3 => "off",
        -2 => "error",
        -1 => "warn",
        0 => "warn,hermes_mirror=info",
        1 => "warn,hermes_mirror=debug",
        2 => "info,hermes_mirror=trace",
        _ => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(verbose: u8, quiet: u8) -> Options {
        Options { log_format: Format::Text, verbose, quiet }
    }

    #[test]
    fn flags_step_through_the_levels() {
        for verbose in 0..=4 {
            for quiet in 0..=4 {
                assert!(
                    filter(&options(verbose, quiet), false, None).is_ok(),
                    "-v {verbose} times, -q {quiet} times"
                );
            }
        }
        assert_eq!(directives(&options(0, 0), false), "warn,hermes_mirror=info");
        assert_eq!(directives(&options(1, 1), false), "warn,hermes_mirror=info");
        assert_eq!(directives(&options(0, 200), false), "off");
        assert_eq!(directives(&options(200, 0), false), "trace");
        assert_eq!(directives(&options(0, 0), true), "warn");
    }

    #[test]
    fn the_environment_wins_over_the_flags_unless_it_is_empty() {
        let shown =
            |value: &str| filter(&options(3, 0), false, Some(value.into())).map(|filter| filter.to_string());
        assert_eq!(shown("error").unwrap(), "error");
        assert_eq!(shown("").unwrap(), "trace");
        assert!(shown("a=b=c").is_err());
    }
}
