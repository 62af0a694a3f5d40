//! Gathers what is wrong, so that a person sees all of it at once, and keeps secrets out of what is shown.

use std::cell::RefCell;
use std::ops::Range;

use super::diagnostic::Diagnostic;

/// A key that no table knows; judged when all tables have said what they know.
struct Unknown {
    table: String,
    key: String,
    kind: Kind,
    span: Range<usize>,
}

/// What stands behind a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A table, or an array of them.
    Table,
    /// Anything else.
    Value,
}

/// A key that a table has.
struct Known {
    table: String,
    key: &'static str,
    kind: Kind,
}

/// The place where all readers of one text report to.
#[derive(Default)]
pub(super) struct Problems<'t> {
    text: &'t str,
    found: RefCell<Vec<Diagnostic>>,
    known: RefCell<Vec<Known>>,
    unknown: RefCell<Vec<Unknown>>,
    secret: RefCell<Vec<Range<usize>>>,
    /// Lines that are not TOML; what was made of them says nothing.
    unreadable: Vec<Range<usize>>,
}

impl<'t> Problems<'t> {
    /// Begins with the errors of syntax in `text`.
    pub(super) fn with_syntax(text: &'t str, errors: &[toml::de::Error]) -> Self {
        let found: Vec<Diagnostic> = errors.iter().map(|error| syntax(text, error)).collect();
        let unreadable = found.iter().map(|one| lines(text, &one.span)).collect();
        Self { text, found: RefCell::new(found), unreadable, ..Self::default() }
    }

    /// Takes a problem, unless it is only the echo of an error of syntax on the same lines.
    pub(super) fn report(&self, diagnostic: Diagnostic) {
        let echo = self.unreadable.iter().any(|line| line.contains(&diagnostic.span.start));
        if !echo {
            self.found.borrow_mut().push(diagnostic);
        }
    }

    /// Takes the problem that something is not there; with errors of syntax it may only be hidden by one of them.
    pub(super) fn report_missing(&self, diagnostic: Diagnostic) {
        if self.unreadable.is_empty() {
            self.report(diagnostic);
        }
    }

    /// Notes that `table` has `key`.
    pub(super) fn know(&self, table: &str, key: &'static str, kind: Kind) {
        self.known.borrow_mut().push(Known { table: table.to_owned(), key, kind });
    }

    /// Takes a key that `table` does not have.
    pub(super) fn report_unknown(&self, table: &str, key: &str, kind: Kind, span: Range<usize>) {
        self.unknown.borrow_mut().push(Unknown { table: table.to_owned(), key: key.to_owned(), kind, span });
    }

    /// Keeps this part of the text from being shown.
    pub(super) fn hide(&self, span: Range<usize>) {
        self.secret.borrow_mut().push(span);
    }

    /// Keeps what may be secret in an address from being shown: all before its `@` and all after its `?` or `#`.
    pub(super) fn hide_address(&self, span: Range<usize>) {
        let raw = self.text.get(span.clone()).unwrap_or_default();
        if !raw.contains(['@', '?', '#', '\\']) {
            return;
        }
        // With an escape in it, or without the usual form, there is no telling which part is which.
        let Some(scheme) = raw.find("://").filter(|_| !raw.contains('\\')) else { return self.hide(span) };
        let at = |offset: usize| span.start + offset;
        if let Some(user) = raw.rfind('@') {
            self.hide(at(scheme + "://".len())..at(user));
        }
        if let Some(query) = raw.find(['?', '#']) {
            self.hide(at(query + 1)..span.end);
        }
    }

    /// Everything that is wrong, and the text as it may be shown. `None` where nothing is wrong.
    pub(super) fn finish(self) -> Option<(String, Vec<Diagnostic>)> {
        for unknown in self.unknown.take() {
            let diagnostic = explain(unknown, &self.known.borrow());
            self.report(diagnostic);
        }
        let found = self.found.into_inner();
        (!found.is_empty()).then(|| (masked(self.text, &self.secret.into_inner()), found))
    }
}

