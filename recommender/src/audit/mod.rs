//! Owns the audit record: an entry for every change, and for refused attempts at one.
//!
//! A change is told here before it is made ([`Ticket::begin`]), durably, and again when it was made; where the record cannot be
//! written the change is refused. The panic switch is set all the same. Each request that may change something carries a
//! [`Ticket`], which the layer around all services and routes makes (`layer.rs`): whoever changes something without using
//! it is found there. Owned here: the form of entries (`entry.rs`), the logs they are kept in (`record.rs`), how many attempts
//! are kept (`flood.rs`), files that people edit (`files.rs`), what commands leave while no recommender need run (`inbox.rs`), reading (`read.rs`, `service.rs`).
//! Not owned: who may change what (`identity`).

mod entry;
mod files;
mod flood;
mod inbox;
mod layer;
mod read;
mod record;
pub(crate) mod service;
#[cfg(test)]
mod tests;
mod ticket;

/// The record's directory within the state directory.
pub(crate) const FOLDER: &str = "audit";

pub(crate) use entry::{AuditEntry, AuditOutcome, Object, ObjectText};
pub(crate) use files::FileDigests;
pub(crate) use inbox::offline;
pub(crate) use layer::{Recorder, Why, watch};
#[cfg(test)]
pub(crate) use read::AuditFilter;
pub(crate) use read::Page;
pub(crate) use record::{Audit, AuditError};
pub(crate) use ticket::{AuditedChange, Ticket, called};
