//! How answers are printed: a table for people, JSON or YAML for scripts.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use evenkeel_model::shown;
use serde::Serialize;

use crate::failure::Failure;
use crate::table::Table;

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table of the most important columns.
    Table,
    /// A table of all columns.
    Wide,
    /// JSON, whose names are kept stable.
    Json,
    /// The same as YAML.
    Yaml,
    /// All columns of the table, separated by commas (RFC 4180).
    Csv,
    /// Commands that carry it out (of recommend).
    Patch,
}

/// Whether the answer to a question is yes: the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum YesOrNo {
    /// Done, or yes.
    Yes,
    /// No.
    No,
}

impl From<YesOrNo> for ExitCode {
    fn from(answer: YesOrNo) -> Self {
        match answer {
            YesOrNo::Yes => Self::SUCCESS,
            YesOrNo::No => Self::from(1),
        }
    }
}

/// Where answers go, and in which form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
    colour: bool,
}

impl Output {
    /// Standard output; in colour on a terminal, unless `NO_COLOR` says otherwise (no-color.org).
    pub(crate) fn new(format: Format) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self { format, colour: io::stdout().is_terminal() && !refused }
    }

    /// The form asked for.
    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    /// True for tables with all columns.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self.format, Format::Wide | Format::Csv)
    }

    /// True when colours may be used.
    pub(crate) const fn has_colour(&self) -> bool {
        self.colour
    }

    /// Prints an answer: `value` for scripts, `table` for people.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub(crate) fn answer<T: Serialize>(
        &self,
        value: &T,
        table: impl FnOnce() -> Table,
    ) -> Result<(), Failure> {
        self.answer_text(value, || self.rendered(&table()))
    }

    /// A table in the form asked for.
    pub(crate) fn rendered(&self, table: &Table) -> String {
        if self.format == Format::Csv { table.csv() } else { table.render(self.colour) }
    }

    /// The same, where people get more than one table.
    ///
    /// # Errors
    /// As [`Output::answer`].
    pub(crate) fn answer_text<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let rendered = match self.format {
            Format::Table | Format::Wide | Format::Csv | Format::Patch => text(),
            Format::Json => json(value)?,
            Format::Yaml => yaml(value)?,
        };
        print(&rendered)
    }
}

impl Output {
    /// Prints one value as one line of JSON.
    ///
    /// # Errors
    /// As [`Output::answer`].
    pub(crate) fn line<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|e| unprintable(&e.to_string()))?;
        print(&(shown::json(text) + "\n"))
    }

    /// Prints one value as a YAML document of its own.
    ///
    /// # Errors
    /// As [`Output::answer`].
    pub(crate) fn document<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        print(&format!("---\n{}", yaml(value)?))
    }
}

fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| unprintable(&e.to_string()))?;
    Ok(shown::json(text) + "\n")
}

fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(value).map_err(|e| unprintable(&e.to_string()))?;
    if text.contains(|c| c != '\n' && shown::is_hostile(c)) {
        // JSON is YAML, and can escape every character wherever it stands.
        return json(value);
    }
    Ok(text)
}

fn unprintable(why: &str) -> Failure {
    Failure::new("cannot print the answer", "standard output", why, "try another -o format")
}

/// Writes text to standard output at once.
///
/// # Errors
/// When it cannot be written. A closed pipe ends the command too, but quietly: nobody reads on.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from)
}
