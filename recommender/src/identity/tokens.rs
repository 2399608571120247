//! The file of tokens: who holds one and what it allows. It has their hashes, not the tokens: whoever reads it gains nothing.
//!
//! ```toml
//! [[token]]
//! name = "prometheus"
//! sha256 = "..."
//! roles = ["view"]
//! ```
//!
//! Owned here: the file's form, reading it again when it changes, making tokens. Tokens are 256 bits of chance, so that a
//! plain SHA-256 hides them.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use figment::Figment;
use figment::providers::{Format as _, Toml};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Grant, Identity, Nodes, Role, Who};
use crate::policy::{Print, listed};

/// What every token begins with, so that scanners for secrets know it.
const PREFIX: &str = "evk_";
/// Bytes of chance in a token.
const CHANCE: usize = 32;
/// Longest name of a token.
const MAX_NAME: usize = 64;
/// Largest file read: ten thousand tokens.
const MAX_FILE: u64 = 4 << 20;

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenFile {
    /// All tokens.
    #[serde(default)]
    pub token: Vec<TokenEntry>,
}

/// One token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// Who holds it.
    pub name: String,
    /// SHA-256 of the token, hexadecimal.
    pub sha256: String,
    /// What it allows people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// The namespaces in which; everywhere without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<String>>,
    /// The node it names, `CLUSTER/NODE`; `CLUSTER/*` is a secret that all nodes of a cluster share, each of which can
    /// then speak as any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When it ends, seconds since 1970; never without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// Why a file or a token is not taken.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("{}: {why}; {remedy}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// Its content makes no sense.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The token cannot be.
    #[error("{0}")]
    Entry(String),
}

impl TokenEntry {
    /// What is wrong with it.
    ///
    /// # Errors
    /// Says what, for people.
    pub fn check(&self) -> Result<(), String> {
        let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.chars().all(of_name) {
            return Err(format!(
                "the name {:?} is none: give 1 to {MAX_NAME} letters, digits or -_.@",
                self.name
            ));
        }
        let name = &self.name;
        if hash_of_text(&self.sha256).is_none() {
            return Err(format!("token {name}: sha256 has to be 64 hexadecimal digits"));
        }
        if self.roles.is_empty() == self.node.is_none() {
            return Err(format!(
                "token {name}: give it either roles (view, simulate, apply, panic) or a node"
            ));
        }
        if self.node.as_deref().is_some_and(|node| nodes(node).is_none()) {
            return Err(format!("token {name}: node has to be CLUSTER/NODE"));
        }
        if self.namespaces.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(format!("token {name}: name a namespace, or leave namespaces out"));
        }
        if self.namespaces.is_some() && self.roles.contains(&Role::Panic) {
            return Err(format!("token {name}: the panic switch is one for all namespaces"));
        }
        Ok(())
    }

    fn grant(&self) -> Grant {
        Grant {
            roles: self.roles.iter().copied().collect(),
            namespaces: self.namespaces.clone(),
            nodes: self.node.as_deref().and_then(nodes).unwrap_or_default(),
        }
    }
}

/// `CLUSTER/NODE`, or `CLUSTER/*`.
fn nodes(text: &str) -> Option<Nodes> {
    let (cluster, node) = text.split_once('/')?;
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    (is_name(cluster) && is_name(node))
        .then(|| Nodes::Of { cluster: cluster.to_owned(), node: (node != "*").then(|| node.to_owned()) })
}

