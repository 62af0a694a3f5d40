//! A real browser, driven over the `WebDriver` protocol: Debian's `chromium` through its `chromedriver`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::request;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_mins(1);

/// An open window. Browser and driver end with it.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    profile: TempDir,
}

impl Browser {
    /// Opens one; `None`, saying so, where there is no browser on this machine and none is required.
    pub fn open() -> Option<Self> {
        let driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = match driver {
            Ok(driver) => driver,
            Err(error) => {
                let required =
                    ["CI", "HERMES_MIRROR_REQUIRE_PEERS"].iter().any(|v| std::env::var_os(v).is_some());
                assert!(
                    !required,
                    "chromedriver: {error}; install the packages `chromium` and `chromium-driver`"
                );
                eprintln!("SKIPPED: chromedriver: {error}; install `chromium` and `chromium-driver`");
                return None;
            }
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port(&mut driver)));
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self { driver, address, session: String::new(), profile };
        let arguments = [
            "--headless".to_owned(),
            // The tests may run as root, in a container that gives a browser no sandbox.
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--window-size=1000,800".to_owned(),
            format!("--user-data-dir={}", browser.profile.path().display()),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {"browserName": "chrome",
            "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}});
        let made = browser.call("POST", "/session", &wanted);
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        Some(browser)
    }

    pub fn go(&self, url: &str) {
        self.command("POST", "url", &json!({"url": url}));
    }

    pub fn reload(&self) {
        self.command("POST", "refresh", &json!({}));
    }

    /// Makes the window as narrow as a telephone.
    pub fn narrow(&self) {
        self.command("POST", "window/rect", &json!({"width": 400, "height": 800}));
    }

    /// What a function's body returns.
    pub fn run(&self, script: &str) -> Value {
        self.command("POST", "execute/sync", &json!({"script": script, "args": []}))
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        });
        let actions = json!([{"type": "key", "id": "keys", "actions": strokes.collect::<Vec<_>>()}]);
        self.command("POST", "actions", &json!({"actions": actions}));
    }

    /// Waits until an expression has this value.
    pub fn wait_for(&self, expression: &str, value: &Value) {
        let started = Instant::now();
        loop {
            let now = self.run(&format!("return {expression}"));
            if now == *value {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{expression} is {now}, not {value}\n{:#}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the page has written to the browser's console, and what the browser has to say of the page.
    pub fn log(&self) -> Value {
        self.command("POST", "se/log", &json!({"type": "browser"}))
    }

    fn command(&self, method: &str, command: &str, body: &Value) -> Value {
        self.call(method, &format!("{}/{command}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, mut answer) = request::request(self.address, method, path, Some(body)).unwrap();
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // The driver takes its browser along, unless it has gone already.
            let _ = request::request(self.address, "DELETE", &self.session, None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The port that the driver says it has taken.
fn port(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let said = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let port = line.split("started successfully on port ").nth(1)?;
        port.trim_end_matches('.').parse().ok()
    });
    // What it goes on to say is read, so that it is never held up.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    said.expect("chromedriver says where it listens")
}
