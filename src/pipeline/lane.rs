//! One conversation's lane: transform, turns and deliver in a row, as one task.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::recovering::{Recovering, Verdict};
use crate::config;
use crate::event::{Binding, Delivery, Post, Reading, Step, Wake};
use crate::ids::{ConversationId, HermesSessionId, MessageId};
use crate::omnigent::Client;
use crate::stage::backlog::Share;
use crate::stage::deliver::{Deliver, Parts, SharedKeeper, announce_session, now_ms};
use crate::stage::pressure::{Pressure, Queued};
use crate::stage::recall::Recall;
use crate::stage::transform::Transform;
use crate::stage::turns::Turns;
use crate::stage::wake::Waker;
use crate::state::claims::Permit;
use crate::state::keeper::Keeper;
use crate::stats::MirrorStats;

/// What a lane is made of; kept, so that a lane that failed can be made anew.
pub struct Plan {
    /// The conversation it feeds.
    pub conversation: ConversationId,
    /// The name on the model's messages.
    pub agent: String,
    /// The server.
    pub client: Client,
    /// Cursor, claim and account.
    pub keeper: SharedKeeper,
    /// The settings.
    pub config: Arc<config::Config>,
    /// The model to name where the session's row has none.
    pub configured_model: Option<String>,
    /// To tell the reader that there is room again.
    pub waker: Waker,
    /// What it counts.
    pub stats: Arc<MirrorStats>,
    /// Its part of what is still to be delivered.
    pub backlog: Share,
}

/// How a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The reader let go, and all is delivered.
    Delivered,
    /// The rows are to be read again from the session's first: the conversation's last turn is not of this
    /// session.
    FromTheStart,
}

/// The running lane.
pub struct Lane {
    conversation: ConversationId,
    client: Client,
    config: Arc<config::Config>,
    configured_model: Option<String>,
    waker: Waker,
    transform: Transform,
    turns: Turns,
    deliver: Deliver,
    recovering: Recovering,
    pressure: Pressure,
    recall: Recall,
    running: Option<Running>,
    announcement: Option<AbortHandle>,
    stats: Arc<MirrorStats>,
}

/// When an open turn was last heard of, and last said to be running.
struct Running {
    heard: Instant,
    said: Instant,
}

impl Lane {
    /// A lane that has delivered nothing yet. `permit` says whether its claim holds.
    #[must_use]
    pub fn new(
        plan: &Plan,
        pressure: Pressure,
        recall: Recall,
        permit: Box<dyn Fn() -> Permit + Send>,
    ) -> Self {
        let deliver = Deliver::new(Parts {
            conversation: plan.conversation.clone(),
            agent: plan.agent.clone(),
            client: plan.client.clone(),
            keeper: Arc::clone(&plan.keeper),
            retry: plan.config.deliver.retry.clone(),
            permit,
            recall: recall.clone(),
            stats: Arc::clone(&plan.stats),
        });
        Self {
            conversation: plan.conversation.clone(),
            client: plan.client.clone(),
            config: Arc::clone(&plan.config),
            configured_model: plan.configured_model.clone(),
            waker: plan.waker.clone(),
            transform: Transform::new(&plan.config.transform).counting(Arc::clone(&plan.stats.masked)),
            turns: Turns::new(),
            deliver,
            recovering: Recovering::Done,
            pressure,
            recall,
            running: None,
            announcement: None,
            stats: Arc::clone(&plan.stats),
        }
    }

