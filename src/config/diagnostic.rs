//! What is wrong with a configuration, and how it is shown: file, line, caret, help.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where in the text, in bytes.
    pub span: Range<usize>,
    /// What is wrong, in one line.
    pub message: String,
    /// What stands beside the caret; may be empty.
    pub label: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Another place that has to do with it, and what it is.
    pub related: Option<(Range<usize>, String)>,
}

/// A text that is no configuration, and everything that is wrong with it.
#[derive(Clone, Debug)]
pub struct Invalid {
    name: String,
    text: String,
    diagnostics: Vec<Diagnostic>,
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read the configuration {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The text was read and is wrong in at least one place.
    #[error("{}", .0.summary())]
    Invalid(Box<Invalid>),
}

impl Invalid {
    fn summary(&self) -> String {
        match self.diagnostics.len() {
            1 => format!("1 problem in {}", self.name),
            count => format!("{count} problems in {}", self.name),
        }
    }
}

impl ConfigError {
    /// `text` is shown to people, so what is secret in it must be masked already, without moving a byte.
    pub(super) fn invalid(name: &str, text: String, mut diagnostics: Vec<Diagnostic>) -> Self {
        diagnostics.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.span.end));
        Self::Invalid(Box::new(Invalid { name: name.to_owned(), text, diagnostics }))
    }

    /// Everything that is wrong, in the order of the text; empty where the file can't be read.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Unreadable { .. } => &[],
            Self::Invalid(invalid) => &invalid.diagnostics,
        }
    }

    /// What to do about a file that can't be read; the diagnostics carry their own help.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        let Self::Unreadable { source, .. } = self else { return None };
        Some(match source.kind() {
            io::ErrorKind::NotFound => {
                "create it, or name another file with `--config FILE`; one `[[mirror]]` table is enough to begin with"
            }
            io::ErrorKind::PermissionDenied => "let the user that runs hermes-mirror read this file",
            io::ErrorKind::IsADirectory => {
                "name the file itself, for example `pipeline.toml` in that directory"
            }
            _ => "name another file with `--config FILE`",
        })
    }

    /// The error as a person reads it: every diagnostic with its line and a caret, then how many there are.
    /// With `color`, ANSI escapes mark the parts.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        match self {
            Self::Unreadable { source, .. } => {
                let title = Level::ERROR.primary_title(format!("{self}: {source}"));
                let help = self.help().map(|help| Level::HELP.primary_title(help));
                let lines = [title].into_iter().chain(help);
                let lines: Vec<String> =
                    lines.map(|line| renderer.render(&[Group::with_title(line)])).collect();
                lines.join("\n")
            }
            Self::Invalid(invalid) => {
                let each = invalid.diagnostics.iter().map(|one| invalid.group(one));
                let total = Group::with_title(Level::ERROR.primary_title(invalid.summary()));
                let texts: Vec<String> = each.chain([total]).map(|group| renderer.render(&[group])).collect();
                texts.join("\n\n")
            }
        }
    }
}

impl Invalid {
    fn group<'a>(&'a self, diagnostic: &'a Diagnostic) -> Group<'a> {
        let label = Some(diagnostic.label.as_str()).filter(|label| !label.is_empty());
        let primary = AnnotationKind::Primary.span(self.within(&diagnostic.span)).label(label);
        let related = diagnostic
            .related
            .iter()
            .map(|(span, label)| AnnotationKind::Context.span(self.within(span)).label(label));
        let snippet = Snippet::source(&self.text).path(&self.name).annotation(primary).annotations(related);
        let group = Level::ERROR.primary_title(&diagnostic.message).element(snippet);
        with_help(group, diagnostic.help.as_deref())
    }

    /// The span, moved to character boundaries inside the text.
    fn within(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(span.start);
        start..self.text.ceil_char_boundary(span.end).max(start)
    }
}

fn with_help<'a>(group: Group<'a>, help: Option<&'a str>) -> Group<'a> {
    match help {
        Some(help) => group.element(Level::HELP.message(help)),
        None => group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreadable(kind: io::ErrorKind) -> ConfigError {
        ConfigError::Unreadable { path: "p.toml".into(), source: kind.into() }
    }

    #[test]
    fn a_file_that_cannot_be_read_says_what_to_do() {
        for kind in [
            io::ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::IsADirectory,
            io::ErrorKind::Other,
        ] {
            let text = unreadable(kind).render(false);
            assert!(text.contains("p.toml"), "{text}");
            assert!(text.contains("help: "), "{text}");
        }
    }

    #[test]
    fn a_span_beyond_the_text_or_inside_a_character_is_still_shown() {
        for (start, end) in [(0, usize::MAX), (1, 2), (9, 9), (3, 1)] {
            let diagnostic = Diagnostic {
                span: start..end,
                message: "odd".to_owned(),
                label: String::new(),
                help: None,
                related: Some((8..9, "there".to_owned())),
            };
            let error = ConfigError::invalid("p.toml", "é = \"é\"".to_owned(), vec![diagnostic]);
            assert!(error.render(false).contains("error: odd"));
        }
    }

    #[test]
    fn color_is_used_only_when_asked_for() {
        let error = unreadable(io::ErrorKind::NotFound);
        assert!(error.render(true).contains('\u{1b}'));
        assert!(!error.render(false).contains('\u{1b}'));
    }
}
