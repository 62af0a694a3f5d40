//! What a process has used, from /proc. Elsewhere than on Linux nothing is known, and the report says so.

use std::fs;
use std::ops::Add;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

/// One tick of `/proc/<pid>/stat`: `USER_HZ` is 100 on every Linux that user space can see.
const TICK: Duration = Duration::from_millis(10);

/// What a process has used since it started.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// To the nanosecond, but only of the threads that are still there.
    scheduled: Duration,
    /// Of all threads, also those that have ended, to the tick.
    ticked: Duration,
    /// How often a thread of it went to sleep by itself, which is how often one was woken.
    wakes: u64,
    /// Bytes it caused to be written to disk.
    disk: u64,
}

/// What a process used between two looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub cpu: Duration,
    pub wakes: u64,
    /// Bytes for the disk.
    pub disk: u64,
}

impl Add for Used {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, wakes: self.wakes + other.wakes, disk: self.disk + other.disk }
    }
}

impl Usage {
    /// Reads it; nothing where there is no /proc or no such process.
    pub fn of(pid: u32) -> Option<Self> {
        let root = Path::new("/proc").join(pid.to_string());
        let stat = fs::read_to_string(root.join("stat")).ok()?;
        // The name in parentheses may hold anything; the rest starts at field 3. utime and stime are 14 and 15.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let user: u32 = fields.next()?.parse().ok()?;
        let system: u32 = fields.next()?.parse().ok()?;
        let io = fs::read_to_string(root.join("io")).unwrap_or_default();
        let disk = field(&io, "write_bytes:").and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        let mut usage = Self { scheduled: Duration::ZERO, ticked: TICK * (user + system), wakes: 0, disk };
        for task in fs::read_dir(root.join("task")).ok()?.flatten() {
            let first_number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
            let run = fs::read_to_string(task.path().join("schedstat")).ok();
            usage.scheduled += Duration::from_nanos(run.as_deref().and_then(first_number).unwrap_or(0));
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            usage.wakes += field(&status, "voluntary_ctxt_switches:").and_then(first_number).unwrap_or(0);
        }
        Some(usage)
    }

    /// What was used since `before`. Ticks count where threads that ended have taken their share with them.
    pub fn since(&self, before: &Self) -> Used {
        let scheduled = self.scheduled.saturating_sub(before.scheduled);
        let ticked = self.ticked.saturating_sub(before.ticked);
        let cpu = if ticked > scheduled + TICK * 2 { ticked } else { scheduled };
        Used {
            cpu,
            wakes: self.wakes.saturating_sub(before.wakes),
            disk: self.disk.saturating_sub(before.disk),
        }
    }
}

/// Resident memory of a process, in kB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Memory {
    /// The most it ever was.
    pub peak_kb: u32,
    /// Now.
    pub now_kb: u32,
}

impl Memory {
    /// Reads it; nothing where there is no /proc or no such process.
    pub fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kb = |name| field(&status, name)?.split_whitespace().next()?.parse().ok();
        Some(Self { peak_kb: kb("VmHWM:")?, now_kb: kb("VmRSS:")? })
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}
