//! What went wrong with one request, in terms that decide what is done about it.

use std::fmt;
use std::time::{Duration, SystemTime};

/// A request that was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// How long the server asks to be left alone, as it said; at most [`LONGEST_RETRY_AFTER`].
    pub retry_after: Option<Duration>,
    /// On what it happened and what the server said of it, in at most [`LONGEST_MESSAGE`] characters of the server's
    /// own. It holds no token and no transcript text.
    pub detail: String,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// No connection came about, so nothing was sent.
    Connect,
    /// Time ran out.
    Timeout {
        /// Whether the request may have gone out; `false` only where no connection came about.
        sent: bool,
    },
    /// The connection was lost after sending began and before the answer was whole.
    Broken,
    /// An answer with another status than a success. Redirects are answers too: they are not followed.
    Status(u16),
    /// A success whose body is not what the Sessions API answers, for example a login page.
    BadAnswer,
    /// The token could not be had, so nothing was sent.
    Token,
}

/// The longest `Retry-After` that is passed on; a longer one is cut to it.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_hours(24);

/// How much of a server's message a [`Fault`] quotes, in characters.
pub const LONGEST_MESSAGE: usize = 300;

impl Fault {
    pub(crate) fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        Self { kind, retry_after: None, detail: detail.into() }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("cannot connect"),
            Self::Timeout { sent: false } => f.write_str("no connection in time"),
            Self::Timeout { sent: true } => f.write_str("no answer in time"),
            Self::Broken => f.write_str("the connection broke before the answer was whole"),
            Self::Status(code @ 300..=399) => {
                write!(f, "the server redirects ({code}); is the login still valid?")
            }
            Self::Status(code @ (401 | 403)) => {
                write!(f, "the server does not let us in ({code}); log in again")
            }
            Self::Status(404) => f.write_str("the server does not know it (404)"),
            Self::Status(code) => write!(f, "the server answered {code}"),
            Self::BadAnswer => f.write_str("the answer is not one of Omnigent's Sessions API"),
            Self::Token => f.write_str("no token to send"),
        }
    }
}

/// Reads a `Retry-After` header in either of its forms, seconds or a date.
///
/// A date gone by means "now". What is neither form means nothing.
#[must_use]
pub(crate) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // A number too long for the type is no reason to knock at once.
        value.parse().map_or(LONGEST_RETRY_AFTER, Duration::from_secs)
    } else {
        httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}

/// What of a server's error message may be shown: one line, cut, and without what it quotes of the request.
///
/// Validation errors repeat the refused value behind `input_value=`; that is transcript text. A server may also
/// repeat a `secret` it was sent.
#[must_use]
pub(crate) fn presentable(message: &str, secret: Option<&str>) -> String {
    let own = message.split("input_value").next().unwrap_or_default();
    let own = match secret {
        Some(secret) if !secret.is_empty() => own.replace(secret, "[token]"),
        _ => own.to_owned(),
    };
    let words = own.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    if line.chars().nth(LONGEST_MESSAGE).is_none() {
        return line;
    }
    let mut cut: String = line.chars().take(LONGEST_MESSAGE - 1).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(retry_after("120", now), Some(Duration::from_mins(2)));
        assert_eq!(retry_after(" 0 ", now), Some(Duration::ZERO));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:50:07 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(retry_after("Sunday, 06-Nov-94 08:50:07 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(retry_after("Sat, 05 Nov 1994 08:49:37 GMT", now), Some(Duration::ZERO));
    }

    #[test]
    fn an_absurd_retry_after_is_cut_and_a_meaningless_one_ignored() {
        let now = SystemTime::UNIX_EPOCH;
        for absurd in ["999999999999", "99999999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(retry_after(absurd, now), Some(LONGEST_RETRY_AFTER), "{absurd}");
        }
        for meaningless in ["", "-5", "1.5", "soon", "1e3", "٣"] {
            assert_eq!(retry_after(meaningless, now), None, "{meaningless}");
        }
    }

    #[test]
    fn a_message_is_one_line_and_cut_on_a_character() {
        assert_eq!(presentable(" a\r\n\tb\u{1b}[2J ", None), "a b [2J");
        for n in 290..310 {
            let shown = presentable(&format!("{} tail", "ü".repeat(n)), None);
            assert_eq!(shown.chars().count(), (n + 5).min(LONGEST_MESSAGE), "{n}");
        }
        assert_eq!(presentable("", None), "");
    }

    #[test]
    fn a_message_gives_away_neither_the_token_nor_the_refused_text() {
        let shown = presentable("bad sk-123 for content [type=x, input_value='dear diary']", Some("sk-123"));
        assert_eq!(shown, "bad [token] for content [type=x,");
    }
}
