//! The form of an entry: who, from where, by what; of what, before and after; what came of it. Everything has a bound.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the records.
pub(super) const VERSION: u32 = 1;
/// Longest text of an object that is kept, bytes: objects beyond it are cut.
pub(super) const MAX_TEXT: usize = 16 << 10;
/// Longest name, caller or method, bytes.
const MAX_NAME: usize = 512;
/// Longest reason, bytes.
const MAX_REASON: usize = 1024;

/// What is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    /// Such as `Policy` or `JoinToken`.
    pub(crate) kind: String,
    /// Empty for what belongs to none.
    pub(crate) namespace: String,
    /// Empty while it is not known.
    pub(crate) name: String,
}

impl Object {
    /// Of a namespace.
    pub(crate) fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: cut(kind, MAX_NAME), namespace: cut(namespace, MAX_NAME), name: cut(name, MAX_NAME) }
    }

    /// Of no namespace.
    pub(crate) fn of_all(kind: &str, name: &str) -> Self {
        Self::new(kind, "", name)
    }
}

/// An object in JSON, cut where it is long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectText {
    pub(crate) text: String,
    /// Of the whole.
    pub(crate) bytes: u64,
}

impl ObjectText {
    pub(super) fn of(object: &Value) -> Self {
        let whole = object.to_string();
        Self { bytes: whole.len() as u64, text: cut(&whole, MAX_TEXT) }
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuditOutcome {
    /// It was begun; its end was not told.
    Unknown,
    Done,
    /// The caller may not.
    Refused,
    Failed,
}

impl AuditOutcome {
    pub(crate) const ALL: [Self; 4] = [Self::Done, Self::Refused, Self::Failed, Self::Unknown];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// One change or attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuditEntry {
    /// Grows by one with each.
    pub(crate) number: u64,
    /// Since 1970.
    pub(crate) time_usec: u64,
    pub(crate) who: String,
    pub(crate) from: String,
    pub(crate) method: String,
    pub(crate) object: Object,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<ObjectText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<ObjectText>,
    pub(crate) outcome: AuditOutcome,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// Attempts before this one that were counted and not kept.
    #[serde(default)]
    pub(crate) left_out: u64,
    /// Of one that a command left in the inbox: it is taken once.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) id: String,
}

impl AuditEntry {
    /// Of a caller; numbered and dated when it is written.
    pub(super) fn new(who: &str, from: &str, method: &str, object: Object) -> Self {
        Self {
            number: 0,
            time_usec: 0,
            who: cut(who, MAX_NAME),
            from: cut(from, MAX_NAME),
            method: cut(method, MAX_NAME),
            object,
            before: None,
            after: None,
            outcome: AuditOutcome::Unknown,
            reason: String::new(),
            left_out: 0,
            id: String::new(),
        }
    }

    pub(super) fn with(mut self, before: Option<&Value>, after: Option<&Value>) -> Self {
        (self.before, self.after) = (before.map(ObjectText::of), after.map(ObjectText::of));
        self
    }

    pub(super) fn with_after(mut self, after: Option<&Value>) -> Self {
        self.after = after.map(ObjectText::of);
        self
    }

    /// One that another process wrote, within the bounds.
    pub(super) fn bounded(self) -> Self {
        let Object { kind, namespace, name } = &self.object;
        let text = |text: Option<ObjectText>| {
            text.map(|text| ObjectText { text: cut(&text.text, MAX_TEXT), ..text })
        };
        Self {
            who: cut(&self.who, MAX_NAME),
            from: cut(&self.from, MAX_NAME),
            method: cut(&self.method, MAX_NAME),
            object: Object::new(kind, namespace, name),
            before: text(self.before),
            after: text(self.after),
            reason: cut(&self.reason, MAX_REASON),
            id: cut(&self.id, MAX_NAME),
            ..self
        }
    }

    pub(super) fn ended(mut self, outcome: AuditOutcome, reason: &str) -> Self {
        (self.outcome, self.reason) = (outcome, cut(reason, MAX_REASON));
        self
    }

    /// Memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &Option<ObjectText>| text.as_ref().map_or(0, |text| text.text.len());
        512 + self.reason.len() + text(&self.before) + text(&self.after)
    }
}

/// The end of a change that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) number: u64,
    pub(super) outcome: AuditOutcome,
    #[serde(default)]
    pub(super) reason: String,
    /// Where it was not known before.
    #[serde(default)]
    pub(super) after: Option<ObjectText>,
}

impl End {
    pub(super) fn new(number: u64, outcome: AuditOutcome, reason: &str, after: Option<&Value>) -> Self {
        Self { number, outcome, reason: cut(reason, MAX_REASON), after: after.map(ObjectText::of) }
    }
}

/// One record of the logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub(super) enum AuditRecord {
    Entry(Box<AuditEntry>),
    End(End),
}

impl AuditRecord {
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Entry(entry) => entry.number,
            Self::End(end) => end.number,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct StoredAuditRecord<'a> {
            version: u32,
            #[serde(flatten)]
            record: &'a AuditRecord,
        }
        serde_json::to_vec(&StoredAuditRecord { version: VERSION, record: self }).unwrap_or_default()
    }

    /// Of what is stored; what a newer release wrote is none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
            #[serde(flatten)]
            record: AuditRecord,
        }
        let read: Versioned = serde_json::from_slice(bytes).ok()?;
        (read.version <= VERSION).then_some(read.record)
    }
}

/// At most so many bytes, of whole characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}
