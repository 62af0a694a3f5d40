//! The command line of a benchmark.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;

use super::script::ROWS_PER_TURN;
use super::subject::Subject;

/// Commit-to-POST latency, cost and memory of the mirror and of its baselines, side by side.
///
/// Takes about five minutes with the defaults.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo bench --bench latency --")]
pub struct Options {
    /// Rows each subject carries in one round; rounded up to whole turns of four.
    #[arg(long, default_value_t = 160, value_parser = clap::value_parser!(u32).range(4..=100_000))]
    pub rows: u32,
    /// Rounds; in each, every subject runs once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Rows of earlier conversation, in whole turns, while idle cost is measured.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=800_000))]
    pub history: u32,
    /// Rows of earlier conversation, in whole turns, while latency is measured.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=800_000))]
    pub busy_history: u32,
    /// Who runs, by name or letter.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Subject::ALL)]
    pub subjects: Vec<Subject>,
    /// Shortest pause before a row, in ms.
    #[arg(long, default_value_t = 10)]
    pub shortest_gap_ms: u64,
    /// Longest pause before a row, in ms.
    #[arg(long, default_value_t = 90)]
    pub longest_gap_ms: u64,
    /// Length of the quiet window in which idle cost is measured, in s; 0 leaves it out.
    #[arg(long, default_value_t = 10.0)]
    pub idle_s: f64,
    /// How long after the last row that window begins, in s: beyond the mirror's own `release_after_ms`.
    #[arg(long, default_value_t = 7.0)]
    pub settle_s: f64,
    /// Seed of schedule and text.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write all figures and samples to this file as well.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A run of seconds that shows that everything works and measures nothing worth quoting.
    #[arg(long)]
    pub smoke: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    pub bench: bool,
}

impl Options {
    /// Whether a test runner asks which tests there are. There are none.
    pub fn asked_for_tests() -> bool {
        env::args().any(|argument| argument == "--list")
    }

    /// Reads the arguments. Under `cargo test`, which gives no `--bench`, it is the smoke run: the arguments are then
    /// meant for the test harness that this program does not have.
    pub fn from_command_line() -> Self {
        let by_cargo_bench = env::args().any(|argument| argument == "--bench");
        let mut options = Self::try_parse().unwrap_or_else(|error| {
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if by_cargo_bench || asked {
                error.exit();
            }
            Self::parse_from(["latency", "--smoke"])
        });
        options.smoke |= env::args().len() == 1;
        if options.smoke {
            options.shorten();
        }
        for rows in [&mut options.rows, &mut options.history, &mut options.busy_history] {
            *rows = rows.next_multiple_of(ROWS_PER_TURN);
        }
        options
    }

    /// The pauses between rows, shortest and longest.
    pub fn gaps(&self) -> (Duration, Duration) {
        let shortest = Duration::from_millis(self.shortest_gap_ms);
        (shortest, shortest.max(Duration::from_millis(self.longest_gap_ms)))
    }

    /// The quiet window, if there is to be one.
    pub fn quiet_window(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.idle_s).ok().filter(|window| !window.is_zero())
    }

    /// The time before the quiet window.
    pub fn settle(&self) -> Duration {
        Duration::try_from_secs_f64(self.settle_s).unwrap_or_default()
    }

    fn shorten(&mut self) {
        self.rows = 12;
        self.rounds = 1;
        self.history = 400;
        (self.shortest_gap_ms, self.longest_gap_ms) = (2, 20);
        (self.idle_s, self.settle_s) = (0.4, 0.2);
    }
}
