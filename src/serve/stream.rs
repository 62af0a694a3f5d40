//! What a page is sent, as server-sent events in the shapes of Omnigent's own stream.
//!
//! A stream is a place in a conversation, the number of the last entry it was sent, and reads on from there whenever
//! the pulse says so. The number is each event's id: a browser that lost its connection names it, and goes on behind it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{self, Sse};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::event::CompactionStatus;
use super::store::{Entry, State};
use super::{Pulse, Shared};

/// How often a silent stream says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Entries that are read at once.
const BATCH: u32 = 200;
/// Events that may wait for a slow reader; the others wait in the store.
const WAITING: usize = 64;

/// What to follow.
#[derive(Debug, Default)]
pub struct Subject {
    /// A conversation, from behind the entry of this number.
    pub conversation: Option<(String, i64)>,
    /// Whether the list of conversations has changed.
    pub list: bool,
}

/// A stream of server-sent events.
pub type Events =
    Sse<std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<sse::Event, Infallible>> + Send>>>;

/// Follows a subject until the client leaves or the server stops. The first event says that it follows.
pub fn follow(shared: Arc<Shared>, subject: Subject) -> Events {
    let (out, events) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let mut follower = Follower { conversation: None, list: subject.list, listed: None, out };
        follower.conversation = subject.conversation.map(|(id, seq)| Followed { id, seq, state: None });
        // Either the client has left or the store has failed, which is in the log.
        let _ = follower.run(&shared).await;
    });
    Sse::new(Box::pin(ReceiverStream::new(events).map(Ok)))
}

/// The stream is over.
struct Over;

struct Follower {
    conversation: Option<Followed>,
    list: bool,
    listed: Option<u64>,
    out: mpsc::Sender<sse::Event>,
}

struct Followed {
    id: String,
    seq: i64,
    state: Option<State>,
}

impl Follower {
    async fn run(&mut self, shared: &Arc<Shared>) -> Result<(), Over> {
        let mut pulse = shared.pulse.subscribe();
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.tick().await;
        self.send(None, &json!({"type": "session.heartbeat"})).await?;
        loop {
            let now: Pulse = *pulse.borrow_and_update();
            if now.stopping {
                return Err(Over);
            }
            if self.list && self.listed.replace(now.list) != Some(now.list) {
                self.send(None, &json!({"type": "sessions.changed"})).await?;
            }
            self.catch_up(shared).await?;
            tokio::select! {
                changed = pulse.changed() => changed.map_err(|_| Over)?,
                _ = heartbeat.tick() => self.send(None, &json!({"type": "session.heartbeat"})).await?,
                () = self.out.closed() => return Err(Over),
            }
        }
    }

    /// Sends what the conversation has that was not sent yet.
    async fn catch_up(&mut self, shared: &Arc<Shared>) -> Result<(), Over> {
        let Some(mut followed) = self.conversation.take() else { return Ok(()) };
        loop {
            let (id, seq) = (followed.id.clone(), followed.seq);
            let read = shared.with_store(move |store| -> Result<_, super::StoreError> {
                Ok((store.session(&id)?, store.entries_after(&id, seq, BATCH)?))
            });
            let read = read.await.map_err(|error| tracing::error!("a stream failed: {error}"));
            let (session, entries) = read
                .and_then(|read| read.map_err(|error| tracing::error!("a stream failed: {error}")))
                .map_err(|()| Over)?;
            let Some(session) = session else { return Err(Over) };
            let state = session.state;
            // A turn begins before its items are shown, and ends behind them.
            if state.active_response_id.is_some() {
                self.send_changes(&followed.id, followed.state.as_ref(), &state).await?;
                followed.state = Some(state.clone());
            }
            let whole = u32::try_from(entries.len()).unwrap_or(BATCH) < BATCH;
            for entry in &entries {
                followed.seq = entry.seq;
                self.send(Some(entry.seq), &shown(entry)).await?;
            }
            if whole {
                self.send_changes(&followed.id, followed.state.as_ref(), &state).await?;
                followed.state = Some(state);
                break;
            }
        }
        self.conversation = Some(followed);
        Ok(())
    }

