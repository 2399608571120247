//! Answers of kube-scheduler v1.36.2, recorded on generated snapshots: count, places, order, message, scores.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_capacity::engine::step::Placer;
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object;
use evenkeel_capacity::plugin::Code;
use evenkeel_capacity::profile::Profile;
use evenkeel_capacity::state::ClusterState;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Samples {
    rows: Vec<Sample>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sample {
    name: String,
    limit: u64,
    input: Value,
    count: usize,
    per_node: BTreeMap<String, usize>,
    message: String,
    sequence: Vec<String>,
    final_statuses: Option<BTreeMap<String, Status>>,
    steps: Vec<SampleStep>,
}

#[derive(Deserialize)]
struct Status {
    code: Code,
    reasons: Vec<String>,
}

#[derive(Deserialize)]
struct SampleStep {
    best: Vec<String>,
    feasible: BTreeMap<String, SampleScore>,
}

#[derive(Deserialize)]
struct SampleScore {
    total: i64,
    weighted: BTreeMap<String, i64>,
}

#[test]
fn the_step_loop_answers_as_the_scheduler_does() {
    let samples: Samples = serde_json::from_str(include_str!("data/scheduler_samples.json")).unwrap();
    let wrong: Vec<String> = samples.rows.iter().filter_map(|sample| check(sample).err()).collect();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), samples.rows.len(), wrong.join("\n"));
}

fn check(sample: &Sample) -> Result<(), String> {
    let mut loader = Loader::new();
    loader.document(&sample.input).map_err(|e| format!("{}: {e}", sample.name))?;
    let (mut cluster, _) = loader.finish();
    let pod: object::Pod = serde_json::from_value(sample.input["pod"].clone()).map_err(|e| e.to_string())?;
    let pod = Arc::new(cluster.shape(&pod).map_err(|e| e.to_string())?);
    let profile = Profile::default();
    let mut state = ClusterState::new(&cluster);
    let name = |node: &usize| cluster.word(cluster.nodes[*node].name).to_owned();
    let limit = (sample.limit > 0).then_some(sample.limit);
    // Two loops: one asks every node anew for every pod, one looks at what changed.
    let mut quick_state = state.clone();
    let quick =
        Placer::new(&cluster, &profile, &mut quick_state, Arc::clone(&pod)).run(&mut quick_state, limit);
    let mut placer = Placer::new(&cluster, &profile, &mut state, pod).plain();
    let (mut steps, mut sequence) = (Vec::new(), Vec::new());
    while limit.is_none_or(|limit| (sequence.len() as u64) < limit) {
        let step = placer.look(&state);
        let best = step.best.first().copied();
        if steps.len() < sample.steps.len() {
            steps.push(step);
        }
        let Some(best) = best else { break };
        placer.place(&mut state, best);
        sequence.push(best);
    }
    let rejections = (Some(sequence.len() as u64) != limit).then(|| placer.rejections(&state));
    if quick != sequence {
        return Err(format!("{}: the quick loop went another way: {quick:?}, not {sequence:?}", sample.name));
    }
    let sequence: Vec<String> = sequence.iter().map(&name).collect();
    let same = |what: &str, got: String, wanted: String| {
        if got == wanted {
            Ok(())
        } else {
            Err(format!("{} {what}:\n  got    {got}\n  wanted {wanted}", sample.name))
        }
    };
    for (at, (got, wanted)) in steps.iter().zip(&sample.steps).enumerate() {
        let feasible: Vec<String> = got.feasible.iter().map(&name).collect();
        same(
            &format!("step {at} feasible"),
            format!("{feasible:?}"),
            format!("{:?}", wanted.feasible.keys().collect::<Vec<_>>()),
        )?;
        for (index, (node, score)) in feasible.iter().zip(&got.scores.totals).enumerate() {
            let recorded = &wanted.feasible[node];
            let got: BTreeMap<&str, i64> =
                got.scores.by_plugin.iter().map(|(plugin, scores)| (*plugin, scores[index])).collect();
            let wanted: BTreeMap<&str, i64> = recorded
                .weighted
                .iter()
                .filter(|(name, _)| *name != "DynamicResources")
                .map(|(n, s)| (n.as_str(), *s))
                .collect();
            same(&format!("step {at} scores of {node}"), format!("{got:?}"), format!("{wanted:?}"))?;
            same(&format!("step {at} total of {node}"), score.to_string(), recorded.total.to_string())?;
        }
        let best: Vec<String> = got.best.iter().map(&name).collect();
        same(&format!("step {at} best"), format!("{best:?}"), format!("{:?}", wanted.best))?;
    }
    same("sequence", format!("{sequence:?}"), format!("{:?}", sample.sequence))?;
    same("count", sequence.len().to_string(), sample.count.to_string())?;
    let mut per_node: BTreeMap<String, usize> = BTreeMap::new();
    for node in sequence {
        *per_node.entry(node).or_default() += 1;
    }
    same("per node", format!("{per_node:?}"), format!("{:?}", sample.per_node))?;
    match (rejections, &sample.final_statuses) {
        (None, None) => same("message", "LimitReached".into(), sample.message.clone()),
        (Some(rejections), Some(statuses)) => {
            for (node, rejection) in rejections.iter().enumerate() {
                let Some(rejection) = rejection else {
                    return Err(format!("{}: {} would take it", sample.name, name(&node)));
                };
                let wanted = &statuses[&name(&node)];
                let sorted = |mut reasons: Vec<String>| {
                    reasons.sort();
                    format!("{reasons:?}")
                };
                let got = sorted(rejection.reasons(&cluster));
                same(&format!("reasons of {}", name(&node)), got, sorted(wanted.reasons.clone()))?;
                same(
                    &format!("code of {}", name(&node)),
                    format!("{:?}", rejection.code()),
                    format!("{:?}", wanted.code),
                )?;
            }
            Ok(())
        }
        (rejections, _) => {
            Err(format!("{}: ended with {rejections:?}, wanted {}", sample.name, sample.message))
        }
    }
}
