//! Draws the figures of the other benchmarks: `cargo bench --bench pictures -- RESULTS PICTURES`, two directories.
//! It measures nothing; `scripts/bench` runs it last.

#[path = "support/chart.rs"]
mod chart;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use chart::{Anchor, Axis, COLOUR_COUNT, Picture, Scale, ceiling, floor, round_ceiling, short};

fn main() -> ExitCode {
    match draw_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pictures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn draw_all() -> Result<()> {
    let given: Vec<PathBuf> = env::args_os()
        .skip(1)
        .map(PathBuf::from)
        .filter(|path| !path.to_string_lossy().starts_with("--"))
        .collect();
    let (results, pictures) = match given.as_slice() {
        // A test runner has nothing to draw.
        [] => return Ok(()),
        [results, pictures] => (results, pictures),
        _ => bail!("give the directory of the results and that of the pictures"),
    };
    for (name, draw) in
        [("latency", latency as fn(&Value) -> Result<Picture>), ("idle", idle), ("scale", scale)]
    {
        let figures = read(&results.join(name).with_extension("json"))?;
        let picture = draw(&figures).with_context(|| format!("draw {name}"))?;
        write(&pictures.join(name).with_extension("svg"), &picture)?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a file of the benchmark's own")]
fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "a file of the benchmark's own")]
fn write(path: &Path, picture: &Picture) -> Result<()> {
    fs::write(path, picture.svg()).with_context(|| format!("write {}", path.display()))
}

fn number(value: &Value, pointer: &str) -> Result<f64> {
    value.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no figure at {pointer}"))
}

fn list<'a>(value: &'a Value, pointer: &str) -> Result<&'a [Value]> {
    let list =
        value.pointer(pointer).and_then(Value::as_array).with_context(|| format!("no list at {pointer}"))?;
    ensure!(!list.is_empty(), "the list at {pointer} is empty");
    Ok(list)
}

fn label(value: &Value) -> &str {
    value.get("label").and_then(Value::as_str).unwrap_or_default()
}

/// What the machine was, in a line.
fn machine(results: &Value) -> String {
    let text = |pointer| results.pointer(pointer).and_then(Value::as_str).unwrap_or("unknown");
    let cores = results.pointer("/machine/cores").and_then(Value::as_u64).unwrap_or(0);
    let smoke = if results.pointer("/smoke") == Some(&Value::Bool(true)) { " (a smoke run)" } else { "" };
    format!(
        "{}, {cores} cores, {} {}{smoke}",
        text("/machine/cpu"),
        text("/machine/os"),
        text("/machine/kernel")
    )
}

/// Which part of the rows had arrived after how long.
fn latency(results: &Value) -> Result<Picture> {
    let mut picture = Picture::new(
        (760.0, 400.0),
        "From COMMIT to the server: part of the rows that have arrived",
        "Distribution of the latency of hermes-mirror and its baselines, on a logarithmic scale",
    );
    let subjects = list(results, "/figures/subjects")?;
    let x = Axis { scale: Scale::Logarithmic, values: (0.1, 1_000.0), places: (56.0, 500.0) };
    let y = Axis { scale: Scale::Linear, values: (0.0, 100.0), places: (340.0, 50.0) };
    picture.grid(&x, &y, |part| format!("{part:.0} %"));
    picture.text((278.0, 372.0), Anchor::Middle, "dim", "ms, logarithmic");
    picture.text((12.0, 392.0), Anchor::Start, "dim", &machine(results));
    let measured = subjects.iter().filter(|subject| subject.get("latency_ms").is_some_and(Value::is_object));
    let mut legend = 62.0;
    for (colour, subject) in measured.enumerate() {
        let colour = colour % COLOUR_COUNT;
        let mut samples: Vec<f64> =
            list(subject, "/latencies_ms")?.iter().filter_map(Value::as_f64).collect();
        samples.sort_by(f64::total_cmp);
        let part = 100.0 / f64::from(u32::try_from(samples.len())?);
        let points =
            (1_u32..).zip(samples).map(|(count, sample)| (x.place(sample), y.place(f64::from(count) * part)));
        picture.line(points, colour);
        picture.bar((518.0, legend - 9.0), (12.0, 10.0), colour);
        picture.text((536.0, legend), Anchor::Start, "text", label(subject));
        let p50 = number(subject, "/latency_ms/p50")?;
        let p99 = number(subject, "/latency_ms/p99")?;
        let figures = format!("p50 {} ms, p99 {} ms", rounded(p50), rounded(p99));
        picture.text((536.0, legend + 15.0), Anchor::Start, "dim", &figures);
        legend += 42.0;
    }
    Ok(picture)
}

