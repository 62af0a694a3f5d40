//! What a person saw: the reference that the mirror is held against. It knows no ids, no times and no columns.

/// One row's worth of what was seen, and where Hermes still holds it.
#[derive(Clone, Debug)]
struct Said {
    lines: Vec<String>,
    /// Among the live rows of the session.
    live: bool,
    /// Kept by the session though no longer live: a compaction archived it.
    archived: bool,
    /// Kept for good by a session that this one continues.
    left_behind: bool,
    shown: bool,
}

/// A conversation as its person knows it.
#[derive(Default)]
pub struct Reference {
    said: Vec<Said>,
    /// What a mirror has to have shown by now.
    transcript: Vec<String>,
}

/// Where Hermes held what, at some moment.
#[derive(Clone)]
pub struct Holdings(Vec<Said>);

impl Reference {
    /// Something new was said. Returns its number.
    pub fn say(&mut self, lines: Vec<String>) -> usize {
        let number = self.sum_up(lines);
        self.said[number].live = true;
        number
    }

    /// A summary is at hand, to be kept by the compaction that it is of.
    pub fn sum_up(&mut self, lines: Vec<String>) -> usize {
        self.said.push(Said { lines, live: false, archived: false, left_behind: false, shown: false });
        self.said.len() - 1
    }

    /// A mirror has caught up: it shows what Hermes holds and it has not shown. `live`: what is live, in its order there.
    pub fn catch_up(&mut self, live: &[usize]) {
        let kept = (0..self.said.len()).filter(|n| self.said[*n].archived || self.said[*n].left_behind);
        for n in kept.chain(live.iter().copied()).collect::<Vec<_>>() {
            if !self.said[n].shown {
                self.said[n].shown = true;
                self.transcript.extend_from_slice(&self.said[n].lines);
            }
        }
    }

    /// A compaction in place: what was live stays as history, and of it `kept` goes on.
    pub fn archive(&mut self, kept: &[usize]) {
        for (n, said) in self.said.iter_mut().enumerate() {
            said.archived |= said.live;
            said.live = kept.contains(&n);
        }
    }

    /// A compaction into a child session: all that the parent holds stays with it.
    pub fn leave_behind(&mut self, kept: &[usize]) {
        for (n, said) in self.said.iter_mut().enumerate() {
            said.left_behind |= said.live || said.archived;
            said.archived = false;
            said.live = kept.contains(&n);
        }
    }

    /// The person took these back.
    pub fn take_back(&mut self, taken: &[usize]) {
        for n in taken {
            self.said[*n].live = false;
        }
    }

    /// The person changed their mind about that.
    pub fn give_back(&mut self, given: &[usize]) {
        for n in given {
            self.said[*n].live = true;
        }
    }

    /// Edit and resend: only `kept` is left; the archive too goes where `thoroughly`.
    pub fn cut(&mut self, kept: &[usize], thoroughly: bool) {
        for (n, said) in self.said.iter_mut().enumerate() {
            said.live = kept.contains(&n);
            said.archived &= !thoroughly;
        }
    }

    pub fn was_shown(&self, n: usize) -> bool {
        self.said[n].shown
    }

    pub fn transcript(&self) -> &[String] {
        &self.transcript
    }

    pub fn holdings(&self) -> Holdings {
        Holdings(self.said.clone())
    }

    /// An older copy of the database was put in place: what came since is gone, and stays shown where it was.
    pub fn restore(&mut self, older: &Holdings) {
        for (n, said) in self.said.iter_mut().enumerate() {
            let shown = said.shown;
            match older.0.get(n) {
                Some(then) => *said = Said { shown, ..then.clone() },
                None => (said.live, said.archived, said.left_behind) = (false, false, false),
            }
        }
    }
}
