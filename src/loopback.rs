//! Who may ask: this machine's own programs, and pages that came from here.
//!
//! A page of another origin can make a browser send requests to a loopback port, and by a name that it lets point
//! there (DNS rebinding) even read the answers. Such requests carry that name in `Host`, or that origin in `Origin`.

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

/// What the page may do: run this server's scripts, use its styles, ask it, and show images that came in a message.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";

/// On every answer.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// A server on the loopback address, and how it says no.
#[derive(Clone, Copy)]
pub struct Door {
    /// Its port.
    pub port: u16,
    /// The answer to a request that may not pass; it is given the reason.
    pub refuse: fn(&'static str) -> Response,
}

/// Lets a request pass, or refuses it; sets the headers that every answer has.
pub async fn guard(State(door): State<Door>, request: Request, next: Next) -> Response {
    let mut response = match admit(request.headers(), door.port) {
        Ok(()) => next.run(request).await,
        Err(reason) => (door.refuse)(reason),
    };
    response.headers_mut().extend(HEADERS);
    response
}

fn admit(headers: &HeaderMap, port: u16) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    if hosts.next().is_some() || !host.is_some_and(|host| is_ours(host, port)) {
        return Err("this server answers only by its loopback address");
    }
    for origin in headers.get_all(ORIGIN) {
        let host = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        if !host.is_some_and(|host| is_ours(host, port)) {
            return Err("this server answers no page of another origin");
        }
    }
    Ok(())
}

/// Whether a host with its port is a name that nobody else can give this server.
fn is_ours(host: &str, port: u16) -> bool {
    let (name, its_port) = match host.rsplit_once(':') {
        Some((name, digits)) if !digits.ends_with(']') => (name, digits.parse().ok()),
        _ => (host, Some(80)),
    };
    let known = ["127.0.0.1", "localhost", "[::1]"].iter().any(|known| name.eq_ignore_ascii_case(known));
    known && its_port == Some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_names_with_the_right_port_are_ours() {
        for host in ["127.0.0.1:6767", "localhost:6767", "LocalHost:6767", "[::1]:6767"] {
            assert!(is_ours(host, 6767), "{host}");
        }
        for host in
            ["evil.example:6767", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:6767", "[::1]", ""]
        {
            assert!(!is_ours(host, 6767), "{host}");
        }
        assert!(is_ours("localhost", 80) && is_ours("[::1]", 80));
    }

    #[test]
    fn a_request_without_a_host_or_with_two_is_refused() {
        let mut headers = HeaderMap::new();
        assert!(admit(&headers, 1).is_err());
        headers.append(HOST, HeaderValue::from_static("localhost:1"));
        assert!(admit(&headers, 1).is_ok());
        headers.append(HOST, HeaderValue::from_static("localhost:1"));
        assert!(admit(&headers, 1).is_err());
    }

    #[test]
    fn another_origin_is_refused_and_so_is_one_that_will_not_say() {
        for (origin, right) in [
            ("http://localhost:1", true),
            ("https://localhost:1", false),
            ("http://localhost:2", false),
            ("http://evil.example", false),
            ("null", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("127.0.0.1:1"));
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
            assert_eq!(admit(&headers, 1).is_ok(), right, "{origin}");
        }
    }
}
