//! Which sessions a mirror of many takes, and where their conversations begin.

use std::path::Path;

use crate::config::{Choice, Glob, History};
use crate::event::Sighting;
use crate::hermes::{Descent, Open, SourceError};
use crate::ids::MessageId;
use crate::stage::seek;
use crate::state::ledger::of_session;

/// A `[[mirror]]` with `match`.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Which one of the configuration's.
    pub mirror: usize,
    /// What fits.
    pub choice: Choice,
    /// What is left out of it.
    pub exclude: Choice,
    /// What Hermes may call the sessions' source.
    pub sources: Vec<String>,
    /// Where a conversation begins.
    pub history: Option<History>,
}

impl Rule {
    /// Whether a session is of those that it takes.
    #[must_use]
    pub fn takes(&self, descent: &Descent) -> bool {
        let from = descent.root().is_some_and(|root| root.is_from(&self.sources));
        from && !descent.is_private() && self.fits(descent) && !self.excludes(descent)
    }

    fn fits(&self, descent: &Descent) -> bool {
        let Choice { workspace, title } = &self.choice;
        let here = |cwd: &Path| workspace.iter().any(|glob| is_in(glob, cwd));
        (workspace.is_empty() || descent.cwd().is_some_and(here))
            && (title.is_empty() || descent.titles().any(|one| title.iter().any(|glob| glob.matches(one))))
    }

    /// Where directories are left out, a session that records none can't be told from those, and is left out as well.
    fn excludes(&self, descent: &Descent) -> bool {
        let Choice { workspace, title } = &self.exclude;
        let here = |cwd: &Path| workspace.iter().any(|glob| is_in(glob, cwd));
        (!workspace.is_empty() && descent.cwd().is_none_or(here))
            || descent.titles().any(|one| title.iter().any(|glob| glob.matches(one)))
    }

    /// What is to be made for a session. Rows up to `looked` were there before it was looked for.
    pub fn sight(
        &self,
        open: &Open,
        descent: &Descent,
        looked: MessageId,
    ) -> Result<Option<Sighting>, SourceError> {
        let Some(root) = descent.root() else { return Ok(None) };
        let binding = seek::from_the_start(root.id.clone());
        Ok(Some(Sighting {
            mirror: self.mirror,
            purpose: of_session(&root.id),
            binding: seek::with_history(open, binding, self.history, looked)?,
            started_at: root.started_at,
        }))
    }
}

/// Whether a directory is of a pattern, as it is recorded or with its links resolved.
fn is_in(glob: &Glob, cwd: &Path) -> bool {
    let matches = |path: &Path| glob.matches(&path.to_string_lossy());
    matches(cwd) || cwd.canonicalize().is_ok_and(|resolved| matches(&resolved))
}
