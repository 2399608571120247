//! Reading the record: the newest entries that fit, a page at a time.

use std::collections::BTreeMap;

use super::entry::{AuditEntry, AuditOutcome, AuditRecord};
use super::record::{Audit, AuditError};

/// Entries of a page where nobody says how many.
pub(crate) const USUAL: usize = 100;
/// Entries of a page at most.
pub(crate) const MOST: usize = 1000;
/// Memory of a page.
const PAGE_BYTES: usize = 2 << 20;
/// Changes that may wait for their end while the record is read; more never go on at once.
const PENDING: usize = 1000;

/// Which entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditFilter {
    /// All, and what belongs to none, where it is empty.
    pub(crate) namespace: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// A word of who, or the whole.
    pub(crate) who: String,
    pub(crate) outcome: Option<AuditOutcome>,
    pub(crate) since_usec: u64,
    /// 0 = no bound.
    pub(crate) until_usec: u64,
    /// Of a page.
    pub(crate) limit: usize,
    /// Only entries before this number.
    pub(crate) before: Option<u64>,
}

/// A page, newest first.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) entries: Vec<AuditEntry>,
    /// What to give as `before` for the next.
    pub(crate) next: Option<u64>,
    /// What of the record could not be read.
    pub(crate) trouble: Option<String>,
}

impl AuditFilter {
    fn takes(&self, entry: &AuditEntry) -> bool {
        let is = |wanted: &str, it: &str| wanted.is_empty() || wanted == it;
        self.before.is_none_or(|before| entry.number < before)
            && entry.time_usec >= self.since_usec
            && (self.until_usec == 0 || entry.time_usec < self.until_usec)
            && is(&self.namespace, &entry.object.namespace)
            && is(&self.kind, &entry.object.kind)
            && is(&self.name, &entry.object.name)
            && (self.who.is_empty() || is_called(&entry.who, &self.who))
            && self.outcome.is_none_or(|outcome| entry.outcome == outcome)
    }
}

fn is_called(who: &str, wanted: &str) -> bool {
    who == wanted || who.split([' ', '(', ')', ',']).any(|word| word == wanted)
}

/// The newest entries, as far as they have room.
struct Newest<'a> {
    filter: &'a AuditFilter,
    kept: BTreeMap<u64, AuditEntry>,
    bytes: usize,
    more: bool,
}

impl Newest<'_> {
    fn add(&mut self, entry: AuditEntry) {
        if !self.filter.takes(&entry) {
            return;
        }
        self.bytes += entry.bytes();
        self.kept.insert(entry.number, entry);
        while self.kept.len() > self.filter.limit.clamp(1, MOST)
            || (self.bytes > PAGE_BYTES && self.kept.len() > 1)
        {
            self.more = true;
            self.bytes -= self.kept.pop_first().map_or(0, |(_, oldest)| oldest.bytes());
        }
    }
}

impl Audit {
    /// The newest entries that fit. Reads the whole record, as long as the answer is wanted.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub(crate) fn list(
        &self,
        filter: &AuditFilter,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Page, AuditError> {
        let mut newest = Newest { filter, kept: BTreeMap::new(), bytes: 0, more: false };
        let (mut trouble, mut unreadable) = (None, 0_u64);
        for reader in self.readers()? {
            let mut begun: BTreeMap<u64, AuditEntry> = BTreeMap::new();
            for record in reader.take_while(|_| is_wanted()) {
                let record = match record {
                    Ok(record) => AuditRecord::read(&record.payload),
                    Err(evenkeel_log::LogError::Trimmed { .. }) => continue,
                    Err(error) => {
                        trouble = Some(error.to_string());
                        continue;
                    }
                };
                match record {
                    Some(AuditRecord::Entry(entry))
                        if entry.outcome == AuditOutcome::Unknown && entry.id.is_empty() =>
                    {
                        begun.insert(entry.number, *entry);
                    }
                    Some(AuditRecord::Entry(entry)) => newest.add(*entry),
                    Some(AuditRecord::End(end)) => {
                        let Some(mut entry) = begun.remove(&end.number) else { continue };
                        (entry.outcome, entry.reason) = (end.outcome, end.reason);
                        entry.after = match end.outcome {
                            AuditOutcome::Failed | AuditOutcome::Refused => None,
                            _ => end.after.or(entry.after),
                        };
                        newest.add(entry);
                    }
                    None => unreadable += 1,
                }
                if begun.len() > PENDING
                    && let Some((_, oldest)) = begun.pop_first()
                {
                    newest.add(oldest);
                }
            }
            begun.into_values().for_each(|entry| newest.add(entry));
        }
        let Newest { kept, more, .. } = newest;
        let next = kept.keys().next().copied().filter(|_| more);
        let skipped = || {
            (unreadable > 0)
                .then(|| format!("{unreadable} entries are of a newer release, or cannot be read"))
        };
        Ok(Page { entries: kept.into_values().rev().collect(), next, trouble: trouble.or_else(skipped) })
    }
}
