//! A proxy that makes faults between the mirror and a real server.
//!
//! It takes a request in whole, then passes it on, or not, and passes the answer back, or not. What a fault means is told
//! in [`super::fault`]; "commit" is the real server's answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::fault::{Fault, Script};
use super::http::{Raw, Response};
use super::sink::Request;

/// Passes a request on: method, path with query, body. `None`: the server gives no answer.
pub type Upstream = Arc<dyn Fn(&str, &str, Option<&Value>) -> Option<(u16, Value)> + Send + Sync>;

struct Shared {
    upstream: Upstream,
    script: Mutex<Script>,
    struck: Mutex<Vec<Fault>>,
}

/// The proxy's handle; it ends with it.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts on a free loopback port.
    pub fn start(upstream: Upstream, script: Script) -> Self {
        let shared = Arc::new(Shared { upstream, script: Mutex::new(script), struck: Mutex::default() });
        let (stop, stopped) = oneshot::channel();
        let (ready, address) = std::sync::mpsc::channel();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
                ready.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! { () = serve(listener, theirs) => {}, _ = stopped => {} }
            });
        });
        let address = address.recv().expect("the proxy listens");
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The faults that it has made so far.
    pub fn struck(&self) -> Vec<Fault> {
        self.shared.struck.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut count = 0;
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        count += 1;
        connections.spawn(converse(Arc::clone(&shared), count, stream));
    }
}

async fn converse(shared: Arc<Shared>, connection: u64, mut stream: TcpStream) {
    let mut buffer = Vec::new();
    while let Ok(Some(raw)) = Raw::read(&mut stream, &mut buffer).await {
        if !matches!(answer(&shared, connection, &raw, &mut stream).await, Ok(true)) {
            return;
        }
    }
}

/// Does to one request what its fault says. `false`: the connection is over.
async fn answer(
    shared: &Arc<Shared>,
    connection: u64,
    raw: &Raw,
    stream: &mut TcpStream,
) -> std::io::Result<bool> {
    let fault = choose(shared, connection, raw);
    let response = match &fault {
        Fault::Reset => {
            stream.set_zero_linger()?;
            return Ok(false);
        }
        Fault::Status(status) => Response::error(*status, &[]),
        Fault::RetryAfter(status, value) => Response::error(*status, &[("retry-after", value)]),
        Fault::Redirect => Response::html(302, &[("location", "/login")]),
        Fault::Html => Response::html(200, &[]),
        Fault::Stall => return hold(stream).await,
        Fault::LateCommit(delay) => {
            tokio::time::sleep(*delay).await;
            pass_on(shared, raw).await
        }
        _ => pass_on(shared, raw).await,
    };
    match &fault {
        Fault::ResetAfterCommit => {
            stream.set_zero_linger()?;
            return Ok(false);
        }
        Fault::HalfResponse => {
            response.send_half(stream).await?;
            return Ok(false);
        }
        Fault::StallAfterCommit => return hold(stream).await,
        Fault::StatusAfterCommit(status) => {
            Response::error(*status, &[]).send(stream).await?;
            return Ok(true);
        }
        Fault::OtherJson => {
            Response::json(200, &serde_json::json!({"ok": true})).send(stream).await?;
            return Ok(true);
        }
        Fault::Slow(delay) => tokio::time::sleep(*delay).await,
        _ => {}
    }
    response.send(stream).await?;
    Ok(true)
}

/// Says nothing until the client leaves.
async fn hold(stream: &mut TcpStream) -> std::io::Result<bool> {
    while stream.read_buf(&mut Vec::with_capacity(1024)).await? > 0 {}
    Ok(false)
}

fn choose(shared: &Shared, connection: u64, raw: &Raw) -> Fault {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let request = Request {
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
    let fault = (shared.script.lock().unwrap())(&request);
    if fault != Fault::None {
        shared.struck.lock().unwrap().push(fault.clone());
    }
    fault
}

async fn pass_on(shared: &Arc<Shared>, raw: &Raw) -> Response {
    let query: Vec<String> = raw.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let path = if query.is_empty() { raw.path.clone() } else { format!("{}?{}", raw.path, query.join("&")) };
    let (upstream, method) = (Arc::clone(&shared.upstream), raw.method.clone());
    let body = serde_json::from_slice::<Value>(&raw.body).ok();
    let sent = tokio::task::spawn_blocking(move || upstream(&method, &path, body.as_ref()));
    let answered = tokio::time::timeout(Duration::from_mins(1), sent).await;
    match answered {
        Ok(Ok(Some((status, body)))) => Response::json(status, &body),
        _ => Response::error(502, &[]),
    }
}
