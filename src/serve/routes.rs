//! The calls of the Sessions API that the mirror makes, and those of the page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answer::Refusal;
use super::store::{ItemsQuery, Session, SessionsQuery, Store, StoreError};
use super::stream::{self, Events, Subject};
use super::{Arrival, Event, Shared, page};
use crate::loopback::{self, Door};

/// The longest body that is read, in bytes: messages hold images.
const LONGEST_BODY: usize = 64 << 20;
/// The agent that conversations are made with; Omnigent's own has the same name.
const AGENT: (&str, &str) = ("hermes-native-ui", "hermes-native-ui");
/// Items on a page where a request does not say.
const ITEMS: u32 = 100;
/// Most items, entries and conversations on a page.
const MOST: u32 = 1000;

type Answer<T> = Result<T, Refusal>;
type Server = State<Arc<Shared>>;

/// All that can be asked.
pub fn router(shared: Arc<Shared>) -> Router {
    let door = Door { port: shared.port, refuse: |reason| forbidden(reason).into_response() };
    Router::new()
        .route("/health", get(health))
        .route("/v1/agents", get(agents))
        .route("/v1/sessions", get(list).post(create))
        .route("/v1/sessions/{id}", get(session).patch(patch))
        .route("/v1/sessions/{id}/events", post(take))
        .route("/v1/sessions/{id}/items", get(items))
        .route("/v1/sessions/{id}/stream", get(follow))
        .route("/page/entries/{id}", get(entries))
        .route("/page/updates", get(updates))
        .merge(page::router())
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(middleware::from_fn_with_state(door, loopback::guard))
        .with_state(shared)
}

fn forbidden(reason: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "forbidden", reason)
}

async fn nowhere() -> Refusal {
    Refusal::not_found("Route")
}

async fn not_so() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "no such call here")
}

async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

async fn agents() -> Json<Value> {
    let (id, name) = AGENT;
    Json(json!({"object": "list", "data": [{"id": id, "object": "agent", "name": name, "harness": name}]}))
}

/// Looks something up or changes it; failing to is the server's fault.
async fn ask<T: Send + 'static>(
    shared: &Arc<Shared>,
    act: impl FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
) -> Answer<T> {
    Ok(shared.with_store(act).await??)
}

fn known<T>(found: Option<T>) -> Answer<T> {
    found.ok_or_else(|| Refusal::not_found("Session"))
}

async fn list(
    State(shared): Server,
    query: Result<Query<SessionsQuery>, QueryRejection>,
) -> Answer<Json<Value>> {
    let query = asked(query)?;
    let limit = limit(query.limit)?;
    let page = known(ask(&shared, move |store| store.sessions(&query, limit)).await?)?;
    let edge = |session: Option<&Session>| session.map(|session| session.id.clone());
    let (first, last) = (edge(page.data.first()), edge(page.data.last()));
    let body = json!({"object": "list", "data": page.data, "first_id": first, "last_id": last,
        "has_more": page.has_more});
    Ok(Json(body))
}

