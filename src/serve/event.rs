//! What may be posted to a conversation, and what is wrong with what may not.
//!
//! Taken is what the mirror posts; fields that are not known are left out, as the real server does.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answer::Refusal;
use crate::omnigent::limits;

/// The longest tool output that is kept, in bytes; the real server cuts there, too.
const LONGEST_OUTPUT: usize = 1 << 20;
/// The longest source id, in characters.
const LONGEST_SOURCE_ID: usize = 256;

/// An event that can be taken.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An item to store: a message, a tool call, its result.
    Item {
        /// As it reads back, but for what the store adds.
        item: Map<String, Value>,
        /// What is stored once, however often it is posted.
        source_id: Option<String>,
    },
    /// The boundary of a compaction, an item without a source.
    Boundary(Map<String, Value>),
    /// The model's reasoning.
    Reasoning(String),
    /// The person cut a turn short.
    Interrupted(Option<String>),
    /// Something about the conversation as a whole.
    Change(Change),
}

/// Something about the conversation as a whole is now so.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Whether it runs.
    Status(Status),
    /// Its figures. Those that are absent stay.
    Usage(Map<String, Value>),
    /// Its title.
    Title(String),
    /// Its model.
    Model(String),
    /// Its task list.
    Todos(Vec<Todo>),
    /// Whether it is being compacted.
    Compaction(CompactionStatus),
}

/// Whether a conversation runs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Status {
    /// The word for it.
    #[serde(rename = "status")]
    pub word: StatusWord,
    /// The turn.
    #[serde(default)]
    pub response_id: Option<String>,
    /// What it waits for.
    #[serde(default)]
    pub blocked_on: Option<String>,
}

/// The words for whether a conversation runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusWord {
    /// It does not.
    #[default]
    Idle,
    /// It does.
    Running,
    /// It waits for the person.
    Waiting,
    /// Its last turn failed.
    Failed,
}

/// An entry of a task list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Todo {
    content: String,
    status: TodoStatus,
    active_form: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    Pending,
    InProgress,
    Completed,
}

/// How a compaction stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStatus {
    /// It runs.
    InProgress,
    /// It is done.
    Completed,
    /// There is none, or it came to nothing.
    #[default]
    Failed,
}

#[derive(Deserialize)]
struct Posted {
    r#type: String,
    data: Map<String, Value>,
}

#[derive(Deserialize)]
struct PostedItem {
    item_type: String,
    item_data: Map<String, Value>,
    response_id: String,
    #[serde(default)]
    source_id: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct Message {
    role: Speaker,
    content: Vec<Map<String, Value>>,
    #[serde(default, rename(serialize = "model"), skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    is_meta: Option<bool>,
}

#[derive(PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Assistant,
}

#[derive(Deserialize, Serialize)]
struct FunctionCall {
    #[serde(rename(serialize = "model"))]
    agent: String,
    name: String,
    arguments: String,
    call_id: String,
}

#[derive(Deserialize, Serialize)]
struct FunctionCallOutput {
    call_id: String,
    output: String,
}

#[derive(Deserialize, Serialize)]
struct Boundary {
    summary: String,
    last_item_id: String,
    #[serde(default)]
    model: Option<String>,
    token_count: u64,
    #[serde(default)]
    compacted_messages: Option<Vec<Map<String, Value>>>,
}

#[derive(Deserialize, Serialize)]
struct Usage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context_window: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cumulative_cost_usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cumulative_input_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cumulative_output_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cumulative_cache_read_input_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

impl Event {
    /// Reads the body of a post.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let posted: Posted = serde_json::from_slice(body).map_err(|_| {
            Refusal::invalid("the body must be JSON with a string `type` and an object `data`")
        })?;
        let Posted { r#type: kind, data } = posted;
        let kind = kind.as_str();
        Ok(match kind {
            "external_conversation_item" => item(data)?,
            "compaction" => Self::Boundary(object("compaction", &typed::<Boundary>(kind, data)?)?),
            "external_output_reasoning_delta" => Self::Reasoning(text(kind, data, "delta")?),
            "external_session_interrupted" => {
                #[derive(Deserialize)]
                struct Interrupted {
                    #[serde(default)]
                    response_id: Option<String>,
                }
                Self::Interrupted(typed::<Interrupted>(kind, data)?.response_id)
            }
            _ => Self::Change(change(kind, data)?),
        })
    }
}

