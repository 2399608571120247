//! The numbers of a decision as text by name, and the decision made again from them.

use std::collections::BTreeMap;
use std::str::FromStr;

use evenkeel_model::qos_class::QosClass;

use super::machine::{Action, Deed};
use super::rule::{Case, Squeeze, Starving, squeeze, starves};

type Inputs = BTreeMap<String, String>;

impl Action {
    /// All numbers it was decided by.
    pub fn inputs(&self) -> Inputs {
        let mut all = match &self.deed {
            Deed::Report(case) | Deed::Evict(case) => starving(case),
            Deed::Squeeze(_, case, _) => offender(case),
            Deed::Release(step) => {
                Inputs::from([("formula".into(), "squeeze-release".into()), ("step".into(), step.value())])
            }
        };
        all.insert("for_usec".to_owned(), self.for_usec.to_string());
        all
    }

    /// Why, in a sentence.
    pub fn reason(&self) -> String {
        let seconds = self.for_usec / 1_000_000;
        match &self.deed {
            Deed::Report(case) => format!(
                "it uses {}m of {}m requested although it waits for CPU, for {seconds} s",
                case.usage_milli, case.request_milli
            ),
            Deed::Squeeze(step, case, _) => {
                let what = match step {
                    Squeeze::Weight => "it gets the least weight".to_owned(),
                    Squeeze::Idle => "it runs when nobody else wants to".to_owned(),
                    Squeeze::Quota(milli) => format!("it gets {milli}m at most"),
                };
                format!(
                    "another container has not got the CPU it requested for {seconds} s; this {} one uses {}m, {}m too much: {what}",
                    case.class,
                    case.usage_milli,
                    case.over()
                )
            }
            Deed::Release(_) => format!("nobody has starved for {seconds} s"),
            Deed::Evict(_) => {
                format!("a container has starved for {seconds} s, and nobody is left to be squeezed")
            }
        }
    }

    /// What a decision shows as the new value.
    pub fn value(&self) -> String {
        match &self.deed {
            Deed::Report(_) => "starving".to_owned(),
            Deed::Squeeze(step, ..) => step.value(),
            Deed::Release(_) => "released".to_owned(),
            Deed::Evict(_) => "evict".to_owned(),
        }
    }
}

fn starving(case: &Starving) -> Inputs {
    let mut all = Inputs::new();
    let mut put = |name: &str, value: String| all.insert(name.to_owned(), value);
    put("formula", "starves".to_owned());
    put("request_milli", case.request_milli.to_string());
    put("usage_milli", case.usage_milli.to_string());
    if let Some(waited) = case.waited {
        put("waited", waited.to_string());
    }
    put("throttled", case.throttled.to_string());
    put("node_busy", case.node_busy.to_string());
    put("below", case.below.to_string());
    put("pressure", case.pressure.to_string());
    put("busy", case.busy.to_string());
    all
}

fn offender(case: &Case) -> Inputs {
    let mut all = Inputs::new();
    let mut put = |name: &str, value: String| all.insert(name.to_owned(), value);
    put("formula", "squeeze".to_owned());
    put("managed", case.managed.to_string());
    put("class", case.class.to_string());
    put("request_milli", case.request_milli.to_string());
    put("usage_milli", case.usage_milli.to_string());
    put("least_weight", case.least_weight.to_string());
    put("can_idle", case.can_idle.to_string());
    put("can_quota", case.can_quota.to_string());
    if let Some(quota) = case.quota_milli {
        put("quota_milli", quota.to_string());
    }
    put("floor_milli", case.floor_milli.to_string());
    all
}

fn get<T: FromStr>(all: &Inputs, name: &str) -> Option<T> {
    all.get(name)?.parse().ok()
}

/// What the inputs of a `Starved` decision lead to by the present rule: `starving` or `none`; `None` when they are not
/// such inputs.
pub fn replay_starved(all: &Inputs) -> Option<String> {
    if all.get("formula").map(String::as_str) != Some("starves") {
        return None;
    }
    let case = Starving {
        request_milli: get(all, "request_milli")?,
        usage_milli: get(all, "usage_milli")?,
        waited: get(all, "waited"),
        throttled: get(all, "throttled")?,
        node_busy: get(all, "node_busy")?,
        below: get(all, "below")?,
        pressure: get(all, "pressure")?,
        busy: get(all, "busy")?,
    };
    Some(if starves(&case) { "starving" } else { "none" }.to_owned())
}

/// The same for a `Relieve` decision of the starvation loop.
pub fn replay_squeeze(all: &Inputs) -> Option<String> {
    if all.get("formula").map(String::as_str) != Some("squeeze") {
        return None;
    }
    let class = all.get("class")?;
    let classes = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];
    let case = Case {
        managed: get(all, "managed")?,
        class: classes.into_iter().find(|c| c.as_str() == class)?,
        request_milli: get(all, "request_milli")?,
        usage_milli: get(all, "usage_milli")?,
        least_weight: get(all, "least_weight")?,
        can_idle: get(all, "can_idle")?,
        quota_milli: get(all, "quota_milli"),
        floor_milli: get(all, "floor_milli")?,
        can_quota: get(all, "can_quota")?,
    };
    Some(squeeze(&case).map_or_else(|| "none".to_owned(), |step| step.value()))
}
