//! Where the bearer token comes from.
//!
//! The token is read when it is first needed and again when the server refuses it. It never appears in a `Debug`
//! or `Display` form, an error or a log.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncReadExt;

use crate::config;

/// How long a token command may take.
const COMMAND_TIME: Duration = Duration::from_secs(10);

/// The longest token, in bytes. Servers refuse header lines long before this.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Looks up an environment variable; passed in, so that a test needs no real environment.
pub type Environment = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Why there is no token. Names its source, never the token.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// More than one source is given.
    #[error("`[deliver.auth]` names more than one source of a token; keep one of `env`, `file`, `command`")]
    Several,
    /// The variable is not set.
    #[error("environment variable {0} is not set; set it to the token")]
    NoVariable(String),
    /// The file cannot be read.
    #[error("cannot read the token file {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The command cannot be started or its output not read.
    #[error("cannot run the token command `{program}`: {source}")]
    Command {
        /// Its program, without arguments.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The command says that it failed.
    #[error("the token command `{program}` failed ({status}); run it by hand to see why")]
    Failed {
        /// Its program, without arguments.
        program: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The command does not end.
    #[error("the token command `{program}` took longer than {} s; does it ask for something?", COMMAND_TIME.as_secs())]
    Slow {
        /// Its program, without arguments.
        program: String,
    },
    /// What was read is no token.
    #[error("{from} {problem}")]
    Malformed {
        /// Where it was read.
        from: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

enum Source {
    None,
    Env(String, Environment),
    File(PathBuf),
    Command(Vec<String>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no token"),
            Self::Env(name, _) => write!(f, "environment variable {name}"),
            Self::File(path) => write!(f, "the first line of {}", path.display()),
            Self::Command(argv) => write!(f, "the first output line of `{}`", program(argv)),
        }
    }
}

/// The bearer token, with the way to get another.
pub struct TokenSource {
    source: Source,
    /// The token in use, and how many times one was read.
    cached: Mutex<(Option<SecretString>, u64)>,
    /// Held while a token is read, so that fifty lanes refused at once run the command once.
    reading: tokio::sync::Mutex<()>,
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenSource({})", self.source)
    }
}

impl TokenSource {
    /// Takes the source that `auth` names; nothing is read yet.
    pub fn new(auth: &config::Auth, environment: Environment) -> Result<Self, AuthError> {
        let source = match (&auth.env, &auth.file, &auth.command) {
            (None, None, None) => Source::None,
            (Some(env), None, None) => Source::Env(env.name.clone(), environment),
            (None, Some(file), None) => Source::File(file.path.clone()),
            (None, None, Some(command)) => Source::Command(command.argv.clone()),
            _ => return Err(AuthError::Several),
        };
        Ok(Self { source, cached: Mutex::default(), reading: tokio::sync::Mutex::default() })
    }

    /// The token in use, read now if it was not before; `None` where the server asks for none.
    pub async fn token(&self) -> Result<Option<SecretString>, AuthError> {
        if matches!(self.source, Source::None) {
            return Ok(None);
        }
        let (token, seen) = self.cached();
        if token.is_some() {
            return Ok(token);
        }
        self.read_unless_newer(seen).await?;
        Ok(self.cached().0)
    }

    /// Reads the token again. Says whether it is another than before: if not, asking again with it is no use.
    ///
    /// A token that can't be read leaves the old one in place.
    pub async fn refresh(&self) -> Result<bool, AuthError> {
        if matches!(self.source, Source::None) {
            return Ok(false);
        }
        let (before, seen) = self.cached();
        self.read_unless_newer(seen).await?;
        let after = self.cached().0;
        Ok(before.as_ref().map(ExposeSecret::expose_secret)
            != after.as_ref().map(ExposeSecret::expose_secret))
    }

    /// The header to send with a request.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, AuthError> {
        let Some(token) = self.token().await? else { return Ok(None) };
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
            .map_err(|_| self.malformed("holds a character that no token has"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The token in use, to be taken out of what a server says. Reads nothing.
    pub(crate) fn in_use(&self) -> Option<SecretString> {
        self.cached().0
    }

    fn cached(&self) -> (Option<SecretString>, u64) {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn read_unless_newer(&self, seen: u64) -> Result<(), AuthError> {
        let _reading = self.reading.lock().await;
        if self.cached().1 != seen {
            return Ok(());
        }
        let token = self.read().await?;
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = (Some(token), seen + 1);
        Ok(())
    }

    async fn read(&self) -> Result<SecretString, AuthError> {
        let raw = match &self.source {
            Source::None => Vec::new(),
            Source::Env(name, environment) => {
                environment(name).ok_or_else(|| AuthError::NoVariable(name.clone()))?.into_bytes()
            }
            Source::File(path) => {
                first_bytes(path).map_err(|source| AuthError::File { path: path.clone(), source })?
            }
            Source::Command(argv) => run(argv).await?,
        };
        self.first_line(&raw)
    }

    fn first_line(&self, raw: &[u8]) -> Result<SecretString, AuthError> {
        let line = raw.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
        if line.is_empty() {
            return Err(self.malformed("is empty"));
        }
        if line.len() > LONGEST_TOKEN {
            return Err(self.malformed("is too long for a token"));
        }
        match std::str::from_utf8(line) {
            Ok(token) if token.bytes().all(|b| b.is_ascii_graphic()) => Ok(SecretString::from(token)),
            _ => Err(self.malformed("holds a character that no token has")),
        }
    }

    fn malformed(&self, problem: &'static str) -> AuthError {
        AuthError::Malformed { from: self.source.to_string(), problem }
    }
}

fn program(argv: &[String]) -> &str {
    argv.first().map_or("", String::as_str)
}

/// The head of a regular file; what is not one, a pipe for example, could keep us waiting for ever.
fn first_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut head = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "a token file, not a database file")]
    let file = std::fs::File::open(path)?;
    file.take(reading_limit()).read_to_end(&mut head)?;
    Ok(head)
}

/// Runs a token command without a shell and takes the head of its output.
///
/// Its error output is thrown away: it may hold the token, and nothing here may print.
async fn run(argv: &[String]) -> Result<Vec<u8>, AuthError> {
    let name = program(argv).to_owned();
    let failed = |source| AuthError::Command { program: name.clone(), source };
    let mut child = tokio::process::Command::new(program(argv))
        .args(argv.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let finished = tokio::time::timeout(COMMAND_TIME, async {
        let mut head = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(reading_limit()).read_to_end(&mut head).await?;
        }
        Ok((head, child.wait().await?))
    });
    match finished.await {
        Err(_) => Err(AuthError::Slow { program: name }),
        Ok(Err(source)) => Err(failed(source)),
        // A command that says more than is read may be told so by a broken pipe: its first line is whole all the same.
        Ok(Ok((head, status))) if !status.success() && !is_cut(&head) => {
            Err(AuthError::Failed { program: name, status })
        }
        Ok(Ok((head, _))) => Ok(head),
    }
}

/// One more byte than a token may have, and its line's end.
fn reading_limit() -> u64 {
    u64::try_from(LONGEST_TOKEN).unwrap_or(u64::MAX).saturating_add(3)
}

fn is_cut(head: &[u8]) -> bool {
    u64::try_from(head.len()).is_ok_and(|length| length >= reading_limit())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the tests' own")]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn nothing() -> Environment {
        Box::new(|_| None)
    }

    fn command(argv: &[&str]) -> TokenSource {
        let argv = argv.iter().map(|&a| a.to_owned()).collect();
        let auth = config::Auth { command: Some(config::AuthCommand { argv }), ..config::Auth::default() };
        TokenSource::new(&auth, nothing()).unwrap()
    }

    fn read(source: &TokenSource) -> Result<String, String> {
        match block_on(source.token()) {
            Ok(token) => Ok(token.unwrap().expose_secret().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn without_a_source_there_is_no_token_and_no_use_in_asking_again() {
        let source = TokenSource::new(&config::Auth::default(), nothing()).unwrap();
        assert!(block_on(source.token()).unwrap().is_none());
        assert!(!block_on(source.refresh()).unwrap());
    }

    #[test]
    fn a_variable_is_looked_up_in_the_environment_that_is_given() {
        let auth =
            config::Auth { env: Some(config::AuthEnv { name: "T".into() }), ..config::Auth::default() };
        let source = TokenSource::new(&auth, Box::new(|n| (n == "T").then(|| "abc".to_owned()))).unwrap();
        assert_eq!(read(&source).unwrap(), "abc");
        let unset = TokenSource::new(&auth, nothing()).unwrap();
        assert!(read(&unset).unwrap_err().contains("T is not set"));
    }

    #[test]
    fn a_files_first_line_is_the_token_and_is_read_again_on_refresh() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, " one \r\ncomment\n").unwrap();
        let auth =
            config::Auth { file: Some(config::AuthFile { path: path.clone() }), ..config::Auth::default() };
        let source = TokenSource::new(&auth, nothing()).unwrap();
        assert_eq!(read(&source).unwrap(), "one");
        assert!(!block_on(source.refresh()).unwrap(), "the same token is no news");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(read(&source).unwrap(), "one", "a token is kept until it is refused");
        assert!(block_on(source.refresh()).unwrap());
        assert_eq!(read(&source).unwrap(), "two");
        std::fs::remove_file(&path).unwrap();
        assert!(block_on(source.refresh()).unwrap_err().to_string().contains("token"));
        assert_eq!(read(&source).unwrap(), "two", "a failed refresh keeps the old token");
    }

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let auth = config::Auth { file: Some(config::AuthFile { path }), ..config::Auth::default() };
        let source = TokenSource::new(&auth, nothing()).unwrap();
        assert!(read(&source).unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn a_command_is_run_without_a_shell() {
        assert_eq!(read(&command(&["printf", "$HOME\nrest"])).unwrap(), "$HOME");
    }

    #[test]
    fn a_command_that_fails_or_is_missing_says_so_without_its_output() {
        let error = read(&command(&["sh", "-c", "echo s3cret; exit 3"])).unwrap_err();
        assert!(error.contains("`sh` failed") && !error.contains("s3cret"), "{error}");
        assert!(read(&command(&["/nonexistent/command"])).unwrap_err().contains("cannot run"));
        assert!(read(&command(&[])).unwrap_err().contains("cannot run"));
    }

    #[test]
    fn endless_output_is_bounded() {
        assert!(read(&command(&["yes", "tok"])).unwrap() == "tok");
        let endless_line =
            command(&["sh", "-c", "while :; do printf xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"]);
        assert!(read(&endless_line).unwrap_err().contains("too long"));
    }

    #[test]
    fn an_empty_or_unsendable_token_is_an_error() {
        assert!(read(&command(&["true"])).unwrap_err().contains("is empty"));
        assert!(read(&command(&["printf", "a b"])).unwrap_err().contains("character"));
        assert!(read(&command(&["printf", "a\\0b"])).unwrap_err().contains("character"));
    }

    #[test]
    fn many_lanes_refused_at_once_read_the_token_once() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("runs");
        let script = format!("echo x >> '{}'; echo t", runs.display());
        let source = command(&["sh", "-c", &script]);
        let (first, second, token) =
            block_on(async { tokio::join!(source.refresh(), source.refresh(), source.token()) });
        assert!(first.unwrap() && second.unwrap() && token.unwrap().is_some());
        assert_eq!(std::fs::read_to_string(&runs).unwrap(), "x\n");
    }

    #[test]
    fn the_token_is_in_no_debug_form() {
        let source = command(&["printf", "s3cret"]);
        assert_eq!(read(&source).unwrap(), "s3cret");
        let header = block_on(source.header()).unwrap().unwrap();
        assert!(!format!("{source:?} {header:?} {:?}", source.in_use()).contains("s3cret"));
    }

    #[test]
    fn two_sources_are_one_too_many() {
        let auth = config::Auth {
            env: Some(config::AuthEnv { name: "T".into() }),
            command: Some(config::AuthCommand { argv: vec!["x".into()] }),
            file: None,
        };
        assert!(matches!(TokenSource::new(&auth, nothing()), Err(AuthError::Several)));
    }
}
