//! Showing a page in the person's browser.

use std::process::{Command, Stdio};

/// Asks the system to show an address. That it can't is worth a word, and no failure.
pub fn open(url: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let asked = Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match asked {
        Ok(mut child) => {
            // It may stay as long as the browser does: waited for, so that it leaves nothing behind, but aside.
            std::thread::spawn(move || child.wait());
        }
        Err(error) => tracing::warn!("cannot open a browser with `{opener}`: {error}; open {url} yourself"),
    }
}
