//! The Sessions API in memory, as strict as the real one and by default more forgetful: it validates, and never de-duplicates.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::fault::Random;
use super::http::{Raw, Response};

/// The longest tool output that is kept, in bytes; the real server cuts there, too.
const LONGEST_OUTPUT: usize = 1 << 20;

/// Every conversation of one server.
pub struct Store {
    conversations: BTreeMap<String, Conversation>,
    /// Those that a request made, oldest first.
    made: Vec<String>,
    ids: Random,
    dedupe_source_ids: bool,
}

/// One conversation.
#[derive(Default)]
pub struct Conversation {
    /// Stored items as they read back, oldest first.
    pub items: Vec<Value>,
    /// Every accepted event, live ones included, in order.
    pub events: Vec<Value>,
    /// What was typed on the web page and waits for its row, oldest first.
    pub pending: Vec<String>,
    /// What had waited, each with the text of the message that was taken for it.
    pub answered: Vec<(String, String)>,
    session: Map<String, Value>,
    /// The item that each source id made.
    sources: BTreeMap<String, Value>,
}

impl Conversation {
    /// As the real server does: each message of a person answers the input that has waited longest, whatever it says.
    fn take_input(&mut self, item: &Value) {
        let is_typed = item["type"] == "message" && item["role"] == "user" && item["is_meta"] != true;
        if is_typed && !self.pending.is_empty() {
            let text = item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
            self.answered.push((self.pending.remove(0), text));
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            conversations: BTreeMap::new(),
            made: Vec::new(),
            ids: Random::new(0x0DD5),
            dedupe_source_ids: false,
        }
    }
}

impl Store {
    pub fn create(&mut self) -> String {
        let id = format!("conv_{:016x}", self.ids.next());
        let session = json!({"id": id, "object": "session", "status": "idle", "title": null,
            "active_response_id": null, "external_session_id": null});
        let Value::Object(session) = session else { unreachable!("written as an object") };
        self.conversations.insert(id.clone(), Conversation { session, ..Conversation::default() });
        id
    }

    /// Makes a conversation unknown, as one deleted on the web page is.
    pub fn delete(&mut self, id: &str) {
        self.conversations.remove(id);
        self.made.retain(|made| made != id);
    }

    pub fn dedupe_source_ids(&mut self, dedupe: bool) {
        self.dedupe_source_ids = dedupe;
    }

    pub fn conversation(&self, id: &str) -> Option<&Conversation> {
        self.conversations.get(id)
    }

    /// A person has typed something on the web page.
    pub fn await_input(&mut self, id: &str, text: &str) {
        self.conversations.get_mut(id).unwrap().pending.push(text.to_owned());
    }

    /// Stores an item as another writer would, past all faults.
    pub fn add_item(&mut self, id: &str, item: &Value) {
        let stored = self.stored(item);
        self.conversations.get_mut(id).unwrap().items.push(stored);
    }

    /// Acts on a request and answers it.
    pub fn handle(&mut self, request: &Raw) -> Response {
        let path: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
        // A base URL may carry a path prefix, which means nothing here.
        let api = path.iter().position(|part| *part == "v1").map_or(path.as_slice(), |at| &path[at..]);
        let answer = match (request.method.as_str(), api) {
            ("GET", [.., "health"]) => Ok((200, json!({"status": "ok"}))),
            ("GET", [.., "login"]) => return Response::html(200, &[]),
            ("GET", ["v1", "agents"]) => {
                Ok((200, json!({"data": [{"id": "agent_1", "name": "hermes-native-ui"}]})))
            }
            ("POST", ["v1", "sessions"]) => self.make(&request.body),
            ("GET", ["v1", "sessions"]) => self.list(&request.query),
            ("GET", ["v1", "sessions", id]) => self.session(id).map(|session| (200, session)),
            ("PATCH", ["v1", "sessions", id]) => self.patch(id, &request.body),
            ("GET", ["v1", "sessions", id, "items"]) => self.items(id, &request.query),
            ("POST", ["v1", "sessions", id, "events"]) => self.event(id, &request.body),
            _ => Err(Refusal(404, "not_found", "no such route".to_owned())),
        };
        match answer {
            Ok((status, body)) => Response::json(status, &body),
            Err(Refusal(status, code, message)) => {
                Response::json(status, &json!({"error": {"code": code, "message": message}}))
            }
        }
    }

