//! `pipeline.toml` from raw text to a [`Config`]: every problem is found in one go.

use std::fs;
use std::io;
use std::path::Path;

use toml::de::DeTable;

use super::diagnostic::Diagnostic;
use super::problems::Problems;
use super::reader::{Context, Found, Reader};
use super::{
    Auth, AuthCommand, AuthEnv, AuthFile, Config, ConfigError, Deliver, Detect, DetectMode, Egress, Hooks,
    Pattern, Read, Retry, Source, State, Status, Synthetic, Transform, Turns, mirrors, rules,
};

/// Reads and validates a file. Relative paths in it begin at its directory, `~/` at the home directory.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    #[expect(clippy::disallowed_methods, reason = "pipeline.toml, not a database file")]
    let bytes = fs::read(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        unreadable(io::Error::new(io::ErrorKind::InvalidData, format!("it is not UTF-8 from byte {at} on")))
    })?;
    let directory = std::path::absolute(path).map_err(unreadable)?;
    let home = etcetera::home_dir().ok();
    parse_at(&text, &path.display().to_string(), directory.parent().unwrap_or(Path::new("")), home.as_deref())
}

/// Validates a text. `name` is the file it came from, as messages shall call it; relative paths begin at its directory.
pub fn parse(text: &str, name: &str) -> Result<Config, ConfigError> {
    let home = etcetera::home_dir().ok();
    parse_at(text, name, Path::new(name).parent().unwrap_or(Path::new("")), home.as_deref())
}

fn parse_at(text: &str, name: &str, directory: &Path, home: Option<&Path>) -> Result<Config, ConfigError> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let problems = Problems::with_syntax(text, &errors);
    let config = {
        let context = Context { problems: &problems, directory, home };
        config(Reader::root(&context, table.get_ref()), &problems)
    };
    match problems.finish() {
        None => Ok(config),
        Some((shown, diagnostics)) => Err(ConfigError::invalid(name, shown, diagnostics)),
    }
}

fn config(mut file: Reader<'_>, problems: &Problems<'_>) -> Config {
    let config = Config {
        source: source(file.table("source")),
        detect: detect(file.table("detect")),
        read: read(file.table("read")),
        transform: transform(file.table("transform")),
        turns: turns(file.table("turns")),
        deliver: deliver(file.table("deliver"), problems),
        state: state(file.table("state")),
        status: status(file.table("status")),
        hooks: hooks(file.table("hooks")),
        mirror: mirrors::read(file.tables("mirror"), problems),
    };
    file.finish();
    config
}

fn source(mut table: Reader<'_>) -> Source {
    let db = table.path("db").map(|db| db.value);
    table.finish();
    Source { db }
}

fn detect(mut table: Reader<'_>) -> Detect {
    let default = Detect::default();
    let modes = [("auto", DetectMode::Auto), ("poll", DetectMode::Poll)];
    let detect = Detect {
        mode: table.choice("mode", &modes, default.mode),
        fallback_poll_ms: table.integer("fallback_poll_ms", 100..=60_000, default.fallback_poll_ms),
        poll_ms: table.integer("poll_ms", 1..=60_000, default.poll_ms),
        look_us: table.integer("look_us", 50..=10_000, default.look_us),
        settle_ms: table.integer("settle_ms", 5..=10_000, default.settle_ms),
        release_after_ms: table.integer("release_after_ms", 100..=3_600_000, default.release_after_ms),
    };
    table.finish();
    detect
}

fn read(mut table: Reader<'_>) -> Read {
    let default = Read::default();
    let read = Read {
        batch_rows: table.integer("batch_rows", 1..=10_000, default.batch_rows),
        batch_bytes: table.integer("batch_bytes", 4_096..=268_435_456, default.batch_bytes),
        busy_ms: table.integer("busy_ms", 0..=1_000, default.busy_ms),
    };
    table.finish();
    read
}

