//! One `[[mirror]]`, ready to run: its target, its state, its claim and its lock.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::PipelineError;
use super::lane::Plan;
use crate::config::{self, Config, History};
use crate::event::Binding;
use crate::hermes::discovery::Terminal;
use crate::ids::{ConversationId, HermesSessionId};
use crate::omnigent::Client;
use crate::stage::backlog::Backlog;
use crate::stage::deliver::now_ms;
use crate::stage::feed::Feed;
use crate::stage::memory::Delivered;
use crate::stage::pressure::LaneSender;
use crate::stage::scout::Scout;
use crate::stage::search::{Search, Target};
use crate::stage::wake::Waker;
use crate::state::bridge::Bridge;
use crate::state::claims::{Claim, Permit};
use crate::state::keeper::Keeper;
use crate::state::ledger::{Account, Key, Ledger, Made, of_session};
use crate::state::{StateError, claims, dir, lock};
use crate::stats::{SourceStats, Stats};

/// Where the mirror's own files are.
pub struct Places {
    dir: PathBuf,
    locks: PathBuf,
    ledger: Ledger,
}

impl Places {
    /// Opens the state directory and its ledger; the conversations' locks are below `locks`.
    pub fn open(config: &config::State, locks: &Path) -> Result<Self, StateError> {
        let dir = dir::root(config)?;
        let (ledger, moved) = Ledger::open(&dir)?;
        if let Some(moved) = moved {
            tracing::error!(
                "the ledger in {} cannot be used: {}; it is now {}, and what it held is read back from the server",
                dir.display(),
                moved.reason,
                moved.to.display()
            );
        }
        Ok(Self { dir, locks: locks.to_owned(), ledger })
    }

    /// The conversations that were made on a server for the sessions of a database.
    pub fn made(&self, server: &str, database: &Path) -> Made {
        Made::new(&self.ledger, server, database)
    }
}

/// What the mirrors of a pipeline share.
pub struct Common {
    /// The server.
    pub client: Client,
    /// The settings.
    pub config: Arc<Config>,
    /// The databases that are read.
    pub origins: Vec<Origin>,
    /// What is still to be delivered.
    pub backlog: Backlog,
    /// Where the mirrors' figures are.
    pub stats: Arc<Stats>,
}

impl Common {
    /// Which of the databases a mirror reads.
    pub fn origin_of(&self, mirror: &config::Mirror) -> Result<(usize, &Origin), PipelineError> {
        let database = self.config.database_of(mirror).ok_or(PipelineError::NoDatabase)?;
        let found = self.origins.iter().enumerate().find(|(_, origin)| origin.database == database);
        found.ok_or(PipelineError::NoDatabase)
    }
}

/// A database that is read.
pub struct Origin {
    /// Where it is.
    pub database: PathBuf,
    /// To wake its reader.
    pub waker: Waker,
    /// The model to name where a session's row has none.
    pub configured_model: Option<String>,
    /// Its figures.
    pub source: Arc<SourceStats>,
}

/// A mirror.
pub struct Mirror {
    /// What its lane is made of.
    pub plan: Plan,
    /// Which of the databases it reads.
    pub origin: usize,
    /// Whether its session was found by a rule.
    pub is_of_a_rule: bool,
    history: Option<History>,
    target: Target,
    /// Where its conversation, made for it, begins.
    first: Option<Binding>,
    bridge_dir: PathBuf,
    launch_epoch_s: f64,
    /// Held while this process is the conversation's one writer.
    _writer: lock::Held,
}

impl Mirror {
    /// Takes the conversation's lock and opens the mirror's state.
    pub fn open(mirror: &config::Mirror, common: &Common, places: &Places) -> Result<Self, PipelineError> {
        let conversation = ConversationId::new(mirror.conversation.as_str());
        let server = common.config.deliver.base_url.as_str();
        let (at, origin) = common.origin_of(mirror)?;
        let writer = lock::conversation(&places.locks, server, &conversation)?;
        let bridge_dir = bridge_dir(&places.dir, mirror);
        let launch_epoch_s = claim_epoch(mirror);
        let bridge = Bridge::open(bridge_dir.clone(), launch_epoch_s)?;
        let key = Key { server, conversation: &conversation, source: &origin.database };
        let keeper = Keeper::new(Account::open(&places.ledger, key)?, bridge)?;
        let plan = Plan {
            stats: common.stats.add(conversation.clone(), &origin.source),
            conversation,
            agent: mirror.agent_name.clone().unwrap_or_else(|| config::DEFAULT_AGENT.to_owned()),
            client: common.client.clone(),
            keeper: Arc::new(Mutex::new(keeper)),
            config: Arc::clone(&common.config),
            configured_model: origin.configured_model.clone(),
            waker: origin.waker.clone(),
            backlog: common.backlog.share(),
        };
        let target = target(mirror);
        Ok(Self {
            plan,
            origin: at,
            is_of_a_rule: mirror.matching.is_some(),
            history: mirror.history,
            target,
            first: None,
            bridge_dir,
            launch_epoch_s,
            _writer: writer,
        })
    }

    /// The same, with a conversation that was made to begin at `first`.
    #[must_use]
    pub fn beginning_at(self, first: Binding) -> Self {
        Self { first: Some(first), ..self }
    }

