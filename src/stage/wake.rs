//! The channel from `detect` to `read`: any number of wakes fold into one.
//!
//! A wake that finds another one waiting is not queued behind it, only its kind is noted: sending never
//! blocks (the file system's callback must not), and a burst of thirty events costs the reader one look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::event::Wake;

/// Sends wakes; cheap to clone.
#[derive(Clone, Debug)]
pub struct Waker {
    kinds: Arc<AtomicU8>,
    bell: Sender<()>,
}

/// Receives wakes.
#[derive(Debug)]
pub struct Wakes {
    kinds: Arc<AtomicU8>,
    bell: Receiver<()>,
}

/// The kinds of wake that have come since the last time they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

/// A connected pair.
#[must_use]
pub fn channel() -> (Waker, Wakes) {
    let (sender, bell) = bounded(1);
    let kinds = Arc::new(AtomicU8::new(0));
    (Waker { kinds: Arc::clone(&kinds), bell: sender }, Wakes { kinds, bell })
}

impl Waker {
    /// Tells the reader to look. Never blocks. Returns false once the reader is gone.
    #[allow(clippy::must_use_candidate, reason = "most senders have nothing to do where the reader is gone")]
    pub fn wake(&self, wake: Wake) -> bool {
        self.kinds.fetch_or(wake as u8, Ordering::AcqRel);
        !matches!(self.bell.try_send(()), Err(TrySendError::Disconnected(())))
    }
}

impl Wakes {
    /// Waits for a wake, no longer than `timeout`; empty when time is up.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Kinds {
        // A disconnected channel is an empty one: the reader is told to stop in another way.
        let _ = self.bell.recv_timeout(timeout);
        self.take()
    }

    /// What has come meanwhile, without waiting.
    #[must_use]
    pub fn take(&self) -> Kinds {
        let _ = self.bell.try_recv();
        Kinds(self.kinds.swap(0, Ordering::AcqRel))
    }
}

impl Kinds {
    /// Whether a wake of this kind has come.
    #[must_use]
    pub fn has(self, wake: Wake) -> bool {
        self.0 & wake as u8 != 0
    }

    /// Whether none has come.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a commit may be under way, so that looking once is not enough.
    #[must_use]
    pub fn announces_commit(self) -> bool {
        self.has(Wake::Event) || self.has(Wake::Rescan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_one_wake_and_no_kind_is_lost() {
        let (sender, wakes) = channel();
        for _ in 0..1_000 {
            assert!(sender.wake(Wake::Poll));
        }
        sender.wake(Wake::Event);
        let kinds = wakes.wait(Duration::ZERO);
        assert!(kinds.has(Wake::Poll) && kinds.has(Wake::Event) && !kinds.has(Wake::Room));
        assert!(wakes.wait(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_sender_learns_that_the_reader_is_gone() {
        let (sender, wakes) = channel();
        drop(wakes);
        assert!(!sender.wake(Wake::Event));
    }
}
