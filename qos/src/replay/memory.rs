//! Protection, limits, swap and the cap of all workloads again.

use evenkeel_model::units::{Bytes, Limit};

use super::inputs::{Case, Unreplayable};
use crate::config::MemoryHighFactor;
use crate::memory::{self, Protection};
use crate::reserve::CapInput;

/// The one value of the class; on v1 it is the soft limit, whichever kind it is.
pub(super) fn protection(case: &Case<'_>) -> Result<String, Unreplayable> {
    let made = memory::protection(case.class()?, case.bytes("memory_request")?, case.bytes("page")?);
    let value = match (case.knob(), made) {
        ("memory.low", Some(Protection::Min(_))) | ("memory.min", Some(Protection::Low(_))) | (_, None) => {
            Bytes::ZERO
        }
        (_, Some(Protection::Min(bytes) | Protection::Low(bytes))) => bytes,
    };
    Ok(value.get().to_string())
}

pub(super) fn sum(case: &Case<'_>) -> Result<String, Unreplayable> {
    Ok(case.bytes("children_sum")?.get().to_string())
}

pub(super) fn high(case: &Case<'_>) -> Result<String, Unreplayable> {
    let factor =
        MemoryHighFactor::new(case.get("factor_permille")?).map_err(|e| Unreplayable(e.to_string()))?;
    let (request, limit) = (case.bytes("memory_request")?, case.known_bytes("memory_limit")?);
    let value = memory::high(request, limit, case.bytes("memory_capacity")?, factor, case.bytes("page")?);
    Ok(value.map_or_else(|| "max".to_owned(), |bytes| bytes.get().to_string()))
}

pub(super) fn limit(case: &Case<'_>) -> Result<String, Unreplayable> {
    Ok(case.limit_text(memory::max(case.known_bytes("memory_limit")?, case.bytes("page")?)))
}

pub(super) fn oom_group(case: &Case<'_>) -> Result<String, Unreplayable> {
    Ok(u8::from(case.text("oom_kill")? == "container").to_string())
}

/// Swap alone on v2; on v1 memory and swap together.
pub(super) fn swap(case: &Case<'_>) -> Result<String, Unreplayable> {
    let page = case.bytes("page")?;
    let limit = case.known_bytes("memory_limit")?;
    let swap = memory::swap(
        case.class()?,
        case.bytes("memory_request")?,
        limit,
        case.bytes("memory_capacity")?,
        case.bytes("swap_total")?,
        page,
    );
    Ok(match case.knob() {
        "memory.memsw.limit_in_bytes" => case.limit_text(memory::with_swap(memory::max(limit, page), swap)),
        _ => case.limit_text(Limit::Value(swap)),
    })
}

pub(super) fn cap(case: &Case<'_>) -> Result<String, Unreplayable> {
    let previous = case.known_bytes("previous_cap")?.zip(case.known_bytes("step")?);
    let input = CapInput {
        memory: case.bytes("memory_capacity")?,
        configured: case.bytes("configured_reserve")?,
        daemons_p99: case.known_bytes("daemons_p99")?,
        is_trusted: case.get("trusted")?,
        margin_percent: case.get("margin_percent")?,
        workloads: case.bytes("workloads_use")?,
        previous,
        page: case.bytes("page")?,
    };
    Ok(input.cap().get().to_string())
}
