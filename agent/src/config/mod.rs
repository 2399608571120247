//! Configuration: files, environment and flags, parsed once into valid types.
//!
//! Owned here: keys, defaults (each in one place, with unit and origin), merging, errors that name file, key,
//! reason and remedy. Not owned: what anything does with a value.

mod valid;

pub(crate) use valid::{Config, Converge, Features, Manage, Mode, Roots, Sample, Serve, Sources, Stream};
