//! raw -> valid
use super::Config;
use std::path::Path;
/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// stub
    #[error("not yet")]
    Stub,
}
/// stub
pub fn load(_path: &Path) -> Result<Config, ConfigError> {
    Err(ConfigError::Stub)
}
/// stub
pub fn parse(_text: &str, _name: &str) -> Result<Config, ConfigError> {
    Err(ConfigError::Stub)
}
