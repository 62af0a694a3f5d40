//! The world that a configuration speaks of, looked at without changing it.

use std::fs;
use std::path::Path;

use hermes_mirror::config::{Config, Mirror};
use hermes_mirror::ids::HermesSessionId;
use hermes_mirror::pipeline::prospect;
use reqwest::Url;

use super::finding::Finding;

pub mod database;
mod server;

/// What is on this machine.
pub struct Surroundings {
    /// What was found.
    pub findings: Vec<Finding>,
    /// For each mirror the Hermes session that it would follow, where that is known.
    pub sessions: Vec<Option<HermesSessionId>>,
}

/// Looks at what is on this machine: the databases, and for each mirror its directories and its session.
/// `database`: the one to look at where no mirror reads any.
pub fn look_around(config: &Config, database: &Path) -> Surroundings {
    let mut findings = Vec::new();
    let mut sessions = vec![None; config.mirror.len()];
    let read = config.databases();
    for path in if read.is_empty() { vec![database] } else { read.clone() } {
        let mut source = database::source(config, path);
        let (mut seen, open) = database::look(&mut source);
        if read.len() > 1 {
            for finding in &mut seen {
                finding.subject = format!("database {}", path.display());
            }
        }
        findings.extend(seen);
        for (mirror, session) in config.mirror.iter().zip(&mut sessions) {
            if config.database_of(mirror) != Some(path) {
                continue;
            }
            findings.extend(directories(mirror));
            if let Some(open) = &open {
                let (finding, found) = database::session(config, mirror, open);
                findings.push(finding);
                *session = found;
            }
        }
    }
    Surroundings { findings, sessions }
}

/// Asks the server: whether it is one, lets us in, and knows each mirror's conversation.
pub fn ask_server(config: &Config, sessions: &[Option<HermesSessionId>]) -> anyhow::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(server::ask(config, sessions)))
}

/// Puts the conversations that were made in the place of those that are to be made.
pub fn with_conversations(mut config: Config) -> anyhow::Result<Config> {
    for at in 0..config.mirror.len() {
        let mirror = &config.mirror[at];
        let made = if mirror.makes_conversation() && mirror.matching.is_none() {
            prospect::made(&config, mirror)?
        } else {
            None
        };
        if let Some(made) = made {
            config.mirror[at].conversation = made.to_string();
        }
    }
    Ok(config)
}

/// How a mirror is named in a finding.
fn subject(mirror: &Mirror) -> String {
    match (&mirror.session, &mirror.workspace) {
        _ if mirror.matching.is_some() => "mirror of matching sessions".to_owned(),
        (Some(session), _) if mirror.makes_conversation() => format!("mirror of session {session}"),
        (None, Some(workspace)) if mirror.makes_conversation() => {
            format!("mirror of {}", workspace.display())
        }
        _ => format!("mirror {}", mirror.conversation),
    }
}

fn directories(mirror: &Mirror) -> Vec<Finding> {
    let subject = subject(mirror);
    let workspace = mirror.workspace.as_deref().filter(|_| mirror.session.is_none());
    let workspace = workspace.map(|path| directory(&subject, "workspace", path));
    let bridge_dir = mirror.bridge_dir.as_deref().map(|path| directory(&subject, "bridge_dir", path));
    workspace.into_iter().chain(bridge_dir).collect()
}

/// Whether nobody between here and the server can read along.
pub fn stays_private(base_url: &str) -> bool {
    Url::parse(base_url).is_ok_and(|url| {
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let address = host.parse::<std::net::IpAddr>();
        url.scheme() == "https" || host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

fn directory(subject: &str, key: &str, path: &Path) -> Finding {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(kind) if kind.is_dir() => Finding::ok(subject, format!("{key} {shown} is there")),
        Ok(_) => Finding::fail(
            subject,
            format!("{key} {shown} is not a directory"),
            format!("name a directory in `{key}`"),
        ),
        Err(error) => Finding::warn(
            subject,
            format!("{key} {shown} can't be reached: {error}"),
            format!("create it, or correct `{key}`"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_https_stay_private() {
        for private in
            ["http://127.0.0.1:1", "http://127.9.9.9", "http://[::1]:1/x", "http://localhost", "https://h"]
        {
            assert!(stays_private(private), "{private}");
        }
        for open in ["http://192.168.0.1", "http://host", "http://localhost.example", "nonsense"] {
            assert!(!stays_private(open), "{open}");
        }
    }
}