impl TokenFile {
    /// Reads a file; empty where there is none.
    ///
    /// # Errors
    /// When it cannot be read, or makes no sense.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |why| TokenError::File {
            path: path.to_owned(),
            why,
            remedy: "make it readable for the recommender's user (mode 0644: it holds hashes alone)",
        };
        let wrong = |what: String| TokenError::Content { path: path.to_owned(), what };
        let mut text = String::new();
        match File::open(path) {
            Ok(file) => file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        if text.len() as u64 > MAX_FILE {
            return Err(wrong(format!("it is above {MAX_FILE} bytes")));
        }
        let read: Self = Figment::from(Toml::string(&text)).extract().map_err(|e| wrong(e.to_string()))?;
        let mut names = BTreeSet::new();
        for entry in &read.token {
            entry.check().map_err(wrong)?;
            if !names.insert(&entry.name) {
                return Err(wrong(format!("there are two tokens {}", entry.name)));
            }
        }
        Ok(read)
    }

    /// Writes it, so that a reader sees the old or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let new = path.with_extension("new");
        let written = || -> io::Result<()> {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)?;
            }
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o644).open(&new)?;
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        let remedy = "run it as root, or name another file (access.tokens)";
        written().map_err(|why| TokenError::File { path: path.to_owned(), why, remedy })
    }

    /// Adds a token of chance and gives it back; it is kept nowhere.
    ///
    /// # Errors
    /// When there is one of this name, or it cannot be.
    pub fn add(&mut self, mut entry: TokenEntry) -> Result<String, TokenError> {
        if self.token.iter().any(|other| other.name == entry.name) {
            let what =
                format!("there is a token {} already; remove it first, or choose another name", entry.name);
            return Err(TokenError::Entry(what));
        }
        let mut bytes = [0; CHANCE];
        let chance = Path::new("/dev/urandom");
        File::open(chance).and_then(|mut file| file.read_exact(&mut bytes)).map_err(|why| {
            TokenError::File { path: chance.to_owned(), why, remedy: "make the device readable" }
        })?;
        let token = format!("{PREFIX}{}", hexadecimal(&bytes));
        entry.sha256 = hexadecimal(&hash(&token));
        entry.check().map_err(TokenError::Entry)?;
        self.token.push(entry);
        Ok(token)
    }

    fn text(&self) -> String {
        let mut text = "# Tokens of Evenkeel's recommender, by their hashes: evenkeel-recommender token add|list|remove\n".to_owned();
        for entry in &self.token {
            text.push_str("\n[[token]]\n");
            // Strings, numbers and lists are written alike in JSON and TOML.
            let value = serde_json::to_value(entry).unwrap_or_default();
            for (key, value) in value.as_object().into_iter().flatten() {
                text.push_str(&format!("{key} = {value}\n"));
            }
        }
        text
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash_of_text(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// The tokens in force.
#[derive(Debug)]
pub(crate) struct Tokens {
    path: PathBuf,
    now: RwLock<InForce>,
}

#[derive(Debug, Default)]
struct InForce {
    print: Option<Print>,
    by_hash: HashMap<[u8; 32], (Identity, Option<u64>)>,
    trouble: Option<String>,
}

impl Tokens {
    /// Those of a file, where it is there.
    pub(crate) fn open(path: &Path) -> Self {
        let tokens = Self { path: path.to_owned(), now: RwLock::default() };
        tokens.look();
        tokens
    }

    /// Reads the file again where it changed. One that cannot be read changes nothing, but for what is told of it; one that
    /// is gone takes all tokens with it.
    pub(crate) fn look(&self) {
        let print = listed(std::slice::from_ref(&self.path)).remove(&self.path);
        let is_read = |now: &InForce| now.print == print && now.trouble.is_none();
        if is_read(&self.now.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let read = TokenFile::read(&self.path);
        let mut in_force = self.now.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(file) => {
                let changed = in_force.print != print;
                *in_force = InForce { print, by_hash: by_hash(&file), trouble: None };
                if changed {
                    tracing::info!(path = %self.path.display(), tokens = file.token.len(), "tokens were read");
                }
            }
            Err(error) => {
                let trouble = format!("{error}; the tokens read before stay in force");
                if in_force.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(trouble, "the file of tokens cannot be used");
                }
                in_force.trouble = Some(trouble);
            }
        }
    }

    /// Whose token this is, at a time in seconds since 1970.
    pub(crate) fn find(&self, token: &str, now: u64) -> Option<Identity> {
        let in_force = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let (identity, expires) = in_force.by_hash.get(&hash(token))?;
        expires.is_none_or(|expires| now < expires).then(|| identity.clone())
    }

    /// What is wrong with the file.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }
}

fn by_hash(file: &TokenFile) -> HashMap<[u8; 32], (Identity, Option<u64>)> {
    let entry = |entry: &TokenEntry| {
        let identity = Identity::new(Who::Holder(entry.name.clone()), entry.grant());
        Some((hash_of_text(&entry.sha256)?, (identity, entry.expires)))
    };
    file.token.iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> TokenEntry {
        TokenEntry {
            name: name.to_owned(),
            sha256: String::new(),
            roles: vec![Role::View],
            namespaces: None,
            node: None,
            expires: None,
        }
    }

    #[test]
    fn tokens_are_known_by_their_hash_until_they_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        let tokens = Tokens::open(&path);
        let mut file = TokenFile::default();
        let ever = file.add(entry("ever")).unwrap();
        let ending = file.add(TokenEntry { expires: Some(1000), ..entry("ending") }).unwrap();
        let node = TokenEntry { roles: Vec::new(), node: Some("c/n".into()), ..entry("node") };
        let node = file.add(node).unwrap();
        assert!(file.add(entry("ever")).is_err(), "a name is given once");
        assert!(tokens.find(&ever, 0).is_none());
        file.write(&path).unwrap();
        assert_eq!(TokenFile::read(&path).unwrap(), file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&ever) && !text.contains(&ever[4..]), "the file does not have the tokens");
        tokens.look();
        assert!(tokens.find(&ever, u64::MAX).unwrap().has(Role::View).is_ok());
        assert!(tokens.find(&ending, 999).is_some() && tokens.find(&ending, 1000).is_none());
        assert!(tokens.find(&node, 0).unwrap().speaks_for("c", "n").is_ok());
        assert!(tokens.find(&node, 0).unwrap().speaks_for("c", "m").is_err());
        for wrong in ["", "evk_", &ever[..60], &ever.to_uppercase()] {
            assert!(tokens.find(wrong, 0).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_breaks_changes_nothing_and_one_that_goes_takes_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        let mut file = TokenFile::default();
        let token = file.add(entry("a")).unwrap();
        file.write(&path).unwrap();
        let tokens = Tokens::open(&path);
        fs::write(&path, "[[token]]\nname = ").unwrap();
        tokens.look();
        assert!(tokens.trouble().unwrap().contains("tokens.toml") && tokens.find(&token, 0).is_some());
        file.write(&path).unwrap();
        tokens.look();
        assert!(tokens.trouble().is_none() && tokens.find(&token, 0).is_some());
        fs::remove_file(&path).unwrap();
        tokens.look();
        assert!(tokens.trouble().is_none() && tokens.find(&token, 0).is_none());
    }

    #[test]
    fn what_cannot_be_is_named() {
        let good = TokenEntry { sha256: "0".repeat(64), ..entry("a") };
        good.check().unwrap();
        let of = |change: &dyn Fn(&mut TokenEntry)| {
            let mut entry = good.clone();
            change(&mut entry);
            entry.check().unwrap_err()
        };
        for (text, want) in [
            (of(&|e| e.name = "a b".into()), "name"),
            (of(&|e| e.sha256 = "0".repeat(63)), "sha256"),
            (of(&|e| e.sha256 = "g".repeat(64)), "sha256"),
            (of(&|e| e.roles.clear()), "roles"),
            (of(&|e| e.node = Some("c/n".into())), "either"),
            (of(&|e| (e.roles, e.node) = (Vec::new(), Some("n".into()))), "CLUSTER/NODE"),
            (of(&|e| e.namespaces = Some(BTreeSet::new())), "namespace"),
            (
                of(&|e| {
                    e.roles.push(Role::Panic);
                    e.namespaces = Some(BTreeSet::from(["shop".into()]));
                }),
                "panic",
            ),
        ] {
            assert!(text.contains(want), "{want}: {text}");
        }
    }
}
