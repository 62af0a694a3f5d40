//! As much HTTP/1.1 as the test server needs, over a raw socket so that it can misbehave.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest head and body that are read, in bytes.
const LIMIT: usize = 64 << 20;

/// A request as it came.
pub struct Raw {
    pub method: String,
    /// Without the query, percent-encoding undone.
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Raw {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Reads the next request; `None` where the client closed between two.
    pub async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let head_end = loop {
            if let Some(at) = find(buffer, b"\r\n\r\n") {
                break at;
            }
            if !more(stream, buffer).await? {
                return if buffer.is_empty() { Ok(None) } else { Err(broken("closed within a head")) };
            }
        };
        let head = String::from_utf8(buffer[..head_end].to_vec()).map_err(|_| broken("head is not text"))?;
        let mut request = parse_head(&head).ok_or_else(|| broken("malformed head"))?;
        buffer.drain(..head_end + 4);
        let length = request.header("content-length").map_or(Some(0), |v| v.parse().ok());
        let length: usize = length.filter(|n| *n <= LIMIT).ok_or_else(|| broken("bad content-length"))?;
        while buffer.len() < length {
            if !more(stream, buffer).await? {
                return Err(broken("closed within a body"));
            }
        }
        request.body = buffer.drain(..length).collect();
        Ok(Some(request))
    }
}

fn parse_head(head: &str) -> Option<Raw> {
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?, first.next()?);
    let headers = lines
        .map(|line| line.split_once(':').map(|(n, v)| (n.to_owned(), v.trim().to_owned())))
        .collect::<Option<_>>()?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    });
    Some(Raw {
        method: method.to_owned(),
        path: decode(path),
        query: query.collect(),
        headers,
        body: Vec::new(),
    })
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(if byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<bool> {
    if buffer.len() > LIMIT {
        return Err(broken("too long"));
    }
    Ok(stream.read_buf(buffer).await? > 0)
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// An answer, ready to be sent whole or in part.
pub struct Response {
    pub status: u16,
    bytes: Vec<u8>,
}

impl Response {
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", &[], &body.to_string())
    }

    pub fn html(status: u16, headers: &[(&str, &str)]) -> Self {
        Self::new(status, "text/html", headers, "<!doctype html><title>Log in</title>")
    }

    pub fn error(status: u16, headers: &[(&str, &str)]) -> Self {
        let body = serde_json::json!({"error": {"code": "made_by_the_test", "message": "a fault"}});
        Self::new(status, "application/json", headers, &body.to_string())
    }

    fn new(status: u16, kind: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let length = body.len();
        let mut text =
            format!("HTTP/1.1 {status} Status\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
        for (name, value) in headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        text.push_str("\r\n");
        text.push_str(body);
        Self { status, bytes: text.into_bytes() }
    }

    pub async fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(&self.bytes).await
    }

    /// Sends the head and the body's first half.
    pub async fn send_half(&self, stream: &mut TcpStream) -> io::Result<()> {
        let body = find(&self.bytes, b"\r\n\r\n").map_or(0, |at| at + 4);
        let half = usize::midpoint(body, self.bytes.len());
        stream.write_all(&self.bytes[..half]).await
    }
}
