//! `evenkeel qos`: what the rules say of a pod.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use evenkeel_model::node::NodeFacts;
use evenkeel_model::pod::Pod;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::units::{Bytes, Limit, MilliCpu};
use evenkeel_qos::config::PlanConfig;
use evenkeel_qos::cpu::WeightConversion;
use evenkeel_qos::explain::{ContainerExplanation, PodExplanation, explain_pod};
use evenkeel_qos::rules::RuleSet;

use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, clean};
use crate::{input, machine, units};

/// Questions about quality of service.
#[derive(Debug, Subcommand)]
pub(crate) enum QosCommand {
    Explain(ExplainArgs),
}

/// Say which class each container of a pod is in, what the kernel would be told, and why.
///
/// Scores are relative to the memory of a node: this machine's, unless given.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel qos explain -f pod.yaml
  evenkeel qos explain -f pod.yaml --node-memory 16Gi --node-cpu 8 --rules kubelet -o json
  kubectl get pod web -o yaml | evenkeel qos explain -f -")]
pub(crate) struct ExplainArgs {
    /// Files with pods or pod templates in YAML or JSON; - is standard input.
    #[arg(short, long = "file", required = true, num_args = 1.., value_name = "POD")]
    files: Vec<PathBuf>,
    /// Memory of the node, such as 16Gi.
    #[arg(long, value_parser = memory, value_name = "Q")]
    node_memory: Option<Bytes>,
    /// CPUs of the node, such as 8 or 3500m.
    #[arg(long, value_parser = cpu, value_name = "Q")]
    node_cpu: Option<MilliCpu>,
    /// Rules to judge by.
    #[arg(long, value_enum, default_value_t = RuleSetName::Proposal)]
    rules: RuleSetName,
    /// How the node's container runtime turns shares into cpu.weight.
    #[arg(long, value_enum, default_value_t = Conversion::Quadratic, value_name = "CONVERSION")]
    cpu_weight: Conversion,
}

/// The rule sets by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuleSetName {
    /// Class per container, scores from memory alone.
    Proposal,
    /// Kubernetes 1.36: class per pod, from CPU and memory.
    Kubelet,
}

/// The weight conversions by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Conversion {
    /// A straight line: runc before 1.3.2, crun before 1.23.
    Linear,
    /// A curve with 1024 shares at 100: later ones.
    Quadratic,
    /// systemd's own.
    Systemd,
}

impl From<RuleSetName> for RuleSet {
    fn from(rules: RuleSetName) -> Self {
        match rules {
            RuleSetName::Proposal => Self::Proposal,
            RuleSetName::Kubelet => Self::Kubelet,
        }
    }
}

impl From<Conversion> for WeightConversion {
    fn from(conversion: Conversion) -> Self {
        match conversion {
            Conversion::Linear => Self::Linear,
            Conversion::Quadratic => Self::Quadratic,
            Conversion::Systemd => Self::Systemd,
        }
    }
}

fn positive(text: &str) -> Result<Quantity, String> {
    let quantity = Quantity::parse(text).map_err(|e| e.to_string())?;
    if quantity.is_zero() || quantity.is_negative() {
        return Err("a node has more than nothing of it; write an amount above zero".into());
    }
    Ok(quantity)
}

fn memory(text: &str) -> Result<Bytes, String> {
    let bytes = positive(text)?.to_u64().ok_or("more bytes than a machine can have")?;
    Ok(Bytes::new(bytes))
}

fn cpu(text: &str) -> Result<MilliCpu, String> {
    let milli = positive(text)?.milli_u64().ok_or("more CPUs than a machine can have")?;
    Ok(MilliCpu::new(milli))
}

pub(crate) fn run(command: &QosCommand, output: &Output) -> Result<YesOrNo, Failure> {
    match command {
        QosCommand::Explain(args) => explain(args, output),
    }
}

