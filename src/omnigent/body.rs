//! The bodies of `POST /v1/sessions/{id}/events`, written straight from the post they say.

use bytes::Bytes;
use serde::Serialize;

use crate::event::{Compaction, Item, Post, Role, Usage};
use crate::ids::{ItemId, MessageId, ResponseId};
use crate::omnigent::read_back::digest;

mod notice;

/// Writes a post as the server expects it; `agent` is the name that the model's messages and tool calls carry.
///
/// A compaction names the last item it covers, `last_item`, which the caller reads back from the server; no other
/// post looks at it. `None` means that there is nothing the server would take: a compaction in a conversation that
/// has no item yet, which has no boundary to show.
#[must_use]
pub fn event(post: &Post, agent: &str, last_item: Option<&ItemId>) -> Option<Bytes> {
    match post {
        Post::Item { item, turn, row, place } => match item {
            Item::Reasoning { text } => {
                write("external_output_reasoning_delta", &Reasoning { delta: text, started: true })
            }
            Item::Compaction(compaction) => write("compaction", &boundary(compaction, last_item?)),
            Item::User { text, images, meta } => {
                origin(item, turn, *row, *place).store(&user(text, images, *meta))
            }
            Item::Assistant { text } => {
                let content = vec![Content::OutputText { text }];
                let message =
                    ItemData::Message { role: "assistant", agent: Some(agent), is_meta: false, content };
                origin(item, turn, *row, *place).store(&message)
            }
            Item::FunctionCall { call_id, name, arguments } => {
                let call = ItemData::FunctionCall { agent, name, arguments, call_id };
                origin(item, turn, *row, *place).store(&call)
            }
            Item::FunctionCallOutput { call_id, output } => {
                origin(item, turn, *row, *place).store(&ItemData::FunctionCallOutput { call_id, output })
            }
        },
        Post::Running { turn } => status("running", turn),
        Post::Idle { turn, failed: false } => status("idle", turn),
        Post::Idle { turn, failed: true } => status("failed", turn),
        Post::Usage(usage) => write("external_session_usage", &totals(usage)),
        Post::Notice(notice) => notice::body(notice),
    }
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    r#type: &'a str,
    data: &'a T,
}

/// The types here hold strings and numbers alone, which always have a JSON form.
fn write<T: Serialize>(kind: &str, data: &T) -> Option<Bytes> {
    serde_json::to_vec(&Envelope { r#type: kind, data }).ok().map(Bytes::from)
}

#[derive(Serialize)]
struct Reasoning<'a> {
    delta: &'a str,
    /// Tells the web page that the model thinks before any text has come.
    started: bool,
}

#[derive(Serialize)]
struct Stored<'a> {
    item_type: &'static str,
    item_data: &'a ItemData<'a>,
    response_id: &'a ResponseId,
    /// Omnigent 0.19.1 stores one item for a source id, however often it is posted; another server may not look
    /// at it, so nothing relies on it.
    source_id: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ItemData<'a> {
    Message {
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        agent: Option<&'a str>,
        #[serde(skip_serializing_if = "is_false")]
        is_meta: bool,
        content: Vec<Content<'a>>,
    },
    FunctionCall {
        agent: &'a str,
        name: &'a str,
        arguments: &'a str,
        call_id: &'a str,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: &'a str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    InputText { text: &'a str },
    InputImage { image_url: &'a str },
    OutputText { text: &'a str },
}

/// Where an item comes from.
struct Origin<'a> {
    turn: &'a ResponseId,
    source_id: String,
}

/// The source id names the row, the item's place in it and its content, so that a row whose id is used again
/// (a restored database) is never taken for the one before.
fn origin<'a>(item: &Item, turn: &'a ResponseId, row: MessageId, place: u32) -> Origin<'a> {
    Origin { turn, source_id: format!("hermes:{row}:{place}:{:016x}", digest(item)) }
}

impl Origin<'_> {
    fn store(&self, item_data: &ItemData<'_>) -> Option<Bytes> {
        let item_type = match item_data {
            ItemData::Message { .. } => "message",
            ItemData::FunctionCall { .. } => "function_call",
            ItemData::FunctionCallOutput { .. } => "function_call_output",
        };
        let stored =
            Stored { item_type, item_data, response_id: self.turn, source_id: self.source_id.as_str() };
        write("external_conversation_item", &stored)
    }
}

