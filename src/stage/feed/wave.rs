//! A transcript that something appends once more.

use super::Feed;
use crate::event::{Row, Standing};

impl Feed {
    /// Says so, once for a session.
    pub(super) fn watch_for_wave(&mut self, row: &Row) {
        let (Some(following), Some(trace)) = (&mut self.following, row.trace) else { return };
        let is_copy = match row.standing {
            Standing::New => false,
            // Those of a compaction take the places of their originals.
            Standing::Repeated if following.rewrites.repeats_live() => true,
            Standing::Repeated | Standing::TakenBack | Standing::Summary(_) => return,
        };
        let Some(rows) = following.wave.pass(trace.key, is_copy) else { return };
        tracing::warn!(
            conversation = %self.conversation, session = %following.session, row = %row.id,
            "{rows} rows and more repeat earlier ones in their order: something appends the transcript again; copies with \
             their originals' times are left out, others are shown, for nothing tells them from what is said anew"
        );
    }
}
