//! Private keys in PEM, in files, in JSON strings and in the source of programs.

use std::ops::Range;

use super::bytes::{at, base64, part, quote, run};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";

/// How far an end is looked for, in bytes. An encrypted key of 16384 bits, armoured, stays below.
const BLOCK: usize = 16 * 1024;

/// The shortest line of a key whose end is not there, in bytes; whole lines have 64 or more.
const LINE: usize = 32;

/// Adds what is secret of the private key whose first line begins at a place, and says where to go on.
pub(super) fn find(bytes: &[u8], place: usize, found: &mut Vec<Range<usize>>) -> Option<usize> {
    let label = place + BEGIN.len();
    if part(bytes, place, label) != BEGIN {
        return None;
    }
    let dashes = run(bytes.get(..bytes.len().min(label + 64))?, label, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' '
    });
    let name = part(bytes, label, dashes);
    if !(name.ends_with(b"PRIVATE KEY") || name.ends_with(b"PRIVATE KEY BLOCK")) {
        return None;
    }
    let start = run(bytes, dashes, |byte| byte == b'-');
    let block = bytes.get(start..bytes.len().min(start + BLOCK))?;
    let end = block.windows(END.len()).position(|here| here == END);
    match end {
        Some(end) => quoted_parts(bytes, start..start + end, found),
        None => lines(bytes, start, start + block.len(), found),
    }
    Some(end.map_or(start, |end| start + end))
}

/// What stands between quotation marks is masked part by part, so that JSON and programs stay what they are.
fn quoted_parts(bytes: &[u8], block: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut start = block.start;
    while start < block.end {
        let close = run(bytes, start, |byte| !quote(byte)).min(block.end);
        // The backslashes belong to the mark.
        let end = close - part(bytes, start, close).iter().rev().take_while(|byte| **byte == b'\\').count();
        let inside = part(bytes, start, end);
        if inside.split(|byte| !base64(*byte)).any(|run| run.len() >= 16) {
            found.push(start..end);
        }
        start = close + 1;
    }
}

/// The key was cut: its lines are masked as far as they are whole.
fn lines(bytes: &[u8], start: usize, limit: usize, found: &mut Vec<Range<usize>>) {
    let mut place = start;
    let mut end = start;
    loop {
        while at(bytes, place).is_ascii_whitespace() || at(bytes, place) == b'\\' {
            let escape = at(bytes, place) == b'\\';
            place += if escape && matches!(at(bytes, place + 1), b'n' | b'r' | b't') { 2 } else { 1 };
        }
        let line = run(bytes, place, base64);
        if line - place < LINE || place >= limit {
            break;
        }
        place = line;
        end = line;
    }
    if end > start {
        found.push(start..end);
    }
}