fn explain(args: &ExplainArgs, output: &Output) -> Result<YesOrNo, Failure> {
    let pods = input::pods(&args.files)?;
    pods.iter().try_for_each(refuse_broken)?;
    let node = node(args)?;
    let config =
        PlanConfig { rules: args.rules.into(), cpu_weight: args.cpu_weight.into(), ..PlanConfig::default() };
    let explained: Vec<_> = pods.iter().map(|pod| explain_pod(pod, &node, &config)).collect();
    let text = || explained.iter().map(|pod| pod_text(pod, output)).collect::<Vec<_>>().join("\n");
    match explained.as_slice() {
        [only] => output.answer_text(only, text)?,
        several => output.answer_text(&several, text)?,
    }
    Ok(YesOrNo::Yes)
}

/// A pod that breaks the rules would be refused by Kubernetes; numbers for it would mislead.
fn refuse_broken(pod: &Pod) -> Result<(), Failure> {
    let errors = pod.check();
    let Some(first) = errors.first() else { return Ok(()) };
    let lines: Vec<String> =
        errors.iter().map(|e| format!("{} = {}: {}", e.path, e.value, e.reason)).collect();
    let name = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
    let place = format!("{}, document {}", pod.origin.source, pod.origin.document);
    Err(Failure::new(
        format!("pod {name} breaks the rules of requests and limits"),
        place,
        lines.join("\n"),
        first.reason.remedy(),
    ))
}

/// The node asked about; this machine is looked at only for what was not given.
fn node(args: &ExplainArgs) -> Result<NodeFacts, Failure> {
    if let (Some(memory), Some(cpu)) = (args.node_memory, args.node_cpu) {
        return Ok(NodeFacts::of_size(memory, cpu));
    }
    let here = machine::facts()?;
    Ok(NodeFacts {
        memory_bytes: args.node_memory.unwrap_or(here.memory_bytes),
        cpu_milli: args.node_cpu.unwrap_or(here.cpu_milli),
        ..here
    })
}

fn pod_text(pod: &PodExplanation, output: &Output) -> String {
    let mut text = format!(
        "pod {}: {} by Kubernetes' rule; {} rules, node of {} memory and {} CPU\n\n",
        clean(&pod.pod),
        pod.qos_class,
        pod.rules,
        units::bytes(pod.node.memory_bytes.get()),
        units::cpu(pod.node.cpu_milli.get()),
    );
    text.push_str(&table(pod, output.is_wide()).render(output.has_colour()));
    for container in &pod.containers {
        text.push_str(&format!("\n{}\n", clean(&container.name)));
        for reason in &container.reasons {
            text.push_str(&format!("  {reason}\n"));
        }
    }
    text
}

fn table(pod: &PodExplanation, wide: bool) -> Table {
    let mut titles =
        vec!["CONTAINER", "KIND", "CLASS", "OOM-SCORE-ADJ", "SHARES", "WEIGHT", "QUOTA", "MIN", "LOW", "MAX"];
    if wide {
        titles.extend(["HIGH", "PERIOD", "MEMORY-CLASS", "CPU-CLASS", "SOURCE", "ESTIMATED"]);
    }
    let mut table = Table::new(&titles);
    for container in &pod.containers {
        table.row(row(container, wide));
    }
    table
}

fn row(c: &ContainerExplanation, wide: bool) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![
        c.name.as_str().into(),
        name_of(&c.kind).into(),
        shown(c.qos_class).into(),
        shown(c.oom_score_adj).into(),
        shown(c.cpu_shares).into(),
        shown(c.cpu_weight).into(),
        shown(c.cpu_quota_us).into(),
        memory_text(c.memory_min).into(),
        memory_text(c.memory_low).into(),
        match c.memory_max {
            Some(Limit::Value(bytes)) => units::bytes(bytes.get()),
            other => shown(other),
        }
        .into(),
    ];
    if wide {
        row.extend([
            Cell::from(memory_text(c.memory_high)),
            shown(c.cpu_period_us).into(),
            shown(c.classes.memory).into(),
            shown(c.classes.cpu).into(),
            name_of(&c.source).into(),
            c.estimated.to_string().into(),
        ]);
    }
    row
}

/// `-` is a knob that is not written.
fn shown<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

fn memory_text(value: Option<Bytes>) -> String {
    shown(value.map(|b| units::bytes(b.get())))
}

/// A value's name in JSON, which is its name everywhere.
fn name_of<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}
