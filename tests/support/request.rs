//! As much HTTP/1.1 as a test needs: one request a connection, blocking.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Sends one JSON request and returns status and JSON body.
pub fn request(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> io::Result<(u16, Value)> {
    let (status, mut reader) = open(server, method, path, body, Some(Duration::from_secs(30)))?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// Sends one request and returns the status with the body still to be read.
pub fn open(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
    timeout: Option<Duration>,
) -> io::Result<(u16, Body)> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(timeout)?;
    let body = body.map_or_else(String::new, Value::to_string);
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_ascii_lowercase()),
        }
    }
    let status = head.first().and_then(|l| l.split(' ').nth(1)).and_then(|s| s.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no status line"))?;
    let header = |name: &str| head.iter().find_map(|l| Some(l.strip_prefix(name)?.strip_prefix(':')?.trim()));
    let chunked = header("transfer-encoding") == Some("chunked");
    let length = header("content-length").and_then(|length| length.parse().ok());
    let left = if chunked { 0 } else { length.unwrap_or(u64::MAX) };
    Ok((status, Body { reader, chunked, left }))
}

/// A body as it arrives.
pub struct Body {
    reader: BufReader<TcpStream>,
    chunked: bool,
    /// Bytes left of the body, or of the current chunk.
    left: u64,
}

impl Body {
    /// The connection, to shut it down from another thread.
    pub fn connection(&self) -> io::Result<TcpStream> {
        self.reader.get_ref().try_clone()
    }

    /// Reads the size line of the next chunk.
    fn next_chunk(&mut self) -> io::Result<()> {
        let mut line = String::new();
        // The end of the chunk before leaves an empty line.
        while line.trim().is_empty() {
            line.clear();
            if self.reader.read_line(&mut line)? == 0 {
                self.chunked = false;
                return Ok(());
            }
        }
        self.left = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        self.chunked = self.left > 0;
        Ok(())
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && self.chunked {
            self.next_chunk()?;
        }
        if self.left == 0 {
            return Ok(0);
        }
        let read = self.reader.by_ref().take(self.left).read(buffer)?;
        self.left = if self.left == u64::MAX { self.left } else { self.left - read as u64 };
        Ok(read)
    }
}
