//! This binary, started again to play a part of its own: the writer, or one of the baselines.

use std::io::{BufRead, stdin};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, process, thread};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{bare, floor, forwarder, look, writer};

/// The hidden argument that precedes a part's name and its [`Part`] as JSON.
const FLAG: &str = "--play";

/// A part to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Writer,
    Forwarder,
    Floor,
    Look,
    Bare,
}

/// What a part needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub role: Role,
    pub db: PathBuf,
    /// Sessions that are mirrored; the baselines know the first alone.
    pub sessions: u32,
    /// Rows up to here were there before, and are not to be mirrored.
    pub cursor: u32,
    pub seed: u64,
    pub shortest_gap: Duration,
    pub longest_gap: Duration,
    pub sink: SocketAddr,
    /// Where each conversation's bridge directory is.
    pub bridges: PathBuf,
    pub workspace: PathBuf,
    /// Seconds since the epoch.
    pub launch: f64,
    /// What the bare loop sends.
    pub requests: PathBuf,
}

impl Part {
    /// The bridge directory of session `number`'s conversation.
    pub fn bridge(&self, number: u32) -> PathBuf {
        self.bridges.join(format!("{number:03}"))
    }

    /// A command that plays this part, with its input and output piped.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(FLAG).arg(serde_json::to_string(self)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command)
    }
}

/// Plays the part named on the command line, if there is one; says whether there was.
pub fn play_if_asked() -> Result<bool> {
    let mut arguments = env::args().skip(1);
    if arguments.next().as_deref() != Some(FLAG) {
        return Ok(false);
    }
    let part: Part = serde_json::from_str(&arguments.next().context("which part?")?)?;
    let orders = orders()?;
    match part.role {
        Role::Writer => writer::play(&part, &orders)?,
        Role::Forwarder => forwarder::play(&part)?,
        Role::Floor => floor::play(&part)?,
        Role::Look => look::play(&part)?,
        Role::Bare => return bare::play(&part).map(|()| true),
    }
    bail!("{:?} came to an end by itself", part.role)
}

/// Lines of standard input. When it closes, whoever started this process is done with it or gone.
fn orders() -> Result<Receiver<String>> {
    let (sender, receiver) = channel();
    thread::Builder::new().name("orders".to_owned()).spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        process::exit(0);
    })?;
    Ok(receiver)
}
