//! One conversation's lane: transform, turns and deliver in a row, as one task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::config;
use crate::event::{Delivery, Post, Reading, Step, Wake};
use crate::ids::{ConversationId, HermesSessionId};
use crate::omnigent::Client;
use crate::stage::deliver::{Deliver, SharedBridge, announce_session, now_ms};
use crate::stage::transform::Transform;
use crate::stage::turns::Turns;
use crate::stage::wake::Waker;

/// What a lane is made of; kept, so that a lane that failed can be made anew.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The conversation it feeds.
    pub conversation: ConversationId,
    /// The name on the model's messages.
    pub agent: String,
    /// The server.
    pub client: Client,
    /// Cursor and claim.
    pub bridge: SharedBridge,
    /// The settings.
    pub config: Arc<config::Config>,
    /// The model to name where the session's row has none.
    pub configured_model: Option<String>,
    /// To tell the reader that there is room again.
    pub waker: Waker,
}

/// The running lane.
pub struct Lane {
    plan: Plan,
    transform: Transform,
    turns: Turns,
    deliver: Deliver,
    starved: Arc<AtomicBool>,
    capacity: usize,
    running: Option<Running>,
    announcement: Option<AbortHandle>,
}

/// When an open turn was last heard of, and last said to be running.
struct Running {
    heard: Instant,
    said: Instant,
}

impl Lane {
    /// A lane that has delivered nothing yet. `capacity` is its queue's.
    #[must_use]
    pub fn new(plan: Plan, starved: Arc<AtomicBool>, capacity: usize) -> Self {
        let deliver = Deliver::new(
            plan.conversation.clone(),
            plan.agent.clone(),
            plan.client.clone(),
            Arc::clone(&plan.bridge),
            &plan.config.deliver.retry,
        );
        let transform = Transform::new(&plan.config.transform);
        let turns = Turns::new();
        Self { plan, transform, turns, deliver, starved, capacity, running: None, announcement: None }
    }

    /// Runs until the reader lets go of the other end and all is delivered.
    pub async fn run(mut self, readings: Receiver<Reading>) {
        let mut readings = ReceiverStream::new(readings);
        loop {
            let reassert = self.next_reassertion();
            tokio::select! {
                biased;
                reading = readings.next() => {
                    let Some(reading) = reading else { break };
                    self.give_room(readings.as_ref().len());
                    self.take(reading).await;
                }
                () = sleep_until(reassert), if reassert.is_some() => self.reassert().await,
            }
        }
        if let Some(task) = self.announcement.take() {
            task.abort();
        }
    }

    async fn take(&mut self, reading: Reading) {
        let mut step = self.transform.apply(reading);
        match &mut step {
            Step::Bound(binding) => {
                self.deliver.note_session(|bridge| bridge.bind(binding, now_ms()));
                self.announce(binding.session.clone());
            }
            Step::Continued(child) => {
                self.deliver.note_session(|bridge| bridge.follow(child, now_ms()));
                self.announce(child.clone());
            }
            Step::Usage(usage) => usage.model = usage.model.take().or(self.plan.configured_model.clone()),
            Step::Row(_) => {}
        }
        for delivery in self.turns.apply(step) {
            self.deliver.deliver(delivery).await;
        }
        let now = Instant::now();
        self.running = self.turns.running().map(|_| Running { heard: now, said: now });
    }

    /// Wakes the reader once half of a full queue is free.
    fn give_room(&self, queued: usize) {
        if queued <= self.capacity / 2 && self.starved.swap(false, Ordering::SeqCst) {
            self.plan.waker.wake(Wake::Room);
        }
    }

    /// When an open, silent turn is to be called running again; `None` while none is, or for too long.
    fn next_reassertion(&self) -> Option<Instant> {
        let turns = &self.plan.config.turns;
        let running = self.running.as_ref()?;
        let given_up =
            running.said.duration_since(running.heard) >= Duration::from_secs(turns.reassert_for_s);
        let every = Duration::from_millis(turns.reassert_ms);
        (!every.is_zero() && !given_up).then(|| running.said + every)
    }

    /// The runner's own watcher calls a quiet terminal idle, which settles a live tool card early, and a server
    /// that was restarted has forgotten that the turn runs.
    async fn reassert(&mut self) {
        if let Some(turn) = self.turns.running().cloned() {
            self.deliver.deliver(Delivery { post: Some(Post::Running { turn }), mark: None }).await;
        }
        if let Some(running) = &mut self.running {
            running.said = Instant::now();
        }
    }

    fn announce(&mut self, session: HermesSessionId) {
        if let Some(earlier) = self.announcement.take() {
            earlier.abort();
        }
        let task = announce_session(
            self.plan.client.clone(),
            self.plan.conversation.clone(),
            session,
            self.plan.config.deliver.retry.clone(),
        );
        self.announcement = Some(tokio::spawn(task).abort_handle());
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
