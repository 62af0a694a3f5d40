//! Conversations that are made once there is a session to show, each one once.
//!
//! A conversation carries a label that says which session it was made for. Before one is asked for, those that the
//! server has are looked through for that label: after a kill, a lost reply or a lost ledger it is found again. So a
//! second one can come about only where a server carries a request out after it was looked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use super::PipelineError;
use super::mirror::{Common, Mirror, Origin, Places, digest, purpose, scout};
use crate::config::{self, DEFAULT_AGENT};
use crate::event::Sighting;
use crate::ids::{AgentId, ConversationId};
use crate::omnigent::{Client, Fault};
use crate::retry::{Backoff, Verdict, verdict};
use crate::stage::deliver::Trouble;
use crate::stage::scout::{Known, Note, Rule, Scout, Scouts};
use crate::state::StateError;
use crate::state::claims;
use crate::state::ledger::{Made, Making, session_of};
use crate::stats::{SourceStats, Stats};

/// The label that says which session a conversation was made for.
const LABEL: &str = "hermes-mirror.session";
/// Conversations a page.
const PAGE: u16 = 100;
/// By how much the server's clock and Hermes's may differ, in s.
const SKEW_S: i64 = 86_400;

/// The conversations that are to be made.
pub struct Founding {
    founder: Arc<Founder>,
    /// What was sighted before this start.
    begun: VecDeque<Sighting>,
    sightings: UnboundedReceiver<Sighting>,
    tasks: JoinSet<(Sighting, ConversationId)>,
    /// Those whose mirrors can't be opened for now.
    refused: BTreeSet<ConversationId>,
    common: Common,
    places: Places,
}

impl Founding {
    /// Opens the mirrors whose conversations are known, and sends scouts out for the others: those of one database
    /// together.
    pub fn muster(common: Common, places: Places) -> Result<(Vec<Mirror>, Vec<Scouts>, Self), PipelineError> {
        let made = |origin: &Origin| places.made(&common.config.deliver.base_url, &origin.database);
        let made: Vec<Made> = common.origins.iter().map(made).collect();
        let mut mirrors = Vec::new();
        let mut out: Vec<(Vec<Scout>, Vec<Rule>, Known)> = Vec::new();
        out.resize_with(made.len(), Default::default);
        for (at, mirror) in common.config.mirror.iter().enumerate() {
            let (origin, _) = common.origin_of(mirror)?;
            let (Some(made), Some((scouts, rules, known))) = (made.get(origin), out.get_mut(origin)) else {
                continue;
            };
            if !mirror.makes_conversation() {
                mirrors.push(Mirror::open(mirror, &common, &places)?);
                continue;
            }
            if let Some(rule) = rule(at, mirror) {
                rules.push(rule);
                continue;
            }
            let purpose = purpose(mirror);
            match made.find(&purpose)? {
                Some(Making { conversation: Some(conversation), binding, .. }) => {
                    let mirror = with_conversation(mirror, &conversation);
                    mirrors.push(Mirror::open(&mirror, &common, &places)?.beginning_at(binding));
                }
                Some(Making { conversation: None, binding, started_at }) => {
                    known.begun.push(Sighting { mirror: at, purpose, binding, started_at });
                }
                None => scouts.push(scout(at, mirror, &places)),
            }
        }
        let (sender, sightings) = unbounded_channel();
        let (mut begun, mut sent) = (VecDeque::new(), Vec::new());
        for (made, (scouts, rules, mut known)) in made.iter().zip(out) {
            begun.extend(known.begun.iter().cloned());
            if !rules.is_empty() {
                (known.looked, known.left) = (made.looked()?, made.left()?);
            }
            sent.push(Scouts::new((scouts, rules), known, note(made.clone()), sender.clone()));
        }
        let sources = common.origins.iter().zip(made);
        let sources =
            sources.map(|(origin, made)| (made, digest(&origin.database), Arc::clone(&origin.source)));
        let founder = Arc::new(Founder {
            client: common.client.clone(),
            retry: common.config.deliver.retry.clone(),
            sources: sources.collect(),
            stats: Arc::clone(&common.stats),
            agent: Mutex::default(),
            listing: Mutex::default(),
        });
        let (tasks, refused) = (JoinSet::new(), BTreeSet::new());
        let founding = Self { founder, begun, sightings, tasks, refused, common, places };
        Ok((mirrors, sent, founding))
    }

