//! The socket in a state directory by which the process that has it can be asked: it is there for as long as that
//! process runs, needs no port, and nobody but its owner may use it.
//!
//! A question is one line, its answer all that follows until the end.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixListener;

use super::StateError;

/// Its name in the directory. A path to a socket may have about 100 bytes, so it is short.
const NAME: &str = "ask.sock";
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the socket of a state directory is.
#[must_use]
pub fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// A socket that can be asked; gone once this is dropped.
#[derive(Debug)]
pub struct Socket {
    /// Takes the questions.
    pub listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Makes the socket of a state directory whose ledger this process holds: one that is there already was left behind.
    /// To be called where tokio runs.
    pub fn bind(dir: &Path) -> Result<Self, StateError> {
        let path = path(dir);
        let new = dir.join(format!("{NAME}.new"));
        let bind = || -> io::Result<UnixListener> {
            let _ = fs::remove_file(&new);
            let listener = UnixListener::bind(&new)?;
            // Nobody finds it before it is its owner's alone.
            fs::set_permissions(&new, Permissions::from_mode(0o600))?;
            fs::rename(&new, &path)?;
            Ok(listener)
        };
        match bind() {
            Ok(listener) => Ok(Self { listener, path }),
            Err(cause) => Err(StateError::Write { path, cause }),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // One that stays answers nobody.
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to the process that has the state directory; `None` where there is none.
pub fn connect(dir: &Path) -> io::Result<Option<UnixStream>> {
    let stream = match UnixStream::connect(path(dir)) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(Some(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_its_owners_alone_and_goes_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        assert!(connect(dir.path()).unwrap().is_none(), "nobody is there");
        let socket = Socket::bind(dir.path()).unwrap();
        let mode = fs::metadata(path(dir.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(connect(dir.path()).unwrap().is_some());
        drop(socket);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn one_that_was_left_behind_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        // As after a kill: the file stays, and nobody listens.
        drop(UnixListener::bind(path(dir.path())).unwrap());
        assert!(connect(dir.path()).unwrap().is_none());
        let _socket = Socket::bind(dir.path()).unwrap();
        assert!(connect(dir.path()).unwrap().is_some());
    }
}
