//! A server on loopback that answers as Omnigent does and notes when each request was complete.
//!
//! A thread for each connection reads, takes the time, answers, and only then files what it received: bodies are
//! looked into after the run.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::hermes_db::now;
use super::http::header;

/// One event that was posted.
#[derive(Clone)]
pub struct Arrival {
    /// Wall clock since the epoch, when the last byte of the request had been read.
    pub at: Duration,
    pub body: String,
}

#[derive(Default)]
struct Shared {
    log: Mutex<Log>,
    grown: Condvar,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Log {
    arrivals: Vec<Arrival>,
    /// The first thing the sink could not make sense of.
    trouble: Option<String>,
}

/// The running server; stops accepting when dropped.
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Sink {
    /// Binds a free port and starts to answer.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind the sink")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepted = Arc::clone(&shared);
        thread::Builder::new().name("sink".to_owned()).spawn(move || accept(&listener, &accepted))?;
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until an event that carries `mark` has come, or `patience` is over; says whether it came.
    pub fn wait_for(&self, mark: &str, seen: &mut usize, patience: Duration) -> Result<bool> {
        let log = self.shared.lock();
        let (log, _) = self
            .shared
            .grown
            .wait_timeout_while(log, patience, |log| log.trouble.is_none() && !find(log, mark, seen))
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = &log.trouble {
            bail!("the sink gave up: {trouble}");
        }
        let newest = seen.checked_sub(1).and_then(|index| log.arrivals.get(index));
        Ok(newest.is_some_and(|arrival| arrival.body.contains(mark)))
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
}

/// Looks at arrivals from `seen` on, and leaves `seen` just past the one that carries `mark`.
fn find(log: &Log, mark: &str, seen: &mut usize) -> bool {
    while let Some(arrival) = log.arrivals.get(*seen) {
        *seen += 1;
        if arrival.body.contains(mark) {
            return true;
        }
    }
    false
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        let served = Arc::clone(shared);
        let started = stream.and_then(|stream| {
            thread::Builder::new().name("sink-peer".to_owned()).spawn(move || {
                if let Err(error) = serve(stream, &served) {
                    served.lock().trouble.get_or_insert_with(|| format!("{error:#}"));
                    served.grown.notify_all();
                }
            })
        });
        if let Err(error) = started {
            shared.lock().trouble.get_or_insert_with(|| error.to_string());
            shared.grown.notify_all();
        }
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let mut line = String::new();
    let mut count = 0_u64;
    while let Some((request, length)) = read_head(&mut stream, &mut line)? {
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let at = now();
        count += 1;
        let mut parts = request.split(' ');
        let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let is_event = method == "POST" && target.ends_with("/events");
        let (status, answer) = answer(method, target, is_event.then_some(body.as_slice()), count);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        stream.get_mut().write_all(head.as_bytes())?;
        if is_event {
            let body = String::from_utf8(body).context("a body that is not UTF-8")?;
            shared.lock().arrivals.push(Arrival { at, body });
            shared.grown.notify_all();
        }
    }
    Ok(())
}

/// The request line and the length of the body; nothing when the peer is gone.
///
/// A peer that is killed between two requests may reset the connection: that is an end like any other.
fn read_head(stream: &mut BufReader<TcpStream>, line: &mut String) -> Result<Option<(String, usize)>> {
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

fn answer(method: &str, target: &str, event: Option<&[u8]>, count: u64) -> (&'static str, String) {
    let path = target.split('?').next().unwrap_or_default();
    match (method, event) {
        (_, Some(body)) if is_item(body) => {
            ("202 Accepted", format!(r#"{{"queued":false,"item_id":"item_{count}"}}"#))
        }
        (_, Some(_)) => ("202 Accepted", r#"{"queued":false}"#.to_owned()),
        ("GET", None) if path.ends_with("/items") => (
            "200 OK",
            r#"{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}"#.to_owned(),
        ),
        ("GET", None) if path.starts_with("/v1/sessions/") => {
            ("200 OK", r#"{"id":"conv_bench","object":"session","status":"idle"}"#.to_owned())
        }
        ("GET", None) if path.ends_with("/health") => ("200 OK", r#"{"status":"ok"}"#.to_owned()),
        ("PATCH", None) => ("200 OK", "{}".to_owned()),
        _ => ("404 Not Found", r#"{"error":{"code":"not_found","message":"not here"}}"#.to_owned()),
    }
}

/// Whether the event is a conversation item; its type stands near the start.
fn is_item(body: &[u8]) -> bool {
    let name = b"external_conversation_item";
    body.windows(name.len()).take(128).any(|window| window == name)
}
