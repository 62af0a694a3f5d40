//! What single values must be like, wherever they come from: the file or the command line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;

/// Latest start of a terminal, in s since the epoch. Beyond it the value is surely in ms.
pub const LAUNCH_EPOCH_MAX: f64 = 100_000_000_000.0;

/// A value that can't be used. Never carries the value itself, which may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ValueError {
    /// What is wrong, to be read after the value's name.
    pub message: &'static str,
    /// What to write instead.
    pub help: &'static str,
}

/// A list of program and arguments that has neither.
pub const NO_PROGRAM: ValueError = ValueError {
    message: "is empty",
    help: "write a program and its arguments, for example `[\"pass\", \"show\", \"omnigent\"]`",
};

const fn wrong(message: &'static str, help: &'static str) -> Result<(), ValueError> {
    Err(ValueError { message, help })
}

/// Accepts the address of a server: http or https, a host, a path prefix if need be, and nothing else.
pub fn base_url(value: &str) -> Result<(), ValueError> {
    let example = "write an address such as `http://127.0.0.1:6767` or `https://host/prefix`";
    let Ok(url) = Url::parse(value) else {
        return wrong("is not an address", example);
    };
    if !matches!(url.scheme(), "http" | "https") {
        return wrong("does not begin with http:// or https://", example);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong(
            "has a user name, password or token in it",
            "take it out, and say in [deliver.auth.env], [deliver.auth.file] or [deliver.auth.command] where the token comes from",
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong("has a `?` or `#` part", "end the address after its path");
    }
    Ok(())
}

/// Accepts a port of the loopback address, which no other machine can reach.
pub fn loopback(value: &str) -> Result<SocketAddr, ValueError> {
    let help = "write `127.0.0.1:PORT`; to look from another machine, use a tunnel such as `ssh -L`";
    let Ok(address) = value.parse::<SocketAddr>() else {
        return Err(ValueError { message: "is no address with a port", help });
    };
    if ![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&address.ip()) {
        return Err(ValueError { message: "is an address that other machines may reach", help });
    }
    Ok(address)
}

/// Accepts an id that can stand in a path of the server's API.
pub fn conversation(value: &str) -> Result<(), ValueError> {
    if value.is_empty() {
        return wrong(
            "is empty",
            "write `new`, to have one made, or the conversation's id, the last part of its address in the web page",
        );
    }
    if value.contains("://") {
        return wrong(
            "is an address, not an id",
            "write only the conversation's id, the last part of that address",
        );
    }
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | '%');
    if value.contains(odd) || matches!(value, "." | "..") {
        return wrong(
            "has characters that no id has",
            "write the conversation's id, the last part of its address in the web page",
        );
    }
    Ok(())
}

/// Accepts an instant in s since the epoch.
pub fn launch_epoch(value: f64) -> Result<(), ValueError> {
    let help = "write seconds since 1970-01-01 UTC, as `date +%s` prints them";
    if value.is_nan() || value.is_infinite() {
        return wrong("is not a number of seconds", help);
    }
    if value < 0.0 {
        return wrong("is negative", help);
    }
    if value > LAUNCH_EPOCH_MAX {
        return wrong("is too large; it looks like milliseconds", help);
    }
    Ok(())
}

/// Accepts the name of an environment variable, and so refuses most tokens written in its place.
pub fn variable_name(value: &str) -> Result<(), ValueError> {
    let begins_well = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins_well && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    wrong(
        "is not the name of an environment variable",
        "write the variable's name, for example `OMNIGENT_TOKEN`; the token itself never stands in this file",
    )
}

/// Accepts anything but nothing.
pub fn not_empty(value: &str) -> Result<(), ValueError> {
    if value.trim().is_empty() {
        return wrong("is empty", "give it a value, or take the line out to have the default");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_address_may_have_a_port_and_a_path_prefix() {
        for good in
            ["http://127.0.0.1:6767", "https://host/api/2.0/omnigent", "http://[::1]:1/", "HTTP://host"]
        {
            assert_eq!(base_url(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn what_is_no_server_address_is_refused() {
        for bad in ["", "127.0.0.1:6767", "localhost:6767", "ftp://host", "http://", "file:///etc", "/api"] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_in_the_address_is_refused_and_not_repeated() {
        for bad in
            ["http://tok3n@host", "https://u:tok3n@host", "https://:tok3n@host", "http://host?key=tok3n"]
        {
            let error = base_url(bad).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("tok3n"), "{bad}");
        }
    }

    #[test]
    fn the_status_is_shown_to_this_machine_alone() {
        for good in ["127.0.0.1:9464", "[::1]:9464", "127.0.0.1:0"] {
            assert_eq!(loopback(good).map(|address| address.to_string()), Ok(good.to_owned()));
        }
        for bad in
            ["0.0.0.0:1", "[::]:1", "192.168.1.2:1", "127.0.0.2:1", "127.0.0.1", "localhost:1", "9464", ""]
        {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_conversation_id_can_stand_in_a_path() {
        assert_eq!(conversation("conv_1f-2.x"), Ok(()));
        for bad in ["", " ", "a b", "a/b", "..", "a?b", "https://host/c/conv_1", "a\u{0}b"] {
            assert!(conversation(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_launch_is_a_plausible_number_of_seconds() {
        for good in [0.0, 1_700_000_000.25, LAUNCH_EPOCH_MAX] {
            assert_eq!(launch_epoch(good), Ok(()), "{good}");
        }
        for bad in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1_700_000_000_000.0] {
            assert!(launch_epoch(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_no_variable_name() {
        assert_eq!(variable_name("OMNIGENT_TOKEN"), Ok(()));
        for bad in ["", "1A", "a-b", "$TOKEN", "eyJ.x.y", "A=B"] {
            assert!(variable_name(bad).is_err(), "{bad}");
        }
    }
}
