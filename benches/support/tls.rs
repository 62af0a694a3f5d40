//! TLS for the sink, with a certificate made for the occasion.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::sink::{Stream, Wrap};

impl Stream for StreamOwned<ServerConnection, TcpStream> {
    fn reset(&mut self) {
        self.sock.reset();
    }
}

/// Wraps connections to 127.0.0.1, and writes to `authority` the certificate that a client has to trust.
pub fn wrap(authority: &Path) -> Result<Wrap> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).context("make a certificate")?;
    fs::write(authority, made.cert.pem())?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .map_err(|error| anyhow::anyhow!("a key of an unknown kind: {error}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    let config = Arc::new(config);
    Ok(Arc::new(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config))?;
        Ok(Box::new(StreamOwned::new(connection, stream)))
    }))
}
