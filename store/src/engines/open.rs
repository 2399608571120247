//! Owns the way from a section of the configuration to an engine: secrets are read here, once.

use std::path::PathBuf;
use std::sync::Arc;

use super::counters::EngineCounters;
use super::http::{Address, AddressError, Login, Secret};
use super::{Influx, Prometheus};
use crate::config::{EngineKind, EngineSection, HeaderValue, SecretFrom};
use crate::history::exchange::Engine;

/// An engine of the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its address is wrong.
    #[error("history.engines: {0}")]
    Address(#[from] AddressError),
    /// A secret's file cannot be read.
    #[error("history.engines: cannot read the secret in {}; make the file readable for the recommender", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A secret's variable is not set.
    #[error("history.engines: the environment has no {name}; set it, or name a file")]
    Variable {
        /// The variable.
        name: String,
    },
}

/// Makes an engine; nothing is connected yet. An engine object serves one thread, so each thread opens its own.
///
/// # Errors
/// [`OpenError`] when the section cannot be used.
pub fn open(section: &EngineSection, counters: &Arc<EngineCounters>) -> Result<Box<dyn Engine>, OpenError> {
    let recent = u32::try_from(section.recent.minutes()).unwrap_or(u32::MAX);
    let address = address(section)?;
    let counters = Arc::clone(counters);
    Ok(match section.kind {
        EngineKind::Prometheus => {
            Box::new(Prometheus::new(&address, section.write_url.as_deref(), recent, counters)?)
        }
        EngineKind::Influxdb => Box::new(Influx::new(
            &address,
            &section.database,
            section.retention_policy.as_deref(),
            recent,
            counters,
        )?),
    })
}

fn address(section: &EngineSection) -> Result<Address, OpenError> {
    let mut headers = Vec::new();
    for (name, value) in &section.headers {
        let value = match value {
            HeaderValue::Text(text) => Secret::new(text),
            HeaderValue::Secret(from) => secret(from)?,
        };
        headers.push((name.clone(), value));
    }
    let login = match (&section.token, &section.user, &section.password) {
        (Some(token), ..) => Login::Bearer(secret(token)?),
        (None, Some(user), Some(password)) => {
            Login::Basic { user: user.clone(), password: secret(password)? }
        }
        _ => Login::None,
    };
    Ok(Address {
        url: section.url.clone(),
        headers,
        login,
        timeout: section.timeout.get(),
        authorities: section.ca_file.clone(),
        max_answer: section.max_answer.get(),
    })
}

fn secret(from: &SecretFrom) -> Result<Secret, OpenError> {
    let text = match from {
        SecretFrom::File(path) => {
            std::fs::read_to_string(path).map_err(|source| OpenError::File { path: path.clone(), source })?
        }
        SecretFrom::Env(name) => {
            std::env::var(name).map_err(|_| OpenError::Variable { name: name.clone() })?
        }
    };
    Ok(Secret::new(text.trim()))
}
