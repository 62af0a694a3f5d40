//! The floor: what no mirror can go below. One thread watches the commit counter in shared memory without a pause,
//! reads with a kept statement and posts on a raw socket. It burns a core, so it is a yardstick and not a method.

use std::fs::File;
use std::hint::spin_loop;

use anyhow::{Context, Result};
use memmap2::{Mmap, MmapOptions};

use super::role::Part;
use super::tail::Tail;

/// Where the first header of the wal-index keeps `iChange`, which every commit increments
/// (sqlite.org/walformat.html, section 2.1). The writer sets this copy last.
const CHANGE: usize = 8;

/// Runs until its input closes.
pub fn play(part: &Part) -> Result<()> {
    let mut tail = Tail::open(part)?;
    // SQLite maps the wal-index at its first read, and the file has its size from then on.
    tail.drain()?;
    let counter = Counter::map(part)?;
    loop {
        // Taken before the read, so that a commit during the read is not slept through.
        let known = counter.read();
        tail.drain()?;
        while counter.read() == known {
            spin_loop();
        }
    }
}

/// The commit counter. The file stays open as long as the connection does: closing a descriptor of -shm would drop
/// the locks that this process holds on it.
struct Counter {
    map: Mmap,
    _file: File,
}

impl Counter {
    #[expect(unsafe_code, reason = "shared memory can be watched in no other way")]
    fn map(part: &Part) -> Result<Self> {
        let mut path = part.db.clone().into_os_string();
        path.push("-shm");
        let file = File::open(&path).with_context(|| format!("open {}", path.to_string_lossy()))?;
        // SAFETY: the file is the benchmark's own and is neither cut nor removed while a writer holds the database
        // open, which it does for as long as this process runs. Its bytes do change: they are only ever read through
        // `read_volatile`.
        let map = unsafe { MmapOptions::new().len(4096).map(&file)? };
        Ok(Self { map, _file: file })
    }

    #[expect(unsafe_code, reason = "shared memory can be watched in no other way")]
    #[expect(
        clippy::cast_ptr_alignment,
        reason = "a map begins on a page, and the offset is a multiple of four"
    )]
    fn read(&self) -> u32 {
        // SAFETY: the map is 4096 bytes long and page-aligned, so offset 8 is inside it and aligned for a u32, which
        // any bit pattern is valid for. Another process writes it, hence volatile.
        unsafe { self.map.as_ptr().add(CHANGE).cast::<u32>().read_volatile() }
    }
}
