//! Numbers of samples.

use std::fmt;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use crate::FamilyKind;

/// A number as it is shown: whole ones exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// Any other.
    Decimal(f64),
}

impl Number {
    /// Microseconds as seconds.
    #[must_use]
    pub fn seconds(usec: u64) -> Self {
        Self::Decimal(usec as f64 / 1e6)
    }

    pub(crate) fn encode(self, kind: FamilyKind, encoder: &mut MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match (kind, self) {
            (FamilyKind::Counter, Self::Whole(n)) => encoder.encode_counter::<NoLabelSet, _, u64>(&n, None),
            (FamilyKind::Counter, Self::Decimal(n)) => encoder.encode_counter::<NoLabelSet, _, u64>(&n, None),
            (FamilyKind::Gauge, Self::Whole(n)) => encoder.encode_gauge(&n),
            (FamilyKind::Gauge, Self::Decimal(n)) => encoder.encode_gauge(&n),
        }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Decimal(value)
    }
}
