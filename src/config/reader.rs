//! Reads typed values out of one table, reports what is wrong with them, and goes on with the default.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::Diagnostic;
use super::pattern::PatternError;
use super::problems::{Kind, Problems, names_a_secret, nearest};
use super::rules::ValueError;

/// What all tables of one text share.
pub(super) struct Context<'a> {
    pub problems: &'a Problems<'a>,
    /// Where relative paths begin.
    pub directory: &'a Path,
    /// What `~` stands for.
    pub home: Option<&'a Path>,
}

/// A value and where it stands.
pub(super) struct Found<T> {
    pub value: T,
    pub span: Range<usize>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl<T> Found<T> {
    /// Another value at the same place.
    pub(super) fn with<U>(self, other: impl FnOnce(T) -> U) -> Found<U> {
        Found { value: other(self.value), span: self.span }
    }
}

/// One table of the text; absent, it is read as an empty one. Call [`Reader::finish`] when all its keys are read.
pub(super) struct Reader<'a> {
    context: &'a Context<'a>,
    /// As a person writes it, for example `[deliver.retry]`.
    name: String,
    /// Where the table begins.
    pub span: Range<usize>,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// Reads the outermost table.
    pub(super) fn root(context: &'a Context<'a>, table: &'a DeTable<'a>) -> Self {
        Self { context, name: "the file".to_owned(), span: 0..0, table: Some(table), known: Vec::new() }
    }

    /// Reports every key that was never asked for.
    pub(super) fn finish(self) {
        for (key, value) in self.table.into_iter().flatten() {
            if !self.known.contains(&key.get_ref().as_ref()) {
                if names_a_secret(key.get_ref()) {
                    self.context.problems.hide(value.span());
                }
                let tables = match value.get_ref() {
                    DeValue::Table(_) => true,
                    DeValue::Array(array) => array.iter().any(|element| element.get_ref().is_table()),
                    _ => false,
                };
                let kind = if tables { Kind::Table } else { Kind::Value };
                self.context.problems.report_unknown(&self.name, key.get_ref(), kind, key.span());
            }
        }
    }

