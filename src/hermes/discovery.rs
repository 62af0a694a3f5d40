//! Which session belongs to a terminal, when nobody says so.
//!
//! Hermes names its sessions itself and records neither a pid nor, often, a working directory. What is known
//! of a terminal is where and when it was launched. Among several that fit equally none is taken.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::connection::{Open, SourceError};
use super::sessions::Session;
use crate::ids::HermesSessionId;

/// A session may have started this long before the launch that was recorded, in s: two clocks' skew.
pub const LAUNCH_SKEW_S: f64 = 10.0;

/// Longest chain of compactions that is walked; Hermes itself stops at 100.
const LONGEST_CHAIN: usize = 100;

/// What is known of the terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Terminal {
    /// Its working directory.
    pub workspace: PathBuf,
    /// When it was launched, in s since the epoch.
    pub launch_epoch_s: f64,
}

/// What discovery made of the candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The session.
    Session(HermesSessionId),
    /// No candidate yet.
    Nothing,
    /// Several candidates, and nothing to choose by: a person must name one.
    Ambiguous(Vec<HermesSessionId>),
}

/// Looks for the terminal's session. `taken` says whether a live sibling mirrors it already.
pub fn discover(
    open: &Open,
    terminal: &Terminal,
    taken: impl Fn(&HermesSessionId) -> bool,
) -> Result<Found, SourceError> {
    let floor = terminal.launch_epoch_s - LAUNCH_SKEW_S;
    let mut candidates = Vec::new();
    for session in open.sessions_since(floor)? {
        if session.is_side_session() {
            continue;
        }
        candidates.extend(stand(open, session, floor)?);
    }
    let mut known = BTreeMap::new();
    let is_workspace = |cwd: &str| {
        *known.entry(cwd.to_owned()).or_insert_with(|| same_directory(Path::new(cwd), &terminal.workspace))
    };
    choose(&candidates, is_workspace, |session| is_taken(open, &session.id, &taken))
}

/// Whether a sibling mirrors the session, or one that continues it: who follows the child of a compaction came
/// there through its parent.
fn is_taken(
    open: &Open,
    session: &HermesSessionId,
    taken: impl Fn(&HermesSessionId) -> bool,
) -> Result<bool, SourceError> {
    let mut next = Some(session.clone());
    for _ in 0..LONGEST_CHAIN {
        let Some(id) = next else { return Ok(false) };
        if taken(&id) {
            return Ok(true);
        }
        next = open.continuation(&id)?;
    }
    Ok(false)
}

/// A session that stands for election, and the directory it works in, where one is recorded.
type Candidate = (Session, Option<String>);

/// Takes a session as a candidate unless it is none: what was branched or delegated is nobody's terminal, and
/// what continues another candidate is reached through that one.
///
/// Hermes leaves `cwd` empty in the child that a compaction forks, so it is looked up along the chain.
fn stand(open: &Open, session: Session, floor: f64) -> Result<Option<Candidate>, SourceError> {
    let mut cwd = session.cwd.clone();
    let mut parent = session.parent.clone();
    for _ in 0..LONGEST_CHAIN {
        let Some(id) = parent else { return Ok(Some((session, cwd))) };
        let Some(ancestor) = open.session(&id)? else { return Ok(None) };
        if !ancestor.is_compacted_away() || ancestor.started_at >= floor {
            return Ok(None);
        }
        cwd = cwd.or(ancestor.cwd);
        parent = ancestor.parent;
    }
    Ok(None)
}

