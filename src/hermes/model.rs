//! The model that Hermes's own configuration names, for sessions whose row names none.

use std::path::Path;

use yaml_rust2::{Yaml, YamlLoader};

/// `model` in a Hermes `config.yaml`: a string, or a table with `default`.
#[must_use]
fn configured_model(config_yaml: &str) -> Option<String> {
    let documents = YamlLoader::load_from_str(config_yaml).ok()?;
    let model = documents.first()?.as_hash()?.get(&Yaml::from_str("model"))?;
    let name = model.as_str().or_else(|| model.as_hash()?.get(&Yaml::from_str("default"))?.as_str())?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Reads it from the `config.yaml` beside a state.db.
#[must_use]
pub fn configured_beside(database: &Path) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "config.yaml, not a database file")]
    let text = std::fs::read_to_string(database.with_file_name("config.yaml")).ok()?;
    configured_model(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_and_a_table_both_name_the_model() {
        assert_eq!(configured_model("model: gpt-x\n").as_deref(), Some("gpt-x"));
        assert_eq!(configured_model("model:\n  provider: p\n  default: m\n").as_deref(), Some("m"));
    }

    #[test]
    fn what_names_none_is_none() {
        for text in ["", "model:\n", "model: ''\n", "model: [1]\n", "other: x\n", ": : :\n\t", "- a\n"] {
            assert_eq!(configured_model(text), None, "{text:?}");
        }
    }
}