    /// Runs until the reader lets go of the other end and all is delivered.
    pub async fn run(mut self, readings: Receiver<Queued>) -> End {
        self.deliver.retry_owed_edges();
        let mut readings = ReceiverStream::new(readings);
        let mut end = End::Delivered;
        loop {
            let reassert = self.next_reassertion();
            tokio::select! {
                biased;
                reading = readings.next() => {
                    let Some(Queued { reading, at }) = reading else { break };
                    if self.pressure.eases(&reading, readings.as_ref().len()) {
                        self.waker.wake(Wake::Room);
                    }
                    let row = reading.row();
                    if let Reading::Row(row) = &reading {
                        self.stats.row_taken(row.timestamp);
                    }
                    self.deliver.note_read(at);
                    let taken = self.take(reading).await;
                    if let Some(row) = row {
                        self.recall.pass(row);
                        self.stats.row_passed();
                        self.pressure.pass();
                    }
                    if !taken {
                        end = End::FromTheStart;
                        break;
                    }
                }
                () = sleep_until(reassert), if reassert.is_some() => self.reassert().await,
            }
        }
        if let Some(task) = self.announcement.take() {
            task.abort();
        }
        self.deliver.finish_edges().await;
        end
    }

    /// Takes one reading; false if it is to be read again from the session's start.
    async fn take(&mut self, mut reading: Reading) -> bool {
        if let Reading::Row(row) = &mut reading
            && self.recall.is_taken_back(row.id)
        {
            row.take_back();
        }
        let mut step = self.transform.apply(reading);
        match &mut step {
            Step::Bound(binding) => self.bound(binding).await,
            Step::Continued(child) => {
                self.deliver.note_session(|keeper| keeper.follow(child, now_ms()));
                self.announce(child.clone());
            }
            Step::Rewound(rewind) => {
                self.deliver.note_session(|keeper| keeper.rewind(rewind, now_ms()));
                self.announce(rewind.session.clone());
            }
            Step::Usage(usage) => usage.model = usage.model.take().or(self.configured_model.clone()),
            Step::Beside(_) => {}
            Step::Row(row) => match self.recovering.judge(row) {
                Verdict::Deliver => {}
                Verdict::Reached(recovery) => {
                    tracing::warn!(
                        conversation = %self.conversation, row = %row.row,
                        "cursor and ledger are lost; going on where the conversation stands. A closing edge of an \
                         earlier turn that the server had refused until then is not sent again"
                    );
                    self.deliver.resume_from(recovery);
                }
                Verdict::Delivered => {
                    self.turns.pass_over(row);
                    return true;
                }
                Verdict::NotThisSession => {
                    self.deliver.note_session(Keeper::searched);
                    return false;
                }
            },
        }
        for delivery in self.turns.apply(step) {
            self.deliver.deliver(delivery).await;
        }
        let now = Instant::now();
        self.running = self.turns.running().map(|_| Running { heard: now, said: now });
        true
    }

    async fn bound(&mut self, binding: &mut Binding) {
        // A turn whose end no row told was settled all the same; should rows of it come, it goes on.
        let lapsed = binding.resume.turn.take_if(|turn| !turn.closed && self.deliver.is_settled(&turn.id));
        self.turns.recall(lapsed.map(|turn| turn.id), self.deliver.title());
        for waiting in &mut binding.resume.waiting {
            waiting.settled |= self.deliver.is_settled(&waiting.turn);
        }
        // First of all: the session stays the mirror's, also if it ends before the server has answered.
        self.deliver.note_session(|keeper| keeper.bind(binding, now_ms()));
        let resume = &binding.resume;
        let fresh = resume.partial.is_none() && (resume.begins || resume.last == MessageId::ZERO);
        if fresh {
            self.recovering = self.deliver.recover().await.map_or(Recovering::Done, Recovering::Awaiting);
        }
        self.announce(binding.session.clone());
    }

    /// When an open, silent turn is to be called running again; `None` while none is, or for too long.
    fn next_reassertion(&self) -> Option<Instant> {
        let turns = &self.config.turns;
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
        self.deliver.collect_edges().await;
        if let Some(running) = &mut self.running {
            running.said = Instant::now();
        }
    }

    fn announce(&mut self, session: HermesSessionId) {
        if let Some(earlier) = self.announcement.take() {
            earlier.abort();
        }
        let retry = self.config.deliver.retry.clone();
        let task = announce_session(self.client.clone(), self.conversation.clone(), session, retry);
        self.announcement = Some(tokio::spawn(task).abort_handle());
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
