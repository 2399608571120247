//! The class of a container again.

use evenkeel_model::workload::ContainerResources;

use super::inputs::{Case, Unreplayable};
use crate::container::class_by;

/// The class under the rules in force; `none` where nothing is known.
pub(super) fn class(case: &Case<'_>) -> Result<String, Unreplayable> {
    let resources = ContainerResources {
        cpu_request: case.known_milli("cpu_request_milli")?,
        cpu_limit: case.known_milli("cpu_limit_milli")?,
        memory_request: case.known_bytes("memory_request")?,
        memory_limit: case.known_bytes("memory_limit")?,
    };
    let is_estimated: bool = case.get("estimated")?;
    let by_record = case.known_class("record_class")?;
    let of_pod = case.known_class("pod_class")?;
    let class = class_by(case.rules()?, &resources, is_estimated.then_some(by_record), of_pod);
    Ok(class.map_or_else(|| "none".to_owned(), |class| class.to_string()))
}
