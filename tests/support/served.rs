//! `hermes-mirror serve` as a child process, and what a client asks of it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::request;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server; killed when dropped.
pub struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    /// Starts one on a free port, with this file.
    pub fn start(data: &Path) -> Self {
        Self::start_on(0, data)
    }

    pub fn start_on(port: u16, data: &Path) -> Self {
        Self::spawn(command(port, data))
    }

    /// Starts what is asked for on a command line.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let url = line.split(' ').nth(1).unwrap_or_else(|| panic!("it says where it is: {line:?}"));
        server.address = url.strip_prefix("http://").unwrap().parse().unwrap();
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends one request. Returns status and body.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        request::request(self.address, method, path, body).unwrap()
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub fn new_conversation(&self) -> String {
        let agents = self.get("/v1/agents");
        let agents = agents["data"].as_array().unwrap();
        let agent = agents.iter().find(|agent| agent["name"] == "hermes-native-ui").unwrap();
        let (status, made) = self.call("POST", "/v1/sessions", Some(&json!({"agent_id": agent["id"]})));
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    }

    /// Posts an event that must be taken. Returns the answer.
    pub fn post(&self, conversation: &str, kind: &str, data: &Value) -> Value {
        let path = format!("/v1/sessions/{conversation}/events");
        let (status, body) = self.call("POST", &path, Some(&json!({"type": kind, "data": data})));
        assert_eq!(status, 202, "{body}");
        body
    }

    /// Posts an item of turn `t`. Returns the id of what is stored.
    pub fn item(&self, conversation: &str, source: &str, kind: &str, item: &Value) -> String {
        let data = json!({"item_type": kind, "item_data": item, "response_id": "t", "source_id": source});
        let answer = self.post(conversation, "external_conversation_item", &data);
        answer["item_id"].as_str().unwrap().to_owned()
    }

    /// The person says `text`, which is its source id as well.
    pub fn say(&self, conversation: &str, text: &str) -> String {
        let content = json!([{"type": "input_text", "text": text}]);
        self.item(conversation, text, "message", &json!({"role": "user", "content": content}))
    }

    pub fn status(&self, conversation: &str, status: &str) {
        self.post(conversation, "external_session_status", &json!({"status": status, "response_id": "t"}));
    }

    /// All items, oldest first, by pages of 100.
    pub fn items(&self, conversation: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.get(&format!("/v1/sessions/{conversation}/items?limit=100{after}"));
            items.extend(page["data"].as_array().unwrap().iter().cloned());
            if page["has_more"] != true {
                return items;
            }
            after = format!("&after={}", page["last_id"].as_str().unwrap());
        }
    }

    /// Reads the events of a stream until `enough` says so of them.
    pub fn stream(&self, path: &str, mut enough: impl FnMut(&[Value]) -> bool) -> Vec<Value> {
        let (status, body) = request::open(self.address, "GET", path, None, Some(PATIENCE)).unwrap();
        assert_eq!(status, 200, "{path}");
        let mut events = Vec::new();
        for line in BufReader::new(body).lines() {
            let line = line.unwrap_or_else(|error| panic!("{error} after {events:#?}"));
            if let Some(data) = line.strip_prefix("data: ") {
                events.push(serde_json::from_str(data).unwrap());
            }
            if enough(&events) {
                return events;
            }
        }
        panic!("the stream ended after {events:#?}");
    }

    /// Asks it to end. Returns its exit code.
    pub fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `serve`, to be started; what it says can be read.
pub fn command(port: u16, data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hermes-mirror"));
    command.env_clear().args(["serve", "--port", &port.to_string(), "--data"]).arg(data);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a server that can't start. Returns its exit code and what it said.
pub fn refused(port: u16, data: &Path) -> (Option<i32>, String) {
    let mut child = command(port, data).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}
