//! The ledger's tables, and how an older ledger becomes one of today.

use rusqlite::Connection;

/// "hMir": what `PRAGMA application_id` says in a ledger.
const APPLICATION: i32 = 0x684d_6972;

/// Each step leads from the version of its place to the next.
const STEPS: &[&str] = &[
    "
    CREATE TABLE mirror (
        id           INTEGER PRIMARY KEY,
        server       TEXT NOT NULL,
        conversation TEXT NOT NULL,
        source       TEXT NOT NULL,
        session      TEXT,
        last_row     INTEGER NOT NULL DEFAULT 0,
        partial_row  INTEGER,
        partial_items INTEGER,
        turn         TEXT,
        turn_closed  INTEGER NOT NULL DEFAULT 0,
        closed_turns INTEGER,
        searched     INTEGER NOT NULL DEFAULT 0,
        -- The title that the conversation was last given: a person may have changed it there since.
        title        TEXT,
        UNIQUE (server, conversation, source)
    );
    -- An item that the server acknowledged, or that was found there by read-back.
    CREATE TABLE item (
        mirror  INTEGER NOT NULL REFERENCES mirror (id),
        row     INTEGER NOT NULL,
        place   INTEGER NOT NULL,
        kind    TEXT NOT NULL,
        digest  INTEGER NOT NULL,
        turn    TEXT NOT NULL,
        item    TEXT,
        -- It was a dead letter once: in the conversation it stands behind items of later rows.
        late    INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (mirror, row, place)
    ) WITHOUT ROWID;
    CREATE INDEX item_by_id ON item (mirror, item) WHERE item IS NOT NULL;
    -- A row that was delivered whole, to be known again by should it come back under another id.
    CREATE TABLE row (
        mirror    INTEGER NOT NULL REFERENCES mirror (id),
        row       INTEGER NOT NULL,
        key       INTEGER NOT NULL,
        timestamp REAL NOT NULL,
        PRIMARY KEY (mirror, row)
    ) WITHOUT ROWID;
    -- A turn whose closing edge was delivered, or is owed.
    CREATE TABLE turn (
        mirror INTEGER NOT NULL REFERENCES mirror (id),
        turn   TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('owed', 'idle', 'failed', 'given up')),
        PRIMARY KEY (mirror, turn)
    ) WITHOUT ROWID;
    CREATE TABLE dead_letter (
        id        INTEGER PRIMARY KEY AUTOINCREMENT,
        mirror    INTEGER NOT NULL REFERENCES mirror (id),
        row       INTEGER NOT NULL,
        place     INTEGER NOT NULL,
        kind      TEXT NOT NULL,
        turn      TEXT NOT NULL,
        body      BLOB NOT NULL,
        reason    TEXT NOT NULL,
        doubtful  INTEGER NOT NULL,
        at_ms     INTEGER NOT NULL,
        UNIQUE (mirror, row, place, kind)
    );
",
    "
    -- Whether the owed edge is to say that an item of its turn could not be delivered.
    ALTER TABLE turn ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
",
    "
    -- A row that was taken back before anything of it was shown: should it be live again, it is new.
    CREATE TABLE taken_back (
        mirror INTEGER NOT NULL REFERENCES mirror (id),
        row    INTEGER NOT NULL,
        PRIMARY KEY (mirror, row)
    ) WITHOUT ROWID;
    -- The first and the last row of an undo whose note was delivered or refused.
    CREATE TABLE undone (
        mirror INTEGER NOT NULL REFERENCES mirror (id),
        first  INTEGER NOT NULL,
        last   INTEGER NOT NULL,
        PRIMARY KEY (mirror, first)
    ) WITHOUT ROWID;
    INSERT INTO undone SELECT mirror, row, CAST(substr(turn, length('hermes_turn_') + 1) AS INTEGER)
        FROM item WHERE place = 0;
    -- A conversation that a mirror has made, or is about to make.
    CREATE TABLE made (
        id           INTEGER PRIMARY KEY,
        server       TEXT NOT NULL,
        source       TEXT NOT NULL,
        -- Which session it is for, in the words of the configuration.
        purpose      TEXT NOT NULL,
        -- The session that was found, and the row behind which the conversation begins.
        session      TEXT NOT NULL,
        after        INTEGER NOT NULL,
        started_at   REAL NOT NULL,
        -- Absent until the server has said it.
        conversation TEXT,
        UNIQUE (server, source, purpose)
    );
    -- The row up to which sessions were looked for that are mirrored once they have a new one.
    CREATE TABLE looked (
        server TEXT NOT NULL,
        source TEXT NOT NULL,
        row    INTEGER NOT NULL,
        PRIMARY KEY (server, source)
    ) WITHOUT ROWID;
