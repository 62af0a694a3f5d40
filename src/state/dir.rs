//! Directories and files of our own: readable by their owner alone, replaced whole.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

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

/// Makes the file of a database of our own, 0600, before `SQLite` opens it: -wal and -shm get its mode. One that exists is
/// left as it is.
pub fn create_database(path: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a file of our own that SQLite has not opened yet")]
    File::options().append(true).create(true).mode(0o600).open(path).map(drop)
}

/// Files are written in steps of so many bytes, blank at the end: one that never changes its length is whole also
/// after a power cut.
const STEP: usize = 512;

/// Replaces a small text file by another of the given content, 0600: a reader sees the old one or the new one whole.
///
/// Two files take turns: the spare one is written over and changes places with the other. To rename a new file over
/// the old one instead costs ten times the CPU and, on ext4, which then sends the data to the disk at once, sixty times
/// the wait; and it is done for each item. Not forced to the disk: what a power cut takes from a cursor, read-back
/// restores.
pub fn replace(path: &Path, content: &str) -> Result<(), StateError> {
    let mut spare = path.as_os_str().to_owned();
    spare.push(".spare");
    let spare = PathBuf::from(spare);
    let length = (content.len() + 1).next_multiple_of(STEP);
    let padded = format!("{content:<width$}\n", width = content.chars().count() + length - 1 - content.len());
    let write = || -> io::Result<()> {
        let file = open_spare(&spare)?;
        file.write_all_at(padded.as_bytes(), 0)?;
        let length = padded.len() as u64;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
        }
        exchange(&spare, path)
    };
    write().map_err(|cause| StateError::Write { path: path.to_owned(), cause })
}

/// Writes a text file where there is none yet. One that can't be written whole is taken away again.
pub fn write_new(path: &Path, content: &str) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a file that this makes, never a database")]
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let written = file.write_all(content.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // What went wrong first is what counts.
        let _ = fs::remove_file(path);
    }
    written
}

/// The spare file, made anew where it is not one of ours: it was somebody else's until the two changed places.
fn open_spare(spare: &Path) -> io::Result<File> {
    let is_ours = |meta: &Metadata| meta.is_file() && meta.nlink() == 1 && meta.mode() & 0o7777 == 0o600;
    if fs::symlink_metadata(spare).is_ok_and(|meta| !is_ours(&meta)) {
        fs::remove_file(spare)?;
    }
    #[expect(clippy::disallowed_methods, reason = "a file of our own, never a database")]
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(spare)
}

fn exchange(spare: &Path, path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    match renameat_with(CWD, spare, CWD, path, RenameFlags::EXCHANGE) {
        // The first time, or on a file system that can't.
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::rename(spare, path),
        other => Ok(other?),
    }
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
        for content in ["one", "two", "three \u{1f980}", &"long ".repeat(300), "short"] {
            replace(&file, content).expect("write");
            let written = read(&file).expect("text");
            assert_eq!((written.trim_end(), written.len() % STEP), (content.trim_end(), 0));
        }
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&dir).expect("list").count(), 2, "the file and its spare");
    }

    #[test]
    fn a_file_of_somebody_else_s_is_replaced_and_never_written_into() {
        let base = tempfile::tempdir().expect("tempdir");
        let (theirs, file) = (base.path().join("theirs"), base.path().join("f.json"));
        replace(&theirs, "theirs").expect("write");
        std::os::unix::fs::symlink(&theirs, &file).expect("link");
        for content in ["one", "two", "three"] {
            replace(&file, content).expect("write");
            assert_eq!(read(&file).expect("text").trim_end(), content);
        }
        assert_eq!(read(&theirs).expect("text").trim_end(), "theirs");
        assert!(fs::symlink_metadata(&file).expect("metadata").is_file());
    }

    #[test]
    fn a_directory_in_the_place_of_a_file_is_left_there() {
        let base = tempfile::tempdir().expect("tempdir");
        let file = base.path().join("f.json");
        fs::create_dir(&file).expect("directory");
        for _ in 0..2 {
            replace(&file, "one").expect_err("refused");
        }
        fs::remove_dir(&file).expect("still empty");
        replace(&file, "one").expect("write");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let error = replace(Path::new("/proc/none/x"), "").expect_err("refused");
        assert!(error.to_string().contains("/proc/none/x"), "{error}");
    }

    #[test]
    fn an_id_cannot_leave_its_directory() {
        assert_eq!(file_name("conv_1-A"), "conv_1-A");
        assert_eq!(file_name("../x"), "%2e%2e%2fx");
    }
}