/// Three digits that count.
fn rounded(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// CPU time while nothing happens.
fn idle(results: &Value) -> Result<Picture> {
    let cases = list(results, "/figures/cases")?;
    let history = number(results, "/figures/history")?;
    let height = 76.0 + 30.0 * f64::from(u32::try_from(cases.len())?);
    let heading = format!("CPU time while nothing happens, {} rows of history", short(history));
    let mut picture = Picture::new(
        (760.0, height + 34.0),
        &heading,
        "CPU time at idle of hermes-mirror and its baselines, on a logarithmic scale",
    );
    let x = Axis { scale: Scale::Logarithmic, values: (0.01, 1_000.0), places: (270.0, 660.0) };
    for tick in x.ticks() {
        picture.rule((x.place(tick), 42.0), (x.place(tick), height - 22.0));
        picture.text((x.place(tick), height - 7.0), Anchor::Middle, "dim", &short(tick));
    }
    picture.text((465.0, height + 9.0), Anchor::Middle, "dim", "ms of CPU in each second, logarithmic");
    picture.text((12.0, height + 27.0), Anchor::Start, "dim", &machine(results));
    let mut top = 48.0;
    for case in cases {
        let cpu = number(case, "/cpu_ms_per_s")?;
        let mirror =
            case.get("subject").and_then(Value::as_str).is_some_and(|name| name.starts_with("attach"));
        picture.text((260.0, top + 14.0), Anchor::End, "text", label(case));
        let length = (x.place(cpu) - x.places.0).max(1.0);
        picture.bar((x.places.0, top), (length, 20.0), if mirror { 0 } else { 3 });
        let figure = if cpu < 1.0 { format!("{cpu:.3}") } else { rounded(cpu) };
        picture.text((x.places.0 + length + 6.0, top + 14.0), Anchor::Start, "text", &figure);
        top += 30.0;
    }
    Ok(picture)
}

/// Cost for each row, and memory, as things grow.
fn scale(results: &Value) -> Result<Picture> {
    let cases = list(results, "/figures/cases")?;
    let mut picture = Picture::new(
        (860.0, 470.0),
        "What a row costs as things grow",
        "CPU time for each row and memory of hermes-mirror against rows of history, mirrored sessions and other sessions",
    );
    picture.text((12.0, 462.0), Anchor::Start, "dim", &machine(results));
    let columns = [
        ("history", "rows of history"),
        ("sessions", "sessions mirrored"),
        ("foreign", "other sessions in the file"),
    ];
    let rows = [("/cpu_us_per_row", "CPU us for each row", 1_000.0), ("/memory/now_kb", "memory, MB", 20.0)];
    let mut left = 60.0;
    for (axis, title) in columns {
        let of_axis: Vec<&Value> =
            cases.iter().filter(|case| case.get("axis").and_then(Value::as_str) == Some(axis)).collect();
        let sizes = of_axis.iter().map(|case| number(case, "/size")).collect::<Result<Vec<_>>>()?;
        let low = floor(sizes.iter().copied().fold(f64::INFINITY, f64::min));
        let high = ceiling(sizes.iter().copied().fold(low * 10.0, f64::max));
        let x = Axis { scale: Scale::Logarithmic, values: (low, high), places: (left, left + 220.0) };
        let mut top = 62.0;
        for (pointer, what, least) in rows {
            let unit = if pointer.ends_with("kb") { 1024.0 } else { 1.0 };
            let value = |case: &Value| number(case, pointer).map(|value| value / unit);
            // The same scale in each column.
            let all = cases.iter().map(value).collect::<Result<Vec<_>>>()?;
            let most = round_ceiling(all.into_iter().fold(least, f64::max));
            let y = Axis { scale: Scale::Linear, values: (0.0, most), places: (top + 140.0, top) };
            picture.grid(&x, &y, short);
            if axis == "history" {
                picture.text((12.0, top - 12.0), Anchor::Start, "text", what);
            }
            let mut points = Vec::new();
            for (case, size) in of_axis.iter().zip(&sizes) {
                points.push((x.place(*size), y.place(value(case)?)));
            }
            for point in &points {
                picture.dot(*point, 0);
            }
            picture.line(points, 0);
            top += 200.0;
        }
        picture.text((left + 110.0, 440.0), Anchor::Middle, "text", title);
        left += 275.0;
    }
    Ok(picture)
}
