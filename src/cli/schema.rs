//! `schema`: what a configuration may hold, for editors and other programs.

use hermes_mirror::config::Config;

use super::output;

/// Prints the JSON Schema of the configuration.
pub fn run() -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(&schemars::schema_for!(Config))?;
    text.push(b'\n');
    output::print(&text)
}
