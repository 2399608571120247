//! Owns the present hour of one container's minutes, and the block it becomes.

use std::sync::Arc;

use crate::history::codec::{decode_minutes, encode_minutes};
use crate::history::minute::StoredMinute;

/// Minutes of one container kept plain before they are encoded; a whole hour of them would take three times the memory.
const CHUNK: usize = 12;

/// The present hour of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// Hour since 1970.
    pub(crate) hour: u32,
    /// Name of its pod.
    pub(crate) pod: Arc<str>,
    /// Newest minutes, at most [`CHUNK`].
    pub(crate) plain: Vec<StoredMinute>,
    /// Those before them, encoded.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// How many of the newest no engine outside was offered.
    pub(crate) fresh: usize,
    /// It is in the list of those that have such.
    pub(crate) is_listed: bool,
}

/// Minutes of a container that go to a file as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Hour since 1970.
    pub(crate) hour: u32,
    /// Name of the pod, for engines outside; files tell replicas apart by nothing.
    pub(crate) pod: Arc<str>,
    pub(crate) bytes: Arc<[u8]>,
    /// How many of its minutes, from the first on, engines outside were offered already.
    pub(crate) offered: usize,
}

impl Buffer {
    pub(crate) fn new(hour: u32, pod: &str) -> Self {
        Self { hour, pod: pod.into(), plain: Vec::new(), chunks: Vec::new(), fresh: 0, is_listed: false }
    }

    pub(super) fn push(&mut self, kept: StoredMinute) {
        if self.plain.len() >= CHUNK {
            self.chunks.push(encode_minutes(&self.plain));
            self.plain.clear();
        }
        if self.plain.capacity() == 0 {
            self.plain.reserve_exact(CHUNK);
        }
        self.plain.push(kept);
        self.fresh += 1;
    }

    /// Minutes that no engine outside was offered; from now on they were.
    pub(super) fn take_fresh(&mut self) -> Vec<StoredMinute> {
        let count = std::mem::take(&mut self.fresh);
        self.is_listed = false;
        let mut all = if count <= self.plain.len() { self.plain.clone() } else { self.minutes() };
        all.split_off(all.len().saturating_sub(count))
    }

    pub(super) fn minutes(&self) -> Vec<StoredMinute> {
        let mut all: Vec<StoredMinute> =
            self.chunks.iter().filter_map(|c| decode_minutes(c)).flatten().collect();
        all.extend(&self.plain);
        all
    }
}
