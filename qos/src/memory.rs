//! Memory protection and limits: `memory.min`, `low`, `high` and `max`.
//!
//! Owned here: the values (KEP-2570, policy TieredReservation), rounded down to pages as the kernel itself
//! does, so that what is read back equals what was wished. Not owned: ancestors, which may take the effect away.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit};

use crate::config::MemoryHighFactor;

/// How the kernel keeps a container's requested memory: the one knob its class has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// `memory.min`, never reclaimed: the request of a guaranteed container.
    Min(Bytes),
    /// `memory.low`, reclaimed last: the request of a burstable container.
    Low(Bytes),
}

/// Rounds down to whole pages.
pub fn to_pages(value: Bytes, page: Bytes) -> Bytes {
    Bytes::new(value.get() - value.get().checked_rem(page.get()).unwrap_or(0))
}

/// Protection for a container of `class` with `request`; `None` where nothing is requested.
pub fn protection(class: QosClass, request: Bytes, page: Bytes) -> Option<Protection> {
    if request.is_zero() {
        return None;
    }
    let rounded = to_pages(request, page);
    match class {
        QosClass::Guaranteed => Some(Protection::Min(rounded)),
        QosClass::Burstable => Some(Protection::Low(rounded)),
        QosClass::BestEffort => None,
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

/// Swap a container may use (KEP-2400, `LimitedSwap`): `trunc(request x swap / capacity)` in whole pages for a
/// burstable one that may use more than it requests, nothing for all others.
pub fn swap(
    class: QosClass,
    request: Bytes,
    limit: Option<Bytes>,
    capacity: Bytes,
    swap_total: Bytes,
    page: Bytes,
) -> Bytes {
    if class != QosClass::Burstable || request.is_zero() || limit == Some(request) {
        return Bytes::ZERO;
    }
    let part = u128::from(request.get()) * u128::from(swap_total.get());
    let part = part.checked_div(u128::from(capacity.get())).unwrap_or(0);
    // More than the machine requested is still no more swap than there is.
    let part = Bytes::new(u64::try_from(part).unwrap_or(u64::MAX)).min(swap_total);
    to_pages(part, page)
}

/// Memory and swap together, as v1 counts them (`memory.memsw.limit_in_bytes`): the memory limit and the swap
/// limit; unlimited where memory is.
pub fn with_swap(memory_max: Limit<Bytes>, swap_max: Bytes) -> Limit<Bytes> {
    match memory_max {
        Limit::Value(bytes) => Limit::Value(bytes.saturating_add(swap_max)),
        Limit::Max => Limit::Max,
    }
}

/// `memory.max`: the limit in whole pages, or unlimited where there is none.
pub fn max(limit: Option<Bytes>, page: Bytes) -> Limit<Bytes> {
    match limit {
        Some(bytes) if !bytes.is_zero() => Limit::Value(to_pages(bytes, page)),
        _ => Limit::Max,
    }
}
