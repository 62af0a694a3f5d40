//! The world that a configuration speaks of, looked at without changing it.

use std::fs;
use std::path::Path;

use hermes_mirror::config::{Config, Mirror};
use hermes_mirror::ids::HermesSessionId;
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

/// Looks at what is on this machine: the database, and for each mirror its directories and its session.
pub fn look_around(config: &Config, database: &Path) -> Surroundings {
    let mut source = database::source(config, database);
    let (mut findings, open) = database::look(&mut source);
    let mut sessions = Vec::with_capacity(config.mirror.len());
    for mirror in &config.mirror {
        findings.extend(directories(mirror));
        let session = open.and_then(|open| {
            let (finding, session) = database::session(config, mirror, open);
            findings.push(finding);
            session
        });
        sessions.push(session);
    }
    Surroundings { findings, sessions }
}

/// Asks the server: whether it is one, lets us in, and knows each mirror's conversation.
pub fn ask_server(config: &Config, sessions: &[Option<HermesSessionId>]) -> anyhow::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(server::ask(config, sessions)))
}

/// How a mirror is named in a finding.
fn subject(mirror: &Mirror) -> String {
    format!("mirror {}", mirror.conversation)
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