/// The whole lines that `span` touches.
fn lines(text: &str, span: &Range<usize>) -> Range<usize> {
    let start = text.get(..span.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let end = text.get(span.end..).and_then(|after| after.find('\n')).map_or(text.len(), |at| span.end + at);
    start..end + 1
}

fn syntax(text: &str, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let shown = text.get(span.clone()).unwrap_or_default();
    let (message, help) = match error.message() {
        "duplicate key" => (format!("`{shown}` is given twice"), Some("keep one of the two".to_owned())),
        message if message.starts_with("string values must be quoted") && shown.is_empty() => {
            ("there is no value after `=`".to_owned(), Some("write a value, or take the line out".to_owned()))
        }
        message if message.starts_with("string values must be quoted") => (
            "this value is neither a number, `true`, `false` nor a quoted text".to_owned(),
            Some("put text in double quotes; write numbers without letters".to_owned()),
        ),
        message => (format!("not TOML: {message}"), None),
    };
    Diagnostic { span, message, label: String::new(), help, related: None }
}

fn explain(unknown: Unknown, known: &[Known]) -> Diagnostic {
    let Unknown { table, key, kind, span } = unknown;
    let own: Vec<&str> = known.iter().filter(|one| one.table == table).map(|one| one.key).collect();
    let elsewhere = || known.iter().find(|one| one.key == key && one.kind == kind).map(|one| &one.table);
    let help = if names_a_secret(&key) {
        "a token never stands in this file; say in [deliver.auth.env], [deliver.auth.file] or \
         [deliver.auth.command] where it comes from"
            .to_owned()
    } else if let Some(near) = nearest(&key, &own) {
        format!("did you mean `{near}`?")
    } else if let Some(other) = elsewhere() {
        format!("`{key}` belongs to {other}")
    } else {
        format!("known here: {}", own.join(", "))
    };
    let what = if kind == Kind::Table { "table" } else { "key" };
    Diagnostic {
        span,
        message: format!("unknown {what} `{key}` in {table}"),
        label: String::new(),
        help: Some(help),
        related: None,
    }
}

/// The known key that `key` was probably meant to be.
pub(super) fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let key = key.to_lowercase().replace('-', "_");
    let close = |candidate: &str| {
        let slips = (key.chars().count() / 3).max(1);
        strsim::damerau_levenshtein(&key, candidate) <= slips
            || strsim::jaro_winkler(&key, candidate) >= 0.87
            || (key.len() > 1 && (candidate.contains(&key) || key.contains(candidate)))
    };
    let score = |candidate: &str| strsim::jaro_winkler(&key, candidate);
    known.iter().copied().filter(|candidate| close(candidate)).max_by(|a, b| score(a).total_cmp(&score(b)))
}

pub(super) fn names_a_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    ["token", "secret", "password", "passwd", "api_key", "apikey", "bearer", "authorization"]
        .iter()
        .any(|word| key.contains(word))
}

/// `text` with `spans` and the user part of every address replaced by asterisks, byte for byte, so that spans stay true.
fn masked(text: &str, spans: &[Range<usize>]) -> String {
    let users = text.match_indices("://").filter_map(|(at, separator)| {
        let start = at + separator.len();
        let rest = text.get(start..)?;
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).unwrap_or(rest.len());
        let user = rest.get(..end)?.rfind('@')?;
        Some(start..start + user)
    });
    let hidden: Vec<Range<usize>> = users.chain(spans.iter().cloned()).collect();
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if c != '\n' && hidden.iter().any(|span| span.contains(&at)) {
            shown.extend(std::iter::repeat_n('*', c.len_utf8()));
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_the_one_that_was_meant() {
        let keys =
            ["mode", "fallback_poll_ms", "poll_ms", "look_us", "settle_ms", "release_after_ms", "base_url"];
        for (typed, meant) in [
            ("pol_ms", Some("poll_ms")),
            ("poll", Some("poll_ms")),
            ("poll-ms", Some("poll_ms")),
            ("Mode", Some("mode")),
            ("settle", Some("settle_ms")),
            ("url", Some("base_url")),
            ("fallback_pol", Some("fallback_poll_ms")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, &keys), meant, "{typed}");
        }
    }

    #[test]
    fn what_is_hidden_keeps_its_place_and_its_line_breaks() {
        let text = "a = \"http://üser:pw@host/p@th\"\nb = 'se\ncret'";
        let hidden = [0..1, text.find("se\n").unwrap()..text.len()];
        let shown = masked(text, &hidden);
        assert_eq!(shown.len(), text.len());
        assert!(!shown.contains("pw") && !shown.contains("ser") && !shown.contains("cret"));
        assert!(shown.starts_with("* = \"http://") && shown.contains("@host/p@th"));
        assert_eq!(shown.matches('\n').count(), 2);
    }

    #[test]
    fn an_echo_of_a_syntax_error_is_not_reported() {
        let text = "a = x\nb = 1";
        let (_, errors) = toml::de::DeTable::parse_recoverable(text);
        let problems = Problems::with_syntax(text, &errors);
        let at = |span| Diagnostic {
            span,
            message: "m".to_owned(),
            label: String::new(),
            help: None,
            related: None,
        };
        problems.report(at(4..5));
        problems.report(at(10..11));
        problems.report_missing(at(10..11));
        assert_eq!(problems.finish().unwrap().1.len(), 2);
    }
}
