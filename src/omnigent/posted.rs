//! From the body of a post back to its item, so that a dead letter is known in a conversation by the same rule
//! as the item it was.

use serde_json::Value;

use crate::event::{Compaction, Item};

/// The item that a body says, if [`super::body::event`] wrote it for one that is stored.
///
/// Of a compaction, the messages it leaves live are not read: nothing is known by them.
#[must_use]
pub fn item(body: &[u8]) -> Option<Item> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let data = body.get("data")?;
    match body.get("type")?.as_str()? {
        "compaction" => Some(Item::Compaction(Compaction {
            summary: text(data, "summary")?,
            live: Vec::new(),
            token_count: data.get("token_count")?.as_u64()?,
            model: text(data, "model"),
        })),
        "external_conversation_item" => stored(data.get("item_type")?.as_str()?, data.get("item_data")?),
        _ => None,
    }
}

fn stored(kind: &str, data: &Value) -> Option<Item> {
    match kind {
        "message" => message(data),
        "function_call" => Some(Item::FunctionCall {
            call_id: text(data, "call_id")?,
            name: text(data, "name")?,
            arguments: text(data, "arguments")?,
        }),
        "function_call_output" => {
            Some(Item::FunctionCallOutput { call_id: text(data, "call_id")?, output: text(data, "output")? })
        }
        _ => None,
    }
}

fn message(data: &Value) -> Option<Item> {
    let parts = data.get("content")?.as_array()?;
    let all = |key: &str| parts.iter().filter_map(|part| text(part, key)).collect::<Vec<_>>();
    let words = all("text").concat();
    match data.get("role")?.as_str()? {
        "user" => Some(Item::User {
            text: words,
            images: all("image_url"),
            meta: data.get("is_meta").and_then(Value::as_bool).unwrap_or(false),
        }),
        "assistant" => Some(Item::Assistant { text: words }),
        _ => None,
    }
}

fn text(data: &Value, key: &str) -> Option<String> {
    data.get(key)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Post;
    use crate::ids::{ItemId, MessageId, ResponseId};
    use crate::omnigent::body;

    fn written(item: Item) -> Vec<u8> {
        let row = MessageId::new(7);
        let post = Post::Item { item, turn: ResponseId::for_turn(row), row, place: 1 };
        body::event(&post, "agent", Some(&ItemId::new("last"))).expect("a body").to_vec()
    }

    #[test]
    fn every_stored_item_is_read_as_it_was_written() {
        for written_item in [
            Item::User { text: "see\n".into(), images: vec!["data:a".into(), "data:b".into()], meta: false },
            Item::User { text: String::new(), images: vec!["data:a".into()], meta: false },
            Item::User { text: String::new(), images: vec![], meta: true },
            Item::Assistant { text: "yes \u{1f600}".into() },
            Item::FunctionCall { call_id: "c".into(), name: "ls".into(), arguments: "{\"a\":1".into() },
            Item::FunctionCallOutput { call_id: "c".into(), output: "out".into() },
            Item::Compaction(Compaction {
                summary: "sum".into(),
                live: Vec::new(),
                token_count: 12,
                model: Some("m".into()),
            }),
        ] {
            let read = item(&written(written_item.clone()));
            assert!(read.as_ref() == Some(&written_item), "{written_item:?}");
        }
    }

    #[test]
    fn what_is_never_stored_is_no_item() {
        assert!(item(&written(Item::Reasoning { text: "hm".into() })).is_none());
        for other in ["", "[]", "null", r#"{"type":"compaction"}"#, r#"{"type":"x","data":{}}"#] {
            assert!(item(other.as_bytes()).is_none(), "{other}");
        }
    }
}
