//! Keeps `docs/configuration.md` what the configuration's types and their documentation say, and those true.
//!
//! `INSTA_UPDATE=always` writes the page anew from its mark on, as it does with snapshots.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/document.rs"]
mod document;

use std::fmt::Write;

use document::{read, root};
use hermes_mirror::config::{Config, parse};
use regex::Regex;
use serde_json::Value;

const PAGE: &str = "docs/configuration.md";
const MARK: &str = "<!-- From here on tests/configuration.rs writes what src/config.rs says. -->\n";

/// A table of the configuration.
struct Table {
    /// As it stands in the file, without brackets.
    path: String,
    /// Whether it may be repeated.
    repeated: bool,
    about: String,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    kind: String,
    /// As the documentation says it, behind the unit.
    range: String,
    default: String,
    meaning: String,
}

struct Schema(Value);

impl Schema {
    fn new() -> Self {
        Self(serde_json::to_value(schemars::schema_for!(Config)).unwrap())
    }

    /// What a value may be: the schema itself, or the alternatives that it names; `null` is what is left out.
    fn alternatives<'a>(&'a self, value: &'a Value) -> Vec<&'a Value> {
        if let Some(reference) = value["$ref"].as_str() {
            return self.alternatives(&self.0["$defs"][reference.trim_start_matches("#/$defs/")]);
        }
        let several = [&value["anyOf"], &value["oneOf"]].into_iter().find_map(Value::as_array);
        let all: Vec<&Value> = match several {
            Some(several) => several.iter().flat_map(|one| self.alternatives(one)).collect(),
            None => vec![value],
        };
        all.into_iter().filter(|one| one["type"] != "null").collect()
    }

    /// All tables, each before those within it.
    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        self.within(&self.0, "", &mut tables);
        tables
    }

    fn within(&self, schema: &Value, path: &str, into: &mut Vec<Table>) {
        for (name, value) in schema["properties"].as_object().unwrap() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let repeated = value["items"]["$ref"].is_string();
            let value = if repeated { &value["items"] } else { value };
            for table in self.alternatives(value).into_iter().filter(|one| one["properties"].is_object()) {
                let about = words(&schema["properties"][name]["description"]);
                let keys = self.keys(table);
                into.push(Table { path: path.clone(), repeated, about, keys });
                self.within(table, &path, into);
            }
        }
    }

    /// The keys of a table but those that are tables and nothing else.
    fn keys(&self, table: &Value) -> Vec<Key> {
        let is_table = |one: &Value| one["properties"].is_object();
        let keys = table["properties"].as_object().unwrap().iter();
        let keys = keys.filter(|(_, value)| !self.alternatives(value).into_iter().all(is_table));
        keys.map(|(name, value)| {
            let needed =
                table["required"].as_array().is_some_and(|required| required.iter().any(|key| key == name));
            self.key(name, value, needed)
        })
        .collect()
    }

    fn key(&self, name: &str, value: &Value, needed: bool) -> Key {
        let said = words(&value["description"]);
        let (said, said_default) = said.split_once(" Default: ").unwrap_or((&said, ""));
        let range = Regex::new(r" \(((?:[0-9.]+|`[a-z_]+`) to [0-9.]+(?:; [^)]*)?)\)").unwrap();
        let default = match &value["default"] {
            _ if needed => "needed".to_owned(),
            _ if !said_default.is_empty() => said_default.trim_end_matches('.').to_owned(),
            Value::Null => "none".to_owned(),
            default => format!("`{default}`"),
        };
        let kinds: Vec<String> = self.alternatives(value).into_iter().map(|one| self.kind(one)).collect();
        Key {
            name: name.to_owned(),
            kind: kinds.join(" or "),
            range: range.captures(said).map_or_else(String::new, |range| range[1].to_owned()),
            default,
            meaning: range.replace(said, "").into_owned(),
        }
    }

    fn kind(&self, one: &Value) -> String {
        let quoted =
            |words: &[Value]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ");
        if let Some(words) = one["enum"].as_array() {
            return quoted(words);
        }
        if one["const"].is_string() {
            return quoted(&[one["const"].clone()]);
        }
        let kind = one["type"].as_array().map_or(&one["type"], |kinds| &kinds[0]);
        match kind.as_str().unwrap() {
            "array" => format!("list of {}s", self.kind(self.alternatives(&one["items"])[0])),
            "object" => "table".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "integer" => "whole number".to_owned(),
            kind => kind.to_owned(),
        }
    }
}

/// A description as one line.
fn words(description: &Value) -> String {
    description.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn render(tables: &[Table]) -> String {
    let mut page = String::new();
    for Table { path, repeated, about, keys } in tables {
        let heading = if *repeated { format!("[[{path}]]") } else { format!("[{path}]") };
        write!(page, "\n## `{heading}`\n\n{about}\n").unwrap();
        if !keys.is_empty() {
            page.push_str("\n| key | type | default | meaning |\n|---|---|---|---|\n");
        }
        for Key { name, kind, range, default, meaning } in keys {
            let kind = if range.is_empty() { kind.clone() } else { format!("{kind}, {range}") };
            writeln!(page, "| `{name}` | {kind} | {default} | {meaning} |").unwrap();
        }
    }
    page
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a page of the repository, never a database")]
fn the_page_says_what_the_types_say() {
    let page = read(&root(PAGE));
    let (head, shown) = page.split_once(MARK).unwrap();
    let meant = render(&Schema::new().tables());
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(root(PAGE), format!("{head}{MARK}{meant}")).unwrap();
    } else {
        assert!(shown == meant, "{PAGE} is not up to date: run this test with INSTA_UPDATE=always");
    }
}

/// A file with nothing in it but this setting, and what it cannot do without.
fn file(table: &Table, key: &Key, value: f64) -> String {
    let value = if key.kind == "number" { format!("{value:.1}") } else { format!("{value}") };
    let (open, close) =
        if table.repeated { ("[[", "]]\nconversation = 'c'\nworkspace = '/w'") } else { ("[", "]") };
    format!("{open}{}{close}\n{} = {value}\n", table.path, key.name)
}

#[test]
fn every_range_on_the_page_is_the_one_that_is_enforced() {
    let mut checked = 0;
    for table in Schema::new().tables() {
        for key in table.keys.iter().filter(|key| !key.range.is_empty()) {
            let range = key.range.split(';').next().unwrap().replace("`initial_ms`", "100");
            let (least, most) = range.split_once(" to ").unwrap();
            let (least, most): (f64, f64) = (least.parse().unwrap(), most.parse().unwrap());
            for (value, is_valid) in [(least, true), (most, true), (least - 1.0, false), (most + 1.0, false)]
            {
                let text = file(&table, key, value);
                assert_eq!(parse(&text, "pipeline.toml").is_ok(), is_valid, "{text}");
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "the ranges were not found: {checked}");
}
