//! Which sessions a mirror of many takes, by patterns of directories and titles, and where a mirror begins.

use std::borrow::Cow;
use std::path::Path;

use regex::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// What stands as `match` where every session is taken.
pub const ALL: &str = "all";

/// `match` and `exclude` of a `[[mirror]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Choice {
    /// Patterns of directories, each with all that is below it: `*` is any part of one name, `**` of a whole path.
    pub workspace: Vec<Glob>,
    /// Patterns of titles: `*` is any text, `?` any character; upper and lower case are the same.
    pub title: Vec<Glob>,
}

/// A pattern with `*` and `?`.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    compiled: Regex,
}

impl Glob {
    /// A pattern of directories, from the root. `None` where it is too long.
    #[must_use]
    pub fn directory(path: &Path) -> Option<Self> {
        let text = path.to_string_lossy().into_owned();
        let bare = text.trim_end_matches('/');
        let bare = bare.strip_suffix("/**").unwrap_or(bare);
        let expression = format!("(?s)^{}(?:/.*)?$", expression(bare, "[^/]"));
        Some(Self { compiled: Regex::new(&expression).ok()?, text })
    }

    /// A pattern of titles. `None` where it is too long.
    #[must_use]
    pub fn title(text: &str) -> Option<Self> {
        let compiled = Regex::new(&format!("(?is)^{}$", expression(text, "."))).ok()?;
        Some(Self { text: text.to_owned(), compiled })
    }

    /// Whether a text is of the pattern.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.compiled.is_match(text)
    }

    /// The pattern as it is understood: a directory's from the root.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The regular expression of a pattern whose `*` and `?` stand for what `any` matches.
fn expression(pattern: &str, any: &str) -> String {
    let mut expression = String::new();
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '*' if characters.next_if_eq(&'*').is_some() => expression.push_str(".*"),
            '*' => {
                expression.push_str(any);
                expression.push('*');
            }
            '?' => expression.push_str(any),
            other => expression.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    expression
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Serialize for Glob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl JsonSchema for Glob {
    fn schema_name() -> Cow<'static, str> {
        "Glob".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

/// Where a mirror begins in a session of which nothing was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Behind the rows that are there.
    None,
    /// With the turn that is open, where one is.
    OpenTurn,
    /// With the first row.
    All,
    /// With so many of the last rows, and the turn that they begin in.
    Rows(u32),
}

impl History {
    /// The words for those that have one.
    pub const WORDS: [(&'static str, Self); 3] =
        [("none", Self::None), ("open-turn", Self::OpenTurn), ("all", Self::All)];
    /// The most rows.
    pub const MOST_ROWS: u32 = 1_000_000;
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self, Self::WORDS.iter().find(|(_, history)| history == self)) {
            (_, Some((word, _))) => serializer.serialize_str(word),
            (Self::Rows(rows), None) => serializer.serialize_u32(*rows),
            (_, None) => serializer.serialize_none(),
        }
    }
}

impl JsonSchema for History {
    fn schema_name() -> Cow<'static, str> {
        "History".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words = Self::WORDS.map(|(word, _)| word);
        json_schema!({"anyOf": [
            {"enum": words}, {"type": "integer", "minimum": 1, "maximum": Self::MOST_ROWS}
        ]})
    }
}

/// The schema of `match`: a table, or one word for all.
pub(super) fn all_or_choice(generator: &mut SchemaGenerator) -> Schema {
    let choice = generator.subschema_for::<Choice>();
    json_schema!({"anyOf": [{"const": ALL}, choice, {"type": "null"}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_meant_with_all_below_it() {
        let matches = |pattern: &str, path: &str| Glob::directory(Path::new(pattern)).unwrap().matches(path);
        for pattern in ["/w/a", "/w/a/", "/w/a/**", "/w/*", "/*/a", "/**/a", "/w/?", "/"] {
            assert!(matches(pattern, "/w/a"), "{pattern}");
            assert!(matches(pattern, "/w/a/b c/d"), "{pattern}");
        }
        for (pattern, path) in [
            ("/w/a", "/w/ab"),
            ("/w/a", "/w"),
            ("/w/a", "/x/w/a"),
            ("/w/*/c", "/w/a/b/c"),
            ("/w/a.b", "/w/a+b"),
            ("/w/*", "/w"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        assert!(matches("/w/**/c", "/w/a/b/c"));
    }

    #[test]
    fn a_title_is_matched_whole_in_any_case() {
        let matches = |pattern: &str, title: &str| Glob::title(pattern).unwrap().matches(title);
        assert!(matches("*Tax*", "my tax/return 2026"));
        assert!(matches("fix ?", "Fix é"));
        assert!(matches("[private]*", "[private] x"));
        assert!(!matches("tax", "my tax"));
    }
}
