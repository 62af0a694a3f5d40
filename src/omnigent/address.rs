//! The server's address and the URLs below it.

use std::fmt;
use std::net::IpAddr;

use reqwest::Url;

use crate::ids::{ConversationId, ItemId};
use crate::omnigent::client::Order;

/// The base URL of an Omnigent server: `http` or `https`, a host, and perhaps a path prefix.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    base: Url,
    /// The path prefix without a slash at its end; empty for a server at the root.
    prefix: String,
}

/// Why a text is no server address. The text is not repeated: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It does not parse as a URL.
    #[error("is not a URL; write it as `http://host:port` or `https://host/prefix`")]
    NotUrl,
    /// Another scheme than the two that are spoken.
    #[error("must begin with `http://` or `https://`")]
    Scheme,
    /// A user name or password.
    #[error("must not hold a user name or password; give a token through `[deliver.auth]`")]
    UserInfo,
    /// A query or fragment, which would be lost below it.
    #[error("must not hold a query (`?`) or fragment (`#`)")]
    Query,
}

impl Address {
    /// Takes a base URL as a person writes it; slashes at its end do not matter.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let base = Url::parse(text.trim()).map_err(|_| AddressError::NotUrl)?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(AddressError::Scheme);
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(AddressError::UserInfo);
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(AddressError::Query);
        }
        let prefix = base.path().trim_end_matches('/').to_owned();
        Ok(Self { base, prefix })
    }

    /// Whether the server runs on this machine, where no proxy can help: 127/8, `::1`, `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.base.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip.to_canonical().is_loopback(),
            Err(_) => bare.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
        }
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.base.scheme() == "https"
    }

    /// Where the server says that it is well.
    pub(crate) fn health(&self) -> Url {
        self.below("/health")
    }

    /// The server's agents, all of them on one page.
    pub(crate) fn agents(&self) -> Url {
        let mut url = self.below("/v1/agents");
        url.query_pairs_mut().append_pair("limit", "1000");
        url
    }

    /// Where conversations are made.
    pub(crate) fn sessions(&self) -> Url {
        self.below("/v1/sessions")
    }

    /// One page of the conversations of an agent of this name, newest first, archived ones too.
    pub(crate) fn sessions_of(&self, agent: &str, after: Option<&ConversationId>, limit: u16) -> Url {
        let mut url = self.sessions();
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("limit", &limit.to_string()).append_pair("agent_name", agent);
            query.append_pair("sort_by", "created_at").append_pair("order", "desc");
            query.append_pair("kind", "any").append_pair("include_archived", "true");
            if let Some(after) = after {
                query.append_pair("after", after.as_str());
            }
        }
        url
    }

    /// A conversation.
    pub(crate) fn session(&self, conversation: &ConversationId) -> Url {
        self.below(&format!("/v1/sessions/{}", segment(conversation.as_str())))
    }

    /// Where a conversation takes events.
    pub(crate) fn events(&self, conversation: &ConversationId) -> Url {
        self.below(&format!("/v1/sessions/{}/events", segment(conversation.as_str())))
    }

    /// One page of a conversation's stored items.
    pub(crate) fn items(
        &self,
        conversation: &ConversationId,
        after: Option<&ItemId>,
        order: Order,
        limit: u16,
    ) -> Url {
        let mut url = self.below(&format!("/v1/sessions/{}/items", segment(conversation.as_str())));
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("limit", &limit.to_string()).append_pair("order", order.as_str());
            if let Some(after) = after {
                query.append_pair("after", after.as_str());
            }
        }
        url
    }

    fn below(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.prefix));
        url
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// Writes an id as one path segment, whatever it holds.
///
/// By hand, because a URL type drops tabs and line ends and reads `..`, even encoded, as a way up: the request would
/// then go to another conversation or to another call. A segment of dots alone can't be said in a URL at all; it is
/// encoded twice, which no server knows, and so answered 404.
fn segment(id: &str) -> String {
    let dots = id.bytes().all(|b| b == b'.');
    let mut out = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            b'.' if dots => out.push_str("%252E"),
            b'.' => out.push('.'),
            _ => {
                out.push('%');
                out.push(hex(byte >> 4));
                out.push(hex(byte & 15));
            }
        }
    }
    out
}

/// The upper-case hexadecimal digit of a number below 16.
fn hex(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(base: &str, id: &str) -> String {
        Address::parse(base).unwrap().events(&ConversationId::new(id)).to_string()
    }

    #[test]
    fn a_path_prefix_is_kept_with_and_without_a_slash_at_its_end() {
        let right = "https://host/api/2.0/omnigent/v1/sessions/conv_1/events";
        assert_eq!(events("https://host/api/2.0/omnigent", "conv_1"), right);
        assert_eq!(events("https://host/api/2.0/omnigent/", "conv_1"), right);
        assert_eq!(events("http://h:1", "c"), "http://h:1/v1/sessions/c/events");
        assert_eq!(Address::parse("http://h:1/p/").unwrap().health().as_str(), "http://h:1/p/health");
    }

    #[test]
    fn an_id_stays_one_segment_whatever_it_holds() {
        assert_eq!(events("http://h", "a/b?c#d e%2F"), "http://h/v1/sessions/a%2Fb%3Fc%23d%20e%252F/events");
        assert_eq!(events("http://h", "a\n\tü"), "http://h/v1/sessions/a%0A%09%C3%BC/events");
        assert_eq!(events("http://h", ".."), "http://h/v1/sessions/%252E%252E/events");
        assert_eq!(events("http://h", "a..b"), "http://h/v1/sessions/a..b/events");
    }

    #[test]
    fn a_page_is_asked_for_by_order_limit_and_cursor() {
        let address = Address::parse("http://h/p").unwrap();
        let url =
            address.items(&ConversationId::new("c"), Some(&ItemId::new("msg&1")), Order::Descending, 50);
        assert_eq!(url.as_str(), "http://h/p/v1/sessions/c/items?limit=50&order=desc&after=msg%261");
    }

    #[test]
    fn loopback_is_known_in_each_of_its_forms() {
        for at_home in ["http://127.0.0.1:1", "http://127.9.9.9", "https://[::1]:5/x", "http://LOCALHOST:1"] {
            assert!(Address::parse(at_home).unwrap().is_loopback(), "{at_home}");
        }
        for away in ["http://10.0.0.1", "http://localhost.example.org", "http://[2001:db8::1]"] {
            assert!(!Address::parse(away).unwrap().is_loopback(), "{away}");
        }
    }

    #[test]
    fn what_is_no_base_url_is_refused_without_being_repeated() {
        let cases = [
            ("", AddressError::NotUrl),
            ("127.0.0.1:6767", AddressError::NotUrl),
            ("localhost:6767", AddressError::Scheme),
            ("unix:///run/x", AddressError::Scheme),
            ("http://", AddressError::NotUrl),
            ("https://me:hunter2@host", AddressError::UserInfo),
            ("https://host/?a=b", AddressError::Query),
            ("https://host/#a", AddressError::Query),
        ];
        for (text, error) in cases {
            let got = Address::parse(text).unwrap_err();
            assert_eq!(got, error, "{text}");
            assert!(!got.to_string().contains("hunter2"));
        }
    }
}
