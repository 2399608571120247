//! Failures as people and scripts see them: what was tried, where, why it failed, what to do.

use std::io::Write;
use std::process::ExitCode;

use evenkeel_model::shown;
use serde::Serialize;

use crate::output::Format;
use crate::table::clean;

/// A command could not do its work.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    what: String,
    r#where: String,
    why: String,
    remedy: String,
    #[serde(skip)]
    kind: FailureKind,
}

/// What a failure means for the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// Something failed.
    Failed,
    /// The command line is wrong.
    Usage,
    /// Nobody reads the answer any more; that is no failure of ours.
    Closed,
}

impl Failure {
    /// Something failed: exit status 1.
    pub(crate) fn new(
        what: impl Into<String>,
        place: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            r#where: place.into(),
            why: why.into(),
            remedy: remedy.into(),
            kind: FailureKind::Failed,
        }
    }

    /// The command line is wrong: exit status 2.
    pub(crate) fn usage(
        what: impl Into<String>,
        place: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { kind: FailureKind::Usage, ..Self::new(what, place, why, remedy) }
    }

    /// Where and why, for whoever says himself what failed.
    pub(crate) fn cause(&self) -> String {
        format!("{}: {}", self.r#where, self.why)
    }

    /// What and why in one line.
    pub(crate) fn summary(&self) -> String {
        format!("{} at {}: {}", self.what, self.r#where, self.why)
    }

    /// The same with something else to do.
    pub(crate) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    /// What to do.
    pub(crate) fn remedy(&self) -> &str {
        &self.remedy
    }

    /// Tells it on standard error and gives the exit status.
    pub(crate) fn report(&self, format: Format) -> ExitCode {
        let status = match self.kind {
            FailureKind::Closed => return ExitCode::SUCCESS,
            FailureKind::Failed => ExitCode::from(1),
            FailureKind::Usage => ExitCode::from(2),
        };
        let text = match format {
            Format::Json => shown::json(serde_json::json!({ "error": self }).to_string()),
            Format::Table | Format::Wide | Format::Yaml | Format::Csv | Format::Patch => self.text(),
        };
        // Nobody is left to tell when standard error is closed.
        let _ = writeln!(std::io::stderr(), "{text}");
        status
    }

    fn text(&self) -> String {
        let plain = |text: &str| text.split('\n').map(clean).collect::<Vec<_>>().join("\n");
        let mut text = format!("error: {}", plain(&self.what));
        for (name, value) in [("where", &self.r#where), ("why", &self.why), ("remedy", &self.remedy)] {
            if !value.is_empty() {
                // Further lines of a value stand below its first.
                let value = plain(value).replace('\n', &format!("\n  {:width$}", "", width = name.len() + 2));
                text.push_str(&format!("\n  {name}: {value}"));
            }
        }
        text
    }
}

/// Writing the answer failed: a full disk, or a pipe whose reader is gone.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let is_closed = error.kind() == std::io::ErrorKind::BrokenPipe;
        let kind = if is_closed { FailureKind::Closed } else { FailureKind::Failed };
        let why = error.to_string();
        Self { kind, ..Self::new("cannot write the answer", "standard output", why, "write it elsewhere") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_all_four_and_indents_further_lines() {
        let failure = Failure::new("cannot read the pod", "a.yaml", "one\ntwo", "fix it");
        let expected =
            "error: cannot read the pod\n  where: a.yaml\n  why: one\n       two\n  remedy: fix it";
        assert_eq!(failure.text(), expected);
    }

    #[test]
    fn json_has_the_pinned_names() {
        let json = serde_json::json!({ "error": Failure::usage("a", "b", "c", "d") });
        assert_eq!(json.to_string(), r#"{"error":{"what":"a","where":"b","why":"c","remedy":"d"}}"#);
    }
}
