//! One request, one answer: the calls that the mirror makes.
//!
//! Nothing here tries twice. A success is believed only with the body that the Sessions API gives it, because an
//! expired login, a proxy or a wrong path prefix all answer 200 to something.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode, Url};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config;
use crate::ids::{AgentId, ConversationId, HermesSessionId, ItemId};
use crate::omnigent::address::{Address, AddressError};
use crate::omnigent::answer::{self, Accepted, AcceptedAnswer, Agents, Health, Page, Session, Sessions};
use crate::omnigent::auth::{AuthError, Environment, TokenSource};
use crate::omnigent::fault::{self, Fault, FaultKind};

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 1 << 20;

/// The longest page of items that is read, in bytes: items hold images.
const LONGEST_PAGE: usize = 64 << 20;

/// In which direction a page of items runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    Descending,
}

impl Order {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }
}

/// Why a client can't be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error("`deliver.base_url` {0}")]
    Address(#[from] AddressError),
    /// The token's source is unclear.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The HTTP client can't be set up; over TLS for want of root certificates, most likely.
    #[error("cannot set up the HTTP client: {0}")]
    Http(#[source] reqwest::Error),
}

/// Speaks to one Omnigent server. Clones share connections and token.
#[derive(Clone)]
pub struct Client {
    http: Arc<RwLock<Connections>>,
    config: Arc<config::Deliver>,
    address: Address,
    tokens: Arc<TokenSource>,
}

/// The connections that are in use, and since when.
struct Connections {
    http: reqwest::Client,
    since: Instant,
}

/// A renewal answers all that are asked for within this time.
const RENEWED_LATELY: Duration = Duration::from_secs(2);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.address)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Sets a client up; connects to nothing and reads no token yet. `environment` looks up variables.
    pub fn new(config: &config::Deliver, environment: Environment) -> Result<Self, ClientError> {
        let address = Address::parse(&config.base_url)?;
        let tokens = TokenSource::new(&config.auth, environment)?;
        let http = http_client(config, &address).map_err(ClientError::Http)?;
        let http = Arc::new(RwLock::new(Connections { http, since: Instant::now() }));
        Ok(Self { http, config: Arc::new(config.clone()), address, tokens: Arc::new(tokens) })
    }

    /// Leaves all open connections behind; the next request makes a fresh one.
    ///
    /// For a machine that woke from sleep: its clocks call a connection young that the server closed long ago.
    /// Many lanes that wake together renew once.
    pub fn renew(&self) {
        let mut connections = self.http.write().unwrap_or_else(PoisonError::into_inner);
        if connections.since.elapsed() < RENEWED_LATELY {
            return;
        }
        // What could be set up before can be again; if not, the old connections serve on.
        if let Ok(http) = http_client(&self.config, &self.address) {
            *connections = Connections { http, since: Instant::now() };
        }
    }

    fn http(&self) -> reqwest::Client {
        self.http.read().unwrap_or_else(PoisonError::into_inner).http.clone()
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Posts one event, written by [`crate::omnigent::body::event`].
    pub async fn post_event(&self, conversation: &ConversationId, body: Bytes) -> Result<Accepted, Fault> {
        let url = self.address.events(conversation);
        let answer: AcceptedAnswer = self.call(Method::POST, url, Some(body), LONGEST_ANSWER).await?;
        Ok(Accepted { item_id: answer.item_id })
    }

    /// The agent of this name.
    pub async fn agent(&self, name: &str) -> Result<AgentId, Fault> {
        let url = self.address.agents();
        let about = format!("GET {}", url.path());
        let found: Agents = self.call(Method::GET, url, None, LONGEST_PAGE).await?;
        let agent = found.agents.into_iter().find(|agent| agent.name == name);
        let missing = || Fault::new(FaultKind::BadAnswer, format!("{about}: there is no agent `{name}`"));
        Ok(agent.ok_or_else(missing)?.id)
    }

    /// Makes a conversation that carries a label, by which it can be found again.
    pub async fn create(&self, agent: &AgentId, label: (&str, &str)) -> Result<Session, Fault> {
        #[derive(Serialize)]
        struct Create<'a> {
            agent_id: &'a AgentId,
            labels: BTreeMap<&'a str, &'a str>,
        }
        let create = Create { agent_id: agent, labels: BTreeMap::from([label]) };
        let body = serde_json::to_vec(&create).unwrap_or_default();
        self.call(Method::POST, self.address.sessions(), Some(Bytes::from(body)), LONGEST_ANSWER).await
    }

    /// One page of the conversations of the agent of this name, newest first, from behind `after`.
    pub async fn sessions(
        &self,
        agent: &str,
        after: Option<&ConversationId>,
        limit: u16,
    ) -> Result<Sessions, Fault> {
        let url = self.address.sessions_of(agent, after, limit);
        self.call(Method::GET, url, None, LONGEST_PAGE).await
    }

    /// Tells the server which Hermes session the conversation mirrors.
    pub async fn bind(
        &self,
        conversation: &ConversationId,
        session: &HermesSessionId,
    ) -> Result<Session, Fault> {
        #[derive(Serialize)]
        struct Bind<'a> {
            external_session_id: &'a HermesSessionId,
        }
        let body = serde_json::to_vec(&Bind { external_session_id: session }).unwrap_or_default();
        let url = self.address.session(conversation);
        self.call(Method::PATCH, url, Some(Bytes::from(body)), LONGEST_ANSWER).await
    }

    /// The conversation as the server describes it.
    pub async fn session(&self, conversation: &ConversationId) -> Result<Session, Fault> {
        self.call(Method::GET, self.address.session(conversation), None, LONGEST_ANSWER).await
    }

    /// One page of stored items, from behind `after` or from the end that `order` begins at. `limit` is 1 to 1000.
    ///
    /// A server answers 404 to an `after` that it does not hold, as it does to an unknown conversation.
    pub async fn items(
        &self,
        conversation: &ConversationId,
        after: Option<&ItemId>,
        order: Order,
        limit: u16,
    ) -> Result<Page, Fault> {
        let url = self.address.items(conversation, after, order, limit.clamp(1, 1000));
        self.call(Method::GET, url, None, LONGEST_PAGE).await
    }

    /// The newest stored item; `None` in an empty conversation.
    pub async fn last_item(&self, conversation: &ConversationId) -> Result<Option<ItemId>, Fault> {
        let page = self.items(conversation, None, Order::Descending, 1).await?;
        Ok(page.items.into_iter().next().map(|item| item.id))
    }

    /// Whether an Omnigent server answers at the address.
    pub async fn health(&self) -> Result<(), Fault> {
        self.call::<Health>(Method::GET, self.address.health(), None, LONGEST_ANSWER).await.map(|_| ())
    }

    /// Reads the token again. Says whether it is another than before: if not, a new attempt ends as the last one did.
    pub async fn refresh_token(&self) -> Result<bool, Fault> {
        self.tokens.refresh().await.map_err(|error| Fault::new(FaultKind::Token, error.to_string()))
    }

    /// Sends a request and reads the object it is answered with.
    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<Bytes>,
        longest: usize,
    ) -> Result<T, Fault> {
        let about = format!("{method} {}", url.path());
        let token = self.tokens.header().await;
        let token = token.map_err(|error| Fault::new(FaultKind::Token, error.to_string()))?;
        let mut request = self.http().request(method, url);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body);
        }
        let mut response = request.send().await.map_err(|error| self.lost(&about, error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(&about, status, &mut response).await);
        }
        match read(&mut response, longest).await {
            Ok(Some(body)) => {
                answer::object(&body).ok_or_else(|| not_ours(&about, status, response.headers()))
            }
            Ok(None) => {
                Err(Fault::new(FaultKind::BadAnswer, format!("{about}: longer than {longest} bytes")))
            }
            Err(error) => Err(self.lost(&about, error)),
        }
    }

    /// A request that got no whole answer.
    fn lost(&self, about: &str, error: reqwest::Error) -> Fault {
        let kind = match (error.is_connect(), error.is_timeout()) {
            (true, true) => FaultKind::Timeout { sent: false },
            (true, false) => FaultKind::Connect,
            (false, true) => FaultKind::Timeout { sent: true },
            (false, false) => FaultKind::Broken,
        };
        let error = error.without_url();
        let mut cause: &dyn Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Fault::new(kind, format!("{} {about}: {cause}", self.address))
    }

    /// An answer that is no success.
    async fn refused(&self, about: &str, status: StatusCode, response: &mut Response) -> Fault {
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|value| fault::retry_after(value, SystemTime::now()));
        // The status is known; what else the server has to say is worth no failure of its own.
        let body = read(response, LONGEST_ANSWER).await.ok().flatten().unwrap_or_default();
        let secret = self.tokens.in_use();
        let secret = secret.as_ref().map(ExposeSecret::expose_secret);
        let said = answer::refusal(&body).map(|message| fault::presentable(&message, secret));
        let detail = match said.filter(|message| !message.is_empty()) {
            Some(message) => format!("{about}: {message}"),
            None => about.to_owned(),
        };
        Fault { retry_after, ..Fault::new(FaultKind::Status(status.as_u16()), detail) }
    }
}

