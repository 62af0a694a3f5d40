//! How every benchmark begins and ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tempfile::TempDir;

use super::{check, child, options, role};

/// Plays the part this process was started for, or else runs the benchmark `name` with its options and a scratch
/// directory.
pub fn main<T: Parser>(name: &str, measure: impl FnOnce(&T, &Path) -> Result<()>) -> ExitCode {
    let run = || -> Result<()> {
        if role::play_if_asked()? {
            return Ok(());
        }
        let Some(options) = options::read::<T>(name) else { return Ok(()) };
        check::prove()?;
        let scratch = directory(name)?;
        child::end_all_on_signal(scratch.path().to_owned())?;
        measure(&options, scratch.path())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn directory(name: &str) -> Result<TempDir> {
    // Below target/, which is on a disk where fsync means something; /tmp often is not.
    let parent = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(&parent)?;
    let prefix = format!("{name}-");
    tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent).context("make a scratch directory")
}
