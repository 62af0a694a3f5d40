//! The lanes' tasks: started, started again, and drained.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use super::lane::{End, Lane};
use super::mirror::Mirror;
use super::supervise;
use crate::ids::ConversationId;
use crate::retry::Supervision;
use crate::stage::pressure::{self, LaneSender};

/// The lanes of a pipeline, by what they feed.
#[derive(Default)]
pub struct Lanes {
    tasks: JoinSet<End>,
    started: BTreeMap<ConversationId, Started>,
}

struct Started {
    task: AbortHandle,
    /// Answers once the task has let go of everything.
    gone: oneshot::Receiver<()>,
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

/// How a lane ended while the pipeline runs.
#[derive(Clone, Debug)]
pub enum Ended {
    /// It is to be started again.
    Again(Restart),
    /// Its feed is gone, and all is delivered.
    Rests(ConversationId),
}

/// A lane to start again.
#[derive(Clone, Debug)]
pub struct Restart {
    /// Which mirror's.
    pub conversation: ConversationId,
    /// After how long.
    pub wait: Duration,
    /// From its session's first row, without looking for where the conversation stands.
    pub from_the_start: bool,
}

impl Lanes {
    /// Starts the lane of the next mirror.
    pub fn start(&mut self, mirror: &Mirror) -> LaneSender {
        let (task, gone, sender) = self.spawn(mirror, Duration::ZERO);
        let started = Started { task, gone, at: Instant::now(), supervision: Supervision::default() };
        self.started.insert(mirror.plan.conversation.clone(), started);
        sender
    }

    fn spawn(
        &mut self,
        mirror: &Mirror,
        after: Duration,
    ) -> (AbortHandle, oneshot::Receiver<()>, LaneSender) {
        let config = &mirror.plan.config;
        let share = mirror.plan.backlog.clone();
        let (sender, queue) = pressure::lane(config.deliver.queue_rows, config.read.batch_bytes, share);
        let lane = Lane::new(&mirror.plan, sender.pressure(), sender.recall.clone(), mirror.permit());
        let (going, gone) = oneshot::channel::<()>();
        let run = async move {
            // Let go of last: what is declared first is dropped behind what follows it.
            let _going = going;
            let lane = lane;
            tokio::time::sleep(after).await;
            lane.run(queue).await
        };
        (self.tasks.spawn(run), gone, sender)
    }

    /// Waits for a lane that is to be started again, or has delivered all that there was for it.
    pub async fn ended(&mut self) -> Ended {
        loop {
            let (id, panic) = match self.tasks.join_next_with_id().await {
                Some(Ok((id, End::Delivered))) => {
                    let rests = self.started.extract_if(.., |_, started| started.task.id() == id).next();
                    match rests {
                        Some((conversation, _)) => return Ended::Rests(conversation),
                        None => continue,
                    }
                }
                Some(Ok((id, End::FromTheStart))) => (id, None),
                Some(Err(error)) if error.is_panic() => (error.id(), Some(error.into_panic())),
                Some(_) => continue,
                None => return std::future::pending().await,
            };
            let found = self.started.iter_mut().find(|(_, started)| started.task.id() == id);
            let Some((conversation, started)) = found else { continue };
            let conversation = conversation.clone();
            let Some(panic) = panic else {
                let wait = Duration::ZERO;
                return Ended::Again(Restart { conversation, wait, from_the_start: true });
            };
            let wait = started.supervision.failed(started.at.elapsed());
            supervise::announce("deliver", started.supervision.failures(), panic.as_ref(), wait.as_secs());
            return Ended::Again(Restart { conversation, wait, from_the_start: false });
        }
    }

    /// Starts a lane again, which waits its time before it takes anything.
    pub fn restart(&mut self, restart: &Restart, mirror: &Mirror) -> LaneSender {
        let (task, gone, sender) = self.spawn(mirror, restart.wait);
        if let Some(started) = self.started.get_mut(&restart.conversation) {
            (started.task, started.gone, started.at) = (task, gone, Instant::now());
        }
        sender
    }

    /// Ends the lane of a mirror, whatever it holds. What it was about to send is in doubt for the one that follows
    /// it, which is the same as after a kill.
    pub async fn end(&mut self, conversation: &ConversationId) {
        if let Some(started) = self.started.get_mut(conversation) {
            started.task.abort();
            // Either answer says that it is gone.
            let _ = (&mut started.gone).await;
        }
    }

    /// Waits until every lane has delivered what it holds, no longer than until `deadline` is ready.
    pub async fn drain(mut self, deadline: impl Future<Output = ()>) -> Drain {
        let tasks = &mut self.tasks;
        let all = async {
            let mut all = Drain::Complete;
            while let Some(ended) = tasks.join_next().await {
                match ended {
                    Ok(End::Delivered) => {}
                    // Ended for another to follow it.
                    Err(error) if error.is_cancelled() => {}
                    Ok(End::FromTheStart) | Err(_) => all = Drain::Incomplete,
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
