//! The world that a configuration speaks of, as far as it can be seen without touching it.

use std::fs;
use std::path::Path;

use hermes_mirror::config::{Auth, Config};
use reqwest::Url;

use super::finding::Finding;

/// Looks at everything that the configuration names.
pub fn look(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(config.source.db.as_deref().map(database));
    for mirror in &config.mirror {
        let subject = format!("mirror {}", mirror.conversation);
        if let Some(workspace) = mirror.workspace.as_deref().filter(|_| mirror.session.is_none()) {
            findings.push(directory(&subject, "workspace", workspace));
        }
        if let Some(bridge_dir) = &mirror.bridge_dir {
            findings.push(directory(&subject, "bridge_dir", bridge_dir));
        }
    }
    findings.extend(token(&config.deliver.auth));
    findings
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

/// Asks for the file's kind by its path; opening it is for `SQLite` alone.
fn database(path: &Path) -> Finding {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(kind) if kind.is_file() => Finding::ok("database", format!("{shown} is there")),
        Ok(_) => Finding::fail(
            "database",
            format!("{shown} is not a file"),
            "name state.db itself in [source] db, HERMES_STATE_DB or --db",
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Finding::warn(
            "database",
            format!("{shown} does not exist yet"),
            "start Hermes; the mirror waits for the file. If Hermes runs already, it keeps its sessions elsewhere: \
             set `db` in [source]",
        ),
        Err(error) => Finding::fail(
            "database",
            format!("{shown} can't be reached: {error}"),
            "let the user that runs hermes-mirror read it and enter the directories above it",
        ),
    }
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

fn token(auth: &Auth) -> Option<Finding> {
    if let Some(env) = &auth.env {
        let set = std::env::var_os(&env.name).is_some_and(|value| !value.is_empty());
        return (!set).then(|| {
            let message = format!("the environment variable {} is not set", env.name);
            Finding::fail("token", message, "set it where hermes-mirror is started")
        });
    }
    let path = &auth.file.as_ref()?.path;
    let error = fs::metadata(path).err()?;
    let message = format!("the file {} can't be reached: {error}", path.display());
    Some(Finding::fail(
        "token",
        message,
        "create it with the token as its first line, readable for you alone",
    ))
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
