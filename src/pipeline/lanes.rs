//! The lanes' tasks: started, started again, and drained.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};

use super::lane::{End, Lane};
use super::mirror::Mirror;
use super::supervise;
use crate::retry::Supervision;
use crate::stage::feed::LaneSender;

/// The lanes of a pipeline, in the order of its mirrors.
#[derive(Default)]
pub struct Lanes {
    tasks: JoinSet<End>,
    started: Vec<Started>,
}

struct Started {
    task: Id,
    at: Instant,
    supervision: Supervision,
}

/// What became of the rows that were read. What is not delivered is read again at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// All of them were delivered.
    Complete,
    /// A lane ended early.
    Incomplete,
    /// The time for it was over.
    OutOfTime,
}

/// A lane to start again.
#[derive(Clone, Copy, Debug)]
pub struct Restart {
    /// Which mirror's.
    pub feed: usize,
    /// After how long.
    pub wait: Duration,
    /// From its session's first row, without looking for where the conversation stands.
    pub from_the_start: bool,
}

impl Lanes {
    /// Starts the lane of the next mirror.
    pub fn start(&mut self, mirror: &Mirror) -> LaneSender {
        let (task, sender) = self.spawn(mirror, Duration::ZERO);
        self.started.push(Started { task, at: Instant::now(), supervision: Supervision::default() });
        sender
    }

    fn spawn(&mut self, mirror: &Mirror, after: Duration) -> (Id, LaneSender) {
        // Room for a row and what may follow it, beyond the rows that are to wait.
        let capacity = mirror.plan.config.deliver.queue_rows.saturating_add(1);
        let (readings, queue) = mpsc::channel(capacity);
        let starved = Arc::new(AtomicBool::new(false));
        let lane = Lane::new(&mirror.plan, Arc::clone(&starved), capacity, mirror.permit());
        let run = async move {
            tokio::time::sleep(after).await;
            lane.run(queue).await
        };
        let task = self.tasks.spawn(run).id();
        (task, LaneSender { readings, starved })
    }

    /// Waits for a lane that is to be started again.
    pub async fn ended(&mut self) -> Restart {
        loop {
            let (id, panic) = match self.tasks.join_next_with_id().await {
                Some(Ok((id, End::FromTheStart))) => (id, None),
                Some(Err(error)) if error.is_panic() => (error.id(), Some(error.into_panic())),
                Some(_) => continue,
                None => return std::future::pending().await,
            };
            let found = self.started.iter_mut().enumerate().find(|(_, started)| started.task == id);
            let Some((feed, started)) = found else { continue };
            let Some(panic) = panic else {
                return Restart { feed, wait: Duration::ZERO, from_the_start: true };
            };
            let wait = started.supervision.failed(started.at.elapsed());
            supervise::announce("deliver", started.supervision.failures(), panic.as_ref(), wait.as_secs());
            return Restart { feed, wait, from_the_start: false };
        }
    }

    /// Starts a lane again, which waits its time before it takes anything.
    pub fn restart(&mut self, restart: Restart, mirror: &Mirror) -> LaneSender {
        let (task, sender) = self.spawn(mirror, restart.wait);
        if let Some(started) = self.started.get_mut(restart.feed) {
            (started.task, started.at) = (task, Instant::now());
        }
        sender
    }

    /// Waits until every lane has delivered what it holds, no longer than until `deadline` is ready.
    pub async fn drain(mut self, deadline: impl Future<Output = ()>) -> Drain {
        let tasks = &mut self.tasks;
        let all = async {
            let mut all = Drain::Complete;
            while let Some(ended) = tasks.join_next().await {
                if !matches!(ended, Ok(End::Delivered)) {
                    all = Drain::Incomplete;
                }
            }
            all
        };
        tokio::select! {
            biased;
            drain = all => drain,
            () = deadline => Drain::OutOfTime,
        }
    }
}
