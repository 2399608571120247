//! Owns what is recommended to the pods that objects mean: of each container what the rule in force says of its workloads together, without
//! limits, limit ranges and quotas, which who applies it looks at. Where that is known for less than two days, what a checkpoint knows counts,
//! too.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use evenkeel_kubernetes::objects::{Amounts, Autoscaler, Checkpoint, ObjectPods, Recommended};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::rule::Answer;
use evenkeel_rightsizing::vpa::{self, Estimator, Saved};
use evenkeel_store::pace::Pace;

use super::checkpoints::{self, Known};
use super::find::Means;
use crate::api::Context;
use crate::recommend::Desk;
use crate::recommend::advice::index;
use crate::recommend::list::{self, WorkloadContainer};

/// Lines by namespace and workload.
type Lines<'a> = HashMap<(&'a str, &'a str), Vec<&'a WorkloadContainer>>;

/// What came of an object.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) object: Arc<Autoscaler>,
    pub(super) found: ObjectPods,
    /// Its containers' pasts, where they are to be written as checkpoints.
    pub(super) checkpoints: Vec<Checkpoint>,
}

/// What is recommended to each; the checkpoints of those that are `due` (by uid), too.
pub(super) fn all(
    context: &Context,
    cluster: &str,
    means: Vec<Means>,
    due: &BTreeSet<String>,
) -> Vec<Answered> {
    let wanted: HashSet<(&str, &str)> = means.iter().flat_map(places).collect();
    let lines = context.at_desk(|desk| list::lines(desk.state, ""));
    let mut by_workload: Lines<'_> = HashMap::new();
    for line in lines.iter().filter(|line| line.asked.cluster.as_deref() == Some(cluster)) {
        let place = (line.asked.namespace.as_str(), line.asked.workload.as_str());
        if wanted.contains(&place) {
            by_workload.entry(place).or_default().push(line);
        }
    }
    let (mut found, mut rest, mut pace) =
        (Vec::with_capacity(means.len()), means.iter().peekable(), Pace::start());
    while rest.peek().is_some() {
        context.at_desk(|desk| {
            for one in rest.by_ref() {
                let is_due = due.contains(&one.object.metadata.uid);
                found.push(Answered {
                    object: Arc::clone(&one.object),
                    found: answer(desk, &by_workload, one),
                    checkpoints: if is_due { checkpoints(desk, &by_workload, one) } else { Vec::new() },
                });
                if pace.is_due() {
                    break;
                }
            }
        });
        // Ingest goes on meanwhile.
        pace.rest();
    }
    found
}

fn places(means: &Means) -> impl Iterator<Item = (&str, &str)> {
    means.workloads.iter().map(|workload| (means.object.metadata.namespace.as_str(), workload.as_str()))
}

/// Whether a container counts: of what a workload had before nothing is recommended while its pods are known.
fn runs(means: &Means, container: &str) -> bool {
    means.containers.is_empty() || means.containers.contains(container)
}

fn lines_of<'a>(lines: &'a Lines<'_>, means: &'a Means) -> Vec<&'a WorkloadContainer> {
    let all = places(means).filter_map(|place| lines.get(&place)).flatten().copied();
    all.filter(|line| runs(means, &line.asked.container)).collect()
}

/// What checkpoints know of containers, where they count.
fn known(means: &Means) -> impl Iterator<Item = (&str, &Known)> {
    let all = means.known.iter().map(|(name, known)| (name.as_str(), known));
    all.filter(|(name, _)| runs(means, name))
}

fn answer(desk: &Desk<'_>, lines: &Lines<'_>, means: &Means) -> ObjectPods {
    let mut containers: BTreeMap<&str, [Option<Answer>; 2]> = BTreeMap::new();
    let all = lines_of(lines, means);
    let names = all.iter().map(|line| line.asked.container.as_str());
    let parts = parts(&means.object, names.chain(known(means).map(|(name, _)| name)));
    let rule_of = |line: &WorkloadContainer| {
        list::governing(desk, line).0.map_or(&desk.advisor.default, |governing| governing.rule)
    };
    for line in &all {
        let rule = rule_of(line);
        let raw = desk.raw(&line.asked, &rule.of_pod(parts), line.now.requests);
        let before = containers.entry(&line.asked.container).or_default();
        raw.answers.iter().zip(before).for_each(|(answer, before)| greater(before, answer));
    }
    for (name, saved) in known(means) {
        let own = containers.entry(name).or_default();
        let line = all.iter().find(|line| line.asked.container == name);
        let rule = line.map_or(&desk.advisor.default, |line| rule_of(line));
        let params = rule.beside_checkpoints(parts);
        for resource in Resource::ALL {
            let own = &mut own[index(resource)];
            // Where the own store knows enough, it is the truth.
            if own.as_ref().is_none_or(|own| !own.evidence().is_enough()) {
                let of = all.iter().copied().filter(|line| line.asked.container == name);
                let after = estimated(desk, of, resource, params, Some(&saved[index(resource)]));
                greater(own, &after.answer(None));
            }
        }
    }
    let containers = containers.into_iter().map(|(name, answers)| recommended(name, &answers));
    ObjectPods {
        has_pods: !means.containers.is_empty(),
        trouble: means.trouble.clone(),
        containers: containers.collect(),
    }
}

