//! Owns the rules by name, with the parameters a policy gives them.

use std::borrow::Cow;
use std::sync::Arc;

use evenkeel_rightsizing::history::History;
use evenkeel_rightsizing::policy::{Goals, Policy, merged};
use evenkeel_rightsizing::rule::{Answer, Question, Rule};
use evenkeel_rightsizing::{goal, initial, vpa};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::Recommend;

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
    /// Parameters of the rule `vpa`, whose least is a pod's.
    vpa: Option<vpa::VpaParams>,
    /// It looks at the running state alone: containers request more while they start.
    without_starts: bool,
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
        Self { rule: Arc::new(rule), key, checksum, vpa: None, without_starts: false }
    }

    fn vpa(params: vpa::VpaParams) -> Self {
        Self { vpa: Some(params), ..Self::new(params, &params, "") }
    }

    /// The same for one of so many containers of a pod, where that makes another rule of it.
    pub(crate) fn of_pod(&self, containers: usize) -> Cow<'_, Self> {
        match self.vpa.filter(|_| containers > 1) {
            Some(params) => {
                let own = Self::vpa(params.of_pod(containers));
                Cow::Owned(if self.without_starts { own.without_starts() } else { own })
            }
            None => Cow::Borrowed(self),
        }
    }

    /// The same, which leaves seconds of starts out of the CPU.
    fn without_starts(self) -> Self {
        let key: Arc<str> = format!("{} without starts", self.key).into();
        let checksum = crc32c::crc32c(key.as_bytes());
        Self { key, checksum, without_starts: true, ..self }
    }

    /// Whether seconds of starts are left out of the CPU.
    pub(crate) const fn leaves_starts_out(&self) -> bool {
        self.without_starts
    }

    /// The rule's name.
    pub fn name(&self) -> &'static str {
        self.rule.name()
    }

    /// Whether it may have to read files.
    pub(crate) fn asks_for_minutes(&self) -> bool {
        self.rule.asks_for_minutes()
    }

    /// Whether the rule looks at the last seconds.
    pub(crate) fn looks_at_seconds(&self) -> bool {
        self.rule.looks_at_seconds()
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

impl Chosen {
    /// With what parameters a checkpoint is read beside it, for one of so many containers of a pod: a least is had by the rule `vpa` alone.
    pub(crate) fn beside_checkpoints(&self, containers: usize) -> vpa::VpaParams {
        let bare = vpa::VpaParams { min_cpu_micro: 0, min_memory_bytes: 0, ..vpa::VpaParams::default() };
        self.vpa.map_or(bare, |params| params.of_pod(containers))
    }
}

/// A rule by its name. `goals` go over `parameters`, these over what the configuration says.
///
/// # Errors
/// What is wrong with name, parameters or goals, for people.
pub fn choose(
    name: &str,
    parameters: &Map<String, Value>,
    goals: &Goals,
    config: &Recommend,
) -> Result<Chosen, String> {
    if name != "goal" && *goals != Goals::default() {
        return Err(format!("the rule {name} has no goals; leave them away, or choose goal"));
    }
    match name {
        "goal" => {
            let defaults = aimed(goal::GoalParams::default(), &config.goals.goals());
            let params = aimed(merged(&defaults, parameters)?, goals);
            Ok(Chosen::new(params, &params, ""))
        }
        "vpa" => {
            let params: vpa::VpaParams = merged(&vpa::VpaParams::default(), parameters)?;
            Ok(Chosen::vpa(params))
        }
        "initial" => {
            let mut own = parameters.clone();
            let first = match own.shift_remove(NAMESPACE) {
                None | Some(Value::Bool(false)) => false,
                Some(Value::Bool(true)) => true,
                Some(other) => return Err(format!("{NAMESPACE} is {other}; write true or false")),
            };
            let params: initial::InitialParams = merged(&config.initial(), &own)?;
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

/// Parameters with those goals that are given.
fn aimed(params: goal::GoalParams, goals: &Goals) -> goal::GoalParams {
    goal::GoalParams {
        cpu_fill: goals.cpu_threshold.unwrap_or(params.cpu_fill),
        cpu_over: goals.cpu_over.unwrap_or(params.cpu_over),
        memory_over: goals.memory_over.unwrap_or(params.memory_over),
        ..params
    }
}

/// The rule of a policy: where it gives starts more, seconds of starts say nothing of what the running state needs.
///
/// # Errors
/// As [`choose`].
pub fn of_policy(policy: &Policy, config: &Recommend) -> Result<Chosen, String> {
    let rule = policy.rule.as_deref().unwrap_or(&config.rule);
    let chosen = choose(rule, &policy.parameters, &policy.goals, config)?;
    Ok(if policy.startup.is_some() { chosen.without_starts() } else { chosen })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GoalsSection;

    fn chosen(name: &str, parameters: Value, goals: Goals) -> Result<Chosen, String> {
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        choose(name, &parameters, &goals, &Recommend::default())
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
        for name in NAMES {
            let with = chosen(name, Value::Null, Goals::default()).unwrap();
            let without = with.clone().without_starts();
            assert_ne!((with.key(), with.checksum()), (without.key(), without.checksum()));
            assert!(without.of_pod(2).leaves_starts_out() && !with.of_pod(2).leaves_starts_out(), "{name}");
        }
        let goals = Goals { cpu_over: Some(0.05), ..Goals::default() };
        let goal = chosen("goal", Value::Null, goals).unwrap();
        assert!(goal.key().contains("\"cpuOver\":0.05"), "{goal:?}");
    }

    #[test]
    fn goals_of_the_cluster_hold_where_no_policy_says_otherwise() {
        let cluster =
            GoalsSection { cpu_over: Some(0.05), memory_over: Some(0.02), ..GoalsSection::default() };
        let config = Recommend { goals: cluster, ..Recommend::default() };
        let key = |name: &str, parameters: Value, goals: Goals| {
            let parameters = parameters.as_object().cloned().unwrap_or_default();
            choose(name, &parameters, &goals, &config).unwrap().key().to_string()
        };
        let parameters = serde_json::json!({"memoryOver": 0.03});
        let own = Goals { cpu_over: Some(0.001), ..Goals::default() };
        for (parameters, goals, cpu, memory) in [
            (Value::Null, Goals::default(), 0.05, 0.02),
            (parameters.clone(), Goals::default(), 0.05, 0.03),
            (parameters, own, 0.001, 0.03),
        ] {
            let key = key("goal", parameters, goals);
            assert!(key.contains(&format!("\"cpuOver\":{cpu},\"memoryOver\":{memory}")), "{key}");
        }
        // Rules without goals are not asked for any.
        assert!(choose("vpa", &Map::new(), &Goals::default(), &config).is_ok());
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
