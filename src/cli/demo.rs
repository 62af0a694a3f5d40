//! `demo`: see it work, with nothing but this program.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use clap::Args;
use hermes_mirror::demo::{self, Kind, Options, Pace, Report, Score, Summary};

use super::{browser, exit, output};

/// The arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub struct Demo {
    /// How many turns of conversation (1 to 1000)
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// Twenty times as fast
    #[arg(long)]
    fast: bool,
    /// Show the page in the browser
    #[arg(long)]
    open: bool,
    /// The page's port, on 127.0.0.1 alone [default: one that is free]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Print the summary alone, as JSON
    #[arg(long)]
    json: bool,
}

/// Plays the demo to its end, or until a signal.
pub fn run(arguments: &Demo) -> anyhow::Result<ExitCode> {
    let pace = if arguments.fast { Pace::Fast } else { Pace::Lifelike };
    let options = Options { turns: arguments.turns, pace, port: arguments.port };
    let look = Look::of_stdout();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let summary = runtime.block_on(async {
        let stopped = exit::stop_signal()?;
        let report = |report: Report| {
            if let (Report::Started(url), true) = (&report, arguments.open) {
                browser::open(url);
            }
            // Who reads no more is told no more; the exit code still tells.
            let _ = if arguments.json { Ok(()) } else { output::print(look.line(&report).as_bytes()) };
        };
        anyhow::Ok(demo::run(options, stopped, report).await?)
    })?;
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string(&summary)?)
    } else {
        look.summary(&summary)
    };
    output::print(text.as_bytes())?;
    Ok(if summary.stopped || summary.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How lines look where they are read.
struct Look {
    width: usize,
    color: bool,
}

impl Look {
    fn of_stdout() -> Self {
        let width = terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0));
        Self { width, color: exit::color(&io::stdout()) }
    }

    fn dim(&self, text: &str) -> String {
        if self.color { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        if self.color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn line(&self, report: &Report) -> String {
        match report {
            Report::Started(url) => format!(
                "{}\n{}\n\n",
                self.bold(url),
                self.dim(
                    "shows the conversation as it is written; each line below: how long after its commit"
                )
            ),
            Report::Undone => format!("{:>10}  {}\n", "", self.dim("/undo")),
            Report::Shown(seen, latency) => {
                let ms = latency.as_secs_f64() * 1_000.0;
                let room = self.width.saturating_sub(24).max(8);
                let text = one_line(&seen.text, room);
                format!("{ms:>7.1} ms  {} {text}\n", self.dim(&format!("{:<11}", name(seen.kind))))
            }
        }
    }

    fn summary(&self, summary: &Summary) -> String {
        let mut text = String::from("\n");
        let mut row = |name: &str, mirror: &str, polling: &str| {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{name:<13} {mirror:>9} {polling:>9}");
        };
        let Summary { messages, mirror, polling, .. } = summary;
        let ms = |value: f64| format!("{value:.1} ms");
        let of = |score: &Score| format!("{}/{messages}", score.shown);
        row("", "mirror", "polling");
        row("messages", &of(mirror), &of(polling));
        row("duplicates", &mirror.duplicates.to_string(), &polling.duplicates.to_string());
        row("p50", &ms(mirror.p50_ms), &ms(polling.p50_ms));
        row("p99", &ms(mirror.p99_ms), &ms(polling.p99_ms));
        if summary.boundaries > 0 || summary.polling_summaries > 0 {
            row("compactions", &summary.boundaries.to_string(), "0");
        }
        text.push_str(&self.dim(
            "\npolling: every 0.4 s, the same database at the\nsame time; to have read counts as shown\n",
        ));
        if summary.stopped {
            text.push_str("stopped before its end\n");
        }
        text
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::User => "user",
        Kind::Agent => "agent",
        Kind::Call => "tool call",
        Kind::Output => "tool output",
        Kind::Reasoning => "reasoning",
        Kind::Boundary => "compaction",
    }
}

/// The text in one line of at most so many characters.
fn one_line(text: &str, width: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= width {
        return line;
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hermes_mirror::demo::Seen;

    use super::*;

    #[test]
    fn a_line_is_no_wider_than_the_terminal_and_plain_where_no_color_is_wanted() {
        let look = Look { width: 40, color: false };
        let seen = Seen { kind: Kind::Output, text: "a\nlong result ".repeat(9) };
        let line = look.line(&Report::Shown(seen, Duration::from_micros(1_250)));
        assert_eq!(line, "    1.2 ms  tool output a long result a…\n");
        assert_eq!(line.trim_end().chars().count(), 40);
    }
}
