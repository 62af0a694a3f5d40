//! The repository's documents, and what they tell a person to type, to write and to open.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex::Regex;

/// What a command begins with, within a line of prose.
const PROGRAMS: [&str; 4] = ["hermes-mirror ", "cargo ", "scripts/", "./scripts/"];

/// A Markdown file of the repository.
pub struct Document {
    /// Its path from the repository's root.
    pub name: String,
    prose: String,
    blocks: Vec<Block>,
}

/// What stands between two fences.
pub struct Block {
    /// The last heading above it, without its `#`.
    pub section: String,
    pub language: String,
    pub text: String,
}

/// A path of the repository.
pub fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[allow(clippy::disallowed_methods, reason = "files of the repository, never a database")]
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Document {
    pub fn open(name: &str) -> Self {
        let mut document = Self { name: name.to_owned(), prose: String::new(), blocks: Vec::new() };
        let mut section = String::new();
        let text = read(&root(name));
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                let indent = line.len() - line.trim_start().len();
                let inside = lines.by_ref().take_while(|line| line.trim() != "```");
                let text: String = inside.flat_map(|line| [line.get(indent..).unwrap_or(""), "\n"]).collect();
                document.blocks.push(Block { section: section.clone(), language: language.to_owned(), text });
            } else {
                if line.starts_with('#') {
                    line.trim_start_matches('#').trim().clone_into(&mut section);
                }
                document.prose.extend([line, "\n"]);
            }
        }
        document
    }

    /// All that a person is meant to read.
    pub fn all() -> Vec<Self> {
        let names = ["", "docs/"].into_iter().flat_map(|directory| {
            let entries = std::fs::read_dir(root(directory)).unwrap();
            let paths = entries.map(|entry| PathBuf::from(entry.unwrap().file_name()));
            let documents = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
            documents.map(move |path| format!("{directory}{}", path.display()))
        });
        names.map(|name| Self::open(&name)).collect()
    }

    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The prose below a heading of the second rank.
    pub fn section(&self, heading: &str) -> &str {
        let sections = self.prose.split("\n## ");
        let mut below = sections.filter_map(|section| section.strip_prefix(heading)?.strip_prefix('\n'));
        below.next().unwrap_or_else(|| panic!("{} has no section {heading:?}", self.name))
    }

    /// What stands between backquotes within the prose.
    pub fn spans(&self) -> Vec<String> {
        let spans = self.prose.split('`').skip(1).step_by(2);
        spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    /// Every command: the lines of its shell blocks, and those within the prose.
    pub fn commands(&self) -> Vec<String> {
        let shell: String =
            self.blocks.iter().filter(|b| b.language == "sh").map(|b| b.text.as_str()).collect();
        let shell = shell.replace("\\\n", " ");
        let lines =
            shell.lines().map(|line| format!(" {line}").split(" #").next().unwrap().trim().to_owned());
        let spans =
            self.spans().into_iter().filter(|span| PROGRAMS.iter().any(|name| span.starts_with(name)));
        lines.filter(|line| !line.is_empty()).chain(spans).collect()
    }

    /// Where its links to other parts of the repository lead: file and, behind `#`, heading.
    pub fn links(&self) -> Vec<(PathBuf, String)> {
        let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
        let targets = link.captures_iter(&self.prose).map(|link| link.get(1).unwrap().as_str());
        let local = targets.filter(|target| !target.contains("://"));
        let here = root(&self.name);
        let split = local.map(|target| target.split_once('#').unwrap_or((target, "")));
        split
            .map(|(file, heading)| {
                let file = if file.is_empty() { here.clone() } else { here.with_file_name("").join(file) };
                (file, heading.to_owned())
            })
            .collect()
    }

    /// The names by which links call its headings.
    pub fn anchors(&self) -> BTreeSet<String> {
        let headings = self.prose.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let words = line.trim_start_matches('#').trim().to_lowercase();
                let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
                kept.map(|c| if c == ' ' { '-' } else { c }).collect()
            })
            .collect()
    }
}
