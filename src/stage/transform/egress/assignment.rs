//! Secrets that are known by their name: `API_KEY=…`, `"password": "…"`, `X-Api-Key: …`, `--token …`.
//!
//! A name proves little, for programs and prose are full of `token = next_token()` and `password: required`.
//! So the value decides: what is quoted, or assigned as the environment is, needs less to count as a secret.

use std::ops::Range;

use super::bytes::{at, before, dashed, digits, dotted, monotone, part, quote, run, run_back, turns, word};

/// Longest name that is looked at, in bytes.
const NAME: usize = 64;

/// How far a closing quotation mark is looked for, in bytes.
const QUOTED: usize = 1024;

/// By how much of a value without quotation marks it is judged, in bytes.
const JUDGED: usize = 256;

/// Most blanks, marks or backslashes between name, sign and value.
const GAP: usize = 32;

/// What a name says of its value.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// People choose it: it may be short and plain.
    Password,
    /// A machine drew it.
    Key,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Between quotation marks.
    Quoted,
    /// As in `API_KEY=…`: a name in capitals, and no blank.
    Environment,
    /// Behind a colon, where JSON may have a number.
    Colon,
    /// Anything else.
    Bare,
}

/// The value that is assigned by the `:` or `=` at a place to a name that means a secret.
pub(super) fn find(bytes: &[u8], sign: usize) -> Option<Range<usize>> {
    let name_end =
        run_back(bytes, sign, GAP, |byte| quote(byte) || matches!(byte, b' ' | b'\t' | b'\\' | b']' | b'*'));
    let name = part(bytes, run_back(bytes, name_end, NAME, dotted), name_end);
    let kind = kind(name)?;
    let behind = run(bytes, sign, |byte| matches!(byte, b':' | b'=' | b'>'));
    let signs = part(bytes, sign, behind);
    if signs.starts_with(b"::") || signs.len() > 3 {
        return None;
    }
    let value = skip(bytes, behind, |byte| matches!(byte, b' ' | b'\t' | b'*'));
    let capitals = !name.iter().any(u8::is_ascii_lowercase);
    let form = match signs {
        b"=" if capitals && value == behind && name_end == sign => Form::Environment,
        b":" => Form::Colon,
        _ => Form::Bare,
    };
    value_at(bytes, value, kind, form)
}

/// The value of a command's option, behind the `--` at a place and a blank.
pub(super) fn find_flag(bytes: &[u8], place: usize) -> Option<Range<usize>> {
    if at(bytes, place + 1) != b'-' || before(bytes, place, 1) == b'-' {
        return None;
    }
    let name_end = run(bytes.get(..bytes.len().min(place + NAME))?, place, dashed);
    let kind = kind(part(bytes, place, name_end))?;
    let value = skip(bytes, name_end, |byte| byte == b' ');
    (value > name_end).then(|| value_at(bytes, value, kind, Form::Bare))?
}

/// What stands for a secret in examples and templates, or was masked before.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    value.first().is_some_and(|first| matches!(first, b'$' | b'<' | b'{' | b'[' | b'%' | b'*' | b'('))
        || value.windows(3).any(|three| three == b"...")
        || monotone(value)
}

