//! Memory protection and limits: `memory.min`, `low`, `high` and `max`.
//!
//! Owned here: the values (KEP-2570, policy TieredReservation), rounded down to pages as the kernel itself
//! does, so that what is read back equals what was wished. Not owned: ancestors, which may take the effect away.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit};

use crate::config::MemoryHighFactor;

/// The four memory knobs of one container; `None` means the knob is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryKnobs {
    /// Memory never reclaimed: the request of a guaranteed container.
    pub min: Option<Bytes>,
    /// Memory reclaimed last: the request of a burstable container.
    pub low: Option<Bytes>,
    /// Use above which the container is slowed and reclaimed from.
    pub high: Option<Bytes>,
}

/// Rounds down to whole pages.
pub fn to_pages(value: Bytes, page: Bytes) -> Bytes {
    Bytes::new(value.get() - value.get().checked_rem(page.get()).unwrap_or(0))
}

/// Protection for a container of `class` with `request`.
pub fn protection(class: QosClass, request: Bytes, page: Bytes) -> MemoryKnobs {
    let rounded = (!request.is_zero()).then(|| to_pages(request, page));
    match class {
        QosClass::Guaranteed => MemoryKnobs { min: rounded, ..MemoryKnobs::default() },
        QosClass::Burstable => MemoryKnobs { low: rounded, ..MemoryKnobs::default() },
        QosClass::BestEffort => MemoryKnobs::default(),
    }
}

/// `floor((request + f x ((limit or capacity) - request)) / page) x page`. Not written (`None`) when request and
/// limit are equal (both absent included) or the result would not lie above the request.
pub fn high(
    request: Bytes,
    limit: Option<Bytes>,
    capacity: Bytes,
    factor: MemoryHighFactor,
    page: Bytes,
) -> Option<Bytes> {
    let limit_or_zero = limit.unwrap_or(Bytes::ZERO);
    if request == limit_or_zero {
        return None;
    }
    let upper = if limit_or_zero.is_zero() { capacity } else { limit_or_zero };
    let span = u128::from(upper.saturating_sub(request).get());
    let above = span * u128::from(factor.permille()) / 1000;
    let value = to_pages(request.saturating_add(Bytes::new(u64::try_from(above).unwrap_or(u64::MAX))), page);
    (value > request).then_some(value)
}

/// `memory.max`: the limit in whole pages, or unlimited where there is none.
pub fn max(limit: Option<Bytes>, page: Bytes) -> Limit<Bytes> {
    match limit {
        Some(bytes) if !bytes.is_zero() => Limit::Value(to_pages(bytes, page)),
        _ => Limit::Max,
    }
}
