//! How the writer reaches systemd: a narrow trait, so that it is tested without a bus ([`super::bus`]).

use super::property::Property;

/// Sets properties of units.
pub trait SetProperties {
    /// Release of systemd, where it is known: then it has answered at least once.
    fn version(&mut self) -> Option<u32>;

    /// Sets properties of a unit until the machine reboots, all or none. Waits for a bounded time.
    ///
    /// # Errors
    /// When systemd refuses, does not answer, or did not a moment ago.
    fn set(&mut self, unit: &str, properties: &[Property]) -> Result<(), NotSet>;
}

impl SetProperties for Box<dyn SetProperties + Send> {
    fn version(&mut self) -> Option<u32> {
        (**self).version()
    }

    fn set(&mut self, unit: &str, properties: &[Property]) -> Result<(), NotSet> {
        (**self).set(unit, properties)
    }
}

/// Makes a way to systemd for one writer. It must not connect before it is used.
pub type OpenSystemd = fn() -> Box<dyn SetProperties + Send>;

/// Why properties were not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSet {
    /// The manager may not do it for us, or does not know the property or the value; in its words.
    #[error("{0}")]
    Refused(String),
    /// The manager cannot be asked, or knows no such unit. Who implements the trait has said so.
    #[error("{0}")]
    Unreachable(String),
}
