//! The known shapes of credentials, found in one pass.

use std::ops::Range;

use super::bytes::{alnum, at, before, credentials, dashed, digits, dotted, part, quote, run, run_back};
use super::tokens::{self, TOKENS};
use super::{assignment, pem};

/// How far the parts of a web token and of an address are followed, in bytes.
const PART: usize = 1024;

/// Adds the secrets of known shape that begin before `end`, in order.
pub(super) fn find(text: &str, end: usize, found: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut place = 0;
    // A pair may end one byte behind the end; nothing begins with the text's last byte.
    while let Some(skipped) = part(bytes, place, bytes.len().min(end + 1)).windows(2).position(may_begin) {
        place += skipped;
        let byte = at(bytes, place);
        if let Some(behind) = (byte == b'-').then(|| pem::find(bytes, place, found)).flatten() {
            place = behind;
            continue;
        }
        let secret = match byte {
            b':' if part(bytes, place, place + 3) == b"://" => address(bytes, place + 3),
            b':' => telegram(bytes, place).or_else(|| assignment::find(bytes, place)),
            b'=' => assignment::find(bytes, place),
            b'-' => assignment::find_flag(bytes, place),
            b'b' | b'B' => authorization(bytes, place),
            b'e' => web_token(bytes, place),
            _ => None,
        };
        match secret.or_else(|| token(bytes, place)) {
            Some(secret) => {
                place = secret.end;
                found.push(secret);
            }
            None => place += 1,
        }
    }
}

/// The pairs of bytes at which something may begin, as a set of bits; most places are passed over by it.
static MAY_BEGIN: [u64; 1024] = {
    let mut set = [0; 1024];
    let mut i = 0;
    while i < TOKENS.len() {
        let head = TOKENS[i].head.as_bytes();
        set = with(set, head[0], head[1]);
        i += 1;
    }
    let others = [b"--", b"ey", b"be", b"bE", b"Be", b"BE", b"ba", b"bA", b"Ba", b"BA"];
    let mut i = 0;
    while i < others.len() {
        set = with(set, others[i][0], others[i][1]);
        i += 1;
    }
    let mut any = 0;
    while any <= u8::MAX as usize {
        #[expect(clippy::cast_possible_truncation, reason = "it is at most u8::MAX")]
        let second = any as u8;
        set = with(with(set, b':', second), b'=', second);
        any += 1;
    }
    set
};

const fn with(mut set: [u64; 1024], first: u8, second: u8) -> [u64; 1024] {
    let pair = first as usize * 256 + second as usize;
    set[pair / 64] |= 1 << (pair % 64);
    set
}

fn may_begin(pair: &[u8]) -> bool {
    let &[first, second] = pair else { return false };
    let pair = usize::from(first) * 256 + usize::from(second);
    MAY_BEGIN[pair / 64] & (1 << (pair % 64)) != 0
}

fn token(bytes: &[u8], place: usize) -> Option<Range<usize>> {
    let rest = bytes.get(place..)?;
    let key = tokens::key(rest);
    let mut tokens =
        TOKENS.iter().filter(|token| token.key == key && rest.starts_with(token.head.as_bytes()));
    tokens.find_map(|token| {
        let start = place + token.head.len();
        (!token.head.starts_with(|head: char| head.is_ascii_alphanumeric()) || begins_a_word(bytes, place))
            .then(|| token.end(bytes, start))?
            .map(|end| start..end)
    })
}

/// Whether no word goes on at a place. The letter of an escape is none of the word behind it: `\n` in JSON,
/// `%3D` in addresses, `ESC[31m` in what a terminal shows.
fn begins_a_word(bytes: &[u8], place: usize) -> bool {
    let last = before(bytes, place, 1);
    if !alnum(last) {
        return true;
    }
    let hex = |places: std::ops::RangeInclusive<usize>| {
        places.into_iter().all(|back| before(bytes, place, back).is_ascii_hexdigit())
    };
    let escape = before(bytes, place, 2) == b'\\' && matches!(last, b'n' | b'r' | b't' | b'b' | b'f');
    let unicode = before(bytes, place, 6) == b'\\' && before(bytes, place, 5) == b'u' && hex(1..=4);
    let percent = before(bytes, place, 3) == b'%' && hex(1..=2);
    let colour = last == b'm' && {
        let start = run_back(bytes, place - 1, 16, |byte| byte.is_ascii_digit() || byte == b';');
        before(bytes, start, 1) == b'['
    };
    escape || unicode || percent || colour
}

