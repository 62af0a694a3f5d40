//! The questions that come by the socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::snapshot::Asked;
use crate::state::socket::Socket;

/// How long whoever asks may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest question, in bytes.
const LONGEST: u64 = 64;
/// How long to wait where the system can't give a connection.
const RESPITE: Duration = Duration::from_secs(1);

/// Answers one question after the other.
pub async fn serve(socket: Socket, asked: Arc<Asked>) {
    loop {
        match socket.listener.accept().await {
            // Who does not listen to the answer has lost it.
            Ok((stream, _)) => drop(tokio::time::timeout(PATIENCE, answer(stream, &asked)).await),
            Err(error) => {
                tracing::debug!("a question was lost: {error}");
                tokio::time::sleep(RESPITE).await;
            }
        }
    }
}

async fn answer(mut stream: UnixStream, asked: &Asked) -> std::io::Result<()> {
    let (reading, mut writing) = stream.split();
    let mut question = Vec::new();
    let mut reading = reading.take(LONGEST);
    while !question.ends_with(b"\n") && reading.read_buf(&mut question).await? > 0 {}
    let answer = match question.trim_ascii_end() {
        b"status" => asked.snapshot().json(),
        _ => "{\"error\":\"unknown question\"}".to_owned(),
    };
    writing.write_all(answer.as_bytes()).await?;
    writing.shutdown().await
}
