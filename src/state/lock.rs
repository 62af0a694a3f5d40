//! Operating-system locks: one process a state directory, one writer a conversation.
//!
//! A lock ends with its process, however that ends: a killed owner is followed at once, a paused one still owns.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::{StateError, dir};
use crate::ids::ConversationId;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct Held {
    _file: File,
}

/// Takes the lock of `path`, or says who holds it. `what` is what it guards, for the message.
pub fn take(path: &Path, what: &str) -> Result<Held, StateError> {
    let fault = |cause| StateError::Write { path: path.to_owned(), cause };
    #[expect(clippy::disallowed_methods, reason = "a lock file of our own")]
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(fault)?;
    match lock_patiently(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Who holds it is written right after it is taken; that it can't be read is no reason to fail.
            let _ = file.take(200).read_to_string(&mut holder);
            let holder = holder.lines().next().unwrap_or_default().trim();
            return Err(StateError::Held {
                what: what.to_owned(),
                holder: if holder.is_empty() { "another process".to_owned() } else { holder.to_owned() },
            });
        }
        Err(TryLockError::Error(cause)) => return Err(fault(cause)),
    }
    let note = format!("process {}\n", std::process::id());
    // For people only: the lock is what counts.
    let _ = file
        .set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(note.as_bytes()));
    Ok(Held { _file: file })
}

/// A sibling that asks whether the owner lives ([`is_abandoned`]) holds the lock for a moment.
fn lock_patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 0..5 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
    file.try_lock()
}

/// Whether there is a lock file that nobody holds: its owner has ended, however it ended.
#[must_use]
pub fn is_abandoned(path: &Path) -> bool {
    #[expect(clippy::disallowed_methods, reason = "a lock file of our own")]
    let file = File::options().read(true).open(path);
    file.is_ok_and(|file| file.try_lock_shared().is_ok())
}

/// The lock of a conversation's one writer, keyed to its server: below `root`, which all of a person's
/// processes share.
pub fn conversation(root: &Path, server: &str, conversation: &ConversationId) -> Result<Held, StateError> {
    take(&conversation_path(root, server, conversation)?, &format!("conversation {conversation}"))
}

fn conversation_path(
    root: &Path,
    server: &str,
    conversation: &ConversationId,
) -> Result<PathBuf, StateError> {
    let locks = root.join("locks");
    dir::create(&locks)?;
    let server = xxh3_64(server.trim_end_matches('/').as_bytes());
    Ok(locks.join(format!("{server:016x}-{}.lock", dir::file_name(conversation.as_str()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_who_holds_the_lock_and_gets_it_once_it_is_free() {
        let root = tempfile::tempdir().expect("tempdir");
        let id = ConversationId::new("c");
        let held = conversation(root.path(), "http://h/", &id).expect("free");
        let refused = conversation(root.path(), "http://h", &id).expect_err("held").to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(refused.contains("conversation c"), "{refused}");
        drop(held);
        conversation(root.path(), "http://h", &id).expect("free again");
    }

    #[test]
    fn another_server_or_conversation_is_another_lock() {
        let root = tempfile::tempdir().expect("tempdir");
        let _held = conversation(root.path(), "http://h", &ConversationId::new("c")).expect("free");
        conversation(root.path(), "http://other", &ConversationId::new("c")).expect("free");
        conversation(root.path(), "http://h", &ConversationId::new("d")).expect("free");
    }
}
