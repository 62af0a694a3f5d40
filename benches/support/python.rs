//! Baseline: the forwarder that ships with Omnigent 0.19.1, as it is, where `scripts/peers` has installed it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::role::Part;
use super::script;

const SCRIPT: &str = "
import asyncio, sys
from pathlib import Path
from omnigent.harnesses.hermes_native.forwarder import supervise_hermes_forwarder
url, conversation, bridge, workspace, launch, db = sys.argv[1:]
asyncio.run(supervise_hermes_forwarder(
    base_url=url, headers={}, session_id=conversation, bridge_dir=Path(bridge), agent_name='hermes-native-ui',
    workspace=workspace, launch_epoch_s=float(launch), db_path=Path(db)))
";

/// Whether it is installed.
pub fn is_there() -> bool {
    interpreter().is_file()
}

/// A command that runs it on the first session.
pub fn command(part: &Part) -> Result<Command> {
    let python = interpreter();
    let python = python.is_file().then_some(python).context(
        "Omnigent is not installed: run scripts/peers, or say in HERMES_MIRROR_PEERS where its installations are",
    )?;
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).arg(format!("http://{}", part.sink)).arg(script::conversation(0));
    command.arg(part.bridge(0)).arg(&part.workspace).arg(part.launch.to_string()).arg(&part.db);
    command.stdin(Stdio::null());
    Ok(command)
}

fn interpreter() -> PathBuf {
    let peers = env::var_os("HERMES_MIRROR_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("peers"), PathBuf::from);
    peers.join("omnigent").join("bin").join("python")
}
