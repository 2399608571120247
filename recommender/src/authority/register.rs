//! Who has what: join tokens that wait, nodes with certificates, revoked names. A small file, read and written whole under a
//! lock, so that a token is used once whatever runs at the same time: other callers, or the program at the command line.
//! Tokens are kept as hashes, and used up on the disk before anything is signed for them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use evenkeel_log::private;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{AuthorityError, NODE_LIFE, hexadecimal};
use crate::audit::{Audit, FileDigests};

/// What every join token begins with, so that scanners for secrets know it.
pub(super) const PREFIX: &str = "evk_join_";
/// How long a join token waits, seconds.
const TOKEN_LIFE: u64 = 600;
/// Join tokens that wait at most: a rack's worth of nodes made at once.
const MAX_TOKENS: usize = 1000;
/// Names kept at most: twice the nodes of the largest cluster Kubernetes supports (5,000), as streams.
const MAX_NAMES: usize = 10_000;
/// Longest cluster and node, bytes each: a DNS subdomain (RFC 1123).
const MAX_NAME: usize = 253;
const VERSION: u32 = 1;

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The cluster.
    pub cluster: String,
    /// The node.
    pub node: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.node)
    }
}

impl Name {
    /// Of `CLUSTER/NODE`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (cluster, node) = text.split_once('/')?;
        Some(Self { cluster: cluster.to_owned(), node: node.to_owned() })
    }

    /// Whether both can stand in the path of a SPIFFE-ID (section 2.2).
    pub(crate) fn check(&self) -> Result<(), AuthorityError> {
        let of_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        for (what, name) in [("cluster", &self.cluster), ("node", &self.node)] {
            if name.is_empty()
                || name.len() > MAX_NAME
                || name.chars().all(|c| c == '.')
                || !name.chars().all(of_path)
            {
                return Err(AuthorityError::Refused(format!(
                    "the {what} {name:?} is none that a certificate can name: give 1 to {MAX_NAME} letters, digits or -_."
                )));
            }
        }
        Ok(())
    }
}

/// What is kept of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameRecord {
    /// End of its newest certificate, seconds since 1970; 0 without.
    pub certificate_expires: u64,
    /// End of the join token that waits; 0 without.
    pub token_expires: u64,
    /// When it was revoked; 0 = never.
    pub revoked: u64,
    /// Whether it is refused now.
    pub refused: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    /// By name.
    tokens: BTreeMap<String, PendingJoinToken>,
    nodes: BTreeMap<String, NodeRecord>,
}

/// A join token that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingJoinToken {
    sha256: String,
    expires: u64,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRecord {
    /// End of its newest certificate.
    expires: u64,
    /// Certificates that began then or before are refused.
    revoked: u64,
    /// A join token was made since: certificates that began later are taken.
    admitted: bool,
}

impl NodeRecord {
    fn refuses(&self, begins: Option<u64>) -> bool {
        self.revoked > 0 && (!self.admitted || begins.is_some_and(|begins| begins <= self.revoked))
    }

    /// Whether there is nothing left to remember.
    fn is_past(&self, now: u64) -> bool {
        let refuses_none = self.revoked == 0 || (self.admitted && self.revoked + NODE_LIFE.as_secs() < now);
        self.expires < now && refuses_none
    }
}

/// Tells one state of the file from another.
type Print = Option<(u64, u64, i64, i64)>;

/// The file, and what was last read of it.
#[derive(Debug)]
pub(crate) struct Register {
    path: PathBuf,
    lock: PathBuf,
    now: Mutex<(Print, Content)>,
    /// Told of what others write there.
    record: OnceLock<Arc<Audit>>,
}

impl Register {
    /// The one in a directory.
    pub(super) fn open(dir: &Path) -> Result<Self, AuthorityError> {
        let (now, record) = Default::default();
        let register = Self { path: dir.join("register.json"), lock: dir.join("lock"), now, record };
        register.reread(&mut register.kept())?;
        Ok(register)
    }