/// Newest session of the directory; where no candidate records one, a lone candidate. Whether one is `taken` is asked
/// of as few as possible, since it reads every sibling's claim: a database may hold thousands of sessions.
fn choose<E>(
    candidates: &[Candidate],
    mut is_workspace: impl FnMut(&str) -> bool,
    taken: impl Fn(&Session) -> Result<bool, E>,
) -> Result<Found, E> {
    let (placed, unplaced): (Vec<_>, Vec<_>) = candidates.iter().partition(|(_, cwd)| cwd.is_some());
    let (mut here, elsewhere): (Vec<_>, Vec<_>) =
        placed.into_iter().partition(|(_, cwd)| cwd.as_deref().is_some_and(&mut is_workspace));
    here.sort_by(|(a, _), (b, _)| b.started_at.total_cmp(&a.started_at).then_with(|| b.id.cmp(&a.id)));
    for (session, _) in here {
        if !taken(session)? {
            return Ok(Found::Session(session.id.clone()));
        }
    }
    for (session, _) in elsewhere {
        if !taken(session)? {
            return Ok(Found::Nothing);
        }
    }
    let mut free = Vec::new();
    for (session, _) in unplaced {
        if !taken(session)? {
            free.push(session.id.clone());
        }
    }
    Ok(match free.len() {
        0 | 1 => free.pop().map_or(Found::Nothing, Found::Session),
        _ => Found::Ambiguous(free),
    })
}

/// Whether two paths name one directory, links resolved.
fn same_directory(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use super::*;

    fn candidate(id: &str, started_at: f64, cwd: Option<&str>) -> Candidate {
        let session = Session {
            id: HermesSessionId::new(id),
            source: "cli".to_owned(),
            cwd: cwd.map(str::to_owned),
            started_at,
            end_reason: None,
            parent: None,
            model: None,
            marker: None,
            has_rows: true,
        };
        (session, cwd.map(str::to_owned))
    }

    fn chosen(candidates: &[Candidate]) -> Found {
        let free = |_: &Session| Ok::<_, Infallible>(false);
        choose(candidates, |cwd| cwd == "/work", free).unwrap_or(Found::Nothing)
    }

    #[test]
    fn of_thousands_of_sessions_only_those_of_the_directory_are_asked_for_their_claims() {
        let mut candidates: Vec<_> =
            (0..5_000_u32).map(|n| candidate(&n.to_string(), f64::from(n), Some("/other"))).collect();
        candidates.push(candidate("older", 1.0, Some("/work")));
        candidates.push(candidate("newer, taken", 2.0, Some("/work")));
        let asked = RefCell::new(Vec::new());
        let taken = |session: &Session| {
            asked.borrow_mut().push(session.id.as_str().to_owned());
            Ok::<_, Infallible>(session.id.as_str() == "newer, taken")
        };
        let found = choose(&candidates, |cwd| cwd == "/work", taken);
        assert_eq!(found, Ok(Found::Session(HermesSessionId::new("older"))));
        assert_eq!(asked.into_inner(), ["newer, taken", "older"]);
    }

    #[test]
    fn the_newest_session_of_the_directory_wins() {
        let candidates = [
            candidate("older", 1.0, Some("/work")),
            candidate("newer", 2.0, Some("/work")),
            candidate("newest, elsewhere", 3.0, Some("/other")),
        ];
        assert_eq!(chosen(&candidates), Found::Session(HermesSessionId::new("newer")));
    }

    #[test]
    fn a_lone_session_without_a_directory_is_taken() {
        assert_eq!(chosen(&[candidate("lone", 1.0, None)]), Found::Session(HermesSessionId::new("lone")));
    }

    #[test]
    fn several_without_a_directory_are_refused_by_name() {
        let several = [candidate("a", 1.0, None), candidate("b", 2.0, None)];
        let ids = vec![HermesSessionId::new("a"), HermesSessionId::new("b")];
        assert_eq!(chosen(&several), Found::Ambiguous(ids));
    }

    #[test]
    fn a_session_of_another_directory_is_never_taken_even_alone() {
        assert_eq!(chosen(&[candidate("lone", 1.0, Some("/other"))]), Found::Nothing);
        let beside = [candidate("a", 1.0, Some("/other")), candidate("b", 2.0, None)];
        assert_eq!(chosen(&beside), Found::Nothing);
    }

    #[test]
    fn side_sessions_are_no_terminals() {
        for (id, source) in [("bg_120000_abc123", "cli"), ("x", "subagent"), ("x", "tool"), ("x", "cron")] {
            let (mut session, _) = candidate(id, 1.0, None);
            session.source = source.to_owned();
            assert!(session.is_side_session(), "{id} {source}");
        }
        let (mut branch, _) = candidate("x", 1.0, None);
        branch.marker = Some(super::super::sessions::Marker::Branch);
        assert!(branch.is_side_session());
    }
}
