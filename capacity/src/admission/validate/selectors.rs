//! Selectors as the API server takes them (`ValidateNodeSelectorRequirement`; `apimachinery/pkg/apis/meta/v1/validation`).

use super::errors::Faults;
use super::names::{label_value, qualified};
use crate::object::{LabelSelector, NodeSelectorTerm, SelectorRequirement};

/// Labels of an object, or of a selector that names values.
pub(super) fn labels<'a>(
    all: impl IntoIterator<Item = (&'a String, &'a String)>,
    path: &str,
    faults: &mut Faults,
) {
    for (key, value) in all {
        qualified(key).iter().for_each(|why| faults.invalid(path, key, why));
        label_value(value).iter().for_each(|why| faults.invalid(path, value, why));
    }
}

/// A selector of pods or namespaces.
pub(super) fn of_labels(selector: Option<&LabelSelector>, path: &str, faults: &mut Faults) {
    let Some(selector) = selector else { return };
    labels(&selector.match_labels, &format!("{path}.matchLabels"), faults);
    for (index, one) in selector.match_expressions.iter().enumerate() {
        requirement(one, &format!("{path}.matchExpressions[{index}]"), false, faults);
    }
}

/// A term of a selector of nodes.
pub(super) fn of_nodes(term: &NodeSelectorTerm, path: &str, faults: &mut Faults) {
    for (index, one) in term.match_expressions.iter().enumerate() {
        requirement(one, &format!("{path}.matchExpressions[{index}]"), true, faults);
    }
}

fn requirement(written: &SelectorRequirement, path: &str, of_nodes: bool, faults: &mut Faults) {
    let values = format!("{path}.values");
    match written.operator.as_str() {
        "In" | "NotIn" if written.values.is_empty() => {
            faults.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !written.values.is_empty() => {
            faults.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if of_nodes && written.values.len() != 1 => {
            faults.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if of_nodes => {}
        other => faults.invalid(format_args!("{path}.operator"), other, "not a valid selector operator"),
    }
    qualified(&written.key)
        .iter()
        .for_each(|why| faults.invalid(format_args!("{path}.key"), &written.key, why));
    for (index, value) in written.values.iter().enumerate() {
        label_value(value)
            .iter()
            .for_each(|why| faults.invalid(format_args!("{values}[{index}]"), value, why));
    }
}