    /// From now on, what others write there comes in force with an entry in the audit record.
    pub(super) fn told_to(&self, record: Arc<Audit>) {
        // There is one record.
        let _already = self.record.set(record);
    }

    /// Reads it again where another process changed it.
    ///
    /// # Errors
    /// When it cannot be read: what was read before stays in force.
    pub(crate) fn look(&self) -> Result<(), AuthorityError> {
        self.reread(&mut self.kept())
    }

    /// Whether a certificate of a node that began then, or another credential of it, is refused.
    pub(crate) fn refuses(&self, name: &Name, begins: Option<u64>) -> bool {
        self.kept().1.nodes.get(&name.to_string()).is_some_and(|node| node.refuses(begins))
    }

    /// Everything there is to tell, by name.
    pub(crate) fn listed(&self, now: u64) -> BTreeMap<String, NameRecord> {
        let kept = self.kept();
        let mut all: BTreeMap<String, NameRecord> = BTreeMap::new();
        for (name, node) in kept.1.nodes.iter().filter(|(_, node)| !node.is_past(now)) {
            let named = all.entry(name.clone()).or_default();
            (named.certificate_expires, named.revoked) = (node.expires, node.revoked);
            named.refused = node.refuses(None);
        }
        for (name, waiting) in kept.1.tokens.iter().filter(|(_, waiting)| waiting.expires > now) {
            all.entry(name.clone()).or_default().token_expires = waiting.expires;
        }
        all
    }

    /// Keeps a new token, and says when it ends.
    pub(super) fn add(&self, name: &Name, token: &str, now: u64) -> Result<u64, AuthorityError> {
        let (key, expires) = (name.to_string(), now + TOKEN_LIFE);
        self.change(|content| {
            content.tokens.retain(|_, waiting| waiting.expires > now);
            content.nodes.retain(|_, node| !node.is_past(now));
            if content.tokens.len() >= MAX_TOKENS && !content.tokens.contains_key(&key) {
                return Err(AuthorityError::Refused(format!(
                    "{MAX_TOKENS} join tokens wait already; use them, or wait ten minutes"
                )));
            }
            content.tokens.insert(key.clone(), PendingJoinToken { sha256: hash(token), expires });
            if let Some(node) = content.nodes.get_mut(&key) {
                node.admitted = true;
            }
            Ok(expires)
        })
    }

    /// The node of a token that waits.
    pub(super) fn holder(&self, token: &str, now: u64) -> Result<Name, AuthorityError> {
        // Another process may have made it this second.
        self.look()?;
        held(&self.kept().1, token, now)
    }

    /// Uses a token up, and says from when its certificate may hold: not before what was refused.
    pub(super) fn take(&self, token: &str, life: Duration, now: u64) -> Result<u64, AuthorityError> {
        self.change(|content| {
            let name = held(content, token, now)?.to_string();
            if !content.nodes.contains_key(&name) && content.nodes.len() >= MAX_NAMES {
                content.nodes.retain(|_, node| !node.is_past(now));
                if content.nodes.len() >= MAX_NAMES {
                    return Err(full());
                }
            }
            content.tokens.remove(&name);
            let node = content.nodes.entry(name).or_default();
            let begins = now.max(node.revoked.saturating_add(1));
            node.expires = node.expires.max(begins + life.as_secs());
            Ok(begins)
        })
    }

