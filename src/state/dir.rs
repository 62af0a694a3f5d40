//! Directories and files of our own: readable by their owner alone, replaced whole.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use super::StateError;
use crate::config;

/// Where mirrors without a bridge directory keep their files:
/// `[state] dir`, else `$XDG_STATE_HOME/hermes-mirror`, else `~/.local/state/hermes-mirror`.
pub fn root(config: &config::State) -> Result<PathBuf, StateError> {
    if let Some(dir) = &config.dir {
        return Ok(dir.clone());
    }
    let strategy = etcetera::base_strategy::Xdg::new().map_err(|_| StateError::NoHome)?;
    let base = strategy.state_dir().unwrap_or_else(|| strategy.home_dir().join(".local/state"));
    Ok(base.join("hermes-mirror"))
}

/// Makes a directory and those above it, 0700; one that exists is left as it is.
pub fn create(dir: &Path) -> Result<(), StateError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|cause| StateError::Write { path: dir.to_owned(), cause })
}

/// Replaces a file by another of the given content, 0600: a reader sees the old one or the new one whole.
///
/// It is not forced to the disk: what a power cut takes from a cursor, read-back restores.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), StateError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(name);
    let write = || -> io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "a file of our own, never a database")]
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        fs::rename(&temporary, path)
    };
    write().map_err(|cause| {
        // The half-written file is of no use; that it may be left behind is the smaller trouble.
        let _ = fs::remove_file(&temporary);
        StateError::Write { path: path.to_owned(), cause }
    })
}

/// The longest file that is read, in bytes; ours have some hundred.
const LONGEST: u64 = 1 << 20;

/// Reads a small file of ours or of a sibling; `None` where it is absent, unreadable or no text, or no file of the
/// kind: a pipe would keep us waiting.
#[must_use]
pub fn read(path: &Path) -> Option<String> {
    if !fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST) {
        return None;
    }
    #[expect(clippy::disallowed_methods, reason = "a file of our own, never a database")]
    fs::read_to_string(path).ok()
}

/// An id as a file name: whatever could leave the directory or clash with a name of ours is spelt in hex.
#[must_use]
pub fn file_name(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("metadata").permissions().mode() & 0o777
    }

    #[test]
    fn what_is_written_is_its_owners_alone() {
        let base = tempfile::tempdir().expect("tempdir");
        let dir = base.path().join("a/b");
        create(&dir).expect("create");
        create(&dir).expect("again");
        let file = dir.join("f.json");
        replace(&file, b"one").expect("write");
        replace(&file, b"two").expect("write");
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        assert_eq!(read(&file).as_deref(), Some("two"));
        assert_eq!(fs::read_dir(&dir).expect("list").count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let error = replace(Path::new("/proc/none/x"), b"").expect_err("refused");
        assert!(error.to_string().contains("/proc/none/x"), "{error}");
    }

    #[test]
    fn an_id_cannot_leave_its_directory() {
        assert_eq!(file_name("conv_1-A"), "conv_1-A");
        assert_eq!(file_name("../x"), "%2e%2e%2fx");
    }
}