async fn create(
    State(shared): Server,
    body: Result<Bytes, BytesRejection>,
) -> Answer<(StatusCode, Json<Session>)> {
    #[derive(Deserialize)]
    struct Create {
        agent_id: String,
        #[serde(default)]
        title: Option<String>,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }
    let Create { agent_id, title, labels } = json(body)?;
    if agent_id != AGENT.0 {
        return Err(Refusal::invalid("unknown agent_id; see /v1/agents"));
    }
    let made = ask(&shared, move |store| store.create(title, labels)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

async fn session(State(shared): Server, Path(id): Path<String>) -> Answer<Json<Session>> {
    known(ask(&shared, move |store| store.session(&id)).await?).map(Json)
}

async fn patch(
    State(shared): Server,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<Session>> {
    #[derive(Deserialize)]
    struct Patch {
        #[serde(default)]
        external_session_id: Option<String>,
        #[serde(default)]
        title: Option<String>,
    }
    let Patch { external_session_id, title } = json(body)?;
    let alter = move |store: &mut Store| {
        store.alter(&id, |state| {
            state.external_session_id = external_session_id.or(state.external_session_id.take());
            state.title = title.or(state.title.take());
        })
    };
    known(ask(&shared, alter).await?).map(Json)
}

async fn take(
    State(shared): Server,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<(StatusCode, Json<Value>)> {
    let at = Instant::now();
    let event = Event::parse(&bytes(body)?)?;
    let observed = Arc::clone(&shared);
    let taken = move |store: &mut Store| {
        let taken = store.take(&id, &event)?;
        if let (Some(taken), Some(observer)) = (&taken, &observed.observer) {
            observer(Arrival { at, event: &event, fresh: taken.fresh });
        }
        Ok(taken.map(|taken| match event {
            Event::Boundary(_) => json!({"queued": true}),
            Event::Item { .. } => json!({"queued": false, "item_id": taken.item_id}),
            _ => json!({"queued": false}),
        }))
    };
    let answer = known(ask(&shared, taken).await?)?;
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

async fn items(
    State(shared): Server,
    Path(id): Path<String>,
    query: Result<Query<ItemsQuery>, QueryRejection>,
) -> Answer<Json<Value>> {
    let query = asked(query)?;
    let limit = limit(query.limit)?;
    let find = move |store: &mut Store| match store.session(&id)? {
        None => Ok(Err("Session")),
        Some(_) => Ok(store.items(&id, &query, limit)?.ok_or("Item")),
    };
    let page = ask(&shared, find).await?.map_err(Refusal::not_found)?;
    let edge = |item: Option<&Value>| item.and_then(|item| item.get("id")).cloned();
    let (first, last) = (edge(page.data.first()), edge(page.data.last()));
    let body = json!({"object": "list", "data": page.data, "first_id": first, "last_id": last,
        "has_more": page.has_more});
    Ok(Json(body))
}

async fn follow(State(shared): Server, Path(id): Path<String>, headers: HeaderMap) -> Answer<Events> {
    let subject = Subject { conversation: Some(place(&shared, id, None, &headers).await?), list: false };
    Ok(stream::follow(shared, subject))
}

#[derive(Deserialize)]
struct EntriesQuery {
    before: Option<i64>,
    limit: Option<u32>,
}

async fn entries(
    State(shared): Server,
    Path(id): Path<String>,
    query: Result<Query<EntriesQuery>, QueryRejection>,
) -> Answer<Json<Value>> {
    let EntriesQuery { before, limit: most } = asked(query)?;
    let most = limit(most)?;
    let find = move |store: &mut Store| match store.session(&id)? {
        None => Ok(None),
        Some(_) => store.entries_before(&id, before.unwrap_or(i64::MAX), most).map(Some),
    };
    let page = known(ask(&shared, find).await?)?;
    let shown: Vec<Value> = page.data.iter().map(stream::shown).collect();
    Ok(Json(json!({"data": shown, "has_more": page.has_more})))
}

#[derive(Deserialize)]
struct UpdatesQuery {
    conversation: Option<String>,
    after: Option<i64>,
}

async fn updates(
    State(shared): Server,
    headers: HeaderMap,
    query: Result<Query<UpdatesQuery>, QueryRejection>,
) -> Answer<Events> {
    let UpdatesQuery { conversation, after } = asked(query)?;
    let conversation = match conversation {
        Some(id) => Some(place(&shared, id, after, &headers).await?),
        None => None,
    };
    Ok(stream::follow(shared, Subject { conversation, list: true }))
}

/// Where a stream begins: behind the last event that a browser which comes back has seen, else behind `after`, else at
/// the end.
async fn place(
    shared: &Arc<Shared>,
    id: String,
    after: Option<i64>,
    headers: &HeaderMap,
) -> Answer<(String, i64)> {
    let seen = headers.get("last-event-id").and_then(|seen| seen.to_str().ok()?.parse().ok());
    let wanted = seen.or(after);
    let find = move |store: &mut Store| {
        if store.session(&id)?.is_none() {
            return Ok(None);
        }
        let from = match wanted {
            Some(seq) => seq,
            None => store.entries_before(&id, i64::MAX, 1)?.data.last().map_or(0, |entry| entry.seq),
        };
        Ok(Some((id, from)))
    };
    known(ask(shared, find).await?)
}

fn limit(asked: Option<u32>) -> Answer<u32> {
    let limit = asked.unwrap_or(ITEMS);
    if (1..=MOST).contains(&limit) { Ok(limit) } else { Err(Refusal::invalid("limit must be 1 to 1000")) }
}

fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Answer<T> {
    query.map(|Query(query)| query).map_err(|_| Refusal::invalid("the query is malformed"))
}

fn bytes(body: Result<Bytes, BytesRejection>) -> Answer<Bytes> {
    body.map_err(|rejection| {
        Refusal::new(rejection.status(), "unreadable", "the body is too long or broken off")
    })
}

fn json<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Answer<T> {
    serde_json::from_slice(&bytes(body)?).map_err(|_| Refusal::invalid("the body is malformed"))
}
