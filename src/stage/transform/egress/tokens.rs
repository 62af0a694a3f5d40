//! Tokens that their issuers made to be known by how they begin.

use super::bytes::{alnum, base64, dashed, digits, dotted, monotone, run, word};

/// One kind of token.
pub(super) struct Token {
    /// How it begins; this much is shown.
    pub head: &'static str,
    /// The head's first three bytes, to compare at once.
    pub key: u32,
    /// What the rest is made of.
    body: fn(u8) -> bool,
    /// How long the rest is, in bytes.
    length: (usize, usize),
}

const fn token(head: &'static str, body: fn(u8) -> bool, least: usize) -> Token {
    bounded(head, body, least, usize::MAX)
}

const fn bounded(head: &'static str, body: fn(u8) -> bool, least: usize, most: usize) -> Token {
    Token { head, key: key(head.as_bytes()), body, length: (least, most) }
}

/// The first three bytes as one number.
pub(super) const fn key(text: &[u8]) -> u32 {
    match text {
        [a, b, c, ..] => u32::from_be_bytes([0, *a, *b, *c]),
        _ => 0,
    }
}

fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn path(byte: u8) -> bool {
    dashed(byte) || byte == b'/'
}

/// Longer heads stand before those they begin with.
pub(super) static TOKENS: &[Token] = &[
    // OpenAI and the many who took up its form.
    token("sk-proj-", dashed, 20),
    token("sk-svcacct-", dashed, 20),
    token("sk-admin-", dashed, 20),
    token("sk-ant-", dashed, 20),
    token("sk-or-", dashed, 20),
    token("sk-", dashed, 20),
    // Others who serve models.
    token("gsk_", alnum, 30),
    token("xai-", alnum, 30),
    token("pplx-", alnum, 30),
    token("hf_", alnum, 30),
    token("r8_", alnum, 30),
    token("tvly-", dashed, 20),
    token("fc-", alnum, 30),
    // GitHub, GitLab.
    token("github_pat_", word, 22),
    token("ghp_", word, 30),
    token("gho_", word, 30),
    token("ghu_", word, 30),
    token("ghs_", dotted, 30),
    token("ghr_", word, 30),
    token("glpat-", dotted, 20),
    token("gldt-", dashed, 20),
    token("glrt-", dotted, 20),
    token("glptt-", dashed, 20),
    // Clouds.
    bounded("AKIA", upper, 16, 16),
    bounded("ASIA", upper, 16, 16),
    bounded("AIza", dashed, 35, 39),
    token("ya29.", dotted, 20),
    token("GOCSPX-", dashed, 20),
    token("dop_v1_", alnum, 40),
    token("hvs.", dashed, 24),
    bounded("dapi", |byte| byte.is_ascii_hexdigit(), 32, 32),
    // Messengers and mail.
    token("xoxa-", dashed, 10),
    token("xoxb-", dashed, 10),
    token("xoxe-", dashed, 10),
    token("xoxp-", dashed, 10),
    token("xoxr-", dashed, 10),
    token("xoxs-", dashed, 10),
    token("xapp-", dashed, 20),
    token("hooks.slack.com/services/", path, 20),
    token("/api/webhooks/", path, 40),
    token("SG.", dotted, 40),
    // Payment.
    token("sk_live_", alnum, 16),
    token("sk_test_", alnum, 16),
    token("rk_live_", alnum, 16),
    token("rk_test_", alnum, 16),
    token("whsec_", base64, 16),
    // Package registries and others.
    token("npm_", alnum, 30),
    token("pypi-", dashed, 50),
    token("shpat_", alnum, 32),
    token("lin_api_", alnum, 32),
    token("ntn_", alnum, 40),
    token("AGE-SECRET-KEY-1", upper, 50),
];

/// A body is judged by its first bytes, so that a long run of nothing costs little.
const JUDGED: usize = 128;

impl Token {
    /// Where the token ends whose rest begins at `start`; `None` where it is something else.
    pub(super) fn end(&self, bytes: &[u8], start: usize) -> Option<usize> {
        let (least, most) = self.length;
        let window = bytes.get(..bytes.len().min(start + JUDGED)).unwrap_or_default();
        let mut end = run(window, start, self.body);
        let body = window.get(start..end).unwrap_or_default();
        if body.len() < least || body.len() > most || monotone(body) || !self.is_drawn(body) {
            return None;
        }
        if end == window.len() {
            end = run(bytes, end, self.body);
        }
        // The dot is the sentence's.
        Some(if bytes.get(end - 1) == Some(&b'.') { end - 1 } else { end })
    }

    /// Whether a machine drew it: words joined by dashes have no digits, or no long part.
    fn is_drawn(&self, body: &[u8]) -> bool {
        let digits = digits(body);
        match self.head {
            // One in thirty has no digit.
            "AKIA" => true,
            "sk-" | "sk-proj-" | "sk-admin-" => {
                digits > 0 && body.split(|byte| !alnum(*byte)).any(|part| part.len() >= 12)
            }
            _ => digits > 0 || body.len() >= 40,
        }
    }
}
