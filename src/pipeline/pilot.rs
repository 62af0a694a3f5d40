//! What steers a running pipeline: renews claims, starts lanes, some of them again, hears when it is time to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::founding::Founding;
use super::lanes::{Lanes, Restart};
use super::mirror::Mirror;
use crate::event::Wake;
use crate::ids::ConversationId;
use crate::stage::read::Control;
use crate::stage::wake::Waker;
use crate::state::claims;

/// The steering of a pipeline.
pub struct Pilot {
    mirrors: BTreeMap<ConversationId, Mirror>,
    founding: Founding,
    orders: Sender<Control>,
    waker: Waker,
}

impl Pilot {
    /// Steers `mirrors`, and those to come; `orders` and `waker` reach the reader.
    #[must_use]
    pub fn new(mirrors: Vec<Mirror>, founding: Founding, orders: Sender<Control>, waker: Waker) -> Self {
        let named = mirrors.into_iter().map(|mirror| (mirror.plan.conversation.clone(), mirror));
        Self { mirrors: named.collect(), founding, orders, waker }
    }

    /// How many mirrors have found their session.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.mirrors.values().filter(|mirror| mirror.binding().is_some()).count()
    }

    /// Tells the reader something.
    pub fn order(&self, order: Control) {
        // A reader that is gone needs no orders.
        let _ = self.orders.send(order);
        self.waker.wake(Wake::Room);
    }

    /// Steers until it is time to stop. Returns whether the reader has ended by then.
    pub async fn watch_over(
        &mut self,
        lanes: &mut Lanes,
        read_done: &mut oneshot::Receiver<()>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> bool {
        let mut heartbeat = tokio::time::interval(claims::HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lost = BTreeSet::new();
        loop {
            tokio::select! {
                () = &mut shutdown => return false,
                _ = &mut *read_done => return true,
                _ = heartbeat.tick() => self.renew_claims(&mut lost, lanes).await,
                restart = lanes.ended() => {
                    if let Some(mirror) = self.mirrors.get(&restart.conversation) {
                        let lane = lanes.restart(&restart, mirror);
                        let resume = mirror.binding().filter(|_| !restart.from_the_start);
                        self.order(Control::Restart { conversation: restart.conversation, lane, resume });
                    }
                }
                (sighting, mirror) = self.founding.next() => {
                    let feed = Box::new(mirror.feed(lanes.start(&mirror)));
                    self.order(Control::Add { feed, sighted: sighting.binding.session });
                    self.mirrors.insert(mirror.plan.conversation.clone(), mirror);
                }
            }
        }
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
                let lane = lanes.restart(&anew, mirror);
                let resume = mirror.binding();
                self.order(Control::Restart { conversation: anew.conversation, lane, resume });
            }
        }
    }
}
