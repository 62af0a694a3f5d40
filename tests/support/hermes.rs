//! Hermes's own `SessionDB`, driven line by line through `hermes_writer.py`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A Python process that writes a state.db with Hermes's own code. Ends when dropped.
pub struct HermesWriter {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    framing: Option<(String, String)>,
}

impl HermesWriter {
    /// Starts the writer; `home` becomes its HOME and its Hermes home, so that no real one is touched.
    pub fn start(python: &Path, home: &Path) -> Self {
        Self::start_with(python, None, home)
    }

    /// The same with the modules of another version, in the directory `modules`.
    pub fn start_with(python: &Path, modules: Option<&Path>, home: &Path) -> Self {
        let mut command = Command::new(python);
        if let Some(modules) = modules {
            command.env("PYTHONPATH", modules);
        }
        let mut child = command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/hermes_writer.py"))
            .env("HOME", home)
            .env("HERMES_HOME", home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{} does not start: {e}", python.display()));
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut writer = Self { child, commands, answers, framing: None };
        let hello = writer.call(&json!({"do": "hello"}));
        if let (Some(prefix), Some(end)) =
            (hello["framing"]["prefix"].as_str(), hello["framing"]["end"].as_str())
        {
            writer.framing = Some((prefix.to_owned(), end.to_owned()));
        }
        writer
    }

    /// Opens the database at `path` as Hermes does, making what is missing; closes the one before.
    pub fn open(&mut self, path: &Path) {
        self.call(&json!({"do": "open", "path": path}));
    }

    /// Runs one command and returns its result; fails the test with what Hermes raised.
    pub fn call(&mut self, command: &Value) -> Value {
        let commands = self.commands.as_mut().expect("open until dropped");
        writeln!(commands, "{command}").expect("the writer takes commands");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the writer answers");
        let mut answer: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("no answer to {command}: {e}: {line:?}"));
        assert!(answer["error"].is_null(), "{command}: {}", answer["error"]);
        answer["ok"].take()
    }

    /// Makes a session; `columns` are further arguments of `create_session`.
    pub fn create_session(&mut self, id: &str, columns: &Value) {
        let mut command =
            json!({"do": "create_session", "session_id": id, "source": "cli", "model": "stub-model"});
        merge(&mut command, columns);
        self.call(&command);
    }

    /// Appends one message and returns its row id; `message` has `role`, `content` and any other argument.
    pub fn append(&mut self, session: &str, message: &Value) -> i64 {
        let mut command = json!({"do": "append_message", "session_id": session});
        merge(&mut command, message);
        self.call(&command).as_i64().expect("a row id")
    }

    /// Appends `rows` user and assistant rows in turn, `"{tag} 0"`, `"{tag} 1"` and so on, at full speed; returns their ids.
    pub fn burst(&mut self, session: &str, rows: usize, tag: &str) -> Vec<i64> {
        let ids = self.call(&json!({"do": "burst", "session_id": session, "rows": rows, "tag": tag}));
        ids.as_array().expect("ids").iter().map(|id| id.as_i64().expect("a row id")).collect()
    }

    /// Archives the live rows and puts `messages` in their place, in one transaction and the same session.
    pub fn archive_and_compact(&mut self, session: &str, messages: &[Value]) {
        self.call(
            &json!({"do": "archive_and_compact", "session_id": session, "compacted_messages": messages}),
        );
    }

    /// Deletes the session's rows and inserts `messages`, in one transaction.
    pub fn replace_messages(&mut self, session: &str, messages: &[Value]) {
        self.call(&json!({"do": "replace_messages", "session_id": session, "messages": messages}));
    }

    /// Marks a session as ended.
    pub fn end_session(&mut self, session: &str, reason: &str) {
        self.call(&json!({"do": "end_session", "session_id": session, "end_reason": reason}));
    }

    /// A summary as this version of Hermes frames it.
    pub fn framed(&self, summary: &str) -> String {
        let (prefix, end) = self.framing.as_ref().expect("this version of Hermes frames summaries");
        format!("{prefix}\n{summary}\n\n{end}").trim_end().to_owned()
    }
}

impl Drop for HermesWriter {
    fn drop(&mut self) {
        // Its input at an end, the writer closes the database in good order and goes.
        self.commands.take();
        let _ = self.child.wait();
    }
}

/// Adds the members of `more` to those of `object`.
fn merge(object: &mut Value, more: &Value) {
    for (key, value) in more.as_object().expect("an object") {
        object[key] = value.clone();
    }
}