fn user<'a>(text: &'a str, images: &'a [String], is_meta: bool) -> ItemData<'a> {
    // A picture sent without a word has no text part: an empty one would show as an empty bubble above it.
    let text_part = (!text.is_empty() || images.is_empty()).then_some(Content::InputText { text });
    let image_parts = images.iter().map(|url| Content::InputImage { image_url: url });
    let content = text_part.into_iter().chain(image_parts).collect();
    ItemData::Message { role: "user", agent: None, is_meta, content }
}

#[derive(Serialize)]
struct Status<'a> {
    status: &'a str,
    response_id: &'a ResponseId,
}

fn status(status: &str, turn: &ResponseId) -> Option<Bytes> {
    write("external_session_status", &Status { status, response_id: turn })
}

#[derive(Serialize)]
struct Totals<'a> {
    // Both counts always go out: a body with the model alone is answered 400.
    cumulative_input_tokens: u64,
    cumulative_output_tokens: u64,
    cumulative_cache_read_input_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cumulative_cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
}

fn totals(usage: &Usage) -> Totals<'_> {
    Totals {
        cumulative_input_tokens: usage.input_tokens,
        cumulative_output_tokens: usage.output_tokens,
        cumulative_cache_read_input_tokens: usage.cached_tokens,
        // The server refuses the whole body for a cost that is negative or not a number.
        cumulative_cost_usd: usage.cost_usd.filter(|cost| cost.is_finite() && *cost >= 0.0),
        model: usage.model.as_deref().filter(|model| !model.is_empty()),
    }
}

#[derive(Serialize)]
struct Boundary<'a> {
    summary: &'a str,
    last_item_id: &'a ItemId,
    model: &'a str,
    token_count: u64,
    compacted_messages: Vec<Compacted<'a>>,
}

#[derive(Serialize)]
struct Compacted<'a> {
    r#type: &'static str,
    role: &'static str,
    content: [Content<'a>; 1],
}

fn boundary<'a>(compaction: &'a Compaction, last_item_id: &'a ItemId) -> Boundary<'a> {
    Boundary {
        summary: &compaction.summary,
        last_item_id,
        model: compaction.model.as_deref().filter(|model| !model.is_empty()).unwrap_or("unknown"),
        token_count: compaction.token_count,
        compacted_messages: compaction
            .live
            .iter()
            .filter_map(|(role, text)| compacted(*role, text))
            .collect(),
    }
}