",
];

/// Why a ledger can't be brought to today's form.
#[derive(Debug)]
pub enum Refusal {
    /// `SQLite` failed.
    Sql(rusqlite::Error),
    /// It has a version this program does not know.
    Version(i64),
    /// It is another program's database.
    Foreign,
}

impl From<rusqlite::Error> for Refusal {
    fn from(cause: rusqlite::Error) -> Self {
        Self::Sql(cause)
    }
}

/// Brings the ledger to today's form, all steps in one transaction.
pub fn migrate(conn: &Connection) -> Result<(), Refusal> {
    let found: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION && (application, found, tables) != (0, 0, 0) {
        return Err(Refusal::Foreign);
    }
    let from =
        usize::try_from(found).ok().filter(|from| *from <= STEPS.len()).ok_or(Refusal::Version(found))?;
    if from == STEPS.len() {
        return Ok(());
    }
    let transaction = conn.unchecked_transaction()?;
    for step in STEPS.iter().skip(from) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    let version = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    transaction.pragma_update(None, "user_version", version)?;
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_that_an_older_ledger_owes_is_still_owed() {
        let conn = Connection::open_in_memory().expect("memory");
        conn.execute_batch(STEPS[0]).expect("the first form");
        conn.execute_batch(
            "INSERT INTO mirror (id, server, conversation, source) VALUES (1, 'http://h', 'c', '/db');
             INSERT INTO turn (mirror, turn, status) VALUES (1, 't', 'owed');",
        )
        .expect("filled");
        conn.pragma_update(None, "application_id", APPLICATION).expect("set");
        conn.pragma_update(None, "user_version", 1).expect("set");
        migrate(&conn).expect("migrated");
        let found = conn.query_row("SELECT turn, status, failed FROM turn", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?))
        });
        assert_eq!(found.expect("kept"), ("t".to_owned(), "owed".to_owned(), false));
    }

    #[test]
    fn an_undo_that_an_older_ledger_noted_is_noted_still() {
        let conn = Connection::open_in_memory().expect("memory");
        STEPS[..2].iter().for_each(|step| conn.execute_batch(step).expect("the second form"));
        conn.execute_batch(
            "INSERT INTO mirror (id, server, conversation, source) VALUES (1, 'http://h', 'c', '/db');
             INSERT INTO item (mirror, row, place, kind, digest, turn) VALUES
                 (1, 3, 0, 'user message', 7, 'hermes_turn_12'), (1, 5, 1, 'user message', 8, 'hermes_turn_5');",
        )
        .expect("filled");
        conn.pragma_update(None, "application_id", APPLICATION).expect("set");
        conn.pragma_update(None, "user_version", 2).expect("set");
        migrate(&conn).expect("migrated");
        let undone = conn.query_row("SELECT first, last FROM undone", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        });
        assert_eq!(undone.expect("one"), (3, 12));
    }

    #[test]
    fn a_ledger_is_made_once_and_a_newer_one_is_refused() {
        let conn = Connection::open_in_memory().expect("memory");
        migrate(&conn).expect("made");
        migrate(&conn).expect("left alone");
        conn.pragma_update(None, "user_version", 99).expect("set");
        assert!(matches!(migrate(&conn), Err(Refusal::Version(99))));
    }
}
