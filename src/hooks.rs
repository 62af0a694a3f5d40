//! Commands of the person's own, run when something happens to a mirror.
//!
//! Who tells of it never waits: for each kind there is one place for the newest that happened, and one task that runs
//! the command for it. What happens while a command runs takes the place of what waits there.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config;

/// How long commands may still take once the mirror ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// When a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A turn has ended, and its last item is delivered.
    TurnEnd,
    /// The model has asked the person something, and waits.
    Waiting,
    /// Something is amiss from now on.
    Degraded,
}

impl Kind {
    /// Its name, which is that of its setting.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TurnEnd => "turn_end",
            Self::Waiting => "waiting",
            Self::Degraded => "degraded",
        }
    }
}

/// What a command is told of what happened: environment variables, by their names behind `HERMES_MIRROR_`.
pub type Details = Vec<(&'static str, String)>;

/// Tells of what happens; cheap to clone. The default one has nobody to tell.
#[derive(Clone, Debug, Default)]
pub struct Teller(Arc<Places>);

#[derive(Debug, Default)]
struct Places {
    turn_end: Option<watch::Sender<Details>>,
    waiting: Option<watch::Sender<Details>>,
    degraded: Option<watch::Sender<Details>>,
}

impl Teller {
    /// Something happened. `details` is asked only where there is a command for it.
    pub fn tell(&self, kind: Kind, details: impl FnOnce() -> Details) {
        let place = match kind {
            Kind::TurnEnd => &self.0.turn_end,
            Kind::Waiting => &self.0.waiting,
            Kind::Degraded => &self.0.degraded,
        };
        if let Some(place) = place {
            place.send_replace(details());
        }
    }
}

/// The commands, which run once [`Hooks::start`] is called.
#[derive(Debug)]
pub struct Hooks(Vec<Hook>);

/// The commands of `[hooks]`, and who tells them.
#[must_use]
pub fn hooks(config: &config::Hooks) -> (Teller, Hooks) {
    let mut hooks = Vec::new();
    let limit = Duration::from_millis(config.timeout_ms);
    let mut place = |kind, argv: &Option<Vec<String>>| {
        let argv = argv.clone()?;
        let (sender, happened) = watch::channel(Details::new());
        hooks.push(Hook { kind, argv, limit, happened, fails: false });
        Some(sender)
    };
    let places = Places {
        turn_end: place(Kind::TurnEnd, &config.turn_end),
        waiting: place(Kind::Waiting, &config.waiting),
        degraded: place(Kind::Degraded, &config.degraded),
    };
    (Teller(Arc::new(places)), Hooks(hooks))
}

impl Hooks {
    /// Runs the commands from now on. To be called where tokio runs.
    #[must_use]
    pub fn start(self) -> Running {
        let (stop, _) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for hook in self.0 {
            tasks.spawn(hook.run(stop.subscribe()));
        }
        Running { tasks, stop }
    }
}

/// Commands that run when something happens. Dropped, it kills those that run.
#[derive(Debug)]
pub struct Running {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Running {
    /// Lets what was told by now be done, for a moment.
    pub async fn finish(mut self) {
        self.stop.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORDS, all).await;
    }
}

/// One command.
#[derive(Debug)]
struct Hook {
    kind: Kind,
    argv: Vec<String>,
    limit: Duration,
    happened: watch::Receiver<Details>,
    fails: bool,
}

/// Why a command did not do what it was to.
#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("cannot be run: {0}")]
    Spawn(#[from] std::io::Error),
    #[error("took longer than {} ms and was killed", .0.as_millis())]
    Slow(Duration),
    #[error("failed: {0}")]
    Failed(ExitStatus),
}

impl Hook {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                // What was told before the end is done first.
                biased;
                told = self.happened.changed() => if told.is_err() { return },
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let details = self.happened.borrow_and_update().clone();
            let done = self.once(details).await;
            self.note(done.err().as_ref());
        }
    }

    async fn once(&self, details: Details) -> Result<(), HookError> {
        let mut child = tokio::process::Command::new(self.program())
            .args(self.argv.iter().skip(1))
            .env("HERMES_MIRROR_EVENT", self.kind.name())
            .envs(details.into_iter().map(|(name, value)| (format!("HERMES_MIRROR_{name}"), value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let Ok(status) = tokio::time::timeout(self.limit, child.wait()).await else {
            child.kill().await?;
            return Err(HookError::Slow(self.limit));
        };
        let status = status?;
        if status.success() { Ok(()) } else { Err(HookError::Failed(status)) }
    }

    fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// Logs that it fails once when it begins, and once when it works again.
    fn note(&mut self, error: Option<&HookError>) {
        let before = std::mem::replace(&mut self.fails, error.is_some());
        // The arguments may hold what is nobody else's business.
        let (hook, program) = (self.kind.name(), self.program());
        match (error, before) {
            (Some(error), false) => tracing::warn!(hook, program, "the command {error}; mirroring goes on"),
            (Some(error), true) => tracing::debug!(hook, program, "the command {error}"),
            (None, true) => tracing::info!(hook, program, "the command works again"),
            (None, false) => {}
        }
    }
}