    /// Waits for the next mirror that has its conversation, and the sighting that it is for.
    pub async fn next(&mut self) -> (Sighting, Mirror) {
        loop {
            while let Some(sighting) = self.begun.pop_front() {
                self.found(sighting);
            }
            tokio::select! {
                sighting = self.sightings.recv() => match sighting {
                    Some(sighting) => self.found(sighting),
                    // The readers have ended, and what they sighted is made at the next start.
                    None => return std::future::pending().await,
                },
                Some(Ok((sighting, conversation))) = self.tasks.join_next() => {
                    if let Some(mirror) = self.open(&sighting, &conversation) {
                        return (sighting, mirror);
                    }
                }
            }
        }
    }

    fn found(&mut self, sighting: Sighting) {
        let mirror = self.common.config.mirror.get(sighting.mirror);
        let Some(Ok((origin, _))) = mirror.map(|mirror| self.common.origin_of(mirror)) else { return };
        let founder = Arc::clone(&self.founder);
        self.tasks.spawn(async move { founder.found(sighting, origin).await });
    }

    /// Opens the mirror; one that another process has is tried again later.
    fn open(&mut self, sighting: &Sighting, conversation: &ConversationId) -> Option<Mirror> {
        let mut mirror = with_conversation(self.common.config.mirror.get(sighting.mirror)?, conversation);
        if mirror.matching.is_some() {
            mirror.session = session_of(&sighting.purpose).map(str::to_owned);
        }
        match Mirror::open(&mirror, &self.common, &self.places) {
            Ok(mirror) => {
                self.refused.remove(conversation);
                Some(mirror.beginning_at(sighting.binding.clone()))
            }
            Err(error) => {
                if self.refused.insert(conversation.clone()) {
                    let session = &sighting.binding.session;
                    tracing::warn!(%conversation, %session, "{error}; trying again");
                }
                let again = (sighting.clone(), conversation.clone());
                self.tasks.spawn(async move {
                    tokio::time::sleep(claims::HEARTBEAT).await;
                    again
                });
                None
            }
        }
    }
}

/// The rule of a mirror of many, the configuration's `at`th.
pub(super) fn rule(at: usize, mirror: &config::Mirror) -> Option<Rule> {
    Some(Rule {
        mirror: at,
        choice: mirror.matching.clone()?,
        exclude: mirror.exclude.clone(),
        sources: mirror.sources.clone(),
        history: mirror.history,
    })
}

/// Writes sightings down, before anyone hears of them.
fn note(made: Made) -> Note {
    Box::new(move |sightings, looked| match made.note(sightings, looked) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!("{error}; looking again");
            false
        }
    })
}

/// Makes conversations.
struct Founder {
    client: Client,
    retry: config::Retry,
    /// For each database what is made, and a digest of where it is: two may hold sessions of the same id, where one
    /// began as a copy of the other.
    sources: Vec<(Made, u64, Arc<SourceStats>)>,
    stats: Arc<Stats>,
    agent: Mutex<Option<AgentId>>,
    listing: Mutex<Option<Listing>>,
}

/// The conversations that carry a label, as the server listed them.
struct Listing {
    at: Instant,
    /// The oldest that was listed was made then, in s since the epoch.
    reaches: i64,
    labelled: BTreeMap<String, ConversationId>,
}

