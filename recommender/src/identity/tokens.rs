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
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use evenkeel_log::private;
use evenkeel_net::tls::SOON;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Grant, Identity, Nodes, Proof, Role, Who};
use crate::audit::{Audit, FileDigests};
use crate::policy::{Listing, Print};

mod wrong;

/// What every token begins with, so that scanners for secrets know it.
pub(super) const PREFIX: &str = "evk_";
/// Bytes of chance in a token.
const CHANCE: usize = 32;
/// Longest name of a token.
const MAX_NAME: usize = 64;
/// What helps where the file cannot be changed.
const REMEDY: &str = "run it as root, or name another file (access.tokens)";
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
    #[error("{}: {why}; {}", path.display(), evenkeel_log::remedy(why).unwrap_or(remedy))]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
        /// What helps where it is a matter of the file.
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
            // It may be a token that was pasted here.
            return Err(format!("its name is none: give 1 to {MAX_NAME} letters, digits or -_.@"));
        }
        let name = &self.name;
        if hash_of_text(&self.sha256).is_none() {
            return Err(format!("token {name}: sha256 has to be 64 hexadecimal digits"));
        }
        if self.roles.is_empty() == self.node.is_none() {
            return Err(format!(
                "token {name}: give it either roles (view, simulate, apply, panic, enroll) or a node"
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
        if self.namespaces.is_some() && self.roles.contains(&Role::Enroll) {
            return Err(format!("token {name}: nodes belong to no namespace"));
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
    /// Reads a file; empty where there is none. One that others may write is not believed.
    ///
    /// # Errors
    /// When it cannot be read, others may write it, or it makes no sense. Nothing of its text is in the error: a secret may
    /// stand there.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        // Root at the command line changes the file of another user's service.
        Self::read_of(path, !nix::unistd::geteuid().is_root())
    }

    /// The same; `ours` asks for an owner that is root or this process's user.
    fn read_of(path: &Path, ours: bool) -> Result<Self, TokenError> {
        let failed = |why| TokenError::File {
            path: path.to_owned(),
            why,
            remedy: "make it readable for the recommender's user (mode 0644: it holds hashes alone)",
        };
        let wrong = |what: String| TokenError::Content { path: path.to_owned(), what };
        let mut text = String::new();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        believed(&file.metadata().map_err(failed)?, ours).map_err(wrong)?;
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE {
            return Err(wrong(format!("it is above {MAX_FILE} bytes")));
        }
        Self::parsed(&text).map_err(wrong)
    }

    fn parsed(text: &str) -> Result<Self, String> {
        let read: Self = evenkeel_settings::toml_value(text).map_err(|e| wrong::told(text, &e))?;
        let mut names = BTreeSet::new();
        for (at, entry) in read.token.iter().enumerate() {
            let told = |what: String| format!("{}: {what}", wrong::place(text, Some(at), None));
            entry.check().map_err(told)?;
            if !names.insert(&entry.name) {
                return Err(told(format!("there are two tokens {}", entry.name)));
            }
        }
        Ok(read)
    }

    /// Waits until nobody else changes the file, and reads it. Nobody does until the lock is dropped.
    ///
    /// # Errors
    /// When the lock beside it cannot be taken, and as [`TokenFile::read`].
    pub fn locked(path: &Path) -> Result<(File, Self), TokenError> {
        let beside = path.with_extension("lock");
        let taken = fs::create_dir_all(path.parent().unwrap_or(path)).and_then(|()| private::lock(&beside));
        let lock = taken.map_err(|why| TokenError::File { path: beside, why, remedy: REMEDY })?;
        Ok((lock, Self::read(path)?))
    }

    /// Writes it, so that a reader sees the old or the new one, after a power failure too.
    ///
    /// # Errors
    /// When it cannot be written: the old one stands then.
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (pid, now) = (std::process::id(), evenkeel_store::clock::WallClock::system().now_usec());
        let new = path.with_extension(format!("{now}-{pid}-{number}.new"));
        let written = || -> io::Result<()> {
            let mut file = private::options().write(true).create_new(true).open(&new)?;
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, path)?;
            private::sync_directory(path)
        };
        written().map_err(|why| {
            // It may be renamed already, or never have been made.
            let _ignored = fs::remove_file(&new);
            TokenError::File { path: path.to_owned(), why, remedy: REMEDY }
        })
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

/// Refuses a file that others may write, with the remedy: who writes it gives roles.
fn believed(meta: &fs::Metadata, ours: bool) -> Result<(), String> {
    let (owner, mode, us) = (meta.uid(), meta.mode() & 0o7777, nix::unistd::geteuid().as_raw());
    if mode & 0o022 != 0 {
        return Err(format!(
            "it has mode {mode:04o}: others may give themselves roles; look at what is in it, then chmod it to 0644"
        ));
    }
    if ours && owner != 0 && owner != us {
        return Err(format!(
            "it belongs to user {owner} and this process runs as user {us}; look at what is in it, then chown it to root"
        ));
    }
    Ok(())
}

/// What the tokens of a file are, for the audit record.
fn said(file: &TokenFile) -> FileDigests {
    // An entry has the token's hash: another token of the same name is a change.
    let text = |entry: &TokenEntry| serde_json::to_string(entry).unwrap_or_default();
    FileDigests::of(file.token.iter().map(|entry| (format!("token {}", entry.name), text(entry))))
}

/// What is kept of a token.
pub(super) fn hash(token: &str) -> [u8; 32] {
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
    now: RwLock<LoadedTokens>,
}

#[derive(Debug, Default)]
struct LoadedTokens {
    print: Option<Print>,
    by_hash: HashMap<[u8; 32], (Identity, Option<u64>)>,
    /// The same for the audit record.
    said: FileDigests,
    trouble: Option<String>,
}

impl Tokens {
    /// Those of a file, where it is there.
    pub(crate) fn open(path: &Path) -> Self {
        let tokens = Self { path: path.to_owned(), now: RwLock::default() };
        tokens.look(None);
        tokens
    }

    /// Reads the file again where it changed. One that cannot be read changes nothing, but for what is told of it; one that
    /// is gone takes all tokens with it. With a `record`, what has no entry there does not come in force, and is tried again at the
    /// next look.
    pub(crate) fn look(&self, record: Option<&Audit>) {
        let print = Listing::of(std::slice::from_ref(&self.path)).files.remove(&self.path);
        let is_read = |now: &LoadedTokens| now.print == print && now.trouble.is_none();
        if is_read(&self.now.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let read = TokenFile::read_of(&self.path, true).map_err(|error| error.to_string()).and_then(|file| {
            let said = said(&file);
            self.recorded(&said, record)?;
            Ok((file, said))
        });
        let mut in_force = self.now.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok((file, said)) => {
                let changed = in_force.print != print;
                *in_force = LoadedTokens { print, by_hash: by_hash(&file), said, trouble: None };
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

    /// Leaves an entry that other tokens hold from now on.
    fn recorded(&self, said: &FileDigests, record: Option<&Audit>) -> Result<(), String> {
        let Some(record) = record else { return Ok(()) };
        let before = self.now.read().unwrap_or_else(PoisonError::into_inner).said.clone();
        record.edited(&self.path, &before, said).map_err(|error| error.told())
    }

    /// When a token ends, seconds since 1970; `None` where it does not, or is not known.
    pub(super) fn ends(&self, hash: &[u8; 32]) -> Option<u64> {
        let in_force = self.now.read().unwrap_or_else(PoisonError::into_inner);
        in_force.by_hash.get(hash)?.1
    }

    /// Whose token this is, at a time in seconds since 1970.
    pub(crate) fn find(&self, token: &str, now: u64) -> Option<Identity> {
        self.find_hash(&hash(token), now)
    }

    /// The same by a token's hash.
    pub(super) fn find_hash(&self, hash: &[u8; 32], now: u64) -> Option<Identity> {
        let in_force = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let (identity, expires) = in_force.by_hash.get(hash)?;
        expires.is_none_or(|expires| now < expires).then(|| identity.clone())
    }

    /// When the next token ends that holds yet, seconds since 1970; `None` where none does.
    pub(crate) fn next_end(&self, now: u64) -> Option<u64> {
        self.ending(now).first().map(|(ends, _)| *ends)
    }

    /// What is told of tokens that end soon.
    pub(crate) fn told(&self, now: u64) -> Option<String> {
        let soon: Vec<(u64, String)> =
            self.ending(now).into_iter().take_while(|(ends, _)| ends - now < SOON.as_secs()).collect();
        let (ends, name) = soon.first()?;
        let more = match soon.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more within {} h", SOON.as_secs() / 3600),
        };
        let left = (ends - now) / 60;
        Some(format!(
            "token {name} ends in {left} min{more}; give its holder another (evenkeel-recommender token add)"
        ))
    }

    /// Tokens that end and hold yet, with their names, the next one first.
    fn ending(&self, now: u64) -> Vec<(u64, String)> {
        let in_force = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let of = |(identity, ends): &(Identity, Option<u64>)| match &identity.0.who {
            Who::Holder(name) => Some(((*ends)?, name.clone())),
            _ => None,
        };
        let mut found: Vec<_> =
            in_force.by_hash.values().filter_map(of).filter(|(ends, _)| *ends > now).collect();
        found.sort_unstable();
        found
    }

    /// What is wrong with the file.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }
}

fn by_hash(file: &TokenFile) -> HashMap<[u8; 32], (Identity, Option<u64>)> {
    let entry = |entry: &TokenEntry| {
        let hash = hash_of_text(&entry.sha256)?;
        let identity = Identity::proven(Who::Holder(entry.name.clone()), entry.grant(), Proof::Token(hash));
        Some((hash, (identity, entry.expires)))
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
        tokens.look(None);
        assert!(tokens.find(&ever, u64::MAX).unwrap().has(Role::View).is_ok());
        assert!(tokens.find(&ending, 999).is_some() && tokens.find(&ending, 1000).is_none());
        // Its end is told before, and not after.
        assert_eq!((tokens.next_end(999), tokens.next_end(1000)), (Some(1000), None));
        assert!(
            tokens.told(880).unwrap().starts_with("token ending ends in 2 min; "),
            "{:?}",
            tokens.told(880)
        );
        assert_eq!(tokens.told(1000), None);
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
        tokens.look(None);
        assert!(tokens.trouble().unwrap().contains("tokens.toml") && tokens.find(&token, 0).is_some());
        file.write(&path).unwrap();
        tokens.look(None);
        assert!(tokens.trouble().is_none() && tokens.find(&token, 0).is_some());
        fs::remove_file(&path).unwrap();
        tokens.look(None);
        assert!(tokens.trouble().is_none() && tokens.find(&token, 0).is_none());
    }

    #[test]
    fn a_broken_file_is_told_by_its_place_and_without_its_text() {
        let secret = format!("evk_{}", "5".repeat(64));
        for (text, place, want) in [
            (format!("[[token]]\nname = {secret}\n"), "line 2, column ", "key = value"),
            (format!("[[token]]\n{secret}\n"), "line 2, column ", "key = value"),
            (format!("[[token]]\nname = \"a\"\n{secret} = 1\n"), "line 1, column 1", "sha256"),
            (format!("[[token]]\nname = \"a\"\n  roles = \"{secret}\"\n"), "line 3, column 3", "expected"),
            (format!("[[token]]\nroles = [\"{secret}\"]\n"), "line 2, column 1", "panic"),
            (format!("[[token]]\nsha256 = \"{secret}\"\nname = \"{secret}\"\n"), "line 1, column 1", "name"),
            (format!("[[token]]\nsha256 = \"{secret}\"\nname = \"a\"\n"), "line 1, column 1", "64"),
            (format!("token = \"{secret}\"\n"), "line 1, column 1", "expected"),
            (format!("{secret} = 1\n"), "line 1, column 1", "token"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tokens.toml");
            fs::write(&path, &text).unwrap();
            let told = Tokens::open(&path).trouble().unwrap();
            assert!(!told.contains(&secret[..8]) && !told.contains('\n'), "{text}: {told}");
            assert!(told.contains(place) && told.contains("tokens.toml"), "{text}: {told}");
            assert!(told.contains(want), "{want} of {text}: {told}");
        }
    }

    #[test]
    fn a_file_that_others_may_write_gives_nobody_anything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        let mut file = TokenFile::default();
        let kept = file.add(entry("kept")).unwrap();
        file.write(&path).unwrap();
        let tokens = Tokens::open(&path);
        for mode in [0o666, 0o664, 0o602] {
            let forged = file.add(entry(&format!("forged{mode:o}"))).unwrap();
            file.write(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            tokens.look(None);
            assert!(tokens.trouble().unwrap().contains("chmod it to 0644"), "{:?}", tokens.trouble());
            assert!(tokens.find(&forged, 0).is_none() && tokens.find(&kept, 0).is_some());
            assert!(TokenFile::locked(&path).is_err(), "nor does the command line write it anew");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            tokens.look(None);
            assert!(tokens.trouble().is_none() && tokens.find(&forged, 0).is_some());
        }
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let others = Tokens::open(&path);
            assert!(others.trouble().unwrap().contains("chown"), "{:?}", others.trouble());
            assert!(others.find(&kept, 0).is_none());
        }
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
