//! One page. Sections before EXAMPLES are clap_mangen's; what stands after the options in the help is told apart here, since
//! clap_mangen puts all of it into one paragraph.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::Section;

/// What every page belongs to.
const MANUAL: &str = "Evenkeel";
/// Begins the examples of a help text.
const EXAMPLES: &str = "Examples:";

/// Name of a command's page, such as `evenkeel-qos-explain`.
pub(crate) fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The commands that have a page.
pub(crate) fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// The page as roff. `parent` is the page of the command above.
pub(crate) fn render(command: &Command, section: Section, parent: Option<&str>) -> io::Result<String> {
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .section(section.number())
        .source(format!("{MANUAL} {}", env!("CARGO_PKG_VERSION")))
        .manual(MANUAL);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if shown(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    for part in parts(&after.map(ToString::to_string).unwrap_or_default()) {
        part.render(&mut rest);
    }
    see_also(&mut rest, command, section, parent);
    rest.to_writer(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// A part of what stands after the options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PageSection {
    /// Lines that are typed as they stand.
    Examples(Vec<String>),
    /// A heading and a paragraph.
    Text(String, String),
}

/// Parts of the help after the options; blank lines are between them. A paragraph that begins with a few words and a colon
/// has them as its heading.
pub(crate) fn parts(after: &str) -> Vec<PageSection> {
    let blocks = after.split("\n\n").map(str::trim_end).filter(|block| !block.trim().is_empty());
    blocks
        .map(|block| match block.strip_prefix(EXAMPLES) {
            Some(examples) => {
                let lines = examples.lines().map(str::trim).filter(|line| !line.is_empty());
                PageSection::Examples(lines.map(str::to_owned).collect())
            }
            None => {
                let is_heading = |text: &str| text.chars().all(|c| c.is_alphabetic() || c == ' ');
                match block.split_once(": ").filter(|(heading, _)| is_heading(heading)) {
                    Some((heading, text)) => PageSection::Text(heading.to_uppercase(), text.to_owned()),
                    None => PageSection::Text("NOTES".to_owned(), block.to_owned()),
                }
            }
        })
        .collect()
}

impl PageSection {
    fn render(&self, roff: &mut Roff) {
        match self {
            PageSection::Examples(lines) => {
                roff.control("SH", ["EXAMPLES"]).control("nf", []);
                for line in lines {
                    roff.text([roman(line.as_str())]);
                }
                roff.control("fi", []);
            }
            PageSection::Text(heading, text) => {
                roff.control("SH", [heading.as_str()]);
                for line in text.lines() {
                    roff.text([roman(line.trim())]);
                }
            }
        }
    }
}

/// Names the page above and those below.
fn see_also(roff: &mut Roff, command: &Command, section: Section, parent: Option<&str>) {
    let names = parent.into_iter().chain(shown(command).map(name));
    let pages: Vec<String> = names.map(|name| format!("{name}({})", section.number())).collect();
    if !pages.is_empty() {
        roff.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
    }
}
