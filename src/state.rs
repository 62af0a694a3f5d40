//! What outlives the process. Only this module writes files.

pub mod bridge;
pub mod claims;
pub mod dir;

use std::io;
use std::path::PathBuf;

/// Why state could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or directory of ours can't be written.
    #[error(
        "cannot write {path}: {cause}; check that the disk is not full and that this user may write there"
    )]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// There is no place for our files.
    #[error("there is no home directory to keep the mirror's state in; set `dir` in [state]")]
    NoHome,
}