fn change(kind: &str, data: Map<String, Value>) -> Result<Change, Refusal> {
    #[derive(Deserialize)]
    struct Todos {
        todos: Vec<Todo>,
    }
    #[derive(Deserialize)]
    struct Compaction {
        status: CompactionStatus,
    }
    Ok(match kind {
        "external_session_status" => Change::Status(typed(kind, data)?),
        "external_session_usage" => Change::Usage(usage(kind, data)?),
        "external_session_title" => Change::Title(title(kind, data)?),
        "external_model_change" => Change::Model(filled(kind, text(kind, data, "model")?)?),
        "external_session_todos" => {
            let Todos { todos } = typed(kind, data)?;
            ensure(todos.len() <= limits::TASKS, kind, "a task list has at most 100 entries")?;
            Change::Todos(todos)
        }
        "external_compaction_status" => Change::Compaction(typed::<Compaction>(kind, data)?.status),
        _ => return Err(Refusal::invalid("unknown event type")),
    })
}

fn item(data: Map<String, Value>) -> Result<Event, Refusal> {
    const KIND: &str = "external_conversation_item";
    let PostedItem { item_type, item_data, response_id, source_id } = typed(KIND, data)?;
    ensure(!response_id.trim().is_empty(), KIND, "response_id must not be empty")?;
    if let Some(source) = &source_id {
        let length = source.trim().chars().count();
        ensure((1..=LONGEST_SOURCE_ID).contains(&length), KIND, "source_id has 1 to 256 characters")?;
    }
    let mut item = match item_type.as_str() {
        "message" => {
            let message: Message = typed(KIND, item_data)?;
            let named = message.role == Speaker::User || message.agent.is_some();
            ensure(named, KIND, "a message of the assistant names its agent")?;
            object("message", &message)?
        }
        "function_call" => object("function_call", &typed::<FunctionCall>(KIND, item_data)?)?,
        "function_call_output" => {
            let mut result: FunctionCallOutput = typed(KIND, item_data)?;
            cap(&mut result.output);
            object("function_call_output", &result)?
        }
        _ => return Err(Refusal::invalid(format!("{KIND}: unknown item_type"))),
    };
    item.insert("response_id".to_owned(), response_id.trim().into());
    Ok(Event::Item { item, source_id: source_id.map(|source| source.trim().to_owned()) })
}

fn usage(kind: &str, data: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let usage: Usage = typed(kind, data)?;
    let cost = usage.cumulative_cost_usd.is_none_or(|cost| cost.is_finite() && cost >= 0.0);
    ensure(cost, kind, "a cost is a number from 0")?;
    let any = usage.context_tokens.is_some()
        || usage.context_window.is_some()
        || usage.cumulative_cost_usd.is_some()
        || usage.cumulative_input_tokens.is_some()
        || usage.cumulative_output_tokens.is_some();
    ensure(any, kind, "at least one figure is needed")?;
    fields(&usage)
}

fn title(kind: &str, data: Map<String, Value>) -> Result<String, Refusal> {
    let title = filled(kind, text(kind, data, "title")?)?;
    let right = !title.contains(['\n', '\r']) && title.chars().count() <= limits::TITLE_CHARS;
    ensure(right, kind, "a title is one line of at most 200 characters")?;
    Ok(title)
}

/// The data as a type. What serde says of it is left out: it quotes the text it does not like.
fn typed<T: DeserializeOwned>(kind: &str, data: Map<String, Value>) -> Result<T, Refusal> {
    serde_json::from_value(Value::Object(data)).map_err(|_| malformed(kind))
}

fn text(kind: &str, mut data: Map<String, Value>, key: &str) -> Result<String, Refusal> {
    match data.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(malformed(kind)),
    }
}

fn filled(kind: &str, text: String) -> Result<String, Refusal> {
    if text.trim().is_empty() { Err(malformed(kind)) } else { Ok(text) }
}

