//! Scores again.

use super::inputs::{Case, Unreplayable};
use crate::dynamic::{self, DynamicInput};
use crate::score::{ScoreInput, container_score, infrastructure_score};
use evenkeel_model::units::Bytes;

pub(super) fn container(case: &Case<'_>) -> Result<String, Unreplayable> {
    let input = ScoreInput {
        class: case.class()?,
        memory_request: case.bytes("memory_request")?,
        capacity: case.bytes("memory_capacity")?,
        node_critical: case.get("node_critical")?,
        share: case.known_bytes("pod_share")?.unwrap_or(Bytes::ZERO),
        sidecar_of: case.known_bytes("smallest_regular_request")?,
    };
    Ok(container_score(case.rules()?, &input).value.to_string())
}

pub(super) fn infrastructure(case: &Case<'_>) -> Result<String, Unreplayable> {
    Ok(infrastructure_score(case.rules()?, case.get("pause")?).to_string())
}

pub(super) fn dynamic(case: &Case<'_>) -> Result<String, Unreplayable> {
    let input = DynamicInput {
        rules: case.rules()?,
        capacity: case.bytes("memory_capacity")?,
        request: case.bytes("memory_request")?,
        usage: case.bytes("memory_usage")?,
        largest: case.bytes("largest_process")?,
        rank: case.known("rank")?.zip(case.known("over_request")?),
    };
    Ok(dynamic::score(&input).to_string())
}
