//! The log's way to stderr, on a thread of its own.
//!
//! Who started the mirror may never read what it logs. A pipe that is full then holds up whoever writes to it, and
//! that must not be the mirror: what finds no room is left out, and how much it was is said once there is room again.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait.
const WAITING: usize = 1_024;
/// How long the end of the program waits for the last lines.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The way to a terminal, where the log goes to one.
static TERMINAL: OnceLock<Sender<Piece>> = OnceLock::new();

/// What is written.
#[derive(Debug)]
enum Piece {
    /// A line of the log.
    Line(Vec<u8>),
    /// The last line of a terminal, in the place of the one before it.
    Last(Vec<u8>),
}

/// Makes writers of lines that never wait.
#[derive(Clone, Debug)]
pub struct Lines {
    pieces: Sender<Piece>,
    left_out: Arc<AtomicU64>,
}

/// Whether the log goes to a terminal, whose last line can be renewed.
pub fn is_terminal() -> bool {
    TERMINAL.get().is_some()
}

/// Renews the last line of the terminal, where there is one: it stays below the log. Without text it goes away.
pub fn renew(text: &str) {
    if let Some(terminal) = TERMINAL.get() {
        // Where there is no room for it, the next one says more.
        let _ = terminal.try_send(Piece::Last(text.as_bytes().to_owned()));
    }
}

/// Writes what is waiting when it is dropped, as long as somebody reads it.
#[derive(Debug)]
pub struct Flush {
    stop: Option<Sender<()>>,
    writer: JoinHandle<()>,
}

/// Starts the thread that writes to `out`, which may be a terminal.
pub fn start(out: impl Write + Send + 'static, is_terminal: bool) -> io::Result<(Lines, Flush)> {
    let (pieces, waiting) = bounded(WAITING);
    let (stop, stopped) = bounded(0);
    let left_out = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&left_out);
    let writer = std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_all(out, &waiting, &stopped, &counted))?;
    if is_terminal {
        // The log is begun once.
        let _ = TERMINAL.set(pieces.clone());
    }
    Ok((Lines { pieces, left_out }, Flush { stop: Some(stop), writer }))
}

fn write_all(mut out: impl Write, pieces: &Receiver<Piece>, stopped: &Receiver<()>, left_out: &AtomicU64) {
    let mut last = Vec::new();
    let mut write = |piece: Piece| {
        let mut text = Vec::new();
        if !last.is_empty() {
            text.extend_from_slice(b"\r\x1b[2K");
        }
        match piece {
            Piece::Line(line) => text.extend(line),
            Piece::Last(renewed) => last = renewed,
        }
        text.extend_from_slice(&last);
        // Where nobody reads it any more, there is nobody to tell.
        let _ = out.write_all(&text).and_then(|()| out.flush());
        let missing = left_out.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let _ = writeln!(out, "{missing} lines were left out: the log was not read fast enough");
        }
    };
    loop {
        crossbeam_channel::select! {
            recv(pieces) -> piece => match piece {
                Ok(piece) => write(piece),
                Err(_) => return,
            },
            recv(stopped) -> _ => break,
        }
    }
    for piece in pieces.try_iter() {
        write(piece);
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.stop = None;
        let deadline = Instant::now() + LAST_WORDS;
        while !self.writer.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Lines {
    /// Takes a line, which the log writes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.pieces.try_send(Piece::Line(line.to_owned())).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes nothing while it is locked.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_logged_is_written_before_the_end() {
        let pipe = Pipe::default();
        let (mut lines, flush) = start(pipe.clone(), false).unwrap();
        for n in 0..100 {
            lines.write_all(format!("{n}\n").as_bytes()).unwrap();
        }
        drop(flush);
        assert_eq!(String::from_utf8(pipe.0.lock().unwrap().clone()).unwrap().lines().count(), 100);
    }

    #[test]
    fn a_terminals_last_line_stays_below_the_log() {
        let pipe = Pipe::default();
        let (mut lines, flush) = start(pipe.clone(), false).unwrap();
        let last = |text: &str| lines.pieces.send(Piece::Last(text.as_bytes().to_owned())).unwrap();
        last("10 %");
        last("20 %");
        lines.clone().write_all(b"said\n").unwrap();
        last("");
        lines.write_all(b"more\n").unwrap();
        drop(flush);
        let text = String::from_utf8(pipe.0.lock().unwrap().clone()).unwrap();
        let erased = "\r\x1b[2K";
        assert_eq!(text, format!("10 %{erased}20 %{erased}said\n20 %{erased}more\n"));
    }

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up_and_says_what_it_lacks() {
        let pipe = Pipe::default();
        let unread = pipe.0.lock().unwrap();
        let (mut lines, flush) = start(pipe.clone(), false).unwrap();
        // One more may be in the writer's hands.
        for _ in 0..WAITING + 2 {
            lines.write_all(b"line\n").unwrap();
        }
        drop(unread);
        drop(flush);
        let text = String::from_utf8(pipe.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("lines were left out"), "{text}");
    }
}
