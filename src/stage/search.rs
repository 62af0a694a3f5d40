//! One mirror's search for its session: the rule of `seek` asked again and again, and what stands in the way said once.

use super::seek::{self, Sought};
use crate::config::History;
use crate::event::Binding;
use crate::hermes::discovery::Terminal;
use crate::hermes::{Open, SourceError};
use crate::ids::{ConversationId, HermesSessionId};

/// How a mirror knows its session.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// By name.
    Session(HermesSessionId),
    /// By where and when its terminal was launched.
    Terminal(Terminal),
}

/// Says whether a live sibling mirrors a session already.
pub type TakenBySibling = Box<dyn Fn(&HermesSessionId) -> bool + Send>;

/// The search.
pub struct Search {
    /// For which conversation.
    pub conversation: ConversationId,
    /// What is looked for.
    pub target: Target,
    /// Whether a live sibling has a session.
    pub taken: TakenBySibling,
    /// Where it begins in a session of which nothing was shown.
    pub history: Option<History>,
    refused: Vec<HermesSessionId>,
    said_to_wait: bool,
}

impl Search {
    /// Nothing was found yet.
    #[must_use]
    pub fn new(conversation: ConversationId, target: Target, taken: TakenBySibling) -> Self {
        Self { conversation, target, taken, history: None, refused: Vec::new(), said_to_wait: false }
    }

    /// Whether the session is known by name, so that finding it costs little.
    #[must_use]
    pub fn is_named(&self) -> bool {
        matches!(self.target, Target::Session(_))
    }

    /// The session to follow; says once what stands in the way. `known`: the one that was bound before; `others` are
    /// followed by other mirrors of this process.
    pub fn find(
        &mut self,
        open: &Open,
        known: Option<&Binding>,
        others: &[HermesSessionId],
    ) -> Result<Option<Binding>, SourceError> {
        let sought = seek::seek(open, &self.target, known, others, &self.taken)?;
        if sought == Sought::default() && !self.said_to_wait {
            tracing::info!(conversation = %self.conversation, "no session fits yet; waiting for one");
            self.said_to_wait = true;
        }
        if let Some(session) = sought.left {
            self.leave_to_sibling(session);
        }
        if !sought.several.is_empty() {
            self.refuse(
                sought.several,
                "several sessions could be this terminal's and nothing tells them apart:",
                "name one as `session` in [[mirror]]",
            );
        }
        let is_new = |binding: &Binding| known.is_none_or(|known| known.session != binding.session);
        match sought.binding {
            Some(binding) if is_new(&binding) => {
                seek::with_history(open, binding, self.history, open.newest_row()?).map(Some)
            }
            binding => Ok(binding),
        }
    }

    /// A session is followed: what comes in the way of the next search is said anew.
    pub fn is_over(&mut self) {
        self.refused.clear();
        self.said_to_wait = false;
    }

    fn leave_to_sibling(&mut self, session: HermesSessionId) {
        if self.refused.as_slice() != std::slice::from_ref(&session) {
            tracing::warn!(
                conversation = %self.conversation, %session,
                "another mirror that was launched earlier mirrors this session; leaving it to that one"
            );
            self.refused = vec![session];
        }
    }

    /// Several sessions may be meant: says which, what of them, and what to do.
    pub fn refuse(&mut self, several: Vec<HermesSessionId>, what: &str, help: &str) {
        if several != self.refused {
            let list = several.iter().map(HermesSessionId::as_str).collect::<Vec<_>>().join(", ");
            tracing::warn!(conversation = %self.conversation, "{what} {list}; {help}");
            self.refused = several;
        }
    }
}
