//! What each stage costs by itself, without a system around it: `cargo bench --bench stages`.

#![allow(missing_docs, reason = "criterion's macros make functions without documentation")]

mod support;

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hermes_mirror::config;
use hermes_mirror::event::{Post, Reading, Role, Row, Standing, Step};
use hermes_mirror::hermes::{Limits, Rewrites, Source};
use hermes_mirror::ids::{HermesSessionId, MessageId};
use hermes_mirror::omnigent::body;
use hermes_mirror::stage::transform::Transform;
use hermes_mirror::stage::turns::Turns;
use rusqlite::Connection;
use tempfile::TempDir;

use support::hermes_db::{self, Layout};
use support::script;

/// Rows of one read, as many as `batch_rows` is by default.
const ROWS: u32 = 256;
const LIMITS: Limits = Limits { rows: ROWS, bytes: u64::MAX };

/// A database, and everything that becomes of its rows.
struct Sample {
    _root: TempDir,
    source: Source,
    session: HermesSessionId,
    rows: Vec<Row>,
    steps: Vec<Step>,
    posts: Vec<Post>,
}

impl Sample {
    fn new() -> Result<Self> {
        let root = tempfile::tempdir()?;
        let path = root.path().join("state.db");
        hermes_db::create(&path, &Layout { history: ROWS, ..Layout::FRESH }, 1)?;
        let mut source = Source::new(path, Duration::ZERO);
        let session = HermesSessionId::new(script::session(0));
        let rows = source.open()?.scan(MessageId::new(0), std::slice::from_ref(&session), LIMITS)?.rows;
        ensure!(rows.len() == ROWS as usize, "{} rows instead of {ROWS}", rows.len());
        let transform = Transform::new(&config::Transform::default());
        let steps: Vec<Step> = rows.iter().cloned().map(|row| transform.apply(Reading::Row(row))).collect();
        let mut turns = Turns::new();
        let deliveries = steps.iter().cloned().flat_map(|step| turns.apply(step));
        let posts = deliveries.filter_map(|delivery| delivery.post).collect();
        Ok(Self { _root: root, source, session, rows, steps, posts })
    }

    /// Appends copies of all rows as an in-place compaction does: the originals archived, the copies written by one
    /// transaction a microsecond apart. Gives the copies.
    fn rewrite(&mut self) -> Result<Vec<Row>> {
        #[expect(clippy::disallowed_methods, reason = "a database of the benchmark's own")]
        let conn = Connection::open(self.source.path())?;
        let now = hermes_db::now().as_secs_f64();
        conn.execute_batch("UPDATE messages SET active = 0, compacted = 1")?;
        conn.execute(
            "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp, finish_reason)
             SELECT session_id, role, content, tool_call_id, tool_calls, tool_name, ?1 + id * 1e-6, finish_reason
             FROM messages ORDER BY id",
            [now],
        )?;
        conn.close().map_err(|(_, error)| error)?;
        let after = MessageId::new(i64::from(ROWS));
        let copies = self.source.open()?.scan(after, std::slice::from_ref(&self.session), LIMITS)?.rows;
        ensure!(self.judge(copies.clone())? == copies.len(), "copies that pass for new rows");
        Ok(copies)
    }

    /// Judges rows that follow each other; gives how many repeat others.
    fn judge(&mut self, mut rows: Vec<Row>) -> Result<usize> {
        let times: Vec<f64> = rows.iter().map(|row| row.timestamp).collect();
        let next = times.into_iter().skip(1).map(Some).chain([None]);
        let open = self.source.open()?;
        let mut rewrites = Rewrites::default();
        for (row, next) in rows.iter_mut().zip(next) {
            open.judge(&mut rewrites, row, next, false, &|_| Vec::new())?;
        }
        Ok(rows.iter().filter(|row| row.standing == Standing::Repeated).count())
    }
}

fn stages(criterion: &mut Criterion) -> Result<()> {
    let mut sample = Sample::new()?;
    ensure!(sample.rows.iter().any(|row| row.role == Role::Tool), "a sample without tool calls");
    ensure!(sample.judge(sample.rows.clone())? == 0, "new rows that pass for copies");
    let mut group = criterion.benchmark_group("stages");
    group.throughput(Throughput::Elements(ROWS.into()));
    let session = std::slice::from_ref(&sample.session).to_vec();
    let open = sample.source.open()?;
    group.bench_function("read", |bencher| {
        bencher.iter(|| open.scan(MessageId::new(0), black_box(&session), LIMITS));
    });
    let rows = sample.rows.clone();
    group.bench_function("judge, new rows", |bencher| {
        bencher.iter_batched(|| rows.clone(), |rows| sample.judge(rows), BatchSize::SmallInput);
    });
    for enabled in [true, false] {
        let mut config = config::Transform::default();
        config.egress.enabled = enabled;
        let transform = Transform::new(&config);
        let name = if enabled { "transform" } else { "transform, nothing masked" };
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || rows.clone(),
                |rows| rows.into_iter().map(|row| transform.apply(Reading::Row(row))).collect::<Vec<_>>(),
                BatchSize::SmallInput,
            );
        });
    }
    group.bench_function("turns", |bencher| {
        bencher.iter_batched(
            || sample.steps.clone(),
            |steps| {
                let mut turns = Turns::new();
                steps.into_iter().flat_map(|step| turns.apply(step)).collect::<Vec<_>>()
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("bodies", |bencher| {
        bencher.iter(|| {
            let bodies =
                sample.posts.iter().filter_map(|post| body::event(post, config::DEFAULT_AGENT, None));
            bodies.map(|body| body.len()).sum::<usize>()
        });
    });
    let copies = sample.rewrite()?;
    group.bench_function("judge, a compaction's copies", |bencher| {
        bencher.iter_batched(|| copies.clone(), |copies| sample.judge(copies), BatchSize::SmallInput);
    });
    group.finish();
    Ok(())
}

#[expect(clippy::panic, reason = "criterion has no other way for a benchmark to fail")]
fn all(criterion: &mut Criterion) {
    if let Err(error) = stages(criterion).context("stages") {
        panic!("{error:#}");
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
