//! A server that speaks the Sessions API and fails on command.
//!
//! It runs in a thread and a runtime of its own, so that a test may be synchronous or not. What happens to a request
//! is recorded with the fault that struck it: it refuses nothing silently.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::fault::{self, Fault, Plan};
use super::http::{Raw, Response};
use super::sessions::Store;

/// A request that has come in whole, and what became of it.
#[derive(Clone)]
pub struct Request {
    pub method: String,
    /// Without the query.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    pub body: Vec<u8>,
    /// When its last byte was read.
    pub at: Instant,
    /// The same in ns since the epoch, to be compared over processes.
    pub at_ns: u128,
    /// Which connection it came over, counted from 1.
    pub connection: u64,
    /// What it was struck with.
    pub fault: Fault,
    /// Whether the server acted on it (it may have refused it) when it came.
    pub committed: bool,
    /// The status that was sent, whole or in part.
    pub status: Option<u16>,
}

impl Request {
    /// The body as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl fmt::Debug for Request {
    /// Leaves body and token out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, connection, fault, committed, status, .. } = self;
        write!(f, "{method} {path} over {connection}: {fault:?}, committed {committed}, answered {status:?}")
    }
}

/// What the server knows.
#[derive(Default)]
pub struct State {
    pub store: Store,
    pub requests: Vec<Request>,
    plan: Plan,
    connections: u64,
}

impl State {
    /// A conversation's stored items, oldest first; none for an unknown one.
    pub fn items(&self, conversation: &str) -> &[Value] {
        self.store.conversation(conversation).map_or(&[], |found| &found.items)
    }

    /// A conversation's accepted events in order, live ones included.
    pub fn events(&self, conversation: &str) -> &[Value] {
        self.store.conversation(conversation).map_or(&[], |found| &found.events)
    }

    /// What had waited on a conversation's web page, each with the text of the message that was taken for it.
    pub fn answered(&self, conversation: &str) -> &[(String, String)] {
        self.store.conversation(conversation).map_or(&[], |found| &found.answered)
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let result = act(&mut self.state());
        self.changed.notify_all();
        result
    }
}

enum Command {
    HangUp,
    Stop,
    Start,
}

/// The server's handle; the server ends with it.
pub struct Sink {
    shared: Arc<Shared>,
    address: SocketAddr,
    commands: Option<UnboundedSender<(Command, mpsc::Sender<io::Result<()>>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Starts a server on a free loopback port that closes idle connections after 5 s, as uvicorn does.
    pub fn start() -> Self {
        Self::with_keep_alive(Duration::from_secs(5))
    }

    /// The same with another keep-alive limit.
    pub fn with_keep_alive(keep_alive: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let (commands, inbox) = unbounded_channel();
        let (ready, address) = mpsc::channel();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(theirs, keep_alive, inbox, ready));
        });
        let address = address.recv().expect("the sink listens");
        Self { shared, address, commands: Some(commands), thread: Some(thread) }
    }

    /// The base URL, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn create_conversation(&self) -> String {
        self.shared.change(|state| state.store.create())
    }

    /// Looks at what the server knows.
    pub fn see<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.state())
    }

    /// The conversations that requests made, oldest first.
    pub fn made(&self) -> Vec<String> {
        self.shared.state().store.made().to_vec()
    }

    pub fn delete_conversation(&self, id: &str) {
        self.shared.change(|state| state.store.delete(id));
    }

    /// Stores an item as another writer would, past all faults. Give it `type` and `response_id`.
    pub fn add_item(&self, conversation: &str, item: &Value) {
        self.shared.change(|state| state.store.add_item(conversation, item));
    }

    pub fn items(&self, conversation: &str) -> Vec<Value> {
        self.shared.state().items(conversation).to_vec()
    }

    pub fn events(&self, conversation: &str) -> Vec<Value> {
        self.shared.state().events(conversation).to_vec()
    }

    /// A person has typed something on a conversation's web page.
    pub fn await_input(&self, conversation: &str, text: &str) {
        self.shared.change(|state| state.store.await_input(conversation, text));
    }

    pub fn answered(&self, conversation: &str) -> Vec<(String, String)> {
        self.shared.state().answered(conversation).to_vec()
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().requests.clone()
    }

    /// Whether a source id that was posted before is answered with the item it made then, as the real server does.
    /// Off at first: the harder server, that relies on nobody and makes a second item.
    pub fn dedupe_source_ids(&self, dedupe: bool) {
        self.shared.change(|state| state.store.dedupe_source_ids(dedupe));
    }

    /// Strikes the next POSTs with these, one each; those after them go by the script.
    pub fn next_posts(&self, faults: impl IntoIterator<Item = Fault>) {
        self.shared.change(|state| state.plan.queue(faults));
    }

    /// Asks `script` what to do to each request, of any method.
    pub fn script(&self, script: impl FnMut(&Request) -> Fault + Send + 'static) {
        self.shared.change(|state| state.plan.script(Box::new(script)));
    }

    /// Strikes `per_mille` of all requests with seeded random faults.
    pub fn random_faults(&self, seed: u64, per_mille: u64) {
        self.shared.change(|state| state.plan.script(fault::random(seed, per_mille)));
    }

    /// From now on nothing fails.
    pub fn heal(&self) {
        self.shared.change(|state| state.plan.clear());
    }

    /// Waits until `holds` does, or says `false` when time is over.
    #[must_use]
    pub fn wait_until(&self, holds: impl Fn(&State) -> bool, timeout: Duration) -> bool {
        let guard = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(guard, timeout, |state| !holds(state));
        let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        holds(&guard)
    }

    /// Drops every connection, as a server or a proxy that restarts does, and keeps the port.
    pub fn hang_up(&self) {
        self.command(Command::HangUp);
    }

    /// Stops listening and drops every connection. The conversations are kept.
    pub fn stop(&self) {
        self.command(Command::Stop);
    }

    /// Listens again on the same port.
    pub fn restart(&self) {
        self.command(Command::Stop);
        self.command(Command::Start);
    }

    fn command(&self, command: Command) {
        let (done, answer) = mpsc::channel();
        self.commands.as_ref().unwrap().send((command, done)).expect("the sink runs");
        answer.recv().expect("the sink answers").expect("the port is still free");
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the sink panicked");
        }
    }
}

