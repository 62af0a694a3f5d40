//! Conversations that are made once there is a session to show, each one once.
//!
//! A conversation carries a label that says which session it was made for. Before one is asked for, those that the
//! server has are looked through for that label: after a kill, a lost reply or a lost ledger it is found again. So a
//! second one can come about only where a server carries a request out after it was looked for.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use super::PipelineError;
use super::mirror::{Common, Mirror, Places, purpose, scout};
use crate::config::{self, DEFAULT_AGENT};
use crate::event::Sighting;
use crate::ids::{AgentId, ConversationId};
use crate::omnigent::{Client, Fault};
use crate::retry::{Backoff, Verdict, verdict};
use crate::stage::deliver::Trouble;
use crate::stage::scout::Scouts;
use crate::state::StateError;
use crate::state::claims;
use crate::state::ledger::{Made, Making};

/// The label that says which session a conversation was made for.
const LABEL: &str = "hermes-mirror.session";
/// Conversations a page.
const PAGE: u16 = 100;
/// By how much the server's clock and Hermes's may differ, in s.
const SKEW_S: i64 = 86_400;

/// The mirrors that have no conversation yet.
pub struct Founding {
    founder: Arc<Founder>,
    /// By what a conversation is made for.
    waiting: BTreeMap<String, config::Mirror>,
    /// What was sighted before this start.
    begun: VecDeque<Sighting>,
    sightings: UnboundedReceiver<Sighting>,
    tasks: JoinSet<(Sighting, ConversationId)>,
    common: Common,
    places: Places,
}

impl Founding {
    /// Opens the mirrors whose conversations are known, and sends scouts out for the others.
    pub fn muster(common: Common, places: Places) -> Result<(Vec<Mirror>, Scouts, Self), PipelineError> {
        let made = places.made(&common.config.deliver.base_url, &common.database);
        let (mut mirrors, mut looking) = (Vec::new(), Vec::new());
        let (mut waiting, mut begun) = (BTreeMap::new(), VecDeque::new());
        for mirror in &common.config.mirror {
            if !mirror.makes_conversation() {
                mirrors.push(Mirror::open(mirror, &common, &places)?);
                continue;
            }
            let purpose = purpose(mirror);
            match made.find(&purpose)? {
                Some(Making { conversation: Some(conversation), sighting }) => {
                    let mirror = with_conversation(mirror, &conversation);
                    mirrors.push(Mirror::open(&mirror, &common, &places)?.beginning_at(sighting.binding));
                    continue;
                }
                Some(Making { conversation: None, sighting }) => begun.push_back(sighting),
                None => looking.push(scout(mirror, &places)),
            }
            waiting.insert(purpose, mirror.clone());
        }
        let (sender, sightings) = unbounded_channel();
        let sighted = begun.iter().map(|sighting| sighting.binding.session.clone()).collect();
        let founder = Arc::new(Founder {
            client: common.client.clone(),
            retry: common.config.deliver.retry.clone(),
            source: digest(&common.database),
            made,
            agent: Mutex::default(),
            listing: Mutex::default(),
        });
        let tasks = JoinSet::new();
        let founding = Self { founder, waiting, begun, sightings, tasks, common, places };
        Ok((mirrors, Scouts::new(looking, sighted, sender), founding))
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
                    // The reader has ended, and what it sighted is made at the next start.
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
        let founder = Arc::clone(&self.founder);
        self.tasks.spawn(async move {
            let conversation = founder.found(&sighting).await;
            (sighting, conversation)
        });
    }

    /// Opens the mirror; one that another process has is tried again later.
    fn open(&mut self, sighting: &Sighting, conversation: &ConversationId) -> Option<Mirror> {
        let mirror = with_conversation(self.waiting.get(&sighting.purpose)?, conversation);
        match Mirror::open(&mirror, &self.common, &self.places) {
            Ok(mirror) => Some(mirror.beginning_at(sighting.binding.clone())),
            Err(error) => {
                tracing::warn!(%conversation, session = %sighting.binding.session, "{error}; trying again");
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

/// Makes conversations for the sessions of one database.
struct Founder {
    client: Client,
    retry: config::Retry,
    /// A digest of where the database is: two may hold sessions of the same id, where one began as a copy.
    source: u64,
    made: Made,
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
    /// The conversation for a session: made, or found.
    async fn found(&self, sighting: &Sighting) -> ConversationId {
        let session = &sighting.binding.session;
        let label = format!("{session} {:016x}", self.source);
        let mut trouble = Trouble::new(ConversationId::new(format!("new for {session}")), &self.retry);
        self.write(&mut trouble, || self.made.begin(sighting)).await;
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
        self.write(&mut trouble, || self.made.finish(&sighting.purpose, &conversation)).await;
        conversation
    }

    /// Without a record of it, a conversation could be made for one session and begun with another.
    async fn write(&self, trouble: &mut Trouble, write: impl Fn() -> Result<(), StateError>) {
        let mut backoff = Backoff::new(&self.retry);
        loop {
            let written = write();
            trouble.note_state(written.as_ref().err());
            if written.is_ok() {
                return;
            }
            tokio::time::sleep(backoff.next(None)).await;
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

fn digest(path: &Path) -> u64 {
    xxh3_64(path.as_os_str().as_encoded_bytes())
}
