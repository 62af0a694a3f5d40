//! A regular expression of the configuration, compiled when it is read so that no stage can meet a bad one.

use std::borrow::Cow;
use std::ops::Range;

use regex::{Regex, RegexBuilder};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// Largest compiled pattern, in bytes; what a person writes stays below a tenth of it.
const LARGEST: usize = 1 << 20;

/// What to mask beside the known shapes of credentials.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is not a regular expression.
    #[error("is not a regular expression: {0}")]
    Syntax(String),
    /// Its compiled form is too large.
    #[error("is too large a regular expression")]
    TooLarge,
    /// It matches the empty text, and so everywhere.
    #[error("matches the empty text")]
    Empty,
}

impl PatternError {
    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Syntax(_) => {
                "write it in single quotes, so that backslashes stay, in the syntax of the Rust crate `regex`: \
                 no look-around, no back-references"
            }
            Self::TooLarge => {
                "repeat less, as in `{1,50}` for `{1,50000}`, or split it into several patterns"
            }
            Self::Empty => "let it match at least one character, for example `x+` instead of `x*`",
        }
    }
}

impl Pattern {
    /// Compiles a regular expression.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let compiled = RegexBuilder::new(text).size_limit(LARGEST).build().map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
            error => PatternError::Syntax(reason(&error.to_string())),
        })?;
        if compiled.is_match("") {
            return Err(PatternError::Empty);
        }
        Ok(Self(compiled))
    }

    /// The expression as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// What is to be masked in a text: what the expression's first group takes, or without a group all of each match.
    pub fn secrets(&self, text: &str) -> impl Iterator<Item = Range<usize>> {
        let grouped = self.0.captures_len() > 1;
        let groups =
            grouped.then(|| self.0.captures_iter(text).filter_map(|groups| Some(groups.get(1)?.range())));
        let whole = (!grouped).then(|| self.0.find_iter(text).map(|whole| whole.range()));
        groups.into_iter().flatten().chain(whole.into_iter().flatten()).filter(|range| !range.is_empty())
    }
}

/// The crate's message ends with the reason; before it stand the pattern and a caret, which the diagnostic has too.
fn reason(message: &str) -> String {
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for Pattern {
    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "regex"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'t>(pattern: &str, text: &'t str) -> Vec<&'t str> {
        Pattern::new(pattern).unwrap().secrets(text).map(|range| &text[range]).collect()
    }

    #[test]
    fn a_pattern_takes_its_first_group_or_all_of_its_match() {
        assert_eq!(found(r"EMP-\d+", "EMP-12 and EMP-é7"), ["EMP-12"]);
        assert_eq!(found(r"(?i)badge (\w+)", "Badge x1, bAdge yé"), ["x1", "yé"]);
        assert_eq!(found(r"a(b)?", "ab a"), ["b"]);
        assert_eq!(found(r"\b|x", "yxy"), ["x"]);
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        assert_eq!(Pattern::new("(ab").unwrap_err(), PatternError::Syntax("unclosed group".to_owned()));
        assert!(
            matches!(Pattern::new(r"(?=a)b"), Err(PatternError::Syntax(why)) if why.contains("look-around"))
        );
        assert_eq!(Pattern::new(r"\w{5000}").unwrap_err(), PatternError::TooLarge);
        for empty in ["", "a*", "^", "x|"] {
            assert_eq!(Pattern::new(empty).unwrap_err(), PatternError::Empty, "{empty}");
        }
    }
}
