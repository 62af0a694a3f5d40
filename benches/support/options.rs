//! What the command lines of all benchmarks have in common.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser};

use super::fault::Fault;

/// Options of every benchmark.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Rounds; in each, every case runs once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Seed of schedule and text.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write all figures to this file as well.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A run of seconds that shows that everything works and measures nothing worth quoting.
    #[arg(long)]
    pub smoke: bool,
    /// Lets something fail midway, to show that it is noticed and no figure printed.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fault: Option<Fault>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    pub bench: bool,
}

impl Common {
    /// How long a row, or a start, is waited for.
    pub fn patience(&self) -> Duration {
        match (self.fault, self.smoke) {
            (Some(_), _) => Duration::from_secs(3),
            (None, true) => Duration::from_secs(20),
            (None, false) => Duration::from_mins(1),
        }
    }
}

/// Reads the command line of the benchmark `name`; nothing where a test runner asks which tests there are, for there
/// are none.
///
/// Under `cargo test`, which gives no `--bench`, it is the smoke run: the arguments are then meant for the test
/// harness that this program does not have.
pub fn read<T: Parser>(name: &str) -> Option<T> {
    let given = |wanted: &str| env::args().any(|argument| argument == wanted);
    if given("--list") {
        return None;
    }
    let smoke = [name, "--smoke"];
    if env::args().len() == 1 {
        return Some(T::parse_from(smoke));
    }
    Some(T::try_parse().unwrap_or_else(|error| {
        let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        if given("--bench") || given("--smoke") || asked {
            error.exit();
        }
        T::parse_from(smoke)
    }))
}
