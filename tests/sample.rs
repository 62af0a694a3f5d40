//! Keeps `pipeline.toml`, the sample at the top level, true.

use std::collections::BTreeSet;

use hermes_mirror::config::{Config, Mirror, parse};

const SAMPLE: &str = include_str!("../pipeline.toml");
const DEFAULT_AGENT_NAME: &str = "hermes-native-ui";

/// Everything but the mirrors, which have no default.
fn without_mirrors(mut config: Config) -> Config {
    config.mirror.clear();
    config
}

/// A commented default is `#` with a key right behind it; prose has a blank there.
fn uncomment_default(line: &str) -> &str {
    match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest,
        _ => line,
    }
}

fn uncomment_example(line: &str) -> &str {
    line.strip_prefix("#? ").unwrap_or(line)
}

fn each_line(text: &str, change: fn(&str) -> &str) -> String {
    text.lines().map(change).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_is_valid_as_it_stands_and_holds_only_defaults() {
    let config = parse(SAMPLE, "pipeline.toml").unwrap();
    assert_eq!(config.mirror.len(), 1);
    assert_eq!(without_mirrors(config), Config::default());
}

#[test]
fn every_commented_default_is_the_default() {
    let text = each_line(SAMPLE, uncomment_default);
    let mut config = parse(&text, "pipeline.toml").unwrap_or_else(|error| panic!("{}", error.render(false)));
    let Mirror { agent_name, .. } = config.mirror.remove(0);
    assert_eq!(agent_name.as_deref(), Some(DEFAULT_AGENT_NAME));
    assert_eq!(without_mirrors(config), Config::default());
}

#[test]
fn every_example_is_valid_with_any_one_source_of_the_token() {
    let text = each_line(SAMPLE, uncomment_example);
    let kinds = ["[deliver.auth.env]", "[deliver.auth.file]", "[deliver.auth.command]"];
    for kept in kinds {
        let paragraphs = text.split("\n\n").filter(|paragraph| {
            kinds.iter().all(|kind| *kind == kept || !paragraph.lines().any(|line| line == *kind))
        });
        let text = paragraphs.collect::<Vec<_>>().join("\n\n");
        let config = parse(&text, "pipeline.toml").unwrap_or_else(|error| panic!("{}", error.render(false)));
        assert!(
            config.source.db.is_some() && config.state.dir.is_some(),
            "the examples were not uncommented"
        );
        let auth = config.deliver.auth;
        let given = [auth.env.is_some(), auth.file.is_some(), auth.command.is_some()];
        assert_eq!(given.iter().filter(|given| **given).count(), 1, "{kept}");
    }
}

/// The keys of every table in the schema that describes `value`, as `table.key`.
fn keys(schema: &serde_json::Value, value: &serde_json::Value, prefix: &str, into: &mut BTreeSet<String>) {
    let resolved = match value["$ref"].as_str() {
        Some(reference) => &schema["$defs"][reference.trim_start_matches("#/$defs/")],
        None => value,
    };
    for variant in resolved["anyOf"].as_array().into_iter().flatten() {
        keys(schema, variant, prefix, into);
    }
    if resolved["items"].is_object() {
        keys(schema, &resolved["items"], prefix, into);
    }
    for (key, below) in resolved["properties"].as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        keys(schema, below, &path, into);
        into.insert(path);
    }
}

#[test]
fn every_key_of_the_schema_stands_in_the_sample() {
    let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
    let mut wanted = BTreeSet::new();
    keys(&schema, &schema, "", &mut wanted);
    assert!(wanted.contains("deliver.auth.command.argv"), "the schema was not walked: {wanted:?}");

    let mut given = BTreeSet::new();
    let mut table = String::new();
    for line in SAMPLE.lines().map(uncomment_example).map(uncomment_default) {
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_owned();
            let parts: Vec<&str> = table.split('.').collect();
            given.extend((1..=parts.len()).map(|count| parts[..count].join(".")));
        } else if let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| !key.contains(['#', ' '])) {
            given.insert(format!("{table}.{key}"));
        }
    }
    assert_eq!(given, wanted);
}