/// One recommendation has to do for all: the greatest.
fn greater(before: &mut Option<Answer>, answer: &Answer) {
    if answer.request > before.as_ref().and_then(|before| before.request) {
        *before = Some(answer.clone());
    }
}

/// What the Vertical Pod Autoscaler would keep of a container: what is saved of it, and the past of its workloads after that.
fn estimated<'a>(
    desk: &Desk<'_>,
    lines: impl Iterator<Item = &'a WorkloadContainer>,
    resource: Resource,
    params: vpa::VpaParams,
    saved: Option<&Saved>,
) -> Estimator {
    let new = || match saved {
        Some(saved) => Estimator::of_saved(params, resource, saved),
        None => Estimator::new(params, resource),
    };
    let mut all: Option<Estimator> = None;
    for line in lines {
        match &mut all {
            // What is saved counts once.
            Some(all) => all.merge(&desk.estimator(&line.asked, resource, &params, None)),
            None => all = Some(desk.estimator(&line.asked, resource, &params, saved)),
        }
    }
    all.unwrap_or_else(new)
}

/// The checkpoints of an object's containers. What the own store does not know goes on to be told.
fn checkpoints(desk: &Desk<'_>, lines: &Lines<'_>, means: &Means) -> Vec<Checkpoint> {
    let all = lines_of(lines, means);
    let names: BTreeSet<&str> = all
        .iter()
        .map(|line| line.asked.container.as_str())
        .chain(known(means).map(|(name, _)| name))
        .collect();
    let of = |name: &&str| {
        let params = vpa::VpaParams::default();
        let estimators = Resource::ALL.map(|resource| {
            let lines = || all.iter().copied().filter(|line| line.asked.container == *name);
            let own = estimated(desk, lines(), resource, params, None);
            match means.known.get(*name).filter(|_| !own.answer(None).evidence().is_enough()) {
                Some(saved) => estimated(desk, lines(), resource, params, Some(&saved[index(resource)])),
                None => own,
            }
        });
        checkpoints::checkpoint(&means.object, name, &estimators, desk.now_usec / 1_000)
    };
    names.iter().map(of).filter(|checkpoint| checkpoint.status.total_samples_count > 0).collect()
}

/// Over how many containers a pod's least is split: those that are recommended something.
fn parts<'a>(object: &Autoscaler, containers: impl Iterator<Item = &'a str>) -> usize {
    let is_on = |name: &&str| object.container(name).is_none_or(|policy| !policy.is_off());
    containers.filter(is_on).collect::<HashSet<_>>().len()
}

fn recommended(name: &str, answers: &[Option<Answer>; 2]) -> Recommended {
    let amounts = |resource: Resource| {
        let answer = answers[index(resource)].as_ref()?;
        Some(Amounts { target: answer.request?, lower: answer.lower, upper: answer.upper })
    };
    Recommended {
        container: name.to_owned(),
        cpu: amounts(Resource::Cpu),
        memory: amounts(Resource::Memory),
        is_young: answers.iter().flatten().any(|answer| !answer.evidence().is_enough()),
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_rightsizing::policy::Goals;
    use serde_json::{Map, json};

    use super::*;
    use crate::recommend::rules::choose;

    #[test]
    fn the_least_of_a_pod_is_split_over_what_is_recommended_something() {
        let spec =
            json!({ "resourcePolicy": { "containerPolicies": [{ "containerName": "log", "mode": "Off" }] } });
        let object = json!({ "metadata": { "name": "a", "namespace": "n" }, "spec": spec });
        let object = Autoscaler::read(object.to_string().as_bytes()).unwrap();
        for (containers, want) in
            [(&["main"][..], 1), (&["main", "log"], 1), (&["main", "side", "log", "side"], 2)]
        {
            assert_eq!(parts(&object, containers.iter().copied()), want, "{containers:?}");
        }
    }

    #[test]
    fn only_the_rule_with_a_least_of_a_pod_is_another_one_for_its_containers() {
        let rule = |name: &str| choose(name, &Map::new(), &Goals::default(), &Default::default()).unwrap();
        for (name, containers, is_same) in
            [("goal", 3, true), ("initial", 3, true), ("vpa", 1, true), ("vpa", 0, true), ("vpa", 2, false)]
        {
            let rule = rule(name);
            assert_eq!(rule.of_pod(containers).key() == rule.key(), is_same, "{name} {containers}");
            let least = rule.beside_checkpoints(containers).min_memory_bytes;
            assert_eq!(
                least,
                if name == "vpa" { (250 << 20) / containers.max(1) as u64 } else { 0 },
                "{name}"
            );
        }
    }
}