fn ensure(holds: bool, kind: &str, message: &str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(Refusal::invalid(format!("{kind}: {message}"))) }
}

fn malformed(kind: &str) -> Refusal {
    Refusal::invalid(format!("{kind}: malformed data"))
}

/// The fields of an item of the given type.
fn object<T: Serialize>(kind: &str, data: &T) -> Result<Map<String, Value>, Refusal> {
    let mut fields = fields(data)?;
    fields.insert("type".to_owned(), kind.into());
    Ok(fields)
}

fn fields<T: Serialize>(data: &T) -> Result<Map<String, Value>, Refusal> {
    match serde_json::to_value(data) {
        Ok(Value::Object(fields)) => Ok(fields),
        // A structure of strings, numbers and objects has always that form.
        _ => Err(Refusal::invalid("the data has no JSON form")),
    }
}

fn cap(output: &mut String) {
    let length = output.len();
    if length > LONGEST_OUTPUT {
        output.truncate(output.floor_char_boundary(LONGEST_OUTPUT));
        output.push_str("\n\n[output cut: ");
        output.push_str(&(length - LONGEST_OUTPUT).to_string());
        output.push_str(" bytes left out]");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(kind: &str, data: &Value) -> Result<Event, Refusal> {
        Event::parse(json!({"type": kind, "data": data}).to_string().as_bytes())
    }

    #[test]
    fn an_item_reads_back_with_its_agent_as_the_model_and_without_what_is_unknown() {
        let data = json!({"item_type": "message", "response_id": " r ", "source_id": "s", "other": 1, "item_data":
            {"role": "assistant", "agent": "a", "other": 1, "content": [{"type": "output_text", "text": "hi"}]}});
        let Ok(Event::Item { item, source_id }) = parse("external_conversation_item", &data) else {
            panic!("an item")
        };
        let right = json!({"role": "assistant", "content": [{"type": "output_text", "text": "hi"}], "model": "a",
            "type": "message", "response_id": "r"});
        assert_eq!((Value::Object(item), source_id.as_deref()), (right, Some("s")));
    }

    #[test]
    fn what_is_malformed_is_refused_and_not_quoted() {
        let item =
            |kind: &str, data: Value| json!({"item_type": kind, "item_data": data, "response_id": "r"});
        for (kind, data) in [
            ("external_conversation_item", json!({})),
            ("external_conversation_item", item("secret", json!({}))),
            ("external_conversation_item", item("message", json!({"role": "secret", "content": []}))),
            ("external_conversation_item", item("message", json!({"role": "assistant", "content": []}))),
            ("external_conversation_item", item("message", json!({"role": "user", "content": "secret"}))),
            ("external_conversation_item", item("function_call", json!({"name": "secret"}))),
            (
                "external_conversation_item",
                item("function_call_output", json!({"call_id": 1, "output": "secret"})),
            ),
            ("compaction", json!({"summary": "secret"})),
            ("external_session_status", json!({"status": "secret"})),
            ("external_session_usage", json!({"model": "secret"})),
            ("external_session_usage", json!({"cumulative_cost_usd": -1.0})),
            ("external_session_title", json!({"title": " "})),
            ("external_session_title", json!({"title": "secret\nsecret"})),
            ("external_session_todos", json!({"todos": [{"content": "secret"}]})),
            ("external_compaction_status", json!({"status": "secret"})),
            ("external_output_reasoning_delta", json!({"delta": 1})),
            ("secret", json!({})),
        ] {
            let refusal = parse(kind, &data).expect_err("refused");
            assert!(!format!("{refusal:?}").contains("secret"), "{kind} {data}");
        }
        assert!(Event::parse(b"[]").is_err() && Event::parse(b"{\"type\"").is_err());
    }

    #[test]
    fn a_long_output_is_cut_between_characters_and_says_so() {
        let mut output = "é".repeat(LONGEST_OUTPUT);
        output.insert(0, 'x');
        cap(&mut output);
        assert!(output.len() < LONGEST_OUTPUT + 64 && output.ends_with("bytes left out]"));
    }
}
