//! `evenkeel describe`: one container of the agent, with every knob and its reason, or one decision with what came before it; and what a recommender
//! that answers did to the pod, or why it left it alone.

use clap::Args;
use evenkeel_proto::v1::watch_decisions_response::Event as Watched;
use evenkeel_proto::v1::{ListContainersRequest, WatchDecisionsRequest};
use serde::Serialize;

use crate::client::{self, Address, Peers};
use crate::commands::status::ContainerRow;
use crate::commands::updates::{self, Updates};
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Table, clean};
use crate::wire::DecisionEvent;

/// Decisions shown with a pod, the newest.
const SHOWN: u32 = 5;
/// Kinds of these: what shortness of memory or CPU did to it.
const KINDS: [&str; 7] = ["oom-kill", "relieve", "kill", "starved", "thrash", "evict", "restart"];
/// Input with the use in the seconds before a decision.
const SAMPLES: &str = "samples";

/// Show the containers of one pod: class, cgroup, every knob with its value and reason, and the last decisions for want of
/// memory or CPU; or one decision with the minute before it. Where a recommender answers: the last step of its updater about the pod, why it
/// leaves it alone, and what the kubelet says went wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel describe web
  evenkeel describe shop/web app -o json
  evenkeel describe --workload shop/deployment/web
  evenkeel describe --decision 4711")]
pub(crate) struct DescribeArgs {
    /// The pod: NAME or NAMESPACE/NAME.
    #[arg(required_unless_present_any = ["decision", "workload"])]
    pod: Option<String>,
    /// Only this container.
    container: Option<String>,
    /// The decision of this number (SEQ of `evenkeel events -o wide`).
    #[arg(long, value_name = "SEQ", conflicts_with = "pod", value_parser = clap::value_parser!(u64).range(1..))]
    decision: Option<u64>,
    /// A workload of a cluster: what the updater of its recommender did last, and why it is left alone.
    #[arg(long, value_name = "NAMESPACE/KIND/NAME", conflicts_with_all = ["pod", "decision"])]
    workload: Option<String>,
}

/// A container and what was decided about it.
#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    container: ContainerRow,
    decisions: Vec<DecisionEvent>,
}

/// The same, with what a recommender tells of the pod.
#[derive(Serialize)]
struct ContainerDescription<'a> {
    #[serde(flatten)]
    described: &'a Described,
    #[serde(skip_serializing_if = "Option::is_none")]
    updates: Option<&'a Updates>,
}

pub(crate) async fn run(args: &DescribeArgs, peers: &Peers<'_>, output: &Output) -> Result<YesOrNo, Failure> {
    if let Some(workload) = &args.workload {
        return one_workload(workload, peers.recommender, output).await;
    }
    match (&args.pod, args.decision) {
        (_, Some(seq)) => one_decision(seq, peers.agent, output).await,
        (Some(pod), None) => one_pod(pod, args.container.as_deref(), peers, output).await,
        (None, None) => {
            Err(Failure::usage("nothing to describe", "the command line", "no pod is named", "name one"))
        }
    }
}

/// One container of a pod for people, without colours.
///
/// # Errors
/// When the agent does not answer, or knows none of that name.
pub(crate) async fn told(pod: &str, container: &str, address: &Address) -> Result<String, Failure> {
    let described = described(pod, Some(container), address).await?;
    Ok(described.iter().map(|d| d.text(false)).collect::<Vec<_>>().join("\n"))
}

async fn one_pod(
    pod: &str,
    container: Option<&str>,
    peers: &Peers<'_>,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    let described = described(pod, container, peers.agent).await?;
    let updates = of_pod(pod, peers.recommender).await;
    let told: Vec<ContainerDescription<'_>> = described
        .iter()
        .map(|described| ContainerDescription { described, updates: updates.as_ref() })
        .collect();
    let text = || {
        let mut parts: Vec<String> = described.iter().map(|d| d.text(output.has_colour())).collect();
        parts.extend(updates.as_ref().map(|told| updates::table(told).render(output.has_colour())));
        parts.join("\n")
    };
    output.answer_text(&told, text)?;
    Ok(YesOrNo::Yes)
}

/// What a recommender tells of a pod, where one answers and has something to tell: most agents are asked where there is none.
async fn of_pod(pod: &str, address: &Address) -> Option<Updates> {
    let (namespace, name) = pod.split_once('/').unwrap_or(("", pod));
    let told = Updates::of(namespace, name, address).await.ok()?;
    let told = told.last(|of, _, pod| (namespace.is_empty() || namespace == of) && pod == name);
    (!told.is_empty()).then_some(told)
}

async fn one_workload(workload: &str, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let Some((namespace, name)) = workload.split_once('/').filter(|(_, name)| name.contains('/')) else {
        let remedy = "write it as shop/deployment/web";
        return Err(Failure::usage("nothing to describe", workload, "it is no workload's name", remedy));
    };
    let told = Updates::of(namespace, "", address).await?;
    let told = told.last(|of, workload, _| of == namespace && workload == name);
    output.answer_text(&told, || match told.is_empty() {
        true => format!("{workload}: no step was taken, and nothing is left alone\n"),
        false => updates::table(&told).render(output.has_colour()),
    })?;
    Ok(YesOrNo::Yes)
}