impl Founder {
    /// The conversation for a session: known, found or made. What was noted of it first holds.
    async fn found(&self, mut sighting: Sighting, origin: usize) -> (Sighting, ConversationId) {
        let Some((made, source, figures)) = self.sources.get(origin) else {
            return std::future::pending().await;
        };
        let session = sighting.binding.session.clone();
        // Until it has its conversation, the mirror shows under this name.
        let name = ConversationId::new(format!("new for {session}"));
        let figures = self.stats.add(name.clone(), figures);
        figures.follows(Some(session));
        let mut trouble = Trouble::new(name, &self.retry, figures);
        if let Some(known) = self.keep(&mut trouble, || made.find(&sighting.purpose)).await {
            (sighting.binding, sighting.started_at) = (known.binding, known.started_at);
            if let Some(conversation) = known.conversation {
                return (sighting, conversation);
            }
        }
        let label = format!("{} {source:016x}", sighting.binding.session);
        let mut doubted = None;
        let conversation = loop {
            match self.find_or_make(&label, sighting.started_at, doubted).await {
                Ok(conversation) => break conversation,
                Err(fault) => {
                    if verdict(&fault) == Verdict::ReadBack {
                        doubted = Some(Instant::now());
                    }
                    trouble.bear(&self.client, &fault).await;
                }
            }
        };
        trouble.is_over();
        self.keep(&mut trouble, || made.finish(&sighting.purpose, &conversation)).await;
        (sighting, conversation)
    }

    /// Reads or writes what is on record. Without that, a conversation could be made for one session and begun with
    /// another.
    async fn keep<T>(&self, trouble: &mut Trouble, act: impl Fn() -> Result<T, StateError>) -> T {
        let mut backoff = Backoff::new(&self.retry);
        loop {
            let kept = act();
            trouble.note_state(kept.as_ref().err());
            match kept {
                Ok(kept) => return kept,
                Err(_) => tokio::time::sleep(backoff.next(None)).await,
            }
        }
    }

    async fn find_or_make(
        &self,
        label: &str,
        started_at: f64,
        doubted: Option<Instant>,
    ) -> Result<ConversationId, Fault> {
        if let Some(conversation) = self.find(label, started_at, doubted).await? {
            tracing::info!(%conversation, %label, "the conversation was made before, and is found again");
            return Ok(conversation);
        }
        let agent = self.agent().await?;
        let made = self.client.create(&agent, (LABEL, label)).await;
        if made.is_err() {
            // The server may know it by another id now.
            *self.agent.lock().await = None;
        }
        let conversation = made?.id;
        tracing::info!(%conversation, %label, "made a conversation");
        Ok(conversation)
    }

    async fn agent(&self) -> Result<AgentId, Fault> {
        let mut known = self.agent.lock().await;
        let agent = match known.take() {
            Some(agent) => agent,
            None => self.client.agent(DEFAULT_AGENT).await?,
        };
        Ok(known.insert(agent).clone())
    }

    /// The conversation that carries a label. They are listed once, and again where a request of ours may have been
    /// carried out since (`doubted`). None is older than the session that it shows.
    async fn find(
        &self,
        label: &str,
        started_at: f64,
        doubted: Option<Instant>,
    ) -> Result<Option<ConversationId>, Fault> {
        #[allow(clippy::cast_possible_truncation, reason = "a whole second will do, and far dates are cut")]
        let from = (started_at as i64).saturating_sub(SKEW_S);
        let mut known = self.listing.lock().await;
        let serves =
            |listing: &Listing| listing.reaches <= from && doubted.is_none_or(|doubted| listing.at > doubted);
        let listing = match known.take().filter(serves) {
            Some(listing) => listing,
            None => self.list(from).await?,
        };
        Ok(known.insert(listing).labelled.get(label).cloned())
    }

    async fn list(&self, from: i64) -> Result<Listing, Fault> {
        let at = Instant::now();
        let (mut labelled, mut after, mut reaches) = (BTreeMap::new(), None, i64::MAX);
        while reaches > from {
            let page = self.client.sessions(DEFAULT_AGENT, after.as_ref(), PAGE).await?;
            after = page.next().cloned();
            reaches = page.sessions.iter().filter_map(|listed| listed.created_at).fold(reaches, i64::min);
            for mut listed in page.sessions {
                if let Some(label) = listed.labels.remove(LABEL) {
                    // The oldest of several is the one that was begun with.
                    labelled.insert(label, listed.id);
                }
            }
            if after.is_none() {
                reaches = i64::MIN;
            }
        }
        Ok(Listing { at, reaches, labelled })
    }
}

fn with_conversation(mirror: &config::Mirror, conversation: &ConversationId) -> config::Mirror {
    config::Mirror { conversation: conversation.as_str().to_owned(), ..mirror.clone() }
}