    /// Refuses a node's certificates and tokens from now on.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub(crate) fn revoke(&self, name: &Name, now: u64) -> Result<(), AuthorityError> {
        name.check()?;
        self.change(|content| {
            let key = name.to_string();
            if !content.nodes.contains_key(&key) && content.nodes.len() >= MAX_NAMES {
                content.nodes.retain(|_, node| !node.is_past(now));
                if content.nodes.len() >= MAX_NAMES {
                    return Err(full());
                }
            }
            content.tokens.remove(&key);
            let node = content.nodes.entry(key).or_default();
            // One given a moment ago may begin later than now.
            (node.revoked, node.admitted) = (now.max(node.revoked.saturating_add(1)), false);
            Ok(())
        })
    }

    /// A certificate was given. Written with the next change: it is told to people and decides nothing.
    pub(super) fn given(&self, name: &Name, expires: u64) {
        let mut kept = self.kept();
        if kept.1.nodes.len() < MAX_NAMES || kept.1.nodes.contains_key(&name.to_string()) {
            let node = kept.1.nodes.entry(name.to_string()).or_default();
            node.expires = node.expires.max(expires);
        }
    }

    /// Changes the file under its lock; what is not written is not in force either.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Content) -> Result<T, AuthorityError>,
    ) -> Result<T, AuthorityError> {
        let failed = |source| AuthorityError::File { path: self.lock.clone(), source };
        let mut kept = self.kept();
        let lock = private::lock(&self.lock).map_err(failed)?;
        self.reread(&mut kept)?;
        let mut content = kept.1.clone();
        let changed = change(&mut content)?;
        content.version = VERSION;
        let text = serde_json::to_vec(&content).map_err(io::Error::from);
        let written = text.and_then(|text| private::replace(&self.path, &text, true));
        written.map_err(|source| AuthorityError::File { path: self.path.clone(), source })?;
        *kept = (print(&self.path), content);
        drop::<File>(lock);
        Ok(changed)
    }

    fn reread(&self, kept: &mut (Print, Content)) -> Result<(), AuthorityError> {
        let print = print(&self.path);
        if kept.0 == print && print.is_some() {
            return Ok(());
        }
        let mut content = match private::read(&self.path) {
            Ok(bytes) => self.parsed(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && kept.0.is_none() => Content::default(),
            Err(source) => return Err(AuthorityError::File { path: self.path.clone(), source }),
        };
        if let Some(record) = self.record.get() {
            let recorded = record.edited(&self.path, &said(&kept.1), &said(&content));
            recorded.map_err(|error| AuthorityError::Unrecorded(error.told()))?;
        }
        for (name, node) in &mut content.nodes {
            let before = kept.1.nodes.get(name).map_or(0, |before| before.expires);
            node.expires = node.expires.max(before);
        }
        *kept = (print, content);
        Ok(())
    }

    fn parsed(&self, bytes: &[u8]) -> Result<Content, AuthorityError> {
        let wrong = |what: String| AuthorityError::Content { path: self.path.clone(), what };
        let help = "put back a copy; without one remove it, and revoke again who was revoked";
        let content: Content =
            serde_json::from_slice(bytes).map_err(|error| wrong(format!("{error}; {help}")))?;
        if content.version > VERSION {
            return Err(wrong("it is of a later release; run that one".to_owned()));
        }
        Ok(content)
    }

    /// A thread that panicked while it held the lock left it was.
    fn kept(&self) -> MutexGuard<'_, (Print, Content)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full() -> AuthorityError {
    AuthorityError::Refused(format!(
        "{MAX_NAMES} nodes are kept already; names go when their certificates have ended"
    ))
}

/// The node whose token this is.
fn held(content: &Content, token: &str, now: u64) -> Result<Name, AuthorityError> {
    let hash = hash(token);
    let found = content.tokens.iter().find(|(_, waiting)| waiting.sha256 == hash && waiting.expires > now);
    found.and_then(|(name, _)| Name::read(name)).ok_or_else(|| {
        AuthorityError::Refused(
            "the join token is not known: it holds for one use and ten minutes; make one with evenkeel ca token NODE"
                .to_owned(),
        )
    })
}

/// What it decides, for the audit record.
fn said(content: &Content) -> FileDigests {
    let node = |node: &NodeRecord| (node.revoked > 0).then(|| format!("{} {}", node.revoked, node.admitted));
    let nodes = content.nodes.iter().filter_map(|(name, kept)| Some((format!("node {name}"), node(kept)?)));
    let token = |(name, waiting): (&String, &PendingJoinToken)| {
        (format!("join token of {name}"), waiting.sha256.clone())
    };
    FileDigests::of(nodes.chain(content.tokens.iter().map(token)))
}

fn hash(token: &str) -> String {
    hexadecimal(&Sha256::digest(token.as_bytes()))
}

fn print(path: &Path) -> Print {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
}
