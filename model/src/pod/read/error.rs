//! Owns what can go wrong when pods are read: which source, which document, which field, which line, and the remedy.

use std::fmt;

/// A source of pods could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ReadError {
    /// Name of the file or other source.
    pub source_name: String,
    /// Place of the document in the source, from 0, where it is known.
    pub document: Option<usize>,
    /// The field, such as `spec.containers[0].resources.requests.cpu`, where the error belongs to one.
    pub path: Option<String>,
    /// Line in the source, from 1, where it is known.
    pub line: Option<u64>,
    /// What is wrong.
    pub reason: ReadReason,
}

/// What is wrong with a source of pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadReason {
    /// More text than is read.
    #[error("{bytes} bytes are more than the {limit} that are read; split it")]
    TooLarge {
        /// Length of the text.
        bytes: usize,
        /// What is read at most.
        limit: usize,
    },
    /// Neither YAML nor JSON, or nested or aliased beyond the bounds.
    #[error("{0}")]
    Syntax(String),
    /// One key twice in a map.
    #[error("the key {key:?} is given more than once; keep one")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A field that must be there is not.
    #[error("the field is missing; {remedy}")]
    Missing {
        /// What to write.
        remedy: &'static str,
    },
    /// A value of the wrong type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A value that is not one of those allowed, or not of their form.
    #[error("{0}")]
    Invalid(String),
    /// No pod and no object with a pod template.
    #[error(
        "there is no pod{}; give a Pod, a List, or a Deployment, StatefulSet, DaemonSet, ReplicaSet, \
         ReplicationController, Job, CronJob or PodTemplate",
        found(.skipped)
    )]
    NoPods {
        /// Kinds of the objects that are there.
        skipped: Vec<String>,
    },
}

/// Kinds that an error repeats at most.
const SHOWN_KINDS: usize = 5;

fn found(skipped: &[String]) -> String {
    if skipped.is_empty() {
        return String::new();
    }
    let more = if skipped.len() > SHOWN_KINDS { ", ..." } else { "" };
    format!(", only {}{more}", skipped[..skipped.len().min(SHOWN_KINDS)].join(", "))
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source_name)?;
        if let Some(document) = self.document {
            write!(f, ": document {document}")?;
        }
        if let Some(line) = self.line {
            write!(f, ": line {line}")?;
        }
        if let Some(path) = self.path.as_deref().filter(|path| !path.is_empty()) {
            write!(f, ": {path}")?;
        }
        write!(f, ": {}", self.reason)
    }
}
