//! The real Omnigent server, on a free port, with a data directory and HOME of its own.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::request;

/// How long the server may take to come up; about 12 s on a quiet machine.
const START: Duration = Duration::from_mins(3);

/// A running server; it and all it started end when dropped.
pub struct Omnigent {
    server: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Omnigent {
    /// Starts `omnigent server` and waits until it answers.
    pub fn start(omnigent: &Path) -> Self {
        let directory = TempDir::new().expect("a directory");
        // Started anew where it goes at once: another process may take the port between the look and its use.
        for _ in 0..3 {
            let address = free_address();
            let mut server = spawn(omnigent, directory.path(), address);
            if came_up(&mut server, address) {
                return Self { server, address, _directory: directory };
            }
            end(&mut server);
        }
        panic!("omnigent does not come up:\n{}", tail(&directory.path().join("log")));
    }

    /// What a client calls its base URL.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends one request and returns the body of a 2xx answer.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, body) = request::request(self.address, method, path, body)
            .unwrap_or_else(|e| panic!("{method} {path}: no answer: {e}"));
        assert!((200..300).contains(&status), "{method} {path}: {status} {body}");
        body
    }

    /// Makes a conversation of the Hermes terminal's agent and returns its id.
    pub fn new_conversation(&self) -> String {
        let agents = self.call("GET", "/v1/agents", None);
        let agent = agents["data"]
            .as_array()
            .expect("agents")
            .iter()
            .find(|a| a["name"] == "hermes-native-ui")
            .expect("the built-in agent");
        let conversation = self.call("POST", "/v1/sessions", Some(&json!({"agent_id": agent["id"]})));
        conversation["id"].as_str().expect("an id").to_owned()
    }

    /// The conversation as the server describes it.
    pub fn conversation(&self, id: &str) -> Value {
        self.call("GET", &format!("/v1/sessions/{id}"), None)
    }

    /// All items of a conversation, oldest first.
    pub fn items(&self, conversation: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.call(
                "GET",
                &format!("/v1/sessions/{conversation}/items?limit=100&order=asc{after}"),
                None,
            );
            items.extend(page["data"].as_array().expect("items").iter().cloned());
            if page["has_more"] != true {
                return items;
            }
            after = format!("&after={}", page["last_id"].as_str().expect("an id"));
        }
    }

    /// Collects from now on what the web page sees of a conversation.
    pub fn stream(&self, conversation: &str) -> Stream {
        let path = format!("/v1/sessions/{conversation}/stream");
        let (status, body) = request::open(self.address, "GET", &path, None, None).expect("a stream");
        assert_eq!(status, 200, "GET {path}");
        let connection = body.connection().expect("a socket");
        let events = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&events);
        let reader = std::thread::spawn(move || {
            // The stream ends with the connection, in whatever way that ends.
            for line in BufReader::new(body).lines().map_while(Result::ok) {
                if let Some(event) = line.strip_prefix("data: ").and_then(|d| serde_json::from_str(d).ok()) {
                    collected.lock().expect("no panic").push(event);
                }
            }
        });
        let stream = Stream { events, connection, reader: Some(reader) };
        // The first frame says that the subscription stands; what is posted after it can't be missed.
        let deadline = Instant::now() + START;
        while stream.events().is_empty() {
            assert!(Instant::now() < deadline, "the stream stays empty");
            std::thread::sleep(Duration::from_millis(5));
        }
        stream
    }
}

impl Drop for Omnigent {
    fn drop(&mut self) {
        end(&mut self.server);
    }
}

/// The events of one conversation, as its web page gets them.
pub struct Stream {
    events: Arc<Mutex<Vec<Value>>>,
    connection: TcpStream,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    /// What has come so far.
    pub fn events(&self) -> Vec<Value> {
        self.events.lock().expect("no panic").clone()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.connection.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// A loopback address that is free at this moment.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address")
}

fn spawn(omnigent: &Path, directory: &Path, address: SocketAddr) -> Child {
    let home = directory.join("home");
    std::fs::create_dir_all(&home).expect("a HOME");
    let log = std::fs::File::create(directory.join("log")).expect("a log");
    Command::new(omnigent)
        .args(["server", "--no-open", "--port", &address.port().to_string(), "--database-uri"])
        .arg(format!("sqlite:///{}", directory.join("chat.db").display()))
        .current_dir(directory)
        .env("HOME", &home)
        .env("OMNIGENT_DATA_DIR", directory.join("data"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .process_group(0)
        .spawn()
        .unwrap_or_else(|e| panic!("{} does not start: {e}", omnigent.display()))
}

/// Waits until the server answers; false when it is gone or the time is over.
fn came_up(server: &mut Child, address: SocketAddr) -> bool {
    let deadline = Instant::now() + START;
    while Instant::now() < deadline {
        if !matches!(server.try_wait(), Ok(None)) {
            return false;
        }
        if matches!(request::request(address, "GET", "/health", None), Ok((200, _))) {
            // Whoever answered, it was this server only if it is still there.
            return matches!(server.try_wait(), Ok(None));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Ends the server with all that it started: it leads a process group of its own.
fn end(server: &mut Child) {
    let group = format!("kill -s KILL -- -{}", server.id());
    let _ = Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status();
    let _ = server.kill();
    let _ = server.wait();
}

/// The end of a log, for a message.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