fn kind(name: &[u8]) -> Option<Kind> {
    const PASSWORDS: [&str; 3] = ["password", "passwd", "passphrase"];
    const KEYS: [&str; 12] = [
        "token",
        "secret",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "accountkey",
        "authkey",
        "signingkey",
        "encryptionkey",
        "authorization",
        "credential",
    ];
    // Ordinary names end otherwise; this is asked at every colon.
    if !matches!(name.last()?.to_ascii_lowercase(), b'd' | b'e' | b'n' | b't' | b'y' | b's' | b'l') {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let joined: Vec<u8> = lower.iter().copied().filter(|byte| !matches!(byte, b'_' | b'-')).collect();
    let ends = |words: &[&str]| words.iter().any(|word| joined.ends_with(word.as_bytes()));
    let short = [&b"_pass"[..], b"-pass", b"_pwd", b"-pwd"].into_iter().any(|word| lower.ends_with(word));
    if ends(&PASSWORDS) || short { Some(Kind::Password) } else { ends(&KEYS).then_some(Kind::Key) }
}

fn skip(bytes: &[u8], start: usize, over: impl Fn(u8) -> bool) -> usize {
    run(bytes.get(..bytes.len().min(start + GAP)).unwrap_or(bytes), start, over)
}

fn value_at(bytes: &[u8], start: usize, kind: Kind, form: Form) -> Option<Range<usize>> {
    let mark = skip(bytes, start, |byte| byte == b'\\');
    if !quote(at(bytes, mark)) {
        return bare(bytes, start, kind, form);
    }
    let open = mark + 1;
    match closing(bytes, open, at(bytes, mark), mark - start) {
        Some(close) => is_secret(part(bytes, open, close), kind, Form::Quoted).then_some(open..close),
        None => bare(bytes, open, kind, Form::Quoted),
    }
}

/// A value that no quotation mark closes. It is judged by its first bytes, so that a long run costs little.
fn bare(bytes: &[u8], start: usize, kind: Kind, form: Form) -> Option<Range<usize>> {
    let window = bytes.get(..bytes.len().min(start + JUDGED))?;
    let judged = bare_end(window, start);
    let called = matches!(form, Form::Bare | Form::Colon) && matches!(at(bytes, judged), b'(' | b'[');
    let secret = !called && is_secret(part(bytes, start, judged), kind, form);
    secret.then(|| start..bare_end(bytes, start))
}

/// Where a value ends that no quotation mark closes.
fn bare_end(bytes: &[u8], start: usize) -> usize {
    let ends = |byte: u8| byte <= b' ' || quote(byte) || b"\\,;&|<>(){}[]".contains(&byte);
    // An escaped slash is a slash.
    let mut end = run(bytes, start, |byte| !ends(byte));
    while at(bytes, end) == b'\\' && at(bytes, end + 1) == b'/' {
        end = run(bytes, end + 2, |byte| !ends(byte));
    }
    // The dot is the sentence's.
    if end > start && before(bytes, end, 1) == b'.' { end - 1 } else { end }
}

/// Where the quoted text ends. Its mark was written behind so many backslashes, which JSON within JSON makes 1, 3,
/// 7: the closing one has as many, and pairs for the backslashes that the text itself ends with.
fn closing(bytes: &[u8], start: usize, mark: u8, backslashes: usize) -> Option<usize> {
    let mut place = start;
    let limit = start + QUOTED;
    while place < limit {
        place = run(bytes, place, |byte| byte != mark && byte != b'\\' && byte >= b' ');
        let own = run(bytes, place, |byte| byte == b'\\');
        if at(bytes, own) == mark {
            let more = (own - place).checked_sub(backslashes)?;
            if more % (2 * (backslashes + 1)) == 0 {
                return Some(own - backslashes);
            }
        } else if own == place {
            return None;
        }
        place = own + usize::from(at(bytes, own) == mark);
    }
    None
}

fn is_secret(value: &[u8], kind: Kind, form: Form) -> bool {
    if value.len() < 4 || is_placeholder(value) || value.iter().any(u8::is_ascii_whitespace) || is_path(value)
    {
        return false;
    }
    let digits = digits(value);
    let letters = value.iter().any(u8::is_ascii_alphabetic);
    match (kind, form) {
        (Kind::Password, Form::Quoted | Form::Environment) => true,
        (Kind::Password, Form::Colon | Form::Bare) => {
            let number = form == Form::Colon && is_number(value);
            value.len() >= 6
                && !number
                && !is_member(value)
                && (digits > 0 || value.iter().any(|b| b"!@#%^*+~?$".contains(b)))
        }
        (Kind::Key, Form::Quoted | Form::Environment) => value.len() >= 8 && digits > 0 && letters,
        (Kind::Key, Form::Colon | Form::Bare) => {
            let base64 = value.len() >= 32 && digits > 0 && value.iter().any(|byte| b"+/=".contains(byte));
            let drawn = turns(value) >= 3 || (value.len() >= 24 && digits >= 2) || base64;
            let number = is_number(value) || (value.starts_with(b"0x") && value.len() <= 18);
            value.len() >= 8 && letters && drawn && !number && !is_member(value)
        }
    }
}

/// Whether it is a number as JSON writes them.
fn is_number(value: &[u8]) -> bool {
    str::from_utf8(value).is_ok_and(|value| value.parse::<f64>().is_ok())
}

/// Whether it is a member of something in a program, as in `config.db1.token`.
fn is_member(value: &[u8]) -> bool {
    let name = |part: &[u8]| {
        part.first().is_some_and(|first| !first.is_ascii_digit())
            && part.iter().all(|byte| word(*byte))
            && turns(part) <= 4
    };
    value.contains(&b'.') && value.split(|byte| *byte == b'.').all(name)
}

/// Whether it says where something is.
fn is_path(value: &[u8]) -> bool {
    const ROOTS: [&str; 16] = [
        "./", "../", "~/", "/home/", "/Users/", "/etc/", "/var/", "/run/", "/tmp/", "/usr/", "/opt/",
        "/root/", "/mnt/", "/srv/", "/dev/", "/proc/",
    ];
    ROOTS.iter().any(|root| value.starts_with(root.as_bytes()))
        || value.windows(3).any(|three| three == b"://")
}
