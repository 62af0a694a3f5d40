//! A server that is far away: a proxy on loopback that holds everything back for half a round trip, each way.
//!
//! Loopback's own handshake takes no time, so the first bytes of a connection wait for the round trip that TCP's
//! would have taken.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The running proxy; stops accepting when dropped.
pub struct Delay {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

impl Delay {
    /// Puts `target` a round trip of `rtt` away.
    pub fn start(target: SocketAddr, rtt: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind the proxy")?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        thread::Builder::new().name("delay".to_owned()).spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                // A connection that can't be served is closed, and shows as rows that do not arrive.
                drop(serve(stream, target, rtt));
            }
        })?;
        Ok(Self { address, stopping })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the accepting thread; if that fails, it is no longer accepting.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(client: TcpStream, target: SocketAddr, rtt: Duration) -> Result<()> {
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let opened = Instant::now() + rtt;
    carry(client.try_clone()?, server.try_clone()?, rtt / 2, opened)?;
    carry(server, client, rtt / 2, opened)
}

/// Carries one direction: a thread reads and notes when the bytes are due, another writes them then.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration, opened: Instant) -> Result<()> {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::Builder::new().name("delay-read".to_owned()).spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let due = Instant::now().max(opened) + delay;
            let Some(bytes) = buffer.get(..length) else { return };
            if sender.send((due, bytes.to_vec())).is_err() {
                return;
            }
        }
    })?;
    thread::Builder::new().name("delay-write".to_owned()).spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        drop(to.shutdown(Shutdown::Both));
    })?;
    Ok(())
}
