//! What outlives the process. Only this module writes files.

pub mod bridge;
pub mod claims;
pub mod dir;
pub mod keeper;
pub mod ledger;
pub mod lock;
pub mod socket;

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
    /// The ledger can't be read or written.
    #[error("{path}: {cause}; check that the disk is not full and that this user may write there")]
    Ledger {
        /// The ledger.
        path: PathBuf,
        /// What `SQLite` said.
        cause: rusqlite::Error,
    },
    /// Another process has it.
    #[error("{what} is in the hands of {holder}; stop that one first, or leave it to its work")]
    Held {
        /// What is held.
        what: String,
        /// Who holds it.
        holder: String,
    },
    /// There is no place for our files.
    #[error("there is no home directory to keep the mirror's state in; set `dir` in [state]")]
    NoHome,
}
