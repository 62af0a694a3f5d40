//! Who carries the rows: the mirror itself, and what it is compared with.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;

use super::child::Guard;
use super::python;
use super::rig::Rig;
use super::role::{Part, Role};
use super::script;

/// The program under test, built by cargo in the same profile as the benchmark.
const MIRROR: &str = env!("CARGO_BIN_EXE_hermes-mirror");

/// One of those that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// hermes-mirror as it comes.
    #[value(alias = "a")]
    Attach,
    /// The same without events, polling every 0.4 s.
    #[value(alias = "b")]
    AttachPoll,
    /// hermes-mirror as it comes, where no events tell of changes.
    #[value(alias = "g")]
    AttachEventless,
    /// The polling forwarder it replaces, its loop alone.
    #[value(alias = "c")]
    Forwarder,
    /// The floor probe.
    #[value(alias = "d")]
    Floor,
    /// A `data_version` loop, every 1 ms.
    #[value(alias = "e")]
    Look,
    /// The forwarder of Omnigent 0.19.1 itself.
    #[value(alias = "f")]
    Python,
}

impl Subject {
    /// All that can run here, in the order in which they take turns.
    pub fn available() -> Vec<Self> {
        let mirror = [Self::Attach, Self::AttachEventless, Self::AttachPoll];
        let all = [&mirror[..], &[Self::Forwarder, Self::Floor, Self::Look, Self::Python]].concat();
        all.into_iter().filter(|subject| *subject != Self::Python || python::is_there()).collect()
    }

    /// What the table calls it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Attach => "hermes-mirror",
            Self::AttachPoll => "hermes-mirror, poll 0.4 s",
            Self::AttachEventless => "hermes-mirror, no events",
            Self::Forwarder => "polling loop, 0.4 s",
            Self::Floor => "floor probe (spins)",
            Self::Look => "data_version, 1 ms",
            Self::Python => "Omnigent 0.19.1 forwarder",
        }
    }

    /// How the mirror is told to notice changes; `None` for who is none.
    fn detect(self) -> Option<&'static str> {
        match self {
            Self::Attach => Some(""),
            Self::AttachEventless => Some("[detect]\nmode = \"poll\"\n"),
            Self::AttachPoll => Some("[detect]\nmode = \"poll\"\npoll_ms = 400\nturn_poll_ms = 400\n"),
            Self::Forwarder | Self::Floor | Self::Look | Self::Python => None,
        }
    }

    /// Starts it as a process of its own, in the rig's own world.
    pub fn start(self, rig: &Rig, part: &Part, front: Option<&Front>) -> Result<Running> {
        let is_mirror = self.detect().is_some();
        ensure!(is_mirror || part.sessions == 1, "{} follows one session alone", self.label());
        ensure!(is_mirror || front.is_none(), "{} knows no other way to the sink", self.label());
        let log = rig.root().join("subject.log");
        let role = |role| Part { role, ..part.clone() }.command();
        let mut command = match self {
            Self::Attach | Self::AttachEventless | Self::AttachPoll => {
                mirror(rig.root(), part, self.detect().unwrap_or_default(), front)?
            }
            Self::Forwarder => role(Role::Forwarder)?,
            Self::Floor => role(Role::Floor)?,
            Self::Look => role(Role::Look)?,
            Self::Python => python::command(part)?,
        };
        let output = File::create(&log)?;
        // Nothing of the caller's environment may change what is measured, or lead out of the rig.
        command.env_clear().envs(rig.environment()).current_dir(&part.workspace);
        if let Some(front) = front {
            command.env("SSL_CERT_FILE", &front.authority);
        }
        command.stdout(output.try_clone()?).stderr(output);
        Ok(Running { guard: Guard::spawn(&mut command)?, log, label: self.label() })
    }
}

/// Another way to the sink than the straight one.
pub struct Front {
    /// Address of the server.
    pub base_url: String,
    /// The certificate authority to trust, as PEM.
    pub authority: PathBuf,
    /// For how long the mirror keeps a connection, where that is not its default.
    pub keep_alive_ms: Option<u64>,
}

/// `attach` for one session, as an Omnigent runner starts it; `run` for several.
fn mirror(root: &Path, part: &Part, detect: &str, front: Option<&Front>) -> Result<Command> {
    let base_url = front.map_or_else(|| format!("http://{}", part.sink), |front| front.base_url.clone());
    let mut command = Command::new(MIRROR);
    command.stdin(Stdio::null());
    let mut config = detect.to_owned();
    let keep_alive_ms = front.and_then(|front| front.keep_alive_ms);
    if let Some(keep_alive_ms) = keep_alive_ms {
        writeln!(config, "[deliver]\nkeep_alive_ms = {keep_alive_ms}")?;
    }
    let file = root.join("pipeline.toml");
    ensure!(front.is_none() || part.sessions == 1, "another way to the sink is for one session");
    if part.sessions == 1 {
        command
            .arg("attach")
            .args(["--base-url", &base_url])
            .args(["--conversation", &script::conversation(0)])
            .arg("--bridge-dir")
            .arg(part.bridge(0))
            .arg("--workspace")
            .arg(&part.workspace)
            .args(["--launch-epoch", &part.launch.to_string()])
            .arg("--db")
            .arg(&part.db);
        if config.is_empty() {
            return Ok(command);
        }
    } else {
        command.arg("run");
        // A literal string of TOML holds any path without a quote or a line break in it.
        writeln!(config, "[source]\ndb = '{}'\n[deliver]\nbase_url = '{base_url}'", part.db.display())?;
        for number in 0..part.sessions {
            writeln!(
                config,
                "[[mirror]]\nconversation = '{}'\nsession = '{}'\nlaunch_epoch = {:?}\nbridge_dir = '{}'",
                script::conversation(number),
                script::session(number),
                part.launch,
                part.bridge(number).display()
            )?;
        }
    }
    fs::write(&file, config)?;
    command.arg("--config").arg(file);
    Ok(command)
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

    /// How many sessions it has said that it mirrors.
    pub fn mirroring(&self) -> usize {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|line| line.contains(" mirroring")).count()
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