/// A bot's token: its number, a colon, and what is secret of it.
fn telegram(bytes: &[u8], place: usize) -> Option<Range<usize>> {
    let number = place - run_back(bytes, place, 12, |byte| byte.is_ascii_digit());
    let start = place + 1;
    let end = run(bytes.get(..bytes.len().min(start + 64))?, start, dashed);
    let shape = (8..=10).contains(&number) && part(bytes, start, end).starts_with(b"AA");
    (shape && (33..=40).contains(&(end - start))).then_some(start..end)
}

/// A JSON web token, signed (its second part is JSON too) or encrypted.
fn web_token(bytes: &[u8], place: usize) -> Option<Range<usize>> {
    if part(bytes, place, place + 3) != b"eyJ" || !begins_a_word(bytes, place) {
        return None;
    }
    let window = bytes.get(..bytes.len().min(place + PART))?;
    let header = run(window, place, dashed);
    if at(window, header) != b'.' || header - place < 8 {
        return None;
    }
    let payload = header + 1;
    let signed = part(bytes, payload, payload + 3) == b"eyJ";
    let encrypted = at(window, run(window, payload, dashed)) == b'.';
    if !signed && !encrypted {
        return None;
    }
    let end = run(bytes, payload, dotted);
    let end = if before(bytes, end, 1) == b'.' { end - 1 } else { end };
    Some(place + 3..end)
}

/// `Bearer …` and `Basic …`, which any text may hold, or a header named Authorization, where less is enough.
fn authorization(bytes: &[u8], place: usize) -> Option<Range<usize>> {
    let scheme = [&b"bearer"[..], b"basic"]
        .into_iter()
        .find(|scheme| part(bytes, place, place + scheme.len()).eq_ignore_ascii_case(scheme))?;
    let gap = place + scheme.len();
    let start = run(bytes, gap, |byte| byte == b' ');
    if start == gap || !begins_a_word(bytes, place) {
        return None;
    }
    let judged = bytes.get(..bytes.len().min(start + PART))?;
    let value = part(judged, start, run(judged, start, credentials));
    let named = part(bytes, place.saturating_sub(24), place)
        .windows(b"authorization".len())
        .any(|name| name.eq_ignore_ascii_case(b"authorization"));
    let mixed = value.iter().skip(1).any(u8::is_ascii_uppercase) && value.iter().any(u8::is_ascii_lowercase);
    let drawn = if named {
        value.len() >= 8 && (digits(value) > 0 || mixed || value.len() >= 24)
    } else {
        value.len() >= 16 && digits(value) > 0 && (mixed || digits(value) > 3)
    };
    drawn.then(|| start..run(bytes, start, credentials))
}

/// The password, or the token in the place of a user, in an address whose `://` ends before `start`.
fn address(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let window = bytes.get(..bytes.len().min(start + PART))?;
    let outside = |byte: u8| byte <= b' ' || quote(byte) || matches!(byte, b'/' | b'?' | b'\\' | b'<' | b'>');
    let authority = part(window, start, run(window, start, |byte| !outside(byte)));
    let end = start + authority.iter().rposition(|byte| *byte == b'@')?;
    let user = part(bytes, start, end);
    match user.iter().position(|byte| *byte == b':') {
        Some(colon) => {
            let password = start + colon + 1;
            let shown = part(bytes, password, end);
            (!shown.is_empty() && !assignment::is_placeholder(shown)).then_some(password..end)
        }
        None => (user.len() >= 20 && digits(user) > 2 && user.iter().all(|byte| dotted(*byte)))
            .then_some(start..end),
    }
}
