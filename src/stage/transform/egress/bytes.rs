//! Looking around in text, byte by byte. What is looked for is ASCII, so every place found is a character's boundary.

/// The byte at a place; 0, which no text here has, beyond the ends.
pub(super) fn at(bytes: &[u8], place: usize) -> u8 {
    bytes.get(place).copied().unwrap_or(0)
}

/// The byte `back` places before another.
pub(super) fn before(bytes: &[u8], place: usize, back: usize) -> u8 {
    place.checked_sub(back).map_or(0, |place| at(bytes, place))
}

/// The part between two places.
pub(super) fn part(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    bytes.get(start..end).unwrap_or_default()
}

/// Where the run of bytes of a kind ends that begins at a place.
pub(super) fn run(bytes: &[u8], start: usize, of: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(start..).unwrap_or_default();
    start + rest.iter().position(|byte| !of(*byte)).unwrap_or(rest.len())
}

/// Where the run of bytes of a kind begins that ends at a place; at most `most` bytes before it.
pub(super) fn run_back(bytes: &[u8], end: usize, most: usize, of: impl Fn(u8) -> bool) -> usize {
    let floor = end.saturating_sub(most);
    let head = part(bytes, floor, end);
    floor + head.iter().rposition(|byte| !of(*byte)).map_or(0, |last| last + 1)
}

/// Letters and digits.
pub(super) fn alnum(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

/// Letters, digits and `_`.
pub(super) fn word(byte: u8) -> bool {
    alnum(byte) || byte == b'_'
}

/// The alphabet of base64 in addresses.
pub(super) fn dashed(byte: u8) -> bool {
    word(byte) || byte == b'-'
}

/// As [`dashed`], with the dots between parts.
pub(super) fn dotted(byte: u8) -> bool {
    dashed(byte) || byte == b'.'
}

/// The alphabet of base64, with its padding.
pub(super) fn base64(byte: u8) -> bool {
    alnum(byte) || matches!(byte, b'+' | b'/' | b'=')
}

/// What a bearer token or basic credentials are made of.
pub(super) fn credentials(byte: u8) -> bool {
    base64(byte) || dotted(byte) || byte == b'~'
}

/// Quotation marks, the backtick of Markdown and shells among them.
pub(super) fn quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

/// How often letters and digits meet: often in what a machine drew, seldom in names.
pub(super) fn turns(value: &[u8]) -> usize {
    let meet = |pair: &&[u8]| match pair {
        [a, b] => {
            (a.is_ascii_alphabetic() && b.is_ascii_digit()) || (a.is_ascii_digit() && b.is_ascii_alphabetic())
        }
        _ => false,
    };
    value.windows(2).filter(meet).count()
}

/// How many digits there are.
pub(super) fn digits(value: &[u8]) -> usize {
    value.iter().filter(|byte| byte.is_ascii_digit()).count()
}

/// Whether it is one and the same character all along, as in `xxxxxxxx`.
pub(super) fn monotone(value: &[u8]) -> bool {
    value.len() >= 4 && value.iter().all(|byte| Some(byte) == value.first())
}
