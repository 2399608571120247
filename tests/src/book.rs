//! The documentation as a book: its pages, and in them headings, links, blocks and commands.
//!
//! Owned here: reading `docs/`. What has to hold of it is said by the tests `book` and `host_book`.
//!
//! A block's info string says what a test does with it: `sh` is run, `sh,parsed` is read by the command lines of the programs in it,
//! `toml,agent` and `toml,recommender` are checked as configuration, `...,file=NAME` is kept as a file for the commands of its page.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::places;

/// One page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Its file's name below `docs/`.
    pub name: String,
    text: String,
}

/// One fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Line of its first fence, from 1.
    pub line: usize,
    /// Its language.
    pub language: String,
    /// What else its info string says.
    pub marks: Vec<String>,
    /// What is in it, without the indentation of its fence.
    pub text: String,
}

impl Block {
    /// Whether its info string has a word.
    pub fn has(&self, mark: &str) -> bool {
        self.marks.iter().any(|word| word == mark)
    }

    /// The file it is kept as.
    pub fn file(&self) -> Option<&str> {
        self.marks.iter().find_map(|word| word.strip_prefix("file="))
    }
}

/// Where the pages are.
pub fn directory() -> PathBuf {
    places::repository().join("docs")
}

/// All pages but the summary, by name.
///
/// # Errors
///
/// Fails when one cannot be read.
pub fn pages() -> Result<Vec<Page>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory()).context("no docs")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            names.push(name);
        }
    }
    names.sort_unstable();
    names.into_iter().map(|name| Page::read(&name)).collect()
}

impl Page {
    /// The page of a name.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be read.
    pub fn read(name: &str) -> Result<Page> {
        let path = directory().join(name);
        let text = std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        Ok(Page { name: name.to_owned(), text })
    }

    /// Its fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(Block, usize)> = None;
        for (number, line) in self.text.lines().enumerate() {
            let bare = line.trim_start();
            match (open.take(), bare.strip_prefix("```")) {
                (None, Some(info)) => {
                    let mut words = info.split(',').map(|word| word.trim().to_owned());
                    let language = words.next().unwrap_or_default();
                    let block =
                        Block { line: number + 1, language, marks: words.collect(), text: String::new() };
                    open = Some((block, line.len() - bare.len()));
                }
                (Some((block, _)), Some(_)) => blocks.push(block),
                (Some((mut block, indent)), None) => {
                    block.text.push_str(line.get(indent..).unwrap_or_default());
                    block.text.push('\n');
                    open = Some((block, indent));
                }
                (None, None) => {}
            }
        }
        blocks
    }

    /// Its lines without what is in blocks; those are empty.
    fn prose(&self) -> Vec<&str> {
        let mut within = false;
        let line = |line| {
            let fence = str::trim_start(line).starts_with("```");
            within ^= fence;
            if within || fence { "" } else { line }
        };
        self.text.lines().map(line).collect()
    }

    /// Blocks that are made by indentation, by line: nothing says what is in them.
    pub fn indented(&self) -> Vec<usize> {
        let prose = self.prose();
        let is_indented = |at: &usize| prose[*at].starts_with("    ") && prose[at - 1].is_empty();
        (1..prose.len()).filter(is_indented).map(|at| at + 1).collect()
    }

    /// Names of its sections, as links have them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for heading in self.prose().into_iter().filter(|line| line.starts_with('#')) {
            let first = anchor(heading.trim_start_matches('#').trim());
            let again = (1..).map(|count| format!("{first}-{count}"));
            let name = std::iter::once(first.clone()).chain(again).find(|name| !found.contains(name));
            found.extend(name);
        }
        found
    }

    /// Where its links lead: what is between the brackets.
    pub fn links(&self) -> Vec<String> {
        let (prose, _) = self.split();
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.map(str::to_owned).collect()
    }

    /// What stands in single backquotes.
    pub fn spans(&self) -> Vec<String> {
        self.split().1
    }

    /// Prose without code, and the code in it.
    fn split(&self) -> (String, Vec<String>) {
        let (mut prose, mut code) = (String::new(), Vec::new());
        for paragraph in self.prose().split(|line| line.is_empty()) {
            for (at, part) in paragraph.join(" ").split('`').enumerate() {
                if at % 2 == 0 { prose.push_str(part) } else { code.push(part.to_owned()) }
            }
            prose.push('\n');
        }
        (prose, code)
    }
}

/// The name of a section by its heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(kept).collect()
}

/// Commands of a shell script: lines without comments, those that go on joined.
pub fn commands(script: &str) -> Vec<String> {
    let joined = script.replace("\\\n", " ");
    let bare = |line: &str| match line.split_once(" #") {
        Some((command, _)) => command.trim().to_owned(),
        None => line.trim().to_owned(),
    };
    let is_command = |line: &String| !line.is_empty() && !line.starts_with('#');
    joined.lines().map(bare).filter(is_command).collect()
}

/// Words of a command as a shell splits them, at blanks outside of quotes; a command whose output is a file, `<(...)`, is one word.
pub fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => {
                quote = None;
                word.get_or_insert_default().extend((c == ')').then_some(c));
            }
            (None, '(') if word.as_deref() == Some("<") => {
                quote = Some(')');
                word.get_or_insert_default().push(c);
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A page\n\nSee [this](other.md#a-b) and `code [no](link)`.\n\n\
        ## States `in it`, twice\n\n```sh,parsed,file=x\none \\\n  two # why\n```\n\n1. so\n\n   ```toml\n   a = 1\n   ```\n\n    indented\n";

    #[test]
    fn a_page_has_headings_links_blocks_and_code() {
        let page = Page { name: "x.md".into(), text: TEXT.into() };
        assert_eq!(page.links(), ["other.md#a-b"]);
        assert_eq!(page.spans(), ["code [no](link)", "in it"]);
        assert!(page.anchors().contains("states-in-it-twice"), "{:?}", page.anchors());
        let blocks = page.blocks();
        assert_eq!((blocks[0].language.as_str(), blocks[0].file()), ("sh", Some("x")));
        assert!(blocks[0].has("parsed"));
        assert_eq!(commands(&blocks[0].text), ["one    two"]);
        assert_eq!(blocks[1].text, "a = 1\n");
        assert_eq!(page.indented().len(), 1);
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        assert_eq!(words("a  'b c' --d=\"e f\" ''"), ["a", "b c", "--d=e f", ""]);
        assert_eq!(words("a --b <(c --d) e"), ["a", "--b", "<(c --d)", "e"]);
    }
}
