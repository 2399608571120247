//! Configuration: files, environment and flags, parsed once into valid types.
//!
//! Owned here: keys, defaults (each in one place, with unit and origin), and checks. Not owned: which files are read,
//! merging and the form of errors (`evenkeel-settings`), and what anything does with a value.

/// Declares one table of the file: every key with its comment and its default in one place.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $kind:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name { $($(#[$field_doc])* pub $field: $kind,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

mod check;
mod live;
mod raw;
pub(crate) mod scalar;
pub(crate) mod sections;
#[cfg(test)]
mod tests;
mod valid;

use std::path::Path;

use evenkeel_settings::{ConfigErrors, Program, Sources};

pub(crate) use evenkeel_settings::{ConfigError, Flag, json, schema, toml};
pub(crate) use live::Reload;
pub(crate) use raw::Raw;
pub(crate) use valid::Config;

/// The configuration as it is written, merged from everywhere.
pub(crate) type Loaded = evenkeel_settings::Loaded<Raw>;

/// Merges files, environment and flags.
///
/// # Errors
/// Each with place, key, reason and remedy.
pub(crate) fn load(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &[Flag],
) -> Result<Loaded, ConfigErrors> {
    evenkeel_settings::load(Program::AGENT, file, env, flags)
}

/// The defaults with what the environment says, without any file: for the guardian, which the agent starts.
///
/// # Errors
/// As [`read`].
pub(crate) fn from_environment_alone() -> Result<Config, Vec<ConfigError>> {
    let names = ["EVENKEEL_AGENT_ROOTS__PROC", "EVENKEEL_AGENT_ROOTS__CGROUP"];
    let env = names.into_iter().filter_map(|key| Some((key.to_owned(), std::env::var(key).ok()?)));
    let no_files = Sources::default();
    let loaded =
        evenkeel_settings::load_files(Program::AGENT, no_files, env, &[]).map_err(|errors| errors.0)?;
    // What was set for a while is undone whatever the configuration says; only an enforcing agent sets anything.
    check::check(&loaded).map(Config::enforcing_unless_told)
}

/// Loads and checks; everything that is wrong is told at once.
///
/// # Errors
/// Each with place, key, reason and remedy.
pub(crate) fn read(file: Option<&Path>, flags: &[Flag]) -> Result<(Config, Loaded), Vec<ConfigError>> {
    let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let loaded = load(file, env, flags).map_err(|errors| errors.0)?;
    for warning in &loaded.warnings {
        tracing::warn!("configuration: {warning}");
    }
    let config = check::check(&loaded)?;
    Ok((config, loaded))
}
