//! `check`: what is wrong, before it hurts.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hermes_mirror::config::{self, Auth, Mirror};

use super::finding::{self, Finding};
use super::resolve::{Resolved, resolve};
use super::{output, world};

/// The arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub struct Check {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "pipeline.toml")]
    config: PathBuf,
    /// Use no network: look at the configuration, the database and the directories, not at the server
    #[arg(long)]
    offline: bool,
}

/// Checks the file, then the world; a file that is wrong is an error, for then nothing is known of the world.
pub fn run(arguments: &Check) -> anyhow::Result<ExitCode> {
    let resolved = resolve(config::load(&arguments.config)?)?;
    let mut findings = advice(&resolved);
    let config = world::with_conversations(resolved.config.clone())?;
    let surroundings = world::look_around(&config, &resolved.database.path);
    findings.extend(surroundings.findings);
    if !arguments.offline {
        findings.extend(world::ask_server(&config, &surroundings.sessions)?);
    }
    let name = arguments.config.display();
    let text = format!("configuration: ok ({name})\n{}{}", summary(&resolved), finding::render(&findings));
    output::print(text.as_bytes())?;
    Ok(if finding::any_failed(&findings) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What the configuration comes to in this environment.
fn summary(resolved: &Resolved) -> String {
    let Resolved { config, database } = resolved;
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = writeln!(text, "  database  {} (from {})", database.path.display(), database.origin);
    let _ = writeln!(text, "  server    {}", config.deliver.base_url);
    let _ = writeln!(text, "  token     {}", token(&config.deliver.auth));
    if let Some(dir) = &config.state.dir {
        let _ = writeln!(text, "  state     {}", dir.display());
    }
    for mirror in &config.mirror {
        let _ = writeln!(text, "  mirror    {}", one_mirror(mirror));
    }
    text
}

fn token(auth: &Auth) -> String {
    if let Some(env) = &auth.env {
        return format!("from the environment variable {}", env.name);
    }
    if let Some(file) = &auth.file {
        return format!("from the file {}", file.path.display());
    }
    match auth.command.as_ref().and_then(|command| command.argv.first()) {
        // The arguments may hold what is nobody else's business.
        Some(program) => format!("from the command {program}"),
        None => "none".to_owned(),
    }
}

fn one_mirror(mirror: &Mirror) -> String {
    if mirror.matching.is_some() {
        return "a new one for each session that matches".to_owned();
    }
    let source = match (&mirror.session, &mirror.workspace) {
        (Some(session), _) => format!("session {session}"),
        (None, Some(workspace)) => format!("the newest session in {}", workspace.display()),
        (None, None) => "no session".to_owned(),
    };
    let conversation = if mirror.makes_conversation() { "a new one" } else { &mirror.conversation };
    format!("{conversation} from {source}")
}

/// What is valid and yet may not be meant.
fn advice(resolved: &Resolved) -> Vec<Finding> {
    let config = &resolved.config;
    let mut findings = Vec::new();
    if config.mirror.is_empty() {
        findings.push(Finding::warn(
            "mirror",
            "there is no [[mirror]], so `run` has nothing to do",
            "add one, with `conversation` and `workspace`; `attach` needs none",
        ));
    }
    if !world::stays_private(&config.deliver.base_url) {
        findings.push(Finding::warn(
            "server",
            "messages and the token travel to another machine unencrypted",
            "use https://, or a tunnel that ends on this machine",
        ));
    }
    findings
}
