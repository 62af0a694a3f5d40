//! The faults that the test server makes, and how they are chosen.

use std::collections::VecDeque;
use std::time::Duration;

use super::sink::Request;

/// What becomes of one request. "Commit" is the moment the server has acted on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is answered as the real server would.
    None,
    /// The connection is reset, and the request never acted on.
    Reset,
    /// The connection is reset after the commit.
    ResetAfterCommit,
    /// Half of the answer is sent after the commit, then the connection closed.
    HalfResponse,
    /// This status instead of a commit.
    Status(u16),
    /// This status after the commit.
    StatusAfterCommit(u16),
    /// This status and `Retry-After` instead of a commit.
    RetryAfter(u16, String),
    /// A redirect to `/login`, which answers 200 with HTML.
    Redirect,
    /// 200 with HTML instead of a commit.
    Html,
    /// A success with JSON that is not the API's, after the commit.
    OtherJson,
    /// No commit and no answer until the client leaves.
    Stall,
    /// A commit, then no answer until the client leaves.
    StallAfterCommit,
    /// A commit, and the answer so much later.
    Slow(Duration),
    /// A commit and an answer so much later, though the client may have left by then: what a stalled server does once
    /// it comes to itself. Exact only against a server that knows a source id again.
    LateCommit(Duration),
    /// Never chosen: the client had left before its request was looked at, so nothing was done. Without this a busy
    /// machine would make late commits of its own.
    ClientLeft,
}

/// Chooses the fault of each request.
pub type Script = Box<dyn FnMut(&Request) -> Fault + Send>;

/// The faults to come: a queue for the next posts, then the script.
pub struct Plan {
    posts: VecDeque<Fault>,
    script: Script,
}

impl Default for Plan {
    fn default() -> Self {
        Self { posts: VecDeque::new(), script: Box::new(|_| Fault::None) }
    }
}

impl Plan {
    pub fn queue(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.posts.extend(faults);
    }

    pub fn script(&mut self, script: Script) {
        self.script = script;
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn choose(&mut self, request: &Request) -> Fault {
        match self.posts.pop_front() {
            Some(fault) if request.method == "POST" => fault,
            Some(fault) => {
                self.posts.push_front(fault);
                (self.script)(request)
            }
            None => (self.script)(request),
        }
    }
}

/// A script that strikes `per_mille` of the requests with faults of every kind after which delivery can still be
/// exact, the same for the same seed and order of requests.
pub fn random(seed: u64, per_mille: u64) -> Script {
    let mut random = Random::new(seed);
    Box::new(move |_| {
        if random.below(1000) >= per_mille {
            return Fault::None;
        }
        match random.below(15) {
            0 | 1 => Fault::Reset,
            2 | 3 => Fault::ResetAfterCommit,
            4 => Fault::HalfResponse,
            5 => Fault::Status(random.one_of(&[401, 404, 408, 500, 502, 503, 504])),
            6 | 7 => Fault::StatusAfterCommit(random.one_of(&[500, 502, 503, 504])),
            8 => Fault::RetryAfter(random.one_of(&[429, 503]), "0".to_owned()),
            9 => Fault::Html,
            10 => Fault::OtherJson,
            11 => Fault::Redirect,
            12 => random.one_of(&[Fault::Stall, Fault::StallAfterCommit]),
            _ => Fault::Slow(Duration::from_millis(random.below(20))),
        }
    })
}

/// `SplitMix64`: small, seeded, the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True `per_cent` of the time.
    pub fn happens(&mut self, per_cent: u64) -> bool {
        self.below(100) < per_cent
    }

    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        let count = u64::try_from(choices.len()).unwrap();
        choices[usize::try_from(self.below(count)).unwrap()].clone()
    }
}
