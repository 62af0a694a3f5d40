//! What a person sees of a conversation, in the order in which it came.

use rusqlite::{OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Event, Store, StoreError, Taken, now_ms};

/// One thing that a person sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its number, which only grows.
    pub seq: i64,
    /// When it came, in ms since the epoch.
    pub at_ms: i64,
    /// `item`, `reasoning` or `interrupted`.
    pub kind: String,
    /// The item, or the data of what is none.
    pub body: Value,
}

/// In which direction items are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Oldest first.
    #[default]
    Asc,
    /// Newest first.
    Desc,
}

/// Which items are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ItemsQuery {
    /// How many, 1 to 1000.
    pub limit: Option<u32>,
    /// In which direction.
    #[serde(default)]
    pub order: Order,
    /// From behind this item, in that direction.
    pub after: Option<String>,
    /// Up to this item, in that direction.
    pub before: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// What is on it.
    pub data: Vec<T>,
    /// Whether there is more.
    pub has_more: bool,
}

impl<T> Page<T> {
    /// A page of `limit` things out of `found`, which was asked for one more.
    fn cut(mut found: Vec<T>, limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = found.len() > limit;
        found.truncate(limit);
        Self { data: found, has_more }
    }
}

impl Store {
    /// Stores what is to be seen, once for a source.
    pub(super) fn append(&mut self, id: &str, event: &Event) -> Result<Taken, StoreError> {
        let (kind, source, body) = match event {
            Event::Item { item, source_id } => ("item", source_id.as_deref(), item.clone()),
            Event::Boundary(item) => ("item", None, item.clone()),
            Event::Reasoning(delta) => {
                ("reasoning", None, Map::from_iter([("delta".to_owned(), json!(delta))]))
            }
            Event::Interrupted(turn) => {
                ("interrupted", None, Map::from_iter([("response_id".to_owned(), json!(turn))]))
            }
            Event::Change(_) => return Ok(Taken { item_id: None, fresh: false }),
        };
        let now = now_ms();
        let body = Value::Object(body).to_string();
        let add = "INSERT INTO entries (conversation, kind, item_id, source_id, at_ms, body) \
                   VALUES (?1, ?2, iif(?2 = 'item', lower(hex(randomblob(16))), NULL), ?3, ?4, ?5) \
                   ON CONFLICT (conversation, source_id) WHERE source_id IS NOT NULL DO NOTHING RETURNING item_id";
        let run = || -> rusqlite::Result<Option<Option<String>>> {
            let write = self.conn.unchecked_transaction()?;
            let added = write
                .prepare_cached(add)?
                .query_row(params![id, kind, source, now, body], |row| row.get(0))
                .optional()?;
            let touch = "UPDATE conversations SET updated_at_ms = ?2 WHERE id = ?1";
            write.prepare_cached(touch)?.execute(params![id, now])?;
            write.commit()?;
            Ok(added)
        };
        if let Some(item_id) = run().map_err(|e| self.error(e))? {
            self.changed(false);
            return Ok(Taken { item_id, fresh: true });
        }
        let find = "SELECT item_id FROM entries WHERE conversation = ?1 AND source_id = ?2";
        let found = self.conn.query_row(find, params![id, source], |row| row.get(0));
        Ok(Taken { item_id: Some(found.map_err(|e| self.error(e))?), fresh: false })
    }

    /// One page of a conversation's items. `None`: `after` or `before` is no item of it.
    pub fn items(&self, id: &str, query: &ItemsQuery, limit: u32) -> Result<Option<Page<Value>>, StoreError> {
        let place = |item: &Option<String>| -> rusqlite::Result<Option<Option<i64>>> {
            let Some(item) = item else { return Ok(Some(None)) };
            let find = "SELECT seq FROM entries WHERE conversation = ?1 AND item_id = ?2";
            Ok(self.conn.query_row(find, [id, item], |row| row.get(0)).optional()?.map(Some))
        };
        let run = || -> rusqlite::Result<Option<Page<Value>>> {
            let (Some(after), Some(before)) = (place(&query.after)?, place(&query.before)?) else {
                return Ok(None);
            };
            let (behind, short_of, order) = match query.order {
                Order::Asc => (after, before, "ASC"),
                Order::Desc => (before, after, "DESC"),
            };
            let list = format!(
                "SELECT seq, at_ms, kind, item_id, body FROM entries WHERE conversation = ?1 AND item_id IS NOT NULL \
                 AND seq > ?2 AND seq < ?3 ORDER BY seq {order} LIMIT ?4"
            );
            let range = (id, behind.unwrap_or(0), short_of.unwrap_or(i64::MAX), limit + 1);
            let mut list = self.conn.prepare_cached(&list)?;
            let found =
                list.query_map(range, |row| Ok(entry(row)?.body))?.collect::<rusqlite::Result<_>>()?;
            Ok(Some(Page::cut(found, limit)))
        };
        run().map_err(|e| self.error(e))
    }

    /// What came behind the entry of a number, oldest first.
    pub fn entries_after(&self, id: &str, seq: i64, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let list = "SELECT seq, at_ms, kind, item_id, body FROM entries WHERE conversation = ?1 AND seq > ?2 \
                    ORDER BY seq LIMIT ?3";
        let run = || -> rusqlite::Result<Vec<Entry>> {
            self.conn.prepare_cached(list)?.query_map((id, seq, limit), entry)?.collect()
        };
        run().map_err(|e| self.error(e))
    }

    /// The last entries before that of a number, oldest first.
    pub fn entries_before(&self, id: &str, seq: i64, limit: u32) -> Result<Page<Entry>, StoreError> {
        let list = "SELECT seq, at_ms, kind, item_id, body FROM entries WHERE conversation = ?1 AND seq < ?2 \
                    ORDER BY seq DESC LIMIT ?3";
        let run = || -> rusqlite::Result<Vec<Entry>> {
            self.conn.prepare_cached(list)?.query_map((id, seq, limit + 1), entry)?.collect()
        };
        let mut page = Page::cut(run().map_err(|e| self.error(e))?, limit);
        page.data.reverse();
        Ok(page)
    }
}

/// Reads an entry; an item with the fields that every stored one has.
fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let (seq, at_ms, kind): (_, i64, _) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let body: String = row.get(4)?;
    let malformed =
        |error| rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, Box::new(error));
    let mut body: Map<String, Value> = serde_json::from_str(&body).map_err(malformed)?;
    if let Some(id) = row.get::<_, Option<String>>(3)? {
        // A boundary belongs to no turn; the real server gives it one of its own.
        let own_turn = body.get("response_id").cloned().unwrap_or_else(|| format!("compact_{id}").into());
        body.insert("response_id".to_owned(), own_turn);
        body.insert("id".to_owned(), id.into());
        body.insert("status".to_owned(), "completed".into());
        body.insert("created_at".to_owned(), (at_ms / 1_000).into());
    }
    Ok(Entry { seq, at_ms, kind, body: Value::Object(body) })
}
