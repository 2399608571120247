//! Configuration of both daemons: files, environment and flags merged once, units, errors, rendering.
//!
//! Owned here: which files and variables a program reads and in which order, durations and sizes, levels of the log, an error's form, the
//! configuration as TOML and JSON schema. Not owned: keys, their defaults, and what values must be: those are each program's.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod error;
mod files;
mod load;
mod locate;
mod log_level;
mod render;
mod units;

pub use error::{ConfigError, ConfigErrors};
pub use files::{Program, Sources};
pub use load::{Flag, Loaded, by_file, load, load_files, toml_value};
pub use log_level::targets;
pub use render::{json, schema, toml};
pub use units::{Size, Span, UnitError};