/// A message has one of two roles; what a tool said has no place among them.
fn compacted(role: Role, text: &str) -> Option<Compacted<'_>> {
    let (role, content) = match role {
        Role::User => ("user", Content::InputText { text }),
        Role::Assistant => ("assistant", Content::OutputText { text }),
        Role::Tool | Role::Other => return None,
    };
    Some(Compacted { r#type: "message", role, content: [content] })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn turn() -> ResponseId {
        ResponseId::for_turn(MessageId::new(7))
    }

    fn say(post: &Post) -> Value {
        serde_json::from_slice(&event(post, "hermes", Some(&ItemId::new("msg_9"))).unwrap()).unwrap()
    }

    fn item(item: Item) -> Value {
        let mut said = say(&Post::Item { item, turn: turn(), row: MessageId::new(8), place: 2 });
        if let Some(data) = said["data"].as_object_mut()
            && let Some(source) = data.remove("source_id")
        {
            assert!(source.as_str().unwrap().starts_with("hermes:8:2:"), "{source}");
        }
        said
    }

    fn as_item(item_type: &str, item_data: &Value) -> Value {
        json!({"type": "external_conversation_item", "data":
            {"item_type": item_type, "item_data": item_data, "response_id": "hermes_turn_7"}})
    }

    #[test]
    fn a_users_words_come_before_the_images() {
        let got =
            item(Item::User { text: "hi \u{1f600}\n".into(), images: vec!["data:a".into()], meta: false });
        let data = json!({"role": "user", "content": [{"type": "input_text", "text": "hi \u{1f600}\n"},
            {"type": "input_image", "image_url": "data:a"}]});
        assert_eq!(got, as_item("message", &data));
    }

    #[test]
    fn only_text_the_person_did_not_type_is_meta() {
        let got = item(Item::User { text: "x".into(), images: vec![], meta: true });
        let data = json!({"role": "user", "is_meta": true, "content": [{"type": "input_text", "text": "x"}]});
        assert_eq!(got, as_item("message", &data));
    }

    #[test]
    fn an_image_without_words_has_no_empty_text_part() {
        let got = item(Item::User { text: String::new(), images: vec!["data:a".into()], meta: false });
        let data = json!({"role": "user", "content": [{"type": "input_image", "image_url": "data:a"}]});
        assert_eq!(got, as_item("message", &data));
    }

    #[test]
    fn the_models_message_and_tool_call_name_the_agent() {
        let data = json!({"role": "assistant", "agent": "hermes", "content": [{"type": "output_text", "text": "yes"}]});
        assert_eq!(item(Item::Assistant { text: "yes".into() }), as_item("message", &data));
        let call =
            Item::FunctionCall { call_id: "c".into(), name: "ls".into(), arguments: "{\"a\":1".into() };
        let data = json!({"agent": "hermes", "name": "ls", "arguments": "{\"a\":1", "call_id": "c"});
        assert_eq!(item(call), as_item("function_call", &data));
    }

    #[test]
    fn a_tools_result_is_paired_by_its_call_id() {
        let output = Item::FunctionCallOutput { call_id: "c".into(), output: "out".into() };
        assert_eq!(item(output), as_item("function_call_output", &json!({"call_id": "c", "output": "out"})));
    }

    #[test]
    fn reasoning_is_a_live_delta() {
        let got = item(Item::Reasoning { text: "hm".into() });
        let right =
            json!({"type": "external_output_reasoning_delta", "data": {"delta": "hm", "started": true}});
        assert_eq!(got, right);
    }

    #[test]
    fn both_edges_name_the_turn() {
        for (post, word) in [
            (Post::Running { turn: turn() }, "running"),
            (Post::Idle { turn: turn(), failed: false }, "idle"),
            (Post::Idle { turn: turn(), failed: true }, "failed"),
        ] {
            let data = json!({"status": word, "response_id": "hermes_turn_7"});
            assert_eq!(say(&post), json!({"type": "external_session_status", "data": data}));
        }
    }

    fn compaction() -> Compaction {
        let live = vec![
            (Role::User, "a".to_owned()),
            (Role::Tool, "t".to_owned()),
            (Role::Assistant, "b".to_owned()),
            (Role::Other, "s".to_owned()),
        ];
        Compaction { summary: "sum".into(), live, token_count: 12, model: None }
    }

    #[test]
    fn a_compaction_names_the_item_it_reaches_to_and_what_is_left() {
        let right = json!({"type": "compaction", "data": {"summary": "sum", "last_item_id": "msg_9",
            "model": "unknown", "token_count": 12, "compacted_messages": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]}]}});
        assert_eq!(item(Item::Compaction(compaction())), right);
    }

    #[test]
    fn a_compaction_with_nothing_before_it_is_not_sent() {
        let post = Post::Item {
            item: Item::Compaction(compaction()),
            turn: turn(),
            row: MessageId::new(8),
            place: 1,
        };
        assert_eq!(event(&post, "hermes", None), None);
    }

    #[test]
    fn usage_never_goes_out_with_the_model_alone() {
        let usage = Usage { model: Some("m".into()), ..Usage::default() };
        let right = json!({"type": "external_session_usage", "data": {"cumulative_input_tokens": 0,
            "cumulative_output_tokens": 0, "cumulative_cache_read_input_tokens": 0, "model": "m"}});
        assert_eq!(say(&Post::Usage(usage)), right);
    }

    #[test]
    fn a_cost_the_server_would_refuse_is_left_out() {
        for (cost, sent) in
            [(Some(0.25), true), (Some(f64::NAN), false), (Some(-1.0), false), (Some(f64::INFINITY), false)]
        {
            let got = say(&Post::Usage(Usage { cost_usd: cost, ..Usage::default() }));
            assert_eq!(got["data"].get("cumulative_cost_usd").is_some(), sent, "{cost:?}");
        }
    }
}
