//! What steers a running pipeline: renews claims, starts lanes, some of them again, hears when it is time to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::founding::Founding;
use super::lanes::{Ended, Lanes, Restart};
use super::mirror::Mirror;
use crate::event::Wake;
use crate::ids::{ConversationId, MessageId};
use crate::stage::read::Control;
use crate::stage::wake::Waker;
use crate::state::claims;

/// The steering of a pipeline.
pub struct Pilot {
    mirrors: BTreeMap<ConversationId, Mirror>,
    founding: Founding,
    readers: Vec<Orders>,
}

/// What reaches the reader of one database.
pub struct Orders {
    /// What it is told.
    pub control: Sender<Control>,
    /// To have it listen.
    pub waker: Waker,
}

impl Pilot {
    /// Steers `mirrors`, and those to come, and the readers of their databases.
    #[must_use]
    pub fn new(mirrors: Vec<Mirror>, founding: Founding, readers: Vec<Orders>) -> Self {
        let named = mirrors.into_iter().map(|mirror| (mirror.plan.conversation.clone(), mirror));
        Self { mirrors: named.collect(), founding, readers }
    }

    /// How many mirrors of one session have found theirs.
    #[must_use]
    pub fn bound(&self) -> usize {
        let of_one = self.mirrors.values().filter(|mirror| !mirror.is_of_a_rule);
        of_one.filter(|mirror| mirror.binding().is_some()).count()
    }

    /// Tells every reader to stop.
    pub fn stop(&self) {
        for reader in &self.readers {
            reader.order(Control::Stop);
        }
    }

    fn order(&self, mirror: &Mirror, order: Control) {
        if let Some(reader) = self.readers.get(mirror.origin) {
            reader.order(order);
        }
    }

    /// Steers until it is time to stop. Returns whether the readers have ended by then: `reading` says so by its end.
    pub async fn watch_over(
        &mut self,
        lanes: &mut Lanes,
        reading: &mut mpsc::Receiver<()>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> bool {
        let mut heartbeat = tokio::time::interval(claims::HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lost = BTreeSet::new();
        loop {
            tokio::select! {
                () = &mut shutdown => return false,
                _ = reading.recv() => return true,
                _ = heartbeat.tick() => self.renew_claims(&mut lost, lanes).await,
                ended = lanes.ended() => match ended {
                    Ended::Again(restart) => self.start_again(&restart, lanes),
                    // What a rule found may come again; the others end with the readers.
                    Ended::Rests(conversation) => {
                        self.mirrors.extract_if(.., |id, it| *id == conversation && it.is_of_a_rule).for_each(drop);
                    }
                },
                (sighting, mirror) = self.founding.next() => {
                    let feed = Box::new(mirror.feed(lanes.start(&mirror)));
                    self.order(&mirror, Control::Add { feed, sighted: Box::new(sighting) });
                    self.mirrors.insert(mirror.plan.conversation.clone(), mirror);
                }
            }
        }
    }

    fn start_again(&self, restart: &Restart, lanes: &mut Lanes) {
        let Some(mirror) = self.mirrors.get(&restart.conversation) else { return };
        let lane = lanes.restart(restart, mirror);
        let resume = mirror.binding().map(|mut binding| {
            // Nothing was delivered yet, and what lies before the first row is history.
            binding.resume.begins |= restart.from_the_start && binding.resume.last != MessageId::ZERO;
            binding
        });
        let conversation = restart.conversation.clone();
        self.order(mirror, Control::Restart { conversation, lane, resume });
    }

    /// A lane whose claim was lost is ended with the rows that wait in it: they are another's to show now, and once
    /// the session is free again it is read from behind the last row that was delivered.
    async fn renew_claims(&self, lost: &mut BTreeSet<ConversationId>, lanes: &mut Lanes) {
        for (conversation, mirror) in &self.mirrors {
            if mirror.heartbeat() {
                lost.remove(conversation);
            } else if lost.insert(conversation.clone()) {
                lanes.end(conversation).await;
                let conversation = conversation.clone();
                let anew = Restart { conversation, wait: Duration::ZERO, from_the_start: false };
                self.start_again(&anew, lanes);
            }
        }
    }
}

impl Orders {
    fn order(&self, order: Control) {
        // A reader that is gone needs no orders.
        let _ = self.control.send(order);
        self.waker.wake(Wake::Room);
    }
}