    /// The reading half.
    pub fn feed(&self, lane: LaneSender) -> Feed {
        let (dir, launch) = (self.bridge_dir.clone(), self.launch_epoch_s);
        let taken = move |session: &HermesSessionId| claims::is_taken(&dir, session, launch, now_ms());
        let conversation = self.plan.conversation.clone();
        let target = self.target.clone();
        let stats = Arc::clone(&self.plan.stats);
        let feed =
            Feed::new(conversation, target, self.binding(), lane, Box::new(taken), self.delivered(), stats);
        let feed = feed.of_a_rule(self.is_of_a_rule).with_history(self.history);
        feed.noting_undos(self.plan.config.turns.undo_note)
    }

    /// What the ledger remembers. That it can't be read is noted where it is written.
    fn delivered(&self) -> Delivered {
        let account = self.keeper(|keeper| keeper.account().clone());
        let (same, again, once_more) = (account.clone(), account.clone(), account.clone());
        Delivered {
            range: Box::new(move |range| account.rows(range).unwrap_or_default()),
            before: Box::new(move |row| same.row_before(row).unwrap_or_default()),
            undone: Box::new(move |range| again.undone(range).unwrap_or_default()),
            taken_back: Box::new(move |most| once_more.taken_back(most).unwrap_or_default()),
        }
    }

    /// Where delivery had come to.
    pub fn binding(&self) -> Option<Binding> {
        let binding = self.keeper(|keeper| keeper.binding()).unwrap_or_else(|error| {
            tracing::error!(conversation = %self.plan.conversation, "{error}");
            None
        });
        binding.or(self.first.clone())
    }

    fn keeper<T>(&self, act: impl FnOnce(&mut Keeper) -> T) -> T {
        act(&mut self.plan.keeper.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Renews the claim on the session; false where a sibling has the better one.
    pub fn heartbeat(&self) -> bool {
        let now = now_ms();
        let session = self.keeper(|keeper| keeper.session().cloned());
        let lost = session.is_some_and(|session| self.is_taken(&session, now));
        if !lost && let Err(error) = self.keeper(|keeper| keeper.heartbeat(now)) {
            tracing::debug!(conversation = %self.plan.conversation, "{error}");
        }
        !lost
    }

    fn is_taken(&self, session: &HermesSessionId, now_ms: i64) -> bool {
        claims::is_taken(&self.bridge_dir, session, self.launch_epoch_s, now_ms)
    }

    /// What is asked before each post.
    pub fn permit(&self) -> Box<dyn Fn() -> Permit + Send> {
        let (bridge_dir, launch_epoch_s) = (self.bridge_dir.clone(), self.launch_epoch_s);
        let keeper = Arc::clone(&self.plan.keeper);
        Box::new(move || {
            let keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(session) = keeper.session() else { return Permit::Granted };
            let (laid_ms, renewed_ms) = (keeper.bound_ms(), keeper.heartbeat_ms());
            Claim { bridge_dir: &bridge_dir, session, launch_epoch_s, laid_ms, renewed_ms }.permit(now_ms())
        })
    }
}

/// The search for the session of a mirror that has no conversation yet, the configuration's `at`th.
pub fn scout(at: usize, mirror: &config::Mirror, places: &Places) -> Scout {
    let (dir, launch) = (bridge_dir(&places.dir, mirror), claim_epoch(mirror));
    let taken = move |session: &HermesSessionId| claims::is_taken(&dir, session, launch, now_ms());
    let conversation = ConversationId::new(mirror.conversation.as_str());
    let mut search = Search::new(conversation, target(mirror), Box::new(taken));
    search.history = mirror.history;
    Scout::new(at, purpose(mirror), search)
}

/// What a conversation is made for: the words by which the configuration chooses the session.
pub(super) fn purpose(mirror: &config::Mirror) -> String {
    match (&mirror.session, &mirror.workspace) {
        (Some(session), _) => of_session(&HermesSessionId::new(session.as_str())),
        (None, workspace) => {
            let workspace = workspace.as_deref().unwrap_or(Path::new("")).display();
            let since = mirror.launch_epoch.map(|since| format!(" since {since}"));
            format!("workspace {workspace}{}", since.unwrap_or_default())
        }
    }
}

/// The mirror's bridge directory: a runner's, or one of its own below the state directory `root`. Those of a database of
/// its own stand apart: a claim on a session says nothing of one of the same id in another database.
pub(super) fn bridge_dir(root: &Path, mirror: &config::Mirror) -> PathBuf {
    let apart = mirror.db.as_deref().map(|db| root.join(format!("database-{:016x}", digest(db))));
    let own = || apart.as_deref().unwrap_or(root).join(dir::file_name(&mirror.conversation));
    mirror.bridge_dir.clone().unwrap_or_else(own)
}

/// A digest of where a database is.
pub(super) fn digest(database: &Path) -> u64 {
    xxh3_64(database.as_os_str().as_encoded_bytes())
}

/// A mirror whose terminal's launch is not known stands behind those whose is.
#[allow(clippy::cast_precision_loss, reason = "ms since the epoch are far below 2^52")]
pub(super) fn claim_epoch(mirror: &config::Mirror) -> f64 {
    mirror.launch_epoch.unwrap_or_else(|| now_ms() as f64 / 1_000.0)
}

/// How a mirror knows its session.
pub(super) fn target(mirror: &config::Mirror) -> Target {
    match (&mirror.session, &mirror.workspace) {
        (Some(session), _) => Target::Session(HermesSessionId::new(session.as_str())),
        (None, workspace) => Target::Terminal(Terminal {
            workspace: workspace.clone().unwrap_or_default(),
            launch_epoch_s: mirror.launch_epoch.unwrap_or(0.0),
            sources: mirror.sources.clone(),
        }),
    }
}