    async fn send_changes(&self, id: &str, before: Option<&State>, now: &State) -> Result<(), Over> {
        for change in changes(id, before, now) {
            self.send(None, &change).await?;
        }
        Ok(())
    }

    async fn send(&self, seq: Option<i64>, event: &Value) -> Result<(), Over> {
        let name = event.get("type").and_then(Value::as_str).unwrap_or_default();
        let frame = sse::Event::default().event(name).data(event.to_string());
        let frame = match seq {
            Some(seq) => frame.id(seq.to_string()),
            None => frame,
        };
        self.out.send(frame).await.map_err(|_| Over)
    }
}

/// An entry as it is shown.
pub fn shown(entry: &Entry) -> Value {
    let body = &entry.body;
    let is_users = entry.kind == "item" && body.get("role").and_then(Value::as_str) == Some("user");
    let mut event = match entry.kind.as_str() {
        "reasoning" => json!({"type": "response.reasoning_text.delta", "delta": body.get("delta")}),
        "interrupted" => json!({"type": "session.interrupted", "data": body}),
        _ if is_users => json!({"type": "session.input.consumed",
            "data": {"item_id": body.get("id"), "type": "message", "data": body}}),
        _ => json!({"type": "response.output_item.done", "item": body}),
    };
    if let Some(event) = event.as_object_mut() {
        event.insert("seq".to_owned(), entry.seq.into());
        event.insert("at_ms".to_owned(), entry.at_ms.into());
    }
    event
}

/// What has changed about a conversation, as events; all that is set where nothing was sent before.
fn changes(id: &str, before: Option<&State>, now: &State) -> Vec<Value> {
    let start = State::default();
    let old = before.unwrap_or(&start);
    let mut events = Vec::new();
    let status = |state: &State| (state.status, state.active_response_id.clone(), state.blocked_on.clone());
    if before.is_none() || status(old) != status(now) {
        events.push(json!({"type": "session.status", "conversation_id": id, "status": now.status,
            "response_id": now.active_response_id, "blocked_on": now.blocked_on}));
    }
    if old.title != now.title || old.preview != now.preview {
        events.push(json!({"type": "session.title", "conversation_id": id,
            "title": now.title.as_ref().or(now.preview.as_ref())}));
    }
    if old.llm_model != now.llm_model {
        events.push(json!({"type": "session.model", "conversation_id": id, "model": now.llm_model}));
    }
    if old.usage != now.usage {
        events.push(json!({"type": "session.usage", "conversation_id": id, "usage": now.usage,
            "total_cost_usd": now.usage.get("cumulative_cost_usd")}));
    }
    if old.todos != now.todos {
        events.push(json!({"type": "session.todos", "conversation_id": id, "todos": now.todos}));
    }
    if old.compaction != now.compaction {
        let word = match now.compaction {
            CompactionStatus::InProgress => "in_progress",
            CompactionStatus::Completed => "completed",
            CompactionStatus::Failed => "failed",
        };
        events.push(json!({"type": format!("response.compaction.{word}")}));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_change_is_not_sent_again() {
        let state = State { title: Some("t".to_owned()), ..State::default() };
        let first = changes("c", None, &state);
        let kinds = |events: &[Value]| events.iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
        assert_eq!(kinds(&first), ["session.status", "session.title"]);
        assert!(changes("c", Some(&state), &state).is_empty());
        let named = State { llm_model: Some("m".to_owned()), ..state.clone() };
        assert_eq!(kinds(&changes("c", Some(&state), &named)), ["session.model"]);
    }

    #[test]
    fn a_conversation_without_a_title_is_called_by_its_first_words() {
        let state = State { preview: Some("hello".to_owned()), ..State::default() };
        assert_eq!(changes("c", None, &state)[1]["title"], "hello");
    }
}
