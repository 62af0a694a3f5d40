//! Read-back: what of ours does the conversation hold already?
//!
//! The server keeps an item under an id of its own and answers a post with it. When the answer is lost, the
//! only evidence is the conversation itself: an item of the same turn, type and payload, which no earlier post
//! of ours accounts for.

use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use super::answer::StoredItem;
use crate::event::Item;
use crate::ids::{MessageId, ResponseId};

/// Whether a stored item is what a post of `item` in `turn` would have left.
///
/// A user's message is compared by its words: the server may have put the images of a waiting web input into
/// it. A tool's output may have been cut at the server's own limit. A compaction carries no turn.
#[must_use]
pub fn is_same(item: &Item, turn: &ResponseId, stored: &StoredItem) -> bool {
    let text = |key: &str| stored.payload.get(key).and_then(Value::as_str).unwrap_or_default();
    let in_turn = stored.response_id.as_ref() == Some(turn);
    match item {
        Item::Reasoning { .. } => false,
        Item::User { text: words, .. } => {
            in_turn && stored.kind == "message" && text("role") == "user" && words_of(stored) == *words
        }
        Item::Assistant { text: words } => {
            in_turn && stored.kind == "message" && text("role") == "assistant" && words_of(stored) == *words
        }
        Item::FunctionCall { call_id, name, arguments } => {
            in_turn
                && stored.kind == "function_call"
                && (text("call_id"), text("name"), text("arguments")) == (call_id, name, arguments)
        }
        Item::FunctionCallOutput { call_id, output } => {
            in_turn
                && stored.kind == "function_call_output"
                && text("call_id") == call_id
                && is_kept(output, text("output"))
        }
        Item::Compaction(compaction) => stored.kind == "compaction" && text("summary") == compaction.summary,
    }
}

/// The shortest output that a server would cut, in bytes; a mirror's own limit lies far below by default.
const LEAST_SERVER_LIMIT: usize = 64 * 1024;

fn is_kept(sent: &str, stored: &str) -> bool {
    let head = || {
        let at = (0..=LEAST_SERVER_LIMIT / 2).rev().find(|at| sent.is_char_boundary(*at)).unwrap_or(0);
        sent.get(..at).unwrap_or_default()
    };
    sent == stored || (sent.len() > LEAST_SERVER_LIMIT && stored.starts_with(head()))
}

fn words_of(stored: &StoredItem) -> String {
    let parts = stored.payload.get("content").and_then(Value::as_array);
    let words = parts.into_iter().flatten().filter_map(|part| part.get("text").and_then(Value::as_str));
    words.collect::<Vec<_>>().concat()
}

/// The row that opened the turn of a stored item, if a mirror posted it.
#[must_use]
pub fn opener(stored: &StoredItem) -> Option<MessageId> {
    stored.response_id.as_ref()?.opener()
}

/// The words of a stored user message; `None` for any other item.
#[must_use]
pub fn user_words(stored: &StoredItem) -> Option<String> {
    let is_user = stored.payload.get("role").and_then(Value::as_str) == Some("user");
    (stored.kind == "message" && is_user).then(|| words_of(stored))
}

/// What an item's content comes to in 64 bits, the same in every version and on every machine.
#[must_use]
pub fn digest(item: &Item) -> u64 {
    let mut hash = Xxh3::new();
    let mut part = |text: &str| {
        hash.update(&text.len().to_le_bytes());
        hash.update(text.as_bytes());
    };
    part(item.name());
    match item {
        Item::Reasoning { text } | Item::Assistant { text } => part(text),
        Item::User { text, images, meta } => {
            part(text);
            part(if *meta { "meta" } else { "" });
            for image in images {
                part(image);
            }
        }
        Item::FunctionCall { call_id, name, arguments } => {
            part(call_id);
            part(name);
            part(arguments);
        }
        Item::FunctionCallOutput { call_id, output } => {
            part(call_id);
            part(output);
        }
        Item::Compaction(compaction) => part(&compaction.summary),
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(value: Value) -> StoredItem {
        serde_json::from_value(value).expect("stored item")
    }

    fn turn() -> ResponseId {
        ResponseId::new("hermes_turn_7")
    }

    #[test]
    fn the_same_words_of_the_same_speaker_in_the_same_turn_are_the_same() {
        let item = Item::Assistant { text: "hi".to_owned() };
        let found = |turn: &str, role: &str, text: &str| {
            stored(json!({"id": "i", "response_id": turn, "type": "message", "role": role,
                "content": [{"type": "output_text", "text": text}]}))
        };
        assert!(is_same(&item, &turn(), &found("hermes_turn_7", "assistant", "hi")));
        assert!(!is_same(&item, &turn(), &found("hermes_turn_8", "assistant", "hi")));
        assert!(!is_same(&item, &turn(), &found("hermes_turn_7", "user", "hi")));
        assert!(!is_same(&item, &turn(), &found("hermes_turn_7", "assistant", "hi!")));
    }

    #[test]
    fn a_users_message_is_known_by_its_words_whatever_images_the_server_put_beside_them() {
        let item = Item::User { text: "see".to_owned(), images: Vec::new(), meta: false };
        let found = stored(
            json!({"id": "i", "response_id": "hermes_turn_7", "type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:x"}]}),
        );
        assert!(is_same(&item, &turn(), &found));
        assert_eq!(user_words(&found).as_deref(), Some("see"));
        assert_eq!(opener(&found), Some(MessageId::new(7)));
    }

    #[test]
    fn an_output_that_the_server_cut_is_still_the_same() {
        let output = "é".repeat(LEAST_SERVER_LIMIT);
        let item = Item::FunctionCallOutput { call_id: "c".to_owned(), output: output.clone() };
        let found = |call: &str, output: &str| {
            stored(json!({"id": "i", "response_id": "hermes_turn_7", "type": "function_call_output",
                "call_id": call, "output": output}))
        };
        let cut: String = output.chars().take(LEAST_SERVER_LIMIT / 2).chain(" [cut]".chars()).collect();
        assert!(is_same(&item, &turn(), &found("c", &cut)));
        assert!(!is_same(&item, &turn(), &found("d", &cut)));
        assert!(!is_same(&item, &turn(), &found("c", "other")));
    }

    #[test]
    fn a_digest_tells_parts_apart_and_stays_the_same_between_versions() {
        let call = |id: &str, name: &str| {
            digest(&Item::FunctionCall {
                call_id: id.to_owned(),
                name: name.to_owned(),
                arguments: String::new(),
            })
        };
        assert_ne!(call("ab", "c"), call("a", "bc"));
        assert_eq!(digest(&Item::Assistant { text: "hi".to_owned() }), 15_816_384_896_743_279_041);
    }
}
