//! The server, and what it knows of each mirror's conversation.

use std::fs;

use hermes_mirror::config::{Auth, Config, DEFAULT_AGENT, Deliver, Mirror};
use hermes_mirror::ids::{AgentId, ConversationId, HermesSessionId};
use hermes_mirror::omnigent::{Client, Fault, FaultKind, Session};

use super::subject;
use crate::cli::finding::Finding;

const SERVER: &str = "server";
const TOKEN: &str = "token";

/// The longest that one question may take, in ms, however long a delivery may.
const LONGEST_CALL_MS: u64 = 10_000;

/// Asks whether the server is well and knows each conversation. Sends nothing but questions.
pub async fn ask(config: &Config, sessions: &[Option<HermesSessionId>]) -> Vec<Finding> {
    if let Some(no_token) = token(&config.deliver.auth) {
        return vec![no_token, Finding::info(SERVER, "not asked, for want of the token")];
    }
    let deliver =
        Deliver { timeout_ms: config.deliver.timeout_ms.min(LONGEST_CALL_MS), ..config.deliver.clone() };
    let client = match Client::new(&deliver, Box::new(|name| std::env::var(name).ok())) {
        Ok(client) => client,
        Err(error) => {
            let help = "correct [deliver]; https:// needs the system's root certificates";
            return vec![Finding::fail(SERVER, error.to_string(), help)];
        }
    };
    if let Err(fault) = client.health().await {
        return vec![unwell(&client, config, &fault)];
    }
    let mut findings = vec![Finding::ok(SERVER, "answers, and is well")];
    for (mirror, session) in config.mirror.iter().zip(sessions) {
        if mirror.makes_conversation() {
            findings.push(can_be_made(mirror, client.agent(DEFAULT_AGENT).await));
            continue;
        }
        match client.session(&ConversationId::new(mirror.conversation.as_str())).await {
            Ok(found) => findings.push(known(mirror, &found, session.as_ref())),
            Err(fault) if concerns_all(&fault) => {
                findings.push(unwell(&client, config, &fault));
                break;
            }
            Err(fault) => findings.push(unknown(mirror, &fault)),
        }
    }
    findings
}

fn can_be_made(mirror: &Mirror, agent: Result<AgentId, Fault>) -> Finding {
    match agent {
        Ok(_) => Finding::ok(subject(mirror), "its conversation is made with the session's first message"),
        Err(fault) => Finding::fail(
            subject(mirror),
            format!("its conversation can't be made: {}", fault.detail),
            "update Omnigent, or make a conversation there and write its id as `conversation`",
        ),
    }
}

/// Whether the next question would end the same way.
fn concerns_all(fault: &Fault) -> bool {
    !matches!(fault.kind, FaultKind::Status(400 | 403 | 404 | 410 | 422))
}

fn known(mirror: &Mirror, found: &Session, session: Option<&HermesSessionId>) -> Finding {
    match (&found.external_session_id, session) {
        (Some(bound), Some(session)) if bound != session => Finding::warn(
            subject(mirror),
            format!("the conversation shows Hermes session {bound} so far, not {session}"),
            "if both are one terminal's, all is well; if not, the messages of two sessions will stand in one \
             conversation: correct `conversation` or `session`",
        ),
        _ => {
            let status = found.status.as_deref().unwrap_or("of no status");
            Finding::ok(subject(mirror), format!("the server knows the conversation ({status})"))
        }
    }
}

/// A conversation that can't be had from a server that is well.
fn unknown(mirror: &Mirror, fault: &Fault) -> Finding {
    let help = match fault.kind {
        FaultKind::Status(403) => "use the token of a user who may write to this conversation",
        _ => "take `conversation` from the address of its page in Omnigent; a deleted one does not come back",
    };
    let message = match fault.kind {
        FaultKind::Status(404 | 410) => {
            format!("the server does not know the conversation: {}", fault.detail)
        }
        _ => format!("the conversation can't be had: the server {}", in_words(fault)),
    };
    Finding::fail(subject(mirror), message, help)
}

/// A server that can't be used.
fn unwell(client: &Client, config: &Config, fault: &Fault) -> Finding {
    let has_token = config.deliver.auth != Auth::default();
    let is_tls = client.address().is_tls();
    match fault.kind {
        FaultKind::Token => Finding::fail(
            TOKEN,
            fault.detail.as_str(),
            "put the token there, or correct [deliver.auth]; then check again: the server was not asked",
        ),
        FaultKind::Status(code @ (401 | 403)) if has_token => Finding::fail(
            TOKEN,
            format!("the server refuses it ({code}): {}", fault.detail),
            "log in to Omnigent again and put the new token where [deliver.auth] takes it from",
        ),
        FaultKind::Status(code @ (401 | 403)) => Finding::fail(
            TOKEN,
            format!("there is none, and the server wants one ({code}): {}", fault.detail),
            "log in to Omnigent and say in [deliver.auth] where the token is",
        ),
        kind => Finding::fail(SERVER, in_words(fault), advice(kind, has_token, is_tls)),
    }
}

/// What the server did, without the advice that a log line needs and a finding has apart.
fn in_words(fault: &Fault) -> String {
    let detail = &fault.detail;
    match fault.kind {
        FaultKind::Status(code @ 300..=399) => format!("redirects ({code}) instead of answering: {detail}"),
        FaultKind::Status(code) => format!("answers {code}: {detail}"),
        kind => format!("{kind}: {detail}"),
    }
}

fn advice(kind: FaultKind, has_token: bool, is_tls: bool) -> &'static str {
    match kind {
        FaultKind::Status(300..=399) if has_token => {
            "the server, or a proxy before it, asks for a login: get a new token, or correct `base_url` in [deliver]"
        }
        FaultKind::Status(300..=399) => {
            "the server, or a proxy before it, asks for a login: say in [deliver.auth] where the token is, or \
             correct `base_url` in [deliver]"
        }
        FaultKind::Connect | FaultKind::Timeout { sent: false } if is_tls => {
            "start the Omnigent server, or correct `base_url` in [deliver]: https:// needs a server that speaks TLS \
             there, with a certificate that this machine trusts"
        }
        FaultKind::Connect | FaultKind::Timeout { sent: false } => {
            "start the Omnigent server, or correct host and port of `base_url` in [deliver]"
        }
        FaultKind::Timeout { sent: true } => {
            "something takes the connection and stays silent: see whether the Omnigent server hangs, and whether \
             `base_url` in [deliver] names it"
        }
        FaultKind::Status(500..) => "the server, or a proxy before it, is in trouble: look at its log",
        FaultKind::Broken if !is_tls => {
            "see whether `base_url` in [deliver] names the Omnigent server; if it speaks TLS there, write https://"
        }
        _ => {
            "something else answers there: correct host, port and path prefix of `base_url` in [deliver]; if a \
             browser shows a login page at that address, log in and give the token in [deliver.auth]"
        }
    }
}

/// What can be told about the token without reading it.
fn token(auth: &Auth) -> Option<Finding> {
    if let Some(env) = &auth.env {
        let set = std::env::var_os(&env.name).is_some_and(|value| !value.is_empty());
        return (!set).then(|| {
            let message = format!("the environment variable {} is not set", env.name);
            Finding::fail(TOKEN, message, "set it where hermes-mirror is started")
        });
    }
    let path = &auth.file.as_ref()?.path;
    let error = fs::metadata(path).err()?;
    let message = format!("the file {} can't be reached: {error}", path.display());
    Some(Finding::fail(TOKEN, message, "create it with the token as its first line, readable for you alone"))
}