    /// The conversations that requests made, oldest first.
    pub fn made(&self) -> &[String] {
        &self.made
    }

    /// A label that a conversation was made with.
    pub fn label(&self, conversation: &str, key: &str) -> &str {
        self.conversations[conversation].session["labels"][key].as_str().unwrap_or_default()
    }

    fn make(&mut self, body: &[u8]) -> Result<(u16, Value), Refusal> {
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        ensure(asked["agent_id"] == "agent_1", "agent_id must be that of an agent")?;
        let id = self.create();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let labels = asked.get("labels").cloned().unwrap_or_else(|| json!({}));
        let session = &mut self.find(&id)?.session;
        session.insert("labels".to_owned(), labels);
        session.insert("created_at".to_owned(), json!(seconds));
        self.made.push(id.clone());
        self.session(&id).map(|session| (201, session))
    }

    /// Those that requests made, newest first.
    fn list(&mut self, query: &[(String, String)]) -> Result<(u16, Value), Refusal> {
        let get = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        let limit: usize = get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(20);
        let after = get("after");
        let newest: Vec<String> = self.made.iter().rev().cloned().collect();
        let from = after.map_or(0, |after| newest.iter().take_while(|id| **id != after).count() + 1);
        let page: Vec<String> = newest.iter().skip(from).take(limit).cloned().collect();
        let data: Vec<Value> = page.iter().map(|id| self.session(id)).collect::<Result<_, _>>()?;
        Ok((200, json!({"object": "list", "data": data, "has_more": from + page.len() < newest.len()})))
    }

    fn find(&mut self, id: &str) -> Result<&mut Conversation, Refusal> {
        let unknown = || Refusal(404, "not_found", "Session not found".to_owned());
        self.conversations.get_mut(id).ok_or_else(unknown)
    }

    fn session(&mut self, id: &str) -> Result<Value, Refusal> {
        Ok(Value::Object(self.find(id)?.session.clone()))
    }

    fn patch(&mut self, id: &str, body: &[u8]) -> Result<(u16, Value), Refusal> {
        let conversation = self.find(id)?;
        let Ok(Value::Object(changes)) = serde_json::from_slice(body) else {
            return Err(invalid("body must be an object"));
        };
        conversation.session.extend(changes);
        Ok((200, Value::Object(conversation.session.clone())))
    }

    fn items(&mut self, id: &str, query: &[(String, String)]) -> Result<(u16, Value), Refusal> {
        let items = &self.find(id)?.items;
        let get = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let limit: usize = get("limit").unwrap_or("100").parse().map_err(|_| invalid("limit"))?;
        if !(1..=1000).contains(&limit) {
            return Err(invalid("limit must be 1 to 1000"));
        }
        let mut all: Vec<&Value> = items.iter().collect();
        match get("order").unwrap_or("asc") {
            "asc" => {}
            "desc" => all.reverse(),
            _ => return Err(invalid("order must be asc or desc")),
        }
        let place = |id: &str| {
            let unknown = || Refusal(404, "not_found", "Not found.".to_owned());
            all.iter().position(|item| item["id"] == id).ok_or_else(unknown)
        };
        let from = get("after").map(place).transpose()?.map_or(0, |at| at + 1);
        let to = get("before").map(place).transpose()?.unwrap_or(all.len());
        let range = all.get(from..to).unwrap_or_default();
        let page: Vec<&Value> = range.iter().take(limit).copied().collect();
        let edge = |item: Option<&&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        let body = json!({"object": "list", "first_id": edge(page.first()), "last_id": edge(page.last()),
            "has_more": range.len() > limit, "data": page});
        Ok((200, body))
    }

