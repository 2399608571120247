//! Owns the label selector: Kubernetes' `matchLabels` and `matchExpressions`, all of which must hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PolicyError;
use super::fields::At;

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// It is there, with one of the values.
    In,
    /// It is not there, or with none of the values.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Key of the label.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what; empty where the operator takes none.
    pub values: Vec<String>,
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values.iter().any(|v| v == value));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// Which pods: those for which every requirement holds. Without any, all pods of the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    /// The requirements; those of `matchLabels` first.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether a pod of these labels is selected.
    pub fn matches<'a>(&self, labels: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| r.holds(labels(&r.key)))
    }

    /// A label that every selected pod has with this one value, where there is one: what an index may look by.
    pub fn one_label(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|r| match (r.operator, r.values.as_slice()) {
            (Operator::In, [value]) => Some((r.key.as_str(), value.as_str())),
            _ => None,
        })
    }

    /// The key about which requirements contradict each other, so that no pod at all can be selected.
    pub fn contradiction(&self) -> Option<&str> {
        let mut by_key: BTreeMap<&str, Vec<&Requirement>> = BTreeMap::new();
        for requirement in &self.requirements {
            by_key.entry(&requirement.key).or_default().push(requirement);
        }
        let impossible = |all: &[&Requirement]| {
            let mut candidates = all.iter().filter(|r| r.operator == Operator::In).flat_map(|r| &r.values);
            let some_value = candidates.any(|value| all.iter().all(|r| r.holds(Some(value))));
            let has_list = all.iter().any(|r| r.operator == Operator::In);
            // Without a list of values there is always a further value that nothing excludes.
            let present =
                if has_list { some_value } else { all.iter().all(|r| r.operator != Operator::DoesNotExist) };
            let absent = all.iter().all(|r| r.holds(None));
            !present && !absent
        };
        by_key.into_iter().find(|(_, all)| impossible(all)).map(|(key, _)| key)
    }

    pub(super) fn read(at: &At<'_>) -> Result<Self, PolicyError> {
        at.only(&["matchLabels", "matchExpressions"])?;
        let mut requirements = Vec::new();
        if let Some(labels) = at.get("matchLabels")? {
            requirements.extend(labels_of(&labels)?);
        }
        if let Some(list) = at.get("matchExpressions")? {
            for item in list.items()? {
                requirements.push(expression(&item)?);
            }
        }
        let selector = Self { requirements };
        match selector.contradiction() {
            Some(key) => Err(at.error(
                format!("it selects nothing: what it asks of label {key:?} contradicts itself"),
                "keep requirements that one pod can fulfil together",
            )),
            None => Ok(selector),
        }
    }
}

/// A map, or the document's list of `{key, value}`.
fn labels_of(at: &At<'_>) -> Result<Vec<Requirement>, PolicyError> {
    let one = |key: &str, value: &str| Requirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: vec![value.to_owned()],
    };
    if at.value.is_array() {
        let read = |item: At<'_>| {
            item.only(&["key", "value"])?;
            let key = item.required("key", "write the label's key")?;
            let value = item.required("value", "write the label's value")?;
            Ok(one(key.text()?, label_value(&value)?))
        };
        return at.items()?.into_iter().map(read).collect();
    }
    let mut all = Vec::new();
    for key in at.map()?.keys() {
        let value = at.required(key, "write the label's value")?;
        all.push(one(key, label_value(&value)?));
    }
    Ok(all)
}

/// A label may have an empty value, but it is a string.
fn label_value<'a>(at: &At<'a>) -> Result<&'a str, PolicyError> {
    at.value.as_str().ok_or_else(|| at.error("a label's value is a string", "put it in quotes"))
}

fn expression(at: &At<'_>) -> Result<Requirement, PolicyError> {
    at.only(&["key", "operator", "values"])?;
    let key = at.required("key", "write the label's key")?.text()?.to_owned();
    let operator = at.required("operator", "write In, NotIn, Exists or DoesNotExist")?;
    let operator: Operator = operator.word("In, NotIn, Exists or DoesNotExist")?;
    let values = at.get("values")?;
    let count = values.as_ref().and_then(|v| v.value.as_array()).map_or(0, Vec::len);
    let takes = matches!(operator, Operator::In | Operator::NotIn);
    if takes != (count > 0) {
        let why =
            if takes { "it selects nothing: no value is given" } else { "this operator takes no values" };
        let at = values.unwrap_or_else(|| At { path: format!("{}.values", at.path), value: &Value::Null });
        return Err(at.error(why, if takes { "list at least one" } else { "leave values away" }));
    }
    let values = match values {
        Some(list) => {
            list.items()?.iter().map(|v| label_value(v).map(str::to_owned)).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    Ok(Requirement { key, operator, values })
}
