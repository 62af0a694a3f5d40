//! What a database can't tell, said once.

use std::collections::BTreeSet;
use std::path::Path;

use crate::hermes::Schema;

/// What was said of the database so far.
#[derive(Debug, Default)]
pub struct Lacking {
    said: BTreeSet<&'static str>,
}

impl Lacking {
    /// Says what `schema` lacks, but for what was said. The database is opened again and again, and Hermes may put an
    /// older copy in its place.
    pub fn say(&mut self, database: &Path, schema: &Schema) {
        let news: Vec<_> = schema.gaps().iter().filter(|gap| self.said.insert(gap.column)).collect();
        if news.is_empty() {
            return;
        }
        let columns = news.iter().map(|gap| gap.column).collect::<Vec<_>>().join(", ");
        let consequences: BTreeSet<&str> = news.iter().map(|gap| gap.consequence).collect();
        let consequences = consequences.into_iter().collect::<Vec<_>>().join("; ");
        tracing::info!(database = %database.display(), "without {columns} in this version of Hermes: {consequences}");
    }
}