fn transform(mut table: Reader<'_>) -> Transform {
    let default = Transform::default();
    let synthetic = [("meta", Synthetic::Meta), ("skip", Synthetic::Skip)];
    let transform = Transform {
        synthetic: table.choice("synthetic", &synthetic, default.synthetic),
        max_output_chars: table.integer("max_output_chars", 256..=10_000_000, default.max_output_chars),
        max_text_chars: table.integer("max_text_chars", 256..=10_000_000, default.max_text_chars),
        max_image_bytes: table.integer("max_image_bytes", 0..=104_857_600, default.max_image_bytes),
        reasoning: table.boolean("reasoning", default.reasoning),
        egress: egress(table.table("egress")),
    };
    table.finish();
    transform
}

fn egress(mut table: Reader<'_>) -> Egress {
    let enabled = table.boolean("enabled", Egress::default().enabled);
    let patterns = table.texts("patterns", r"['EMP-\d{6}']").map(|list| list.value).unwrap_or_default();
    let patterns = patterns.into_iter().filter_map(|text| match Pattern::new(&text.value) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            table.refuse_pattern("patterns", text.span, &error);
            None
        }
    });
    let egress = Egress { enabled, patterns: patterns.collect() };
    table.finish();
    egress
}

fn turns(mut table: Reader<'_>) -> Turns {
    let default = Turns::default();
    let turns = Turns {
        reassert_ms: table.integer_or_zero("reassert_ms", "never", 50..=60_000, default.reassert_ms),
        reassert_for_s: table.integer("reassert_for_s", 1..=604_800, default.reassert_for_s),
        undo_note: table.boolean("undo_note", default.undo_note),
    };
    table.finish();
    turns
}

fn deliver(mut table: Reader<'_>, problems: &Problems<'_>) -> Deliver {
    let default = Deliver::default();
    let deliver = Deliver {
        base_url: base_url(&mut table).unwrap_or(default.base_url),
        timeout_ms: table.integer("timeout_ms", 100..=600_000, default.timeout_ms),
        connect_timeout_ms: table.integer("connect_timeout_ms", 50..=60_000, default.connect_timeout_ms),
        keep_alive_ms: table.integer("keep_alive_ms", 0..=600_000, default.keep_alive_ms),
        queue_rows: table.integer("queue_rows", 1..=10_000, default.queue_rows),
        drain_ms: table.integer("drain_ms", 0..=600_000, default.drain_ms),
        retry: retry(table.table("retry")),
        auth: auth(table.table("auth"), problems),
    };
    table.finish();
    deliver
}

fn base_url(table: &mut Reader<'_>) -> Option<String> {
    let url = table.text("base_url")?;
    if let Err(error) = rules::base_url(&url.value) {
        // Whatever is wrong with it, a password may be part of it.
        table.hide_address(url.span.clone());
        table.refuse("base_url", url.span, &error);
        return None;
    }
    Some(url.value)
}

fn retry(mut table: Reader<'_>) -> Retry {
    let default = Retry::default();
    let initial_ms = table.integer("initial_ms", 1..=60_000, default.initial_ms);
    let retry = Retry {
        initial_ms,
        // A first wait longer than the longest would make the two contradict each other.
        max_ms: table.integer("max_ms", initial_ms..=3_600_000, default.max_ms.max(initial_ms)),
        multiplier: table.float("multiplier", 1.0..=10.0, default.multiplier),
        jitter: table.float("jitter", 0.0..=1.0, default.jitter),
        max_retry_after_ms: table.integer("max_retry_after_ms", 0..=3_600_000, default.max_retry_after_ms),
    };
    table.finish();
    retry
}

