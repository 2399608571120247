//! Owns quantities in JSON and YAML: written as the canonical string; read from a string or a number.
//!
//! Integers are exact. A floating point number is read through its shortest decimal text, which is what was written
//! as long as that had at most 15 significant digits; one at or above 2^53 has lost digits and is refused. White
//! space around a string is dropped, as Kubernetes does here (and only here).

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::{Quantity, QuantityError, QuantityErrorKind};

/// From here on not every integer is a double.
const INEXACT_FROM: f64 = 9_007_199_254_740_992.0;

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

/// Reads a floating point number by its shortest text.
///
/// # Errors
/// [`QuantityError`] when it is not finite, or so large that digits are lost.
pub(crate) fn from_float(number: f64) -> Result<Quantity, QuantityError> {
    let text = number.to_string();
    if !number.is_finite() || number.abs() >= INEXACT_FROM {
        return Err(QuantityError::new(&text, 0, QuantityErrorKind::InexactFloat));
    }
    Quantity::parse(&text)
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as 2, 0.5, \"300m\" or \"64Mi\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text.trim()).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u128<E: Error>(self, number: u128) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
        from_float(number).map_err(E::custom)
    }
}