    fn event(&mut self, id: &str, body: &[u8]) -> Result<(u16, Value), Refusal> {
        self.find(id)?;
        let event: Value = serde_json::from_slice(body)
            .map_err(|_| Refusal(422, "unprocessable", "body must be JSON".to_owned()))?;
        let (Some(kind), Some(data)) = (event["type"].as_str(), event["data"].as_object()) else {
            return Err(invalid("body requires a string type and an object data"));
        };
        let answer = match kind {
            "external_conversation_item" => {
                let item = self.stored(&item(data)?);
                let item_id = item["id"].clone();
                let dedupe = self.dedupe_source_ids;
                let conversation = self.find(id)?;
                if let Some(source) = data.get("source_id").and_then(Value::as_str) {
                    let first =
                        conversation.sources.entry(source.to_owned()).or_insert_with(|| item_id.clone());
                    if dedupe && *first != item_id {
                        return Ok((202, json!({"queued": false, "item_id": first})));
                    }
                }
                conversation.take_input(&item);
                conversation.items.push(item);
                json!({"queued": false, "item_id": item_id})
            }
            "compaction" => {
                let item = self.stored(&boundary(data)?);
                self.find(id)?.items.push(item);
                json!({"queued": true})
            }
            _ => {
                live(kind, data)?;
                json!({"queued": false})
            }
        };
        let conversation = self.find(id)?;
        if kind == "external_session_status" {
            let active = if data["status"] == "running" { data.get("response_id").cloned() } else { None };
            conversation.session.insert("status".to_owned(), data["status"].clone());
            conversation.session.insert("active_response_id".to_owned(), active.unwrap_or_default());
        }
        conversation.events.push(event);
        Ok((202, answer))
    }

    /// Gives an item its id and the fields that every stored item has.
    fn stored(&mut self, item: &Value) -> Value {
        let mut stored = json!({"id": format!("{:016x}{:016x}", self.ids.next(), self.ids.next()),
            "status": "completed", "created_at": 1_753_900_000});
        let fields = stored.as_object_mut().unwrap();
        fields.extend(item.as_object().unwrap().clone());
        if !fields.contains_key("response_id") {
            fields.insert("response_id".to_owned(), json!(format!("compact_{:016x}", self.ids.next())));
        }
        stored
    }
}

/// Status, code and message of a refused request.
struct Refusal(u16, &'static str, String);

fn invalid(message: &str) -> Refusal {
    Refusal(400, "invalid_input", message.to_owned())
}

fn ensure(holds: bool, message: &str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(invalid(message)) }
}

fn text(data: &Map<String, Value>, key: &str) -> bool {
    data.get(key).is_some_and(Value::is_string)
}

/// Whether a field is absent, null, or what `test` wants.
fn optional(data: &Map<String, Value>, key: &str, test: fn(&Value) -> bool) -> bool {
    data.get(key).is_none_or(|value| value.is_null() || test(value))
}

/// An `external_conversation_item`, as it is stored.
fn item(data: &Map<String, Value>) -> Result<Value, Refusal> {
    let kind = data.get("item_type").and_then(Value::as_str).unwrap_or_default();
    let known = matches!(kind, "message" | "function_call" | "function_call_output");
    ensure(known, "external_conversation_item requires known data.item_type")?;
    let object = data.get("item_data").and_then(Value::as_object);
    let mut fields = object.ok_or_else(|| invalid("requires object data.item_data"))?.clone();
    let response_id = data.get("response_id").and_then(Value::as_str).unwrap_or_default().trim();
    ensure(!response_id.is_empty(), "data.response_id must be a non-empty string")?;
    let right = match kind {
        "message" => message(&fields),
        "function_call" => ["agent", "name", "arguments", "call_id"].iter().all(|key| text(&fields, key)),
        _ => text(&fields, "call_id") && text(&fields, "output"),
    };
    // The real server quotes the refused input in its message, so this one does.
    let quoted = format!("Invalid data payload for external item type '{kind}': [input_value={fields:?}]");
    ensure(right, &quoted)?;
    if let Some(Value::String(output)) = fields.get_mut("output") {
        cap(output);
    }
    if let Some(agent) = fields.remove("agent") {
        fields.insert("model".to_owned(), agent);
    }
    if fields.get("is_meta") == Some(&Value::Bool(false)) {
        fields.remove("is_meta");
    }
    fields.insert("type".to_owned(), json!(kind));
    fields.insert("response_id".to_owned(), json!(response_id));
    Ok(Value::Object(fields))
}

