//! Who carries the rows: the mirror itself, and what it is compared with.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Serialize;

use super::child::Guard;
use super::rig::Rig;
use super::role::{Part, Role};

/// The program under test, built by cargo in the same profile as the benchmark.
const MIRROR: &str = env!("CARGO_BIN_EXE_hermes-mirror");

/// One of those that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// `hermes-mirror attach` as it comes.
    #[value(alias = "a")]
    Attach,
    /// The same without events, polling every 0.4 s.
    #[value(alias = "b")]
    AttachPoll,
    /// The polling forwarder it replaces.
    #[value(alias = "c")]
    Forwarder,
    /// The floor probe.
    #[value(alias = "d")]
    Floor,
    /// A `data_version` loop, every 1 ms.
    #[value(alias = "e")]
    Look,
}

impl Subject {
    /// All, in the order in which they take turns.
    pub const ALL: [Self; 5] = [Self::Attach, Self::AttachPoll, Self::Forwarder, Self::Floor, Self::Look];

    /// What the table calls it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Attach => "hermes-mirror",
            Self::AttachPoll => "hermes-mirror, poll 0.4 s",
            Self::Forwarder => "polling forwarder, 0.4 s",
            Self::Floor => "floor probe (spins)",
            Self::Look => "data_version, 1 ms",
        }
    }

    /// Starts it as a process of its own, in the rig's own world.
    pub fn start(self, rig: &Rig, part: &Part) -> Result<Running> {
        let log = rig.root().join("subject.log");
        let mut command = match self {
            Self::Attach => attach(part),
            Self::AttachPoll => {
                let config = rig.root().join("poll.toml");
                fs::write(&config, "[detect]\nmode = \"poll\"\npoll_ms = 400\n")?;
                let mut command = attach(part);
                command.arg("--config").arg(config);
                command
            }
            Self::Forwarder => Part { role: Role::Forwarder, ..part.clone() }.command()?,
            Self::Floor => Part { role: Role::Floor, ..part.clone() }.command()?,
            Self::Look => Part { role: Role::Look, ..part.clone() }.command()?,
        };
        let output = File::create(&log)?;
        // Nothing of the caller's environment may change what is measured, or lead out of the rig.
        command.env_clear().envs(rig.environment()).current_dir(&part.workspace);
        command.stdout(output.try_clone()?).stderr(output);
        Ok(Running { guard: Guard::spawn(&mut command)?, log, label: self.label() })
    }
}

fn attach(part: &Part) -> Command {
    let mut command = Command::new(MIRROR);
    command
        .arg("attach")
        .args(["--base-url", &format!("http://{}", part.sink)])
        .args(["--conversation", &part.conversation])
        .arg("--bridge-dir")
        .arg(&part.bridge)
        .arg("--workspace")
        .arg(&part.workspace)
        .args(["--launch-epoch", &part.launch.to_string()])
        .arg("--db")
        .arg(&part.db)
        .stdin(Stdio::null());
    command
}

/// A subject at work.
pub struct Running {
    guard: Guard,
    log: PathBuf,
    label: &'static str,
}

impl Running {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.guard.id()
    }

    /// Fails if it has ended, with the last lines it wrote.
    pub fn check_alive(&self) -> Result<()> {
        match self.guard.ended()? {
            None => Ok(()),
            Some(status) => bail!("{} ended by itself ({status}){}", self.label, self.last_words()),
        }
    }

    /// The end of what it wrote, for an error message.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(8).collect();
        if lines.is_empty() {
            return "; it wrote nothing".to_owned();
        }
        lines.iter().rev().fold("; it wrote:".to_owned(), |all, line| format!("{all}\n    {line}"))
    }
}