    /// The table below `key`, for example `[detect]`.
    pub(super) fn table(&mut self, key: &'static str) -> Reader<'a> {
        self.present_table(key).unwrap_or_else(|| Reader {
            context: self.context,
            name: self.path_of(key),
            span: self.span.clone(),
            table: None,
            known: Vec::new(),
        })
    }

    /// The table below `key`, where there is one.
    pub(super) fn present_table(&mut self, key: &'static str) -> Option<Reader<'a>> {
        let name = self.path_of(key);
        let value = self.take_as(key, Kind::Table)?;
        let DeValue::Table(table) = value.get_ref() else {
            self.mistyped(key, value, "a table", Some(format!("write it as {name}")));
            return None;
        };
        Some(Reader {
            context: self.context,
            name,
            span: value.span(),
            table: Some(table),
            known: Vec::new(),
        })
    }

    /// What `read` makes of the table below `key`, or `all` where one `word` stands in its place.
    pub(super) fn table_or<T>(
        &mut self,
        key: &'static str,
        (word, all): (&'static str, T),
        read: impl FnOnce(Reader<'a>) -> T,
    ) -> Option<T> {
        let value = self.table.and_then(|table| table.get(key));
        if value.is_some_and(|value| value.get_ref().is_str()) {
            self.choice(key, &[(word, ())], ());
            return Some(all);
        }
        self.present_table(key).map(read)
    }

    /// The tables below `key`, for example all `[[mirror]]`.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Reader<'a>> {
        let Some(value) = self.take_as(key, Kind::Table) else { return Vec::new() };
        let help = || Some(format!("write `[[{key}]]`, once for each"));
        let DeValue::Array(array) = value.get_ref() else {
            self.mistyped(key, value, "an array of tables", help());
            return Vec::new();
        };
        let mut readers = Vec::new();
        for element in array {
            let DeValue::Table(table) = element.get_ref() else {
                self.mistyped(key, element, "an array of tables", help());
                continue;
            };
            readers.push(Reader {
                context: self.context,
                name: format!("[[{key}]]"),
                span: element.span(),
                table: Some(table),
                known: Vec::new(),
            });
        }
        readers
    }

    /// A whole number in `range`.
    pub(super) fn integer<T: TryFrom<u64> + std::fmt::Display + Copy>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: T,
    ) -> T {
        self.integer_or(key, None, range, default)
    }

    /// A whole number in `range`, or 0, which means `zero`.
    pub(super) fn integer_or_zero<T: TryFrom<u64> + std::fmt::Display + Copy>(
        &mut self,
        key: &'static str,
        zero: &str,
        range: RangeInclusive<u64>,
        default: T,
    ) -> T {
        self.integer_or(key, Some(zero), range, default)
    }

    fn integer_or<T: TryFrom<u64> + std::fmt::Display + Copy>(
        &mut self,
        key: &'static str,
        zero: Option<&str>,
        range: RangeInclusive<u64>,
        default: T,
    ) -> T {
        let Some(value) = self.take(key) else { return default };
        let DeValue::Integer(integer) = value.get_ref() else {
            let unit = unit_of(key).map(|unit| format!(" of {unit}")).unwrap_or_default();
            let help = format!("write a whole number{unit} without quotes, for example `{default}`");
            self.mistyped(key, value, "a whole number", Some(help));
            return default;
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.and_then(|number| u64::try_from(number).ok());
        let allowed = number.filter(|n| range.contains(n) || (*n == 0 && zero.is_some()));
        if let Some(allowed) = allowed.and_then(|n| T::try_from(n).ok()) {
            return allowed;
        }
        let unit = unit_of(key).map(|unit| format!(" {unit}")).unwrap_or_default();
        let zero = zero.map(|meaning| format!(", or 0 for {meaning}")).unwrap_or_default();
        let limits = format!("{} to {}{unit}{zero}", range.start(), range.end());
        self.out_of_range(key, value, &limits, &default.to_string());
        default
    }

    /// A number in `range`.
    pub(super) fn float(&mut self, key: &'static str, range: RangeInclusive<f64>, default: f64) -> f64 {
        let Some(Found { value, span }) = self.number(key) else { return default };
        if range.contains(&value) {
            return value;
        }
        let limits = format!("{:?} to {:?}", range.start(), range.end());
        self.problem(
            span,
            format!("`{key}` in {} is out of range", self.name),
            &limits,
            Some(format!("the default is {default:?}")),
        );
        default
    }

    /// A number of any kind.
    pub(super) fn number(&mut self, key: &'static str) -> Option<Found<f64>> {
        let value = self.take(key)?;
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            // Written in decimal; no value that a range here allows loses digits as a float.
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            self.mistyped(key, value, "a number", Some("write it in decimal, without quotes".to_owned()));
        }
        number.map(|number| Found { value: number, span: value.span() })
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, key: &'static str, default: bool) -> bool {
        let Some(value) = self.take(key) else { return default };
        value.get_ref().as_bool().unwrap_or_else(|| {
            let help = "write `true` or `false`, without quotes".to_owned();
            self.mistyped(key, value, "`true` or `false`", Some(help));
            default
        })
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        default: T,
    ) -> T {
        let Some(value) = self.take(key) else { return default };
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let all = format!("write \"{}\"", words.join("\" or \""));
        let Some(text) = value.get_ref().as_str() else {
            self.mistyped(key, value, "a text", Some(all));
            return default;
        };
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
            return *choice;
        }
        let help = nearest(text, &words).map_or(all, |near| format!("did you mean \"{near}\"?"));
        let message = format!("`{key}` in {} can't be \"{text}\"", self.name);
        self.problem(value.span(), message, &words.join(" or "), Some(help));
        default
    }

    /// A text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<Found<String>> {
        let value = self.take(key)?;
        let Some(text) = value.get_ref().as_str() else {
            self.mistyped(key, value, "a text", Some("write it in double quotes".to_owned()));
            return None;
        };
        Some(Found { value: text.to_owned(), span: value.span() })
    }

    /// A text that obeys `rule`.
    pub(super) fn text_by(
        &mut self,
        key: &'static str,
        rule: fn(&str) -> Result<(), ValueError>,
    ) -> Option<Found<String>> {
        let text = self.text(key)?;
        match rule(&text.value) {
            Ok(()) => Some(text),
            Err(error) => {
                self.refuse(key, text.span, &error);
                None
            }
        }
    }

    /// A path; relative ones begin at the file's directory, `~/` at the home directory.
    pub(super) fn path(&mut self, key: &'static str) -> Option<Found<PathBuf>> {
        let Found { value, span } = self.text_by(key, super::rules::not_empty)?;
        let value = self.resolve(key, &value, &span);
        Some(Found { value, span })
    }

    /// A list of texts, such as `example`.
    pub(super) fn texts(&mut self, key: &'static str, example: &str) -> Option<Found<Vec<Found<String>>>> {
        let value = self.take(key)?;
        let help = || Some(format!("write a list of texts, for example `{example}`"));
        let DeValue::Array(array) = value.get_ref() else {
            self.mistyped(key, value, "a list of texts", help());
            return None;
        };
        let mut texts = Vec::new();
        for element in array {
            let Some(text) = element.get_ref().as_str() else {
                self.mistyped(key, element, "a list of texts", help());
                return None;
            };
            texts.push(Found { value: text.to_owned(), span: element.span() });
        }
        Some(Found { value: texts, span: value.span() })
    }