fn message(fields: &Map<String, Value>) -> bool {
    let blocks = fields.get("content").and_then(Value::as_array);
    let role = fields.get("role").and_then(Value::as_str);
    blocks.is_some_and(|blocks| blocks.iter().all(Value::is_object))
        && optional(fields, "is_meta", Value::is_boolean)
        && (role == Some("user") || role == Some("assistant") && text(fields, "agent"))
}

fn cap(output: &mut String) {
    let length = output.len();
    if length > LONGEST_OUTPUT {
        let omitted = length - LONGEST_OUTPUT;
        output.truncate(output.floor_char_boundary(LONGEST_OUTPUT));
        let note = format!("\n\n[output truncated by omnigent: {omitted} of {length} bytes omitted]");
        output.push_str(&note);
    }
}

/// A compaction boundary, as it is stored.
fn boundary(data: &Map<String, Value>) -> Result<Value, Refusal> {
    let right = text(data, "summary")
        && text(data, "last_item_id")
        && optional(data, "model", Value::is_string)
        && data.get("token_count").is_some_and(Value::is_u64)
        && optional(data, "compacted_messages", |list| {
            list.as_array().is_some_and(|list| list.iter().all(Value::is_object))
        });
    ensure(right, "Invalid compaction data")?;
    let mut fields = data.clone();
    fields.insert("type".to_owned(), json!("compaction"));
    Ok(Value::Object(fields))
}

/// An event that is shown or kept, but is no item.
fn live(kind: &str, data: &Map<String, Value>) -> Result<(), Refusal> {
    let one_of = |key: &str, words: &[&str]| {
        data.get(key).and_then(Value::as_str).is_some_and(|word| words.contains(&word))
    };
    let filled =
        |key: &str| data.get(key).and_then(Value::as_str).is_some_and(|value| !value.trim().is_empty());
    let right = match kind {
        "external_output_reasoning_delta" => {
            text(data, "delta") && optional(data, "started", Value::is_boolean)
        }
        "external_output_text_delta" => {
            text(data, "delta")
                && optional(data, "message_id", Value::is_string)
                && optional(data, "index", Value::is_i64)
                && optional(data, "final", Value::is_boolean)
        }
        "external_tool_output_delta" => filled("call_id") && text(data, "delta"),
        "external_session_status" => {
            one_of("status", &["running", "waiting", "idle", "failed"])
                && optional(data, "response_id", Value::is_string)
        }
        "external_session_usage" => usage(data),
        "external_session_title" => filled("title") && title(data),
        "external_model_change" => filled("model"),
        "external_session_interrupted" => optional(data, "response_id", Value::is_string),
        "external_session_todos" => {
            data.get("todos").and_then(Value::as_array).is_some_and(|list| todos(list))
        }
        "external_compaction_status" => one_of("status", &["in_progress", "completed", "failed"]),
        _ => return Err(invalid("unknown event type")),
    };
    ensure(right, &format!("{kind}: malformed data"))
}

fn usage(data: &Map<String, Value>) -> bool {
    let counts = ["context_tokens", "context_window", "cumulative_input_tokens", "cumulative_output_tokens"];
    let given = |key: &&str| data.get(*key).is_some_and(|value| !value.is_null());
    let some = counts.iter().chain(&["cumulative_cost_usd"]).any(given);
    some && counts.iter().all(|key| optional(data, key, Value::is_u64))
        && optional(data, "cumulative_cache_read_input_tokens", Value::is_u64)
        && optional(data, "cumulative_cost_usd", |cost| cost.as_f64().is_some_and(|cost| cost >= 0.0))
        && optional(data, "model", Value::is_string)
}

/// One line of at most 200 characters.
fn title(data: &Map<String, Value>) -> bool {
    let title = data.get("title").and_then(Value::as_str).unwrap_or_default();
    !title.contains(['\n', '\r']) && title.chars().count() <= 200
}

/// At most 100 entries, 256 KiB in all. The real server leaves malformed entries out; this one refuses them.
fn todos(list: &[Value]) -> bool {
    let entry = |todo: &Value| {
        let status = todo["status"].as_str().unwrap_or_default();
        todo["content"].is_string()
            && todo["activeForm"].is_string()
            && ["pending", "in_progress", "completed"].contains(&status)
    };
    let size = Value::from(list.to_vec()).to_string().len();
    list.len() <= 100 && size <= 256 << 10 && list.iter().all(entry)
}
