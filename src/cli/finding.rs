//! What a check has found, and how it is printed.

use std::fmt::Write;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Neither good nor bad, but good to know.
    Info,
    /// It works, or will; but look at it.
    Warn,
    /// It can't work.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at, for example `database`.
    pub subject: String,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Finding {
    /// Something is as it should be.
    pub fn ok(subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level: Level::Ok, subject: subject.into(), message: message.into(), help: None }
    }

    /// Something is good to know.
    pub fn info(subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level: Level::Info, ..Self::ok(subject, message) }
    }

    /// Something deserves a look.
    pub fn warn(subject: impl Into<String>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { level: Level::Warn, help: Some(help.into()), ..Self::ok(subject, message) }
    }

    /// Something can't work.
    pub fn fail(subject: impl Into<String>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { level: Level::Fail, help: Some(help.into()), ..Self::ok(subject, message) }
    }
}

/// The findings, one a line, each with its help below it.
pub fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let level = match finding.level {
            Level::Ok => "ok  ",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        // Writing to a String can't fail.
        let _ = writeln!(text, "{level} {}: {}", finding.subject, finding.message);
        if let Some(help) = &finding.help {
            let _ = writeln!(text, "     help: {help}");
        }
    }
    text
}

/// Whether something can't work.
pub fn any_failed(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.level == Level::Fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_its_help_another() {
        let findings = [
            Finding::ok("a", "fine"),
            Finding::info("i", "so"),
            Finding::warn("b", "odd", "look"),
            Finding::fail("c", "gone", "find it"),
        ];
        let expected =
            "ok   a: fine\ninfo i: so\nwarn b: odd\n     help: look\nFAIL c: gone\n     help: find it\n";
        assert_eq!(render(&findings), expected);
    }

    #[test]
    fn only_a_failure_fails() {
        assert!(!any_failed(&[Finding::ok("a", ""), Finding::warn("b", "", "")]));
        assert!(any_failed(&[Finding::ok("a", ""), Finding::fail("b", "", "")]));
    }
}