type Inbox = UnboundedReceiver<(Command, mpsc::Sender<io::Result<()>>)>;

async fn serve(shared: Arc<Shared>, keep_alive: Duration, mut inbox: Inbox, ready: mpsc::Sender<SocketAddr>) {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = first.local_addr().unwrap();
    let mut listener = Some(first);
    ready.send(address).unwrap();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accept(listener.as_ref()) => {
                if let Ok(stream) = accepted {
                    connections.spawn(converse(Arc::clone(&shared), keep_alive, stream));
                }
            }
            Some(_) = connections.join_next() => {}
            command = inbox.recv() => match command {
                Some((Command::HangUp, done)) => {
                    connections.shutdown().await;
                    let _ = done.send(Ok(()));
                }
                Some((Command::Stop, done)) => {
                    listener = None;
                    connections.shutdown().await;
                    let _ = done.send(Ok(()));
                }
                Some((Command::Start, done)) => {
                    let bound = TcpListener::bind(address).await;
                    let _ = done.send(bound.map(|bound| listener = Some(bound)));
                }
                None => return,
            },
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Answers one connection's requests until either side closes it.
async fn converse(shared: Arc<Shared>, keep_alive: Duration, mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let connection = shared.change(|state| {
        state.connections += 1;
        state.connections
    });
    let mut buffer = Vec::new();
    loop {
        // The limit is on the time between requests; a head begun is read to its end.
        if buffer.is_empty() && tokio::time::timeout(keep_alive, stream.readable()).await.is_err() {
            return;
        }
        let Ok(Some(raw)) = Raw::read(&mut stream, &mut buffer).await else { return };
        let kept = answer(&shared, connection, &raw, &mut stream).await;
        if !matches!(kept, Ok(true)) {
            return;
        }
    }
}

/// Does to one request what its fault says. `false`: the connection is over.
async fn answer(shared: &Shared, connection: u64, raw: &Raw, stream: &mut TcpStream) -> io::Result<bool> {
    let left = has_left(stream)?;
    let (fault, mut response) = shared.change(|state| act(state, connection, raw, left));
    match fault {
        Fault::LateCommit(delay) => {
            tokio::time::sleep(delay).await;
            response = shared.change(|state| state.store.handle(raw));
        }
        Fault::ClientLeft => return Ok(false),
        Fault::Reset | Fault::ResetAfterCommit => {
            stream.set_zero_linger()?;
            return Ok(false);
        }
        Fault::HalfResponse => {
            response.send_half(stream).await?;
            return Ok(false);
        }
        Fault::Stall | Fault::StallAfterCommit => {
            // Over when the client has closed its side.
            while stream.read_buf(&mut Vec::with_capacity(1024)).await? > 0 {}
            return Ok(false);
        }
        Fault::Slow(delay) => tokio::time::sleep(delay).await,
        _ => {}
    }
    response.send(stream).await?;
    Ok(true)
}

/// Whether the client has closed its side. Asked of the system, since the runtime learns of it later.
fn has_left(stream: &TcpStream) -> io::Result<bool> {
    let socket = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
    Ok(match socket.peek(&mut [0]) {
        Ok(waiting) => waiting == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    })
}

/// Chooses the fault, commits unless that forbids it, and records both. One step: no other request comes between.
fn act(state: &mut State, connection: u64, raw: &Raw, left: bool) -> (Fault, Response) {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut request = Request {
        method: raw.method.clone(),
        path: raw.path.clone(),
        query: raw.query.clone(),
        authorization: raw.header("authorization").map(str::to_owned),
        body: raw.body.clone(),
        at: Instant::now(),
        at_ns: since_epoch.as_nanos(),
        connection,
        fault: Fault::None,
        committed: false,
        status: None,
    };
    let fault = if left { Fault::ClientLeft } else { state.plan.choose(&request) };
    let instead = match &fault {
        Fault::Status(status) => Some(Response::error(*status, &[])),
        Fault::RetryAfter(status, value) => Some(Response::error(*status, &[("retry-after", value)])),
        Fault::Redirect => Some(Response::html(302, &[("location", "/login")])),
        Fault::Html => Some(Response::html(200, &[])),
        // Not sent, or replaced by that of the commit to come.
        Fault::Reset | Fault::Stall | Fault::LateCommit(_) | Fault::ClientLeft => {
            Some(Response::error(500, &[]))
        }
        _ => None,
    };
    request.committed = instead.is_none();
    let response = instead.unwrap_or_else(|| {
        let answered = state.store.handle(raw);
        match &fault {
            Fault::StatusAfterCommit(status) => Response::error(*status, &[]),
            Fault::OtherJson => Response::json(200, &serde_json::json!({"ok": true})),
            _ => answered,
        }
    });
    let silent = matches!(
        fault,
        Fault::Reset | Fault::ResetAfterCommit | Fault::Stall | Fault::StallAfterCommit | Fault::ClientLeft
    );
    request.status = (!silent).then_some(response.status);
    request.fault = fault.clone();
    state.requests.push(request);
    (fault, response)
}
