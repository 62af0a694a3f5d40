//! Identifiers, one type each, so that the compiler refuses to mix them up.
//!
//! A Hermes session id and an Omnigent conversation id are both short strings, and the Omnigent API
//! calls its conversations "sessions"; passing one for the other is the easiest mistake to make here.
//!
//! ```
//! use hermes_mirror::ids::{ConversationId, HermesSessionId};
//! fn open(_: &ConversationId) {}
//! open(&ConversationId::new("conv_1"));
//! # let _ = HermesSessionId::new("20261129_202802_c4825e");
//! ```
//! ```compile_fail,E0308
//! use hermes_mirror::ids::{ConversationId, HermesSessionId};
//! fn open(_: &ConversationId) {}
//! open(&HermesSessionId::new("20261129_202802_c4825e"));
//! # let _ = ConversationId::new("conv_1");
//! ```
//!
//! Neither can a raw string stand in for an id, nor one kind be compared with another:
//!
//! ```
//! use hermes_mirror::ids::{ItemId, ResponseId};
//! assert!(ItemId::new("a") == ItemId::new("a"));
//! assert!(ResponseId::new("a") == ResponseId::new("a"));
//! ```
//! ```compile_fail,E0308
//! use hermes_mirror::ids::{ItemId, ResponseId};
//! assert!(ItemId::new("a") == ResponseId::new("a"));
//! ```
//!
//! A row id is a number of its own kind:
//!
//! ```
//! use hermes_mirror::ids::{MessageId, ResponseId};
//! let turn = ResponseId::for_turn(MessageId::new(7));
//! assert_eq!(turn.as_str(), "hermes_turn_7");
//! ```
//! ```compile_fail,E0308
//! use hermes_mirror::ids::ResponseId;
//! let turn = ResponseId::for_turn(7_i64);
//! ```
//!
//! A control-plane session is not a native one:
//!
//! ```
//! use hermes_mirror::ids::{ControlPlaneSessionId, HermesSessionId};
//! fn resume(_: HermesSessionId) {}
//! resume(HermesSessionId::new("n"));
//! # let _ = ControlPlaneSessionId::new("c");
//! ```
//! ```compile_fail,E0308
//! use hermes_mirror::ids::{ControlPlaneSessionId, HermesSessionId};
//! fn resume(_: HermesSessionId) {}
//! resume(ControlPlaneSessionId::new("c"));
//! # let _ = HermesSessionId::new("n");
//! ```

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the id as its owner wrote it.
            pub fn new(id: impl Into<Arc<str>>) -> Self {
                Self(id.into())
            }

            /// The id as its owner wrote it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

string_id! {
    /// `sessions.id` in Hermes's state.db, for example `20261129_202802_c4825e`.
    HermesSessionId
}
string_id! {
    /// The id of an Omnigent conversation; the server's API calls it a session.
    ConversationId
}
string_id! {
    /// The id of an agent of the Omnigent server, with which conversations are made.
    AgentId
}
string_id! {
    /// The id that Omnigent gave a stored conversation item.
    ItemId
}
string_id! {
    /// What groups the items of one turn on the web page: `hermes_turn_{id of the opening row}`.
    ResponseId
}
string_id! {
    /// A session of an EDITH control plane, which may refer to a Hermes session but never is one.
    ControlPlaneSessionId
}

impl ResponseId {
    /// The response id of the turn that `opener` opens.
    #[must_use]
    pub fn for_turn(opener: MessageId) -> Self {
        Self::new(format!("hermes_turn_{opener}"))
    }

    /// The row that opens the turn; `None` for an id that is not a mirror's.
    #[must_use]
    pub fn opener(&self) -> Option<MessageId> {
        self.as_str().strip_prefix("hermes_turn_")?.parse().ok().map(MessageId::new)
    }
}

/// `messages.id` in Hermes's state.db: the rowid, ascending in commit order over all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(i64);

impl MessageId {
    /// Before every row.
    pub const ZERO: Self = Self(0);

    /// Takes a rowid.
    #[must_use]
    pub const fn new(id: i64) -> Self {
        Self(id)
    }

    /// The rowid.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
