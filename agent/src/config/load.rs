//! Merging: defaults, then those of whoever starts the agent, then files, then environment, then flags.
//!
//! Owned here: which files are read, how a variable or flag becomes a key. Not owned: what the values must be.

use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::error::{ConfigError, place_of};
use super::raw::Raw;

/// The file read when none is named, if it is there.
pub(crate) const DEFAULT_FILE: &str = "/etc/evenkeel/agent.toml";
/// Prefix of environment variables; sections are separated by two underscores.
const PREFIX: &str = "EVENKEEL_";
/// Variables with our prefix that address the command line tool, not a section.
const NOT_OURS: [&str; 4] =
    ["EVENKEEL_AGENT", "EVENKEEL_RECOMMENDER", "EVENKEEL_TOKEN_FILE", "EVENKEEL_CA_FILE"];
/// Variables of the packaged recommender, which may share an environment file with the agent.
const RECOMMENDERS: &str = "EVENKEEL_RECOMMENDER_";

/// What was merged and from where.
pub(crate) struct Loaded {
    /// The values.
    pub raw: Raw,
    /// Files read, in order.
    pub files: Vec<PathBuf>,
    figment: Figment,
}

impl Loaded {
    /// Whether a file, variable or flag set a key.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.figment.find_metadata(key).is_some()
    }

    /// The file, variable or flag that set a key.
    pub(super) fn place(&self, key: &str) -> String {
        self.figment.find_metadata(key).map_or_else(|| "defaults".to_owned(), |m| place_of(Some(m)))
    }

    #[cfg(test)]
    pub(super) fn of(raw: Raw) -> Self {
        Self { raw, files: Vec::new(), figment: Figment::new() }
    }
}

/// One value from a flag.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    /// As typed, for errors: `--dry-run`.
    pub name: &'static str,
    /// Dotted key.
    pub key: &'static str,
    /// The value.
    pub value: Value,
    /// It is a default of whoever starts the agent: files and environment go over it.
    pub is_default: bool,
}

/// Merges everything. `file` is what the command line names; without it the default file is read if it is there.
///
/// # Errors
/// A file that does not read, a key that is not known, a value of the wrong type.
pub(crate) fn load(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &[Flag],
) -> Result<Loaded, ConfigError> {
    load_files(&files(file)?, env, flags)
}

/// Merges these files, the environment and the flags.
pub(super) fn load_files(
    files: &[PathBuf],
    env: impl IntoIterator<Item = (String, String)>,
    flags: &[Flag],
) -> Result<Loaded, ConfigError> {
    let mut figment = Figment::new();
    for flag in flags.iter().filter(|flag| flag.is_default) {
        figment = figment.merge(One::of(flag));
    }
    for path in files {
        figment = figment.merge(Toml::file_exact(path));
    }
    let defaults = super::render::json(&Raw::default());
    for (name, text) in env {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if NOT_OURS.contains(&name.as_str()) || name.starts_with(RECOMMENDERS) {
            continue;
        }
        let key = rest.to_ascii_lowercase().replace("__", ".");
        let pointer = format!("/{}", key.replace('.', "/"));
        let value = if defaults.pointer(&pointer).is_some_and(serde_json::Value::is_string) {
            Value::from(text)
        } else {
            // Reading a value never fails: what is no number, list or truth value is text.
            text.parse().unwrap_or_else(|never| match never {})
        };
        figment = figment.merge(One { name: format!("environment variable {name}"), key, value });
    }
    for flag in flags.iter().filter(|flag| !flag.is_default) {
        figment = figment.merge(One::of(flag));
    }
    let raw = figment.extract::<Raw>().map_err(ConfigError::from_figment)?;
    Ok(Loaded { raw, files: files.to_vec(), figment })
}

/// The named file and the `conf.d` beside it. Files there whose name speaks of the recommender are its own.
fn files(named: Option<&Path>) -> Result<Vec<PathBuf>, ConfigError> {
    let main = named.unwrap_or(Path::new(DEFAULT_FILE));
    let mut files = Vec::new();
    match std::fs::File::open(main) {
        Ok(_) => files.push(main.to_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && named.is_none() => {}
        Err(e) => {
            return Err(ConfigError {
                place: main.display().to_string(),
                key: None,
                reason: format!("the file cannot be read: {e}"),
                remedy: "name an existing file with --config, or correct its permissions".into(),
            });
        }
    }
    let Some(dir) = main.parent() else { return Ok(files) };
    let Ok(entries) = std::fs::read_dir(dir.join("conf.d")) else { return Ok(files) };
    let mut more: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .filter(|path| !path.file_stem().is_some_and(|s| s.to_string_lossy().contains("recommender")))
        .collect();
    more.sort();
    files.append(&mut more);
    Ok(files)
}

/// A provider of one value, so that an error can name the variable or flag it came from.
struct One {
    name: String,
    key: String,
    value: Value,
}

impl One {
    fn of(flag: &Flag) -> Self {
        Self { name: format!("flag {}", flag.name), key: flag.key.to_owned(), value: flag.value.clone() }
    }
}

impl Provider for One {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let nested = figment::util::nest(&self.key, self.value.clone());
        let dict = nested.into_dict().unwrap_or_default();
        Ok(Map::from([(Profile::Default, dict)]))
    }
}