    /// Makes a path of a text of this file.
    pub(super) fn resolve(&self, key: &str, text: &str, span: &Range<usize>) -> PathBuf {
        let Context { directory, home, .. } = *self.context;
        if let Some(rest) = text.strip_prefix("~/").or((text == "~").then_some("")) {
            if let Some(home) = home {
                return home.join(rest);
            }
            let help = "set HOME, or write the whole path".to_owned();
            self.problem(
                span.clone(),
                format!("the home directory for `{key}` is not known"),
                "",
                Some(help),
            );
        } else if text.starts_with(['~', '$']) {
            let message = format!("`{key}` in {} begins with what only a shell expands", self.name);
            self.problem(
                span.clone(),
                message,
                "",
                Some("write the whole path, or begin it with `~/`".to_owned()),
            );
        }
        directory.join(text)
    }

    /// Reports that a key that must be there is not.
    pub(super) fn missing(&self, message: String, help: &str) {
        self.context.problems.report_missing(Diagnostic {
            span: self.span.clone(),
            message,
            label: String::new(),
            help: Some(help.to_owned()),
            related: None,
        });
    }

    /// Reports a value that a rule refuses; what the value is stays hidden, for it may be a token.
    pub(super) fn refuse(&self, key: &str, span: Range<usize>, error: &ValueError) {
        self.problem(
            span,
            format!("`{key}` in {} {}", self.name, error.message),
            "",
            Some(error.help.to_owned()),
        );
    }

    /// Reports a text that is no pattern.
    pub(super) fn refuse_pattern(&self, key: &str, span: Range<usize>, error: &PatternError) {
        let help = Some(error.help().to_owned());
        self.problem(span, format!("`{key}` in {}: this one {error}", self.name), "", help);
    }

    /// Keeps the value of `key` from being shown.
    pub(super) fn hide(&self, span: Range<usize>) {
        self.context.problems.hide(span);
    }

    /// Keeps what may be secret in an address from being shown.
    pub(super) fn hide_address(&self, span: Range<usize>) {
        self.context.problems.hide_address(span);
    }

    /// Reports `key` where it stands beside `other`, which it may not.
    pub(super) fn refuse_beside(&self, key: &str, other: &str, help: &str) {
        if let Some(value) = self.table.and_then(|table| table.get(key)) {
            let message = format!("`{key}` in {} can't stand beside `{other}`", self.name);
            self.problem(value.span(), message, "", Some(help.to_owned()));
        }
    }

    /// Reports `key` where it stands without `other`, which it needs.
    pub(super) fn refuse_without(&self, key: &str, other: &str, help: &str) {
        if let Some(value) = self.table.and_then(|table| table.get(key)).filter(|_| !self.has(other)) {
            let message = format!("`{key}` in {} is nothing without `{other}`", self.name);
            self.problem(value.span(), message, "", Some(help.to_owned()));
        }
    }

    /// Whether a whole number stands at `key`.
    pub(super) fn holds_integer(&self, key: &str) -> bool {
        let value = self.table.and_then(|table| table.get(key));
        value.is_some_and(|value| matches!(value.get_ref(), DeValue::Integer(_)))
    }

    /// Whether the text has `key` here.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    fn take(&mut self, key: &'static str) -> Option<&'a Value<'a>> {
        self.take_as(key, Kind::Value)
    }

    fn take_as(&mut self, key: &'static str, kind: Kind) -> Option<&'a Value<'a>> {
        self.known.push(key);
        self.context.problems.know(&self.name, key, kind);
        self.table?.get(key)
    }

    fn path_of(&self, key: &str) -> String {
        if self.name.starts_with('[') {
            format!("[{}.{key}]", self.name.trim_matches(['[', ']']))
        } else {
            format!("[{key}]")
        }
    }

    fn mistyped(&self, key: &str, value: &Value<'_>, wanted: &str, help: Option<String>) {
        let label = match value.get_ref() {
            DeValue::String(_) => "this is a text",
            DeValue::Integer(_) => "this is a whole number",
            DeValue::Float(_) => "this is a number with a fraction",
            DeValue::Boolean(_) => "this is `true` or `false`",
            DeValue::Datetime(_) => "this is a date or time",
            DeValue::Array(_) => "this is a list",
            DeValue::Table(_) => "this is a table",
        };
        let place = if self.name.starts_with('[') { format!(" in {}", self.name) } else { String::new() };
        self.problem(value.span(), format!("`{key}`{place} must be {wanted}"), label, help);
    }

    fn out_of_range(&self, key: &str, value: &Value<'_>, limits: &str, default: &str) {
        let message = format!("`{key}` in {} is out of range", self.name);
        self.problem(value.span(), message, limits, Some(format!("the default is {default}")));
    }

    fn problem(&self, span: Range<usize>, message: String, label: &str, help: Option<String>) {
        let label = label.to_owned();
        self.context.problems.report(Diagnostic { span, message, label, help, related: None });
    }
}

/// What a number counts, as the last part of its key says.
fn unit_of(key: &str) -> Option<&'static str> {
    let units = [
        ("_ms", "milliseconds"),
        ("_us", "microseconds"),
        ("_s", "seconds"),
        ("_rows", "rows"),
        ("_bytes", "bytes"),
        ("_chars", "characters"),
    ];
    units.iter().find(|(suffix, _)| key.ends_with(suffix)).map(|(_, unit)| *unit)
}
