//! Owns reading a policy's target: Kubernetes' label selector, none of whose requirements contradict each other.

use evenkeel_model::selector::{LabelSelector, Requirement, Selector, SelectorError, SelectorRequirement};
use serde_json::Value;

use super::PolicyError;
use super::fields::At;

/// What a spec selects: its target, or what the controller that it names selects in its cluster, where that is known.
pub(super) fn of(spec: &At<'_>, labels: Option<&LabelSelector>) -> Result<Selector, PolicyError> {
    match (spec.get("target")?, spec.get("targetRef")?) {
        (Some(target), None) => read(&target),
        (None, Some(controller)) => of_controller(&controller, labels),
        (Some(_), Some(controller)) => Err(controller.error("target is given, too", "keep one of both")),
        (None, None) => {
            spec.required("target", "write target with matchLabels; without it, it selects nothing")?;
            Ok(Selector::default())
        }
    }
}

fn of_controller(at: &At<'_>, labels: Option<&LabelSelector>) -> Result<Selector, PolicyError> {
    at.only(&["apiVersion", "kind", "name"])?;
    for field in ["apiVersion", "kind", "name"] {
        at.required(field, "write apiVersion, kind and name of the controller")?.text()?;
    }
    let Some(labels) = labels else {
        let why = "what a controller selects is known in its cluster alone";
        return Err(at.error(
            why,
            "write target with matchLabels, or make it an object of the cluster: kubectl apply",
        ));
    };
    let selector = Selector::new(labels);
    selector.map_err(|error| at.error(error.to_string(), "correct the selector of the controller"))
}

/// Reads a target; one that can select nothing is an error.
fn read(at: &At<'_>) -> Result<Selector, PolicyError> {
    at.only(&["matchLabels", "matchExpressions"])?;
    let mut written = LabelSelector::default();
    if let Some(labels) = at.get("matchLabels")? {
        match_labels(&labels, &mut written)?;
    }
    if let Some(list) = at.get("matchExpressions")? {
        for item in list.items()? {
            written.match_expressions.push(expression(&item)?);
        }
    }
    let selector = Selector::new(&written)
        .map_err(|error| at.error(error.to_string(), "write a label selector as Kubernetes defines it"))?;
    match selector.contradiction() {
        Some(key) => Err(at.error(
            format!("it selects nothing: what it asks of label {key:?} contradicts itself"),
            "keep requirements that one pod can fulfil together",
        )),
        None => Ok(selector),
    }
}

/// A map, or the document's list of `{key, value}`, in which a key may come again.
fn match_labels(at: &At<'_>, written: &mut LabelSelector) -> Result<(), PolicyError> {
    if at.value.is_array() {
        for item in at.items()? {
            item.only(&["key", "value"])?;
            let key = item.required("key", "write the label's key")?.text()?.to_owned();
            let value = label_value(&item.required("value", "write the label's value")?)?;
            let (operator, values) = ("In".to_owned(), vec![value.to_owned()]);
            written.match_expressions.push(SelectorRequirement { key, operator, values });
        }
        return Ok(());
    }
    for key in at.map()?.keys() {
        let value = label_value(&at.required(key, "write the label's value")?)?;
        written.match_labels.insert(key.clone(), value.to_owned());
    }
    Ok(())
}

/// A label may have an empty value, but it is a string.
fn label_value<'a>(at: &At<'a>) -> Result<&'a str, PolicyError> {
    at.value.as_str().ok_or_else(|| at.error("a label's value is a string", "put it in quotes"))
}

fn expression(at: &At<'_>) -> Result<SelectorRequirement, PolicyError> {
    const OPERATORS: &str = "write In, NotIn, Exists or DoesNotExist";
    at.only(&["key", "operator", "values"])?;
    let key = at.required("key", "write the label's key")?.text()?.to_owned();
    let operator = at.required("operator", OPERATORS)?;
    let values = at.get("values")?;
    let listed = values.as_ref().map(At::items).transpose()?.unwrap_or_default();
    let written = SelectorRequirement {
        key,
        operator: operator.text()?.to_owned(),
        values: listed.iter().map(|v| label_value(v).map(str::to_owned)).collect::<Result<_, _>>()?,
    };
    match Requirement::of_labels(&written, str::to_owned) {
        Ok(_) => Ok(written),
        Err(SelectorError::Operator(other)) => {
            Err(operator.error(format!("{other:?} is none of its words"), OPERATORS))
        }
        Err(SelectorError::Values { .. }) => {
            let (why, remedy) = match listed.as_slice() {
                [] => ("it selects nothing: no value is given", "list at least one"),
                _ => ("this operator takes no values", "leave values away"),
            };
            let absent = At { path: format!("{}.values", at.path), value: &Value::Null };
            Err(values.unwrap_or(absent).error(why, remedy))
        }
    }
}