async fn described(pod: &str, container: Option<&str>, address: &Address) -> Result<Vec<Described>, Failure> {
    let mut agent = client::agent(address).await?;
    let answer = agent.list_containers(ListContainersRequest {}).await.map_err(|e| address.failed(&e))?;
    let all = answer.into_inner().containers.into_iter().map(ContainerRow::from);
    let found: Vec<ContainerRow> = all.filter(|c| c.is_named(pod, container)).collect();
    if found.is_empty() {
        let what = container.map_or(pod.to_owned(), |c| format!("{pod}, container {c}"));
        return Err(Failure::new(
            format!("the agent knows no pod {what}"),
            "its containers",
            "no source found it on this node, or it has ended",
            "see evenkeel status for those it knows",
        ));
    }
    let kinds = KINDS.map(str::to_owned).to_vec();
    let request = WatchDecisionsRequest { kinds, pod: pod.to_owned(), limit: SHOWN, ..Default::default() };
    let mut decisions = decisions(request, address).await?;
    // An agent of before knows no kinds.
    decisions.retain(|event| KINDS.contains(&&*event.kind));
    let mut described = Vec::new();
    for container in found {
        let (own, others) = decisions.into_iter().partition(|event| container.is_of(event));
        decisions = others;
        described.push(Described { container, decisions: own });
    }
    Ok(described)
}

async fn one_decision(seq: u64, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let request = WatchDecisionsRequest { from_seq: seq, ..Default::default() };
    let Some(event) = decisions(request, address).await?.into_iter().find(|event| event.seq == seq) else {
        return Err(Failure::new(
            format!("the agent knows no decision {seq}"),
            "its decision log",
            "it was not made yet, or made room for newer ones",
            "see evenkeel events -o wide for those it has",
        ));
    };
    output.answer_text(&event, || decision_text(&event, output.has_colour()))?;
    Ok(YesOrNo::Yes)
}

/// Decisions that are there already; those behind the one that a question begins with are not waited for.
async fn decisions(request: WatchDecisionsRequest, address: &Address) -> Result<Vec<DecisionEvent>, Failure> {
    let mut agent = client::agent(address).await?;
    let wanted = request.from_seq;
    let request = WatchDecisionsRequest { no_follow: true, ..request };
    let mut stream = agent.watch_decisions(request).await.map_err(|e| address.failed(&e))?.into_inner();
    let mut found = Vec::new();
    while let Some(message) = stream.message().await.map_err(|e| address.failed(&e))? {
        match message.event {
            Some(Watched::Decision(decision)) => found.push(DecisionEvent::of(decision, "")),
            Some(Watched::Bookmark(_)) => break,
            Some(Watched::Missed(_)) | None => {}
        }
        if wanted > 0 && found.last().is_some_and(|event| event.seq >= wanted) {
            break;
        }
    }
    Ok(found)
}

impl Described {
    fn text(&self, colour: bool) -> String {
        let mut text = self.container.describe(colour);
        if self.decisions.is_empty() {
            return text;
        }
        let mut table = Table::new(&["TIME", "DECISION", "KIND", "KNOB", "REASON"]);
        for event in &self.decisions {
            table.row(vec![
                event.time.as_deref().unwrap_or("-").into(),
                event.seq.to_string().into(),
                event.kind.as_str().into(),
                event.knob.as_deref().unwrap_or("-").into(),
                event.reason.as_str().into(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render(colour));
        text
    }
}

/// A decision, its numbers, and second by second what came before it.
fn decision_text(event: &DecisionEvent, colour: bool) -> String {
    let or_dash = |text: &Option<String>| clean(text.as_deref().unwrap_or("-"));
    let mut text = format!(
        "decision:    {}\ntime:        {}\npod:         {}\ncontainer:   {}\nkind:        {}\nknob:        {}: {} -> {}\nresult:      \
         {}\nreason:      {}\n\n",
        event.seq,
        or_dash(&event.time),
        or_dash(&event.pod),
        or_dash(&event.container),
        clean(&event.kind),
        or_dash(&event.knob),
        or_dash(&event.old),
        or_dash(&event.new),
        clean(&event.result),
        clean(&event.reason),
    );
    let mut inputs = Table::new(&["INPUT", "VALUE"]);
    for (name, value) in event.inputs.iter().filter(|(name, _)| *name != SAMPLES) {
        inputs.row(vec![name.as_str().into(), value.as_str().into()]);
    }
    text.push_str(&inputs.render(colour));
    if let Some(samples) = event.inputs.get(SAMPLES) {
        let mut table = Table::new(&["BEFORE", "MEMORY", "CPU"]);
        for second in samples.split(", ") {
            let mut words = second.split(' ');
            let mut next = || words.next().unwrap_or("-").into();
            table.row(vec![next(), next(), next()]);
        }
        text.push('\n');
        text.push_str(&table.render(colour));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_proto::v1::Decision;

    #[test]
    fn a_decision_is_told_with_the_seconds_before_it() {
        let inputs = [("samples", "-2s 61Mi 250m, -1s 64Mi"), ("limit_bytes", "67108864")];
        let inputs = inputs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let decision = Decision { seq: 7, kind: "oom-kill".into(), inputs, ..Decision::default() };
        let text = decision_text(&DecisionEvent::of(decision, "n1"), false);
        assert!(text.contains("decision:    7\n"), "{text}");
        assert!(text.contains("limit_bytes   67108864"), "{text}");
        assert!(text.contains("-2s      61Mi     250m\n-1s      64Mi     -\n"), "{text}");
        assert!(!text.contains("samples"), "{text}");
    }
}