fn http_client(config: &config::Deliver, address: &Address) -> Result<reqwest::Client, reqwest::Error> {
    // Fails where a provider stands already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let total = Duration::from_millis(config.timeout_ms);
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("hermes-mirror/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .http1_only()
        .tcp_nodelay(true)
        .timeout(total)
        // Never longer than the total, so that a time-out while connecting is known to have sent nothing.
        .connect_timeout(total.min(Duration::from_millis(config.connect_timeout_ms)))
        .pool_idle_timeout(Duration::from_millis(config.keep_alive_ms));
    if config.keep_alive_ms == 0 {
        builder = builder.pool_max_idle_per_host(0);
    }
    if address.is_loopback() {
        builder = builder.no_proxy();
    }
    if !address.is_tls() {
        // Spares a machine without root certificates an error, and every other one the memory for them.
        builder = builder.tls_certs_only([]);
    }
    builder.build()
}

/// Reads a body; `None` if it is longer than `longest` bytes.
async fn read(response: &mut Response, longest: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if chunk.len() > longest - body.len() {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// A success that is not the Sessions API's. Its text is not quoted: it may be anything.
fn not_ours(about: &str, status: StatusCode, headers: &HeaderMap) -> Fault {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("no content type");
    let kind = fault::presentable(kind, None);
    Fault::new(
        FaultKind::BadAnswer,
        format!("{about}: {} with {kind}; is the address right?", status.as_u16()),
    )
}
