//! Owns what is recommended to the pods that objects mean: of each container what the rule in force says of its workloads together, without
//! limits, limit ranges and quotas, which who applies it looks at.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use evenkeel_kubernetes::objects::{Amounts, Autoscaler, Found, Recommended};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::rule::Answer;
use evenkeel_store::pace::Pace;

use super::find::Means;
use crate::api::Context;
use crate::recommend::Desk;
use crate::recommend::list::{self, Line};

/// Lines by namespace and workload.
type Lines<'a> = HashMap<(&'a str, &'a str), Vec<&'a Line>>;

/// What is recommended to each.
pub(super) fn all(context: &Context, cluster: &str, means: Vec<Means>) -> Vec<(Arc<Autoscaler>, Found)> {
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
                found.push((Arc::clone(&one.object), answer(desk, &by_workload, one)));
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

fn answer(desk: &Desk<'_>, lines: &Lines<'_>, means: &Means) -> Found {
    let mut containers: BTreeMap<&str, [Option<Answer>; 2]> = BTreeMap::new();
    let all = places(means).filter_map(|place| lines.get(&place)).flatten();
    // Of what a workload had before nothing is recommended while its pods are known.
    let runs =
        |line: &&&Line| means.containers.is_empty() || means.containers.contains(&line.asked.container);
    for line in all.filter(runs) {
        let rule = list::governing(desk, line).0.map_or(&desk.advisor.default, |governing| governing.rule);
        let raw = desk.raw(&line.asked, rule, line.now.requests);
        let before = containers.entry(&line.asked.container).or_default();
        for (before, answer) in before.iter_mut().zip(&raw.answers) {
            // One recommendation has to do for all: the greatest.
            if answer.request > before.as_ref().and_then(|before| before.request) {
                *before = Some(answer.clone());
            }
        }
    }
    let containers = containers.into_iter().map(|(name, answers)| recommended(name, &answers));
    Found {
        has_pods: !means.containers.is_empty(),
        trouble: means.trouble.clone(),
        containers: containers.collect(),
    }
}

fn recommended(name: &str, answers: &[Option<Answer>; 2]) -> Recommended {
    let amounts = |resource: Resource| {
        let answer = answers[crate::recommend::advice::index(resource)].as_ref()?;
        Some(Amounts { target: answer.request?, lower: answer.lower, upper: answer.upper })
    };
    Recommended {
        container: name.to_owned(),
        cpu: amounts(Resource::Cpu),
        memory: amounts(Resource::Memory),
        is_young: answers.iter().flatten().any(|answer| !answer.evidence().is_enough()),
    }
}
