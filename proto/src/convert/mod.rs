//! Wire <-> model: the plain messages of `types.proto` to and from the nouns they stand for.
//!
//! Owned here: the mapping, the texts of closed sets on the wire, and an error for each value this version does
//! not know. Not owned: the nouns (`evenkeel_model`), columnar samples ([`crate::frame`]).

mod amounts;
mod command;
mod decision;
mod identity;
mod key;
mod pods;
mod sample;
#[cfg(test)]
mod tests;
mod traffic;
mod usage;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, MilliCpu};

use crate::v1;

pub use amounts::{MAX_AMOUNTS, amounts_from_wire, amounts_to_wire};
pub use command::command_hash;
pub use decision::decision_kinds;
pub use identity::Identity;
pub use usage::usage_record;

/// Why a message does not stand for a noun of the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A field that must be there is not.
    #[error("{message} has no {field}; the sender must fill it")]
    Missing {
        /// Message name.
        message: &'static str,
        /// Field name.
        field: &'static str,
    },
    /// A value of a closed set that this version does not know.
    #[error("{field} {value:?} is not known here; update this program or the sender")]
    Unknown {
        /// Field name.
        field: &'static str,
        /// The value, cut after 64 characters.
        value: String,
    },
    /// A value outside what the model allows.
    #[error("{field} cannot be read: {why}")]
    Invalid {
        /// Field name.
        field: &'static str,
        /// What the model says against it.
        why: String,
    },
}

impl ConvertError {
    fn unknown(field: &'static str, value: impl ToString) -> Self {
        Self::Unknown { field, value: value.to_string().chars().take(64).collect() }
    }
}

/// A class as the wire has it; `None` is unspecified.
pub const fn qos_class_to_wire(class: Option<QosClass>) -> v1::QosClass {
    match class {
        None => v1::QosClass::Unspecified,
        Some(QosClass::BestEffort) => v1::QosClass::BestEffort,
        Some(QosClass::Burstable) => v1::QosClass::Burstable,
        Some(QosClass::Guaranteed) => v1::QosClass::Guaranteed,
    }
}

/// A class from the number in a message; unspecified is `None`.
///
/// # Errors
/// [`ConvertError::Unknown`] for a number without a class.
pub fn qos_class_from_wire(field: &'static str, number: i32) -> Result<Option<QosClass>, ConvertError> {
    match v1::QosClass::try_from(number) {
        Ok(v1::QosClass::Unspecified) => Ok(None),
        Ok(v1::QosClass::BestEffort) => Ok(Some(QosClass::BestEffort)),
        Ok(v1::QosClass::Burstable) => Ok(Some(QosClass::Burstable)),
        Ok(v1::QosClass::Guaranteed) => Ok(Some(QosClass::Guaranteed)),
        Err(_) => Err(ConvertError::unknown(field, number)),
    }
}

impl From<&NodeFacts> for v1::NodeFacts {
    fn from(facts: &NodeFacts) -> Self {
        Self {
            memory_bytes: facts.memory_bytes.get(),
            cpu_milli: facts.cpu_milli.get(),
            swap_total_bytes: facts.swap_total_bytes.get(),
            page_bytes: facts.page_bytes.get(),
            ..Self::default()
        }
    }
}

impl From<&v1::NodeFacts> for NodeFacts {
    fn from(facts: &v1::NodeFacts) -> Self {
        Self {
            memory_bytes: Bytes::new(facts.memory_bytes),
            cpu_milli: MilliCpu::new(facts.cpu_milli),
            swap_total_bytes: Bytes::new(facts.swap_total_bytes),
            page_bytes: Bytes::new(facts.page_bytes),
        }
    }
}