fn auth(mut table: Reader<'_>, problems: &Problems<'_>) -> Auth {
    let env = table.present_table("env");
    let file = table.present_table("file");
    let command = table.present_table("command");
    let spans = [&env, &file, &command].map(|one| one.as_ref().map(|one| one.span.clone()));
    let mut spans: Vec<_> = spans.into_iter().flatten().collect();
    spans.sort_by_key(|span| span.start);
    if let Some((first, others)) = spans.split_first() {
        for span in others {
            problems.report(Diagnostic {
                span: span.clone(),
                message: "the token can come from one place only".to_owned(),
                label: "a second one".to_owned(),
                help: Some(
                    "keep one of [deliver.auth.env], [deliver.auth.file], [deliver.auth.command]".to_owned(),
                ),
                related: Some((first.clone(), "the first one".to_owned())),
            });
        }
    }
    table.finish();
    Auth {
        env: env.and_then(auth_env),
        file: file.and_then(auth_file),
        command: command.and_then(auth_command),
    }
}

fn auth_env(mut table: Reader<'_>) -> Option<AuthEnv> {
    require(&table, "name", "[deliver.auth.env]", "add `name = \"…\"`, the name of the variable");
    let name = table.text("name").and_then(|name| match rules::variable_name(&name.value) {
        Ok(()) => Some(name.value),
        Err(error) => {
            table.hide(name.span.clone());
            table.refuse("name", name.span, &error);
            None
        }
    });
    table.finish();
    name.map(|name| AuthEnv { name })
}

fn auth_file(mut table: Reader<'_>) -> Option<AuthFile> {
    require(
        &table,
        "path",
        "[deliver.auth.file]",
        "add `path = \"…\"`, the file whose first line is the token",
    );
    let path = table.path("path");
    table.finish();
    path.map(|path| AuthFile { path: path.value })
}

fn auth_command(mut table: Reader<'_>) -> Option<AuthCommand> {
    require(&table, "argv", "[deliver.auth.command]", "add `argv = [\"…\"]`, a program and its arguments");
    let argv = table
        .texts("argv", r#"["pass", "show", "omnigent"]"#)
        .and_then(|argv| command_line(&table, "argv", argv));
    table.finish();
    argv.map(|argv| AuthCommand { argv })
}

fn command_line(table: &Reader<'_>, key: &str, argv: Found<Vec<Found<String>>>) -> Option<Vec<String>> {
    let mut arguments = argv.value.into_iter();
    let Some(program) = arguments.next() else {
        table.refuse(key, argv.span, &rules::NO_PROGRAM);
        return None;
    };
    if let Err(error) = rules::not_empty(&program.value) {
        table.refuse(key, program.span, &error);
        return None;
    }
    let program = if program.value.contains('/') {
        table.resolve(key, &program.value, &program.span).to_string_lossy().into_owned()
    } else {
        program.value
    };
    Some([program].into_iter().chain(arguments.map(|argument| argument.value)).collect())
}

fn state(mut table: Reader<'_>) -> State {
    let dir = table.path("dir").map(|dir| dir.value);
    table.finish();
    State { dir }
}

fn status(mut table: Reader<'_>) -> Status {
    let listen = table.text("listen").and_then(|listen| match rules::loopback(&listen.value) {
        Ok(address) => Some(address),
        Err(error) => {
            table.refuse("listen", listen.span, &error);
            None
        }
    });
    table.finish();
    Status { listen }
}

fn hooks(mut table: Reader<'_>) -> Hooks {
    let default = Hooks::default();
    let mut command = |key| {
        let argv = table.texts(key, r#"["notify-send", "Hermes is done"]"#)?;
        command_line(&table, key, argv)
    };
    let (turn_end, waiting, degraded) = (command("turn_end"), command("waiting"), command("degraded"));
    let timeout_ms = table.integer("timeout_ms", 100..=600_000, default.timeout_ms);
    table.finish();
    Hooks { turn_end, waiting, degraded, timeout_ms }
}

pub(super) fn require(table: &Reader<'_>, key: &str, name: &str, help: &str) {
    if !table.has(key) {
        table.missing(format!("{name} has no `{key}`"), help);
    }
}

#[cfg(test)]
mod tests;
