//! Owns the rules by name, with the parameters a policy gives them.

use std::sync::Arc;

use evenkeel_rightsizing::history::History;
use evenkeel_rightsizing::policy::{Goals, Policy, merged};
use evenkeel_rightsizing::rule::{Answer, Question, Rule};
use evenkeel_rightsizing::{goal, initial, vpa};
use serde::Serialize;
use serde_json::{Map, Value};

/// Names of all rules, the default first.
pub const NAMES: [&str; 3] = ["goal", "vpa", "initial"];

/// Parameter of `initial` that is not the rule's own: whether the container's own namespace is looked at first.
const NAMESPACE: &str = "namespace";

/// A rule with its parameters.
#[derive(Clone)]
pub struct Chosen {
    rule: Arc<dyn Rule + Send + Sync>,
    /// Name and parameters: equal for equal rules, for use in keys.
    key: Arc<str>,
    /// Of the key, for what outlives the program.
    checksum: u32,
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.key)
    }
}

impl Chosen {
    pub(super) fn new(
        rule: impl Rule + Send + Sync + 'static,
        params: &impl Serialize,
        variant: &str,
    ) -> Self {
        let text = serde_json::to_string(params).unwrap_or_default();
        let key: Arc<str> = format!("{}{variant} {text}", rule.name()).into();
        let checksum = crc32c::crc32c(key.as_bytes());
        Self { rule: Arc::new(rule), key, checksum }
    }

    /// The rule's name.
    pub fn name(&self) -> &'static str {
        self.rule.name()
    }

    /// Whether it may have to read files.
    pub(crate) fn asks_for_minutes(&self) -> bool {
        self.rule.asks_for_minutes()
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Equal for equal rules, also in another run of the program.
    pub(crate) const fn checksum(&self) -> u32 {
        self.checksum
    }

    pub(crate) fn recommend(&self, question: &Question, history: &dyn History) -> Answer {
        self.rule.recommend(question, history)
    }
}

/// A rule by its name; `defaults` are those of `initial`, which the configuration may change.
///
/// # Errors
/// What is wrong with name, parameters or goals, for people.
pub fn choose(
    name: &str,
    parameters: &Map<String, Value>,
    goals: &Goals,
    defaults: &initial::Params,
) -> Result<Chosen, String> {
    if name != "goal" && *goals != Goals::default() {
        return Err(format!("the rule {name} has no goals; leave them away, or choose goal"));
    }
    match name {
        "goal" => {
            let mut params: goal::Params = merged(&goal::Params::default(), parameters)?;
            params.cpu_fill = goals.cpu_threshold.unwrap_or(params.cpu_fill);
            params.cpu_over = goals.cpu_over.unwrap_or(params.cpu_over);
            params.memory_over = goals.memory_over.unwrap_or(params.memory_over);
            Ok(Chosen::new(params, &params, ""))
        }
        "vpa" => {
            let params: vpa::Params = merged(&vpa::Params::default(), parameters)?;
            Ok(Chosen::new(params, &params, ""))
        }
        "initial" => {
            let mut own = parameters.clone();
            let first = match own.shift_remove(NAMESPACE) {
                None | Some(Value::Bool(false)) => false,
                Some(Value::Bool(true)) => true,
                Some(other) => return Err(format!("{NAMESPACE} is {other}; write true or false")),
            };
            let params: initial::Params = merged(defaults, &own)?;
            Ok(match first {
                true => {
                    Chosen::new(initial::NamespaceFirst(params.clone()), &params, " in its namespace first")
                }
                false => Chosen::new(params.clone(), &params, ""),
            })
        }
        other => Err(format!("{other:?} is no rule; choose one of {}", NAMES.join(", "))),
    }
}

/// The rule of a policy.
///
/// # Errors
/// As [`choose`].
pub fn of_policy(policy: &Policy, default: &str, defaults: &initial::Params) -> Result<Chosen, String> {
    choose(policy.rule.as_deref().unwrap_or(default), &policy.parameters, &policy.goals, defaults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str, parameters: Value, goals: Goals) -> Result<Chosen, String> {
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        choose(name, &parameters, &goals, &initial::Params::default())
    }

    #[test]
    fn rules_are_found_by_name_and_told_apart_by_parameters() {
        for name in NAMES {
            assert_eq!(chosen(name, Value::Null, Goals::default()).unwrap().name(), name);
        }
        let key = |parameters| chosen("initial", parameters, Goals::default()).unwrap().key().clone();
        let plain = key(Value::Null);
        assert_eq!(plain, key(serde_json::json!({"namespace": false})));
        assert_ne!(plain, key(serde_json::json!({"namespace": true})));
        assert_ne!(plain, key(serde_json::json!({"percentilePerMille": 950})));
        let goals = Goals { cpu_over: Some(0.05), ..Goals::default() };
        let goal = chosen("goal", Value::Null, goals).unwrap();
        assert!(goal.key().contains("\"cpuOver\":0.05"), "{goal:?}");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let goals = Goals { cpu_over: Some(0.05), ..Goals::default() };
        let table = [
            (chosen("magic", Value::Null, Goals::default()), "choose one of goal"),
            (chosen("vpa", Value::Null, goals), "no goals"),
            (chosen("vpa", serde_json::json!({"percentile": 1}), Goals::default()), "percentile"),
            (chosen("initial", serde_json::json!({"namespace": 1}), Goals::default()), "true or false"),
        ];
        for (got, want) in table {
            let why = got.unwrap_err();
            assert!(why.contains(want), "{why}");
        }
    }
}
