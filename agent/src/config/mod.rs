//! Configuration: files, environment and flags, parsed once into valid types.
//!
//! Owned here: keys, defaults (each in one place, with unit and origin), merging, errors that name place, key,
//! reason and remedy. Not owned: what anything does with a value.

mod check;
mod error;
mod load;
mod raw;
mod render;
mod scalar;
#[cfg(test)]
mod tests;
mod valid;

use std::path::Path;

pub(crate) use error::ConfigError;
pub(crate) use load::{Flag, Loaded, load};
pub(crate) use raw::Raw;
pub(crate) use render::{json, schema, toml};
pub(crate) use valid::{
    Config, Converge, CpuSwitches, Features, FreezeWhen, Manage, Mode, Roots, Sample, Serve, Sources, Stream,
};

/// Loads and checks; everything that is wrong is told at once.
///
/// # Errors
/// Each with place, key, reason and remedy.
pub(crate) fn read(file: Option<&Path>, flags: &[Flag]) -> Result<(Config, Loaded), Vec<ConfigError>> {
    let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let loaded = load(file, env, flags).map_err(|error| vec![error])?;
    let config = check::check(&loaded)?;
    Ok((config, loaded))
}
