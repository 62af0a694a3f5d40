//! One session's items, read and transformed as for a mirror, handed to the caller: nothing is sent, locked or written.

use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::config::Config;
use crate::event::{Item, Post, Reading, Step, Wake};
use crate::hermes::Source;
use crate::hooks::Teller;
use crate::ids::{ConversationId, HermesSessionId, MessageId, ResponseId};
use crate::stage::backlog::Share;
use crate::stage::detect::Detect;
use crate::stage::feed::Feed;
use crate::stage::memory::Delivered;
use crate::stage::pressure::{self, Pressure, Queued};
use crate::stage::read::{Control, Reader};
use crate::stage::recall::Recall;
use crate::stage::scout::Scouts;
use crate::stage::search::Target;
use crate::stage::transform::Transform;
use crate::stage::turns::Turns;
use crate::stage::wake::{self, Waker};
use crate::stats::Stats;

use super::{Mode, PipelineError, spawn_detector, spawn_reader};

/// What the log calls the conversation that there is none of.
const NO_CONVERSATION: &str = "none";

/// An item, and where it belongs.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The session.
    pub session: &'a HermesSessionId,
    /// The turn.
    pub turn: &'a ResponseId,
    /// The row it came from.
    pub row: MessageId,
    /// Which of the row's items it is, from 1.
    pub place: u32,
    /// The item.
    pub item: &'a Item,
}

/// Follows `target` from its first message until `shutdown` is ready or `show` breaks off. `config` names the database
/// and how it is read; its mirrors and its server are not asked.
pub async fn tail(
    config: &Config,
    target: Target,
    mut show: impl FnMut(Shown<'_>) -> ControlFlow<()>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), PipelineError> {
    let database = config.source.db.clone().ok_or(PipelineError::NoDatabase)?;
    let conversation = ConversationId::new(NO_CONVERSATION);
    let stats = Stats::new(String::new(), Teller::default());
    let figures = stats.add_source(database.clone());
    let (lane, mut queue) =
        pressure::lane(config.deliver.queue_rows, config.read.batch_bytes, Share::default());
    let mut strip = Strip::new(config, lane.pressure(), lane.recall.clone());
    let feed = Feed::new(
        conversation.clone(),
        target,
        None,
        lane,
        Box::new(|_| false),
        nothing(),
        stats.add(conversation, &figures),
    );
    let (waker, woken) = wake::channel();
    let (orders, control) = crossbeam_channel::unbounded();
    let source = Source::new(database.clone(), Duration::from_millis(config.read.busy_ms));
    let (detect, health) = (config.detect.clone(), figures.health.clone());
    let feeds = (vec![feed], Scouts::default());
    let reader = Reader::new(source, detect.clone(), &config.read, woken, control, feeds, health.clone());
    let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
    let (reads, mut reading) = mpsc::channel(1);
    spawn_reader(reader, Mode::Follow, stopped.clone(), reads)?;
    let watching = spawn_detector(Detect::new(database, detect, waker.clone(), health), stopped)?;
    tokio::pin!(shutdown);
    loop {
        let queued = tokio::select! {
            () = &mut shutdown => break,
            queued = queue.recv() => queued,
        };
        let Some(Queued { reading, .. }) = queued else { break };
        if strip.pass(reading, queue.len(), &waker, &mut show).is_break() {
            break;
        }
    }
    drop(stop);
    // A reader that is gone needs no orders.
    let _ = orders.send(Control::Stop);
    waker.wake(Wake::Room);
    let _ = reading.recv().await;
    let _ = tokio::task::spawn_blocking(move || watching.join()).await;
    Ok(())
}

/// No ledger remembers anything.
fn nothing() -> Delivered {
    Delivered {
        range: Box::new(|_| Vec::new()),
        before: Box::new(|_| None),
        undone: Box::new(|_| Vec::new()),
        taken_back: Box::new(|_| Vec::new()),
    }
}

/// The stages between the feed and the caller.
struct Strip {
    session: HermesSessionId,
    transform: Transform,
    turns: Turns,
    pressure: Pressure,
    recall: Recall,
}

impl Strip {
    fn new(config: &Config, pressure: Pressure, recall: Recall) -> Self {
        let session = HermesSessionId::new("");
        let transform = Transform::new(&config.transform);
        Self { session, transform, turns: Turns::new(), pressure, recall }
    }

    /// Shows the items of a reading; `left` are waiting behind it.
    fn pass(
        &mut self,
        mut reading: Reading,
        left: usize,
        waker: &Waker,
        show: &mut impl FnMut(Shown<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.pressure.eases(&reading, left) {
            waker.wake(Wake::Room);
        }
        if let Reading::Row(row) = &mut reading {
            if self.recall.is_taken_back(row.id) {
                row.take_back();
            }
            self.recall.pass(row.id);
        }
        let step = self.transform.apply(reading);
        match &step {
            Step::Bound(binding) => self.session = binding.session.clone(),
            Step::Continued(child) => self.session = child.clone(),
            Step::Rewound(_) | Step::Row(_) | Step::Usage(_) | Step::Beside(_) => {}
        }
        for delivery in self.turns.apply(step) {
            if let Some(Post::Item { item, turn, row, place }) = &delivery.post {
                let session = &self.session;
                show(Shown { session, turn, row: *row, place: *place, item })?;
            }
        }
        ControlFlow::Continue(())
    }
}
