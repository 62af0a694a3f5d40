//! The two programs that keep others running, and what each is told.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::job::Job;

const UNIT: &str = include_str!("hermes-mirror.service");
const UNIT_NAME: &str = "hermes-mirror.service";
const AGENT: &str = include_str!("hermes-mirror.plist");
const AGENT_NAME: &str = "hermes-mirror.plist";
const LABEL: &str = "hermes-mirror";

/// A comment that stands in each file of ours.
const MARK: &str = "Written by hermes-mirror, which replaces this file when it is installed again.";

/// What keeps the mirror running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// systemd, for this user.
    Systemd,
    /// launchd of macOS, for this user.
    Launchd,
}

impl Manager {
    /// That of this system.
    pub const HERE: Self = if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd };

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Launchd => "launchd",
        }
    }

    /// Where it looks for what it runs.
    pub fn file(self, home: &Path, config_dir: &Path) -> PathBuf {
        match self {
            Self::Systemd => config_dir.join("systemd/user").join(UNIT_NAME),
            Self::Launchd => home.join("Library/LaunchAgents").join(AGENT_NAME),
        }
    }

    /// Whether it answers this user.
    pub fn runs(self) -> bool {
        let question: &[&str] = match self {
            Self::Systemd => &["systemctl", "--user", "show", "--property=Version"],
            Self::Launchd => &["launchctl", "list"],
        };
        let Some(mut command) = command(question) else { return false };
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// The commands behind which what `file` says is running, and from the next login on again. `before`: whether it
    /// may run by an older file.
    pub fn start(self, file: &str, before: bool) -> Vec<Vec<&str>> {
        match self {
            Self::Systemd => vec![
                vec!["systemctl", "--user", "daemon-reload"],
                vec!["systemctl", "--user", "enable", UNIT_NAME],
                vec!["systemctl", "--user", "restart", UNIT_NAME],
            ],
            Self::Launchd => {
                let unload = before.then(|| vec!["launchctl", "unload", file]);
                unload.into_iter().chain([vec!["launchctl", "load", "-w", file]]).collect()
            }
        }
    }

    /// The commands behind which it is stopped, and stays so.
    pub fn stop(self, file: &str) -> Vec<Vec<&str>> {
        match self {
            Self::Systemd => vec![vec!["systemctl", "--user", "disable", "--now", UNIT_NAME]],
            Self::Launchd => vec![vec!["launchctl", "unload", "-w", file]],
        }
    }

    /// The commands behind which the file is forgotten, once it is gone.
    pub fn forget(self) -> Vec<Vec<&'static str>> {
        match self {
            Self::Systemd => vec![vec!["systemctl", "--user", "daemon-reload"]],
            Self::Launchd => Vec::new(),
        }
    }

    /// The command that says how it stands.
    pub const fn look(self) -> &'static [&'static str] {
        match self {
            Self::Systemd => &["systemctl", "--user", "--no-pager", "status", UNIT_NAME],
            Self::Launchd => &["launchctl", "list", LABEL],
        }
    }

    /// What a person is told once it runs.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Systemd => {
                "log: `journalctl --user -u hermes-mirror -f`\nto have it run also while nobody is logged in: \
                 `loginctl enable-linger`\n"
            }
            Self::Launchd => "log: ~/Library/Logs/hermes-mirror.log\n",
        }
    }

    /// The file for a job.
    pub fn text(self, job: &Job, home: &str) -> String {
        match self {
            Self::Systemd => unit(job),
            Self::Launchd => agent(job, home),
        }
    }
}

/// Whether a file is one of ours, that may be replaced and removed.
pub fn is_ours(text: &str) -> bool {
    text.contains(MARK)
}

/// A command from its words, with nothing to read.
pub fn command(words: &[&str]) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    Some(command)
}

/// `systemd.service(5)`.
fn unit(job: &Job) -> String {
    let words = job.command.iter().enumerate().map(|(place, word)| in_unit(word, place > 0));
    let variables = job.environment.iter();
    let variables = variables
        .map(|(name, value)| format!("Environment={}", in_unit(&format!("{name}={value}"), false)))
        .collect::<Vec<_>>();
    filled(
        UNIT,
        &[("{command}", &words.collect::<Vec<_>>().join(" ")), ("{environment}", &variables.join("\n"))],
    )
}

/// A word in quotes. `%` begins a specifier; `$` a variable, but not in the program's path or in `Environment=`.
fn in_unit(word: &str, has_variables: bool) -> String {
    let mut quoted = String::from('"');
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            '$' if has_variables => quoted.push_str("$$"),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// `launchd.plist(5)`.
fn agent(job: &Job, home: &str) -> String {
    let string = |text: &str| format!("<string>{}</string>", in_xml(text));
    let words: Vec<String> = job.command.iter().map(|word| string(word)).collect();
    let variables = job.environment.iter();
    let variables: Vec<String> =
        variables.map(|(name, value)| format!("<key>{name}</key>{}", string(value))).collect();
    filled(
        AGENT,
        &[
            ("{command}", &words.join("\n    ")),
            ("{environment}", &variables.join("\n    ")),
            ("{log}", &string(&format!("{home}/Library/Logs/hermes-mirror.log"))),
        ],
    )
}

fn in_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The template with what stands for each mark at the end of a line; a line of which nothing is left goes.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for line in template.lines() {
        let found = values.iter().find_map(|(mark, value)| Some((line.strip_suffix(mark)?, *value)));
        let (head, value) = found.unwrap_or((line, ""));
        if found.is_some() && value.is_empty() {
            continue;
        }
        text.extend([head, value, "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            command: [
                "/opt/a b/$x %h/hermes-mirror",
                "run",
                "--config",
                "/w/it's \"50%\" \\ $HOME & <é>/p.toml",
            ]
            .map(str::to_owned)
            .to_vec(),
            environment: vec![("HERMES_HOME".to_owned(), "/h/$a %b & c".to_owned())],
        }
    }

    #[test]
    fn a_unit_names_its_paths_whatever_is_in_them() {
        insta::assert_snapshot!("unit", Manager::Systemd.text(&job(), "/h"));
    }

    #[test]
    fn an_agent_names_its_paths_whatever_is_in_them() {
        insta::assert_snapshot!("agent", Manager::Launchd.text(&job(), "/h & co"));
    }

    #[test]
    fn without_variables_no_line_is_left_over_for_them_and_both_are_known_again_as_ours() {
        let job = Job { environment: Vec::new(), ..job() };
        for manager in [Manager::Systemd, Manager::Launchd] {
            let text = manager.text(&job, "/h");
            assert!(is_ours(&text) && !text.contains('{') && !text.contains("\n\n\n"), "{text}");
            assert!(!text.contains("Environment="), "{text}");
        }
    }

    #[test]
    fn each_has_its_place_below_the_home_directory() {
        let (home, config) = (Path::new("/h"), Path::new("/h/.config"));
        let unit = "/h/.config/systemd/user/hermes-mirror.service";
        assert_eq!(Manager::Systemd.file(home, config), Path::new(unit));
        let agent = "/h/Library/LaunchAgents/hermes-mirror.plist";
        assert_eq!(Manager::Launchd.file(home, config), Path::new(agent));
    }
}
