//! A server on loopback that answers as Omnigent does and notes when each request was complete.
//!
//! A thread for each connection reads, takes the time, answers, and only then files what it received: bodies are
//! looked into after the run.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::fault::Fault;
use super::hermes_db::now;
use super::http::header;
use super::script;

/// One event that was posted.
#[derive(Clone)]
pub struct Arrival {
    /// Wall clock since the epoch, when the last byte of the request had been read.
    pub at: Duration,
    /// Number of the session that the conversation shows.
    pub session: u32,
    pub body: String,
}

/// Makes of a connection what requests are read from and answers written to.
pub type Wrap = Arc<dyn Fn(TcpStream) -> Result<Box<dyn Stream>> + Send + Sync>;

/// A connection, in the clear or not.
pub trait Stream: Read + Write + Send {
    /// Breaks it off.
    fn reset(&mut self);
}

impl Stream for TcpStream {
    fn reset(&mut self) {
        drop(self.shutdown(std::net::Shutdown::Both));
    }
}

#[derive(Default)]
struct Shared {
    log: Mutex<Log>,
    grown: Condvar,
    stopping: AtomicBool,
    /// Connections that were made.
    connections: AtomicU32,
}

#[derive(Default)]
struct Log {
    arrivals: Vec<Arrival>,
    /// The first thing the sink could not make sense of.
    trouble: Option<String>,
    /// How it is to misbehave from now on.
    fault: Option<Fault>,
}

/// The running server; stops accepting when dropped.
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Sink {
    /// Binds a free port and starts to answer in the clear.
    pub fn start() -> Result<Self> {
        Self::start_wrapped(Arc::new(|stream| Ok(Box::new(stream))))
    }

    /// Binds a free port and starts to answer, each connection wrapped.
    pub fn start_wrapped(wrap: Wrap) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind the sink")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepted = Arc::clone(&shared);
        thread::Builder::new().name("sink".to_owned()).spawn(move || accept(&listener, &accepted, &wrap))?;
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Misbehaves from now on.
    pub fn break_down(&self, fault: Fault) {
        self.shared.lock().fault = Some(fault);
    }

    /// Waits until each of `rows` has come, or `patience` is over. Takes those that came from the set.
    pub fn wait_for(&self, rows: &mut BTreeSet<u32>, seen: &mut usize, patience: Duration) -> Result<()> {
        let log = self.shared.lock();
        let (log, _) = self
            .shared
            .grown
            .wait_timeout_while(log, patience, |log| log.trouble.is_none() && !log.find(rows, seen))
            .unwrap_or_else(PoisonError::into_inner);
        match &log.trouble {
            Some(trouble) => bail!("the sink gave up: {trouble}"),
            None => Ok(()),
        }
    }

    /// Everything that was posted so far, in order of arrival.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.lock().arrivals.clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes the accepting thread; if that fails, it is no longer accepting.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complain(&self, trouble: &anyhow::Error) {
        self.lock().trouble.get_or_insert_with(|| format!("{trouble:#}"));
        self.grown.notify_all();
    }
}

impl Log {
    /// Looks at arrivals from `seen` on until all `rows` have come; says whether they have.
    fn find(&self, rows: &mut BTreeSet<u32>, seen: &mut usize) -> bool {
        while let Some(arrival) = self.arrivals.get(*seen).filter(|_| !rows.is_empty()) {
            *seen += 1;
            if let Some(seq) = script::seq_in(&arrival.body) {
                rows.remove(&seq);
            }
        }
        rows.is_empty()
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, wrap: &Wrap) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::Acquire) || shared.lock().fault == Some(Fault::Refuse) {
            return;
        }
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let (served, wrap) = (Arc::clone(shared), Arc::clone(wrap));
        let started = stream.and_then(|stream| {
            thread::Builder::new().name("sink-peer".to_owned()).spawn(move || {
                if let Err(error) = serve(stream, &served, &wrap) {
                    served.complain(&error);
                }
            })
        });
        if let Err(error) = started {
            shared.complain(&error.into());
        }
    }
}

fn serve(stream: TcpStream, shared: &Shared, wrap: &Wrap) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(64 << 10, wrap(stream)?);
    let mut line = String::new();
    let mut count = 0_u64;
    while let Some((request, length)) = read_head(&mut stream, &mut line)? {
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let at = now();
        let fault = shared.lock().fault;
        match fault {
            Some(Fault::Hang) => {
                // Until the other side has had enough.
                drop(stream.read(&mut [0]));
                return Ok(());
            }
            Some(Fault::Refuse | Fault::Reset) => {
                stream.get_mut().reset();
                return Ok(());
            }
            Some(Fault::Vanish) | None => {}
        }
        count += 1;
        let mut parts = request.split(' ');
        let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let path = target.split('?').next().unwrap_or_default();
        let posted = path.strip_prefix("/v1/sessions/").and_then(|rest| rest.strip_suffix("/events"));
        let conversation = posted.filter(|_| method == "POST");
        let (status, answer) = answer(method, path, conversation.map(|_| body.as_slice()), count);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        stream.get_mut().write_all(head.as_bytes())?;
        stream.get_mut().flush()?;
        if let Some(conversation) = conversation {
            let session = script::session_shown_in(conversation)
                .with_context(|| format!("an event for {conversation}, which nobody knows"))?;
            let body = String::from_utf8(body).context("a body that is not UTF-8")?;
            shared.lock().arrivals.push(Arrival { at, session, body });
            shared.grown.notify_all();
        }
    }
    Ok(())
}

/// The request line and the length of the body; nothing when the peer is gone.
///
/// A peer that is killed between two requests may reset the connection: that is an end like any other.
fn read_head(stream: &mut impl BufRead, line: &mut String) -> Result<Option<(String, usize)>> {
    let mut request = None;
    let mut length = 0;
    loop {
        line.clear();
        match stream.read_line(line) {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
        let text = line.trim_end();
        if request.is_none() {
            request = Some(text.to_owned());
        } else if text.is_empty() {
            return Ok(request.map(|request| (request, length)));
        } else if let Some(value) = header(text, "content-length") {
            length = value.parse().context("a Content-Length that is no number")?;
        } else if header(text, "transfer-encoding").is_some() {
            bail!("a request with Transfer-Encoding; the sink reads bodies by their length alone");
        }
    }
}

fn answer(method: &str, path: &str, event: Option<&[u8]>, count: u64) -> (&'static str, String) {
    match (method, event) {
        (_, Some(body)) if is_item(body) => {
            ("202 Accepted", format!(r#"{{"queued":false,"item_id":"item_{count}"}}"#))
        }
        (_, Some(_)) => ("202 Accepted", r#"{"queued":false}"#.to_owned()),
        ("GET", None) if path.ends_with("/items") => (
            "200 OK",
            r#"{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}"#.to_owned(),
        ),
        ("GET" | "PATCH", None) if path.starts_with("/v1/sessions/") => {
            let id = path.trim_start_matches("/v1/sessions/");
            ("200 OK", format!(r#"{{"id":"{id}","object":"session","status":"idle"}}"#))
        }
        ("GET", None) if path.ends_with("/health") => ("200 OK", r#"{"status":"ok"}"#.to_owned()),
        _ => ("404 Not Found", r#"{"error":{"code":"not_found","message":"not here"}}"#.to_owned()),
    }
}

/// Whether the event is a conversation item; its type stands near the start.
fn is_item(body: &[u8]) -> bool {
    let name = b"external_conversation_item";
    body.windows(name.len()).take(128).any(|window| window == name)
}
