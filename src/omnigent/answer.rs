//! The server's answers, as far as they are read.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ids::{AgentId, ConversationId, HermesSessionId, ItemId, ResponseId};

/// An event that the server has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The id of the item that was stored. Live edges, figures and compaction boundaries are answered without one.
    pub item_id: Option<ItemId>,
}

/// What an accepted event is answered with. `queued` is the mark of the Sessions API: no other JSON passes for it.
#[derive(Deserialize)]
pub(crate) struct AcceptedAnswer {
    #[serde(rename = "queued")]
    _queued: bool,
    pub(crate) item_id: Option<ItemId>,
}

/// A conversation as the server describes it; its API calls it a session.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Session {
    /// The conversation.
    pub id: ConversationId,
    /// `idle`, `running`, `waiting`, `failed`, or a word of a newer server.
    #[serde(default)]
    pub status: Option<String>,
    /// The Hermes session it was last bound to.
    #[serde(default)]
    pub external_session_id: Option<HermesSessionId>,
    /// The turn that the server takes to be running.
    #[serde(default)]
    pub active_response_id: Option<ResponseId>,
}

/// The server's agents.
#[derive(Deserialize)]
pub(crate) struct Agents {
    #[serde(rename = "data")]
    pub(crate) agents: Vec<Agent>,
}

/// An agent of the server.
#[derive(Deserialize)]
pub(crate) struct Agent {
    pub(crate) id: AgentId,
    pub(crate) name: String,
}

/// One page of conversations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Sessions {
    /// The conversations.
    #[serde(rename = "data")]
    pub sessions: Vec<Listed>,
    /// Whether there are more behind the last one.
    #[serde(default)]
    pub has_more: bool,
}

impl Sessions {
    /// Where the next page starts; `None` on the last one.
    #[must_use]
    pub fn next(&self) -> Option<&ConversationId> {
        self.sessions.last().filter(|_| self.has_more).map(|session| &session.id)
    }
}

/// A conversation in a list.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Listed {
    /// The conversation.
    pub id: ConversationId,
    /// When it was made, in s since the epoch; `None` where the server does not say.
    #[serde(default)]
    pub created_at: Option<i64>,
    /// What was written on it when it was made, and since.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// One page of a conversation's items, in the order that was asked for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Page {
    /// The items.
    #[serde(rename = "data")]
    pub items: Vec<StoredItem>,
    /// Whether there are more behind the last one.
    pub has_more: bool,
}

impl Page {
    /// Where the next page starts; `None` on the last one.
    #[must_use]
    pub fn next(&self) -> Option<&ItemId> {
        self.items.last().filter(|_| self.has_more).map(|item| &item.id)
    }
}

/// An item as the server stores it.
#[derive(Clone, PartialEq, Deserialize)]
pub struct StoredItem {
    /// Its id.
    pub id: ItemId,
    /// The turn it belongs to.
    #[serde(default)]
    pub response_id: Option<ResponseId>,
    /// `message`, `function_call`, `function_call_output`, `compaction`, or a kind that we never post.
    #[serde(rename = "type")]
    pub kind: String,
    /// The rest: `status`, `created_at` and the item's own data, with `agent` renamed `model`.
    #[serde(flatten)]
    pub payload: Map<String, Value>,
}

impl fmt::Debug for StoredItem {
    /// Leaves the transcript's text out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredItem")
            .field("id", &self.id)
            .field("response_id", &self.response_id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// What `/health` answers.
#[derive(Deserialize)]
pub(crate) struct Health {
    #[serde(rename = "status")]
    pub(crate) _status: String,
}

/// How the server words a refusal.
#[derive(Deserialize)]
struct Refusal {
    error: RefusalError,
}

#[derive(Deserialize)]
struct RefusalError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Reads a JSON object; anything else, an array in the order of the fields included, is not an answer.
pub(crate) fn object<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    let first = body.iter().find(|b| !b.is_ascii_whitespace())?;
    if *first != b'{' {
        return None;
    }
    serde_json::from_slice(body).ok()
}

/// The server's own words on a refusal; none from a body that is not the API's, such as a proxy's page.
pub(crate) fn refusal(body: &[u8]) -> Option<String> {
    let Refusal { error: RefusalError { code, message } } = object(body)?;
    let said = [code, message].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    Some(said).filter(|said| !said.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(body: &str) -> Option<AcceptedAnswer> {
        object(body.as_bytes())
    }

    #[test]
    fn only_the_servers_own_object_says_accepted() {
        let stored = accepted(r#"{"queued":false,"item_id":"msg_1"}"#).unwrap();
        assert_eq!(stored.item_id, Some(ItemId::new("msg_1")));
        assert_eq!(accepted(r#"{"queued":true}"#).unwrap().item_id, None);
        assert_eq!(accepted(r#" {"queued":false,"item_id":null,"new":1}"#).unwrap().item_id, None);
        for other in [
            "",
            "{}",
            "null",
            "[false]",
            r#"[false,"msg_1"]"#,
            r#"{"queued":"no"}"#,
            r#"{"queued":false"#,
            "<html>",
        ] {
            assert!(accepted(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_stored_item_keeps_its_payload_and_shows_none_of_it() {
        let text = r#"{"data":[{"id":"i","response_id":"r","type":"message","role":"user","status":"completed",
            "content":[{"type":"input_text","text":"secret"}]}],"has_more":true,"first_id":"i","last_id":"i"}"#;
        let page: Page = object(text.as_bytes()).unwrap();
        assert_eq!(page.next(), Some(&ItemId::new("i")));
        let item = page.items.first().unwrap();
        assert_eq!(item.kind, "message");
        assert_eq!(item.payload.get("role"), Some(&Value::from("user")));
        assert_eq!(item.payload.get("id"), None);
        assert!(!format!("{page:?}").contains("secret"));
    }

    #[test]
    fn the_last_page_has_no_next() {
        let page: Page = object(br#"{"data":[{"id":"i","type":"error"}],"has_more":false}"#).unwrap();
        assert_eq!(page.next(), None);
        let empty: Page = object(br#"{"data":[],"has_more":true}"#).unwrap();
        assert_eq!(empty.next(), None);
    }

    #[test]
    fn a_refusal_is_quoted_only_from_the_servers_own_answer() {
        assert_eq!(refusal(br#"{"error":{"code":"not_found","message":"no"}}"#).unwrap(), "not_found: no");
        assert_eq!(refusal(br#"{"error":{"code":"busy"}}"#).unwrap(), "busy");
        assert_eq!(refusal(br#"{"error":{"message":"no"}}"#).unwrap(), "no");
        assert_eq!(refusal(br#"{"error":{}}"#), None);
        assert_eq!(refusal(b"<html>502</html>"), None);
    }
}
