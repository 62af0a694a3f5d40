//! The least a client can do: one warm connection, one write a request, one request in flight.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// No answer on loopback takes this long unless something is broken.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the sink, and the conversation it feeds.
pub struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
    path: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    /// Connects with `TCP_NODELAY`.
    pub fn connect(address: SocketAddr, conversation: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
            address,
            path: format!("/v1/sessions/{conversation}"),
            request: Vec::new(),
            answer: Vec::new(),
        })
    }

    /// Posts one event and waits for its acknowledgement.
    pub fn post_event(&mut self, body: &str) -> Result<()> {
        self.send("POST", "/events", body)
    }

    /// Changes the conversation itself.
    pub fn patch(&mut self, body: &str) -> Result<()> {
        self.send("PATCH", "", body)
    }

    fn send(&mut self, method: &str, below: &str, body: &str) -> Result<()> {
        self.request.clear();
        write!(
            self.request,
            "{method} {}{below} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.path,
            self.address,
            body.len(),
        )?;
        self.stream.get_mut().write_all(&self.request)?;
        let (status, length) = self.read_head()?;
        self.answer.resize(length, 0);
        self.stream.read_exact(&mut self.answer)?;
        ensure!((200..300).contains(&status), "{method} {}{below} was answered {status}", self.path);
        Ok(())
    }

    /// Status code and length of the body.
    fn read_head(&mut self) -> Result<(u16, usize)> {
        let mut line = String::new();
        let mut status = None;
        let mut length = 0;
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("the sink closed the connection");
            }
            let text = line.trim_end();
            if status.is_none() {
                status = Some(text.split(' ').nth(1).context("no status line")?.parse()?);
            } else if text.is_empty() {
                return Ok((status.context("no status line")?, length));
            } else if let Some(value) = header(text, "content-length") {
                length = value.parse()?;
            }
        }
    }
}

/// The value of header `name` (lower case) if this line is it.
pub fn header<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = line.split_once(':')?;
    key.eq_ignore_ascii_case(name).then(|| value.trim())
}
