//! `service`: the mirror under the care of systemd or launchd, for this user.

use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use etcetera::BaseStrategy;
use etcetera::base_strategy::Xdg;
use hermes_mirror::state::dir;

use super::exit::{Misuse, Obstacle};
use super::output;

mod job;
mod manager;

use job::Job;
use manager::{Manager, command, is_ours};

const NOTES: &str = "\
Under systemd this is the user's unit ~/.config/systemd/user/hermes-mirror.service, and the log is in the journal; on \
macOS the agent ~/Library/LaunchAgents/hermes-mirror.plist, and the log is ~/Library/Logs/hermes-mirror.log. No rights \
are needed but the user's own.

Exit codes:
  0  done; for `status`: it runs
  1  failed; for `status`: it does not run
  2  usage or configuration, or a file of another's is in the place";

const INSTALL_NOTES: &str = "\
What HERMES_STATE_DB, HERMES_HOME and XDG_STATE_HOME are now is written down with it, for a service does not see the \
shell's environment. Installed again, it runs by the new file at once. Where neither systemd nor launchd answers, the \
file is printed and nothing is done.";

/// The arguments of `service`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct Service {
    /// What to do
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start it, now and from each login on
    #[command(after_help = INSTALL_NOTES)]
    Install {
        /// The configuration
        #[arg(long, value_name = "FILE", default_value = "pipeline.toml")]
        config: PathBuf,
        /// Print the file that would be written, and do nothing
        #[arg(long)]
        print: bool,
    },
    /// Stop it, and take its file away
    Uninstall,
    /// Say in the manager's words how it stands
    Status,
}

/// Does what is asked for.
pub fn run(arguments: &Service) -> anyhow::Result<ExitCode> {
    let place = Place::here()?;
    match &arguments.action {
        Action::Install { config, print } => place.install(config, *print)?,
        Action::Uninstall => place.uninstall()?,
        Action::Status => return place.status(),
    }
    Ok(ExitCode::SUCCESS)
}

/// The manager of this system, and its file.
struct Place {
    manager: Manager,
    home: PathBuf,
    file: PathBuf,
}

impl Place {
    fn here() -> Result<Self, Misuse> {
        let base = Xdg::new().map_err(|error| {
            Misuse::new(format!("cannot tell where a service's file belongs: {error}"), "set HOME")
        })?;
        let manager = Manager::HERE;
        let file = manager.file(base.home_dir(), &base.config_dir());
        Ok(Self { manager, home: base.home_dir().to_owned(), file })
    }

    fn install(&self, config: &Path, print: bool) -> anyhow::Result<()> {
        let (job, config) = Job::of(config)?;
        let text = self.manager.text(&job, &self.home.to_string_lossy());
        if print || !self.manager.runs() {
            if !print {
                let (name, file) = (self.manager.name(), self.file.display());
                tracing::warn!(
                    "no {name} answers this user; what would be written to {file} is printed instead"
                );
            }
            return output::print(text.as_bytes());
        }
        let before = self.clear()?;
        dir::create(self.file.parent().unwrap_or(Path::new("")))?;
        let file = self.file.to_string_lossy();
        dir::write_new(&self.file, &text).map_err(|error| {
            let help = "let this user write there, or put what --print prints where your system wants it";
            Obstacle::new(format!("cannot write {file}: {error}"), help)
        })?;
        self.tell(&self.manager.start(&file, before))?;
        let mut said = format!("{file} written and started\n{}", self.manager.advice());
        if let Some(env) = &config.deliver.auth.env {
            // Writing to a String can't fail.
            let _ = writeln!(
                said,
                "note: the service does not see the variable {} that the token comes from; take it from a file or a \
                 command",
                env.name
            );
        }
        output::print(said.as_bytes())
    }

    fn uninstall(&self) -> anyhow::Result<()> {
        let file = self.file.to_string_lossy();
        if self.file.symlink_metadata().is_err() {
            return output::print(format!("not installed: there is no {file}\n").as_bytes());
        }
        self.ours()?;
        self.answers()?;
        self.tell(&self.manager.stop(&file))?;
        self.clear()?;
        self.tell(&self.manager.forget())?;
        output::print(format!("stopped, and {file} taken away\n").as_bytes())
    }

    fn status(&self) -> anyhow::Result<ExitCode> {
        if self.file.symlink_metadata().is_err() {
            output::print(format!("not installed: there is no {}\n", self.file.display()).as_bytes())?;
            return Ok(ExitCode::FAILURE);
        }
        self.answers()?;
        let words = self.manager.look();
        let asked = command(words).map(|mut command| command.status()).transpose();
        let status = asked.with_context(|| format!("cannot run `{}`", words.join(" ")))?;
        Ok(if status.is_some_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn answers(&self) -> Result<(), Obstacle> {
        if self.manager.runs() {
            return Ok(());
        }
        let message = format!("no {} answers this user", self.manager.name());
        Err(Obstacle::new(message, "log in as the user whose service it is, not by `su` or `sudo`"))
    }

    /// Whether what stands in the place, if anything does, is ours.
    fn ours(&self) -> Result<(), Misuse> {
        let is_foreign =
            self.file.symlink_metadata().is_ok() && !dir::read(&self.file).is_some_and(|text| is_ours(&text));
        if !is_foreign {
            return Ok(());
        }
        let message = format!("{} was not written by hermes-mirror, and stays as it is", self.file.display());
        Err(Misuse::new(message, "move it away, then try again"))
    }

    /// Takes a file of ours away. Says whether there was one.
    fn clear(&self) -> anyhow::Result<bool> {
        self.ours()?;
        match fs::remove_file(&self.file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot take {} away", self.file.display())),
        }
    }

    /// Runs commands of the manager, up to the first that fails.
    fn tell(&self, commands: &[Vec<&str>]) -> anyhow::Result<()> {
        for words in commands {
            let Some(mut command) = command(words) else { continue };
            let line = words.join(" ");
            let output = command.output().with_context(|| format!("cannot run `{line}`"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                let message = format!("`{line}` failed: {}", said.trim());
                let help = format!("mend what {} says, then try again", self.manager.name());
                return Err(Obstacle::new(message, help).into());
            }
        }
        Ok(())
    }
}
