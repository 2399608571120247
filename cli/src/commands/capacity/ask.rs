//! Asking the recommender, which knows a cluster from its API server or from its agents: the question as it takes it, and its answer.

use std::path::PathBuf;

use evenkeel_capacity::answer::{Ask, Shape, Steps};
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::profile::Version;
use evenkeel_capacity::question::Whole;
use evenkeel_proto::v1::EstimateRequest;
use serde_json::{Map, Value, json};

use super::{CapacityArgs, read, reserve};
use crate::client::{self, Address};
use crate::failure::Failure;
use crate::input;

/// What else can be done where no recommender answers.
const ELSEWHERE: &str = "or give a saved cluster with --snapshot, or ask the API server with --live";

/// The answer of the recommender, and what it was asked.
///
/// # Errors
/// When the question cannot be put, or there is no answer.
pub(super) async fn whole(args: &CapacityArgs, address: &Address) -> Result<(Whole, Ask), Failure> {
    let (request, ask) = request(args)?;
    let mut recommender = client::capacity(address).await.map_err(|failure| {
        let remedy = format!("{}, {ELSEWHERE}", failure.remedy());
        failure.with_remedy(remedy)
    })?;
    let answer = recommender.estimate(request).await.map_err(|status| address.failed(&status))?;
    let text = answer.into_inner().answer_json;
    let whole: Whole = Whole::read(&text, args.need, &ask.shapes).map_err(|error| {
        let remedy = "use the version of evenkeel that belongs to it";
        Failure::new("cannot read the recommender's answer", address.to_string(), error.to_string(), remedy)
    })?;
    if whole.snapshot.nodes == 0 {
        let why = "the recommender knows no node: no agent has told it of one, and it follows no Kubernetes cluster that has one";
        let remedy = format!("connect agents, or set kubernetes.view of the recommender, {ELSEWHERE}");
        return Err(Failure::new("cannot count", address.to_string(), why, remedy));
    }
    Ok((whole, ask))
}

fn request(args: &CapacityArgs) -> Result<(EstimateRequest, Ask), Failure> {
    if args.types.is_some() {
        let why = "the recommender counts with the resource types of its own configuration";
        let remedy = "leave it out, or give a cluster with --snapshot or --live";
        return Err(Failure::usage("cannot count with these types", "--types", why, remedy));
    }
    let (pods, place) = (texts(&args.files)?, texts(&args.place)?);
    // What is wrong with a file is told by its name before anybody is asked.
    let mut shapes = if pods.is_empty() { Vec::new() } else { read::pods_of(&pods)?.shapes };
    if !place.is_empty() {
        read::pods_of(&place)?;
    }
    if shapes.is_empty() {
        shapes.push(Shape { pod: Pod::default(), wanted: 1 });
    }
    let only_texts = |texts: Vec<(String, String)>| texts.into_iter().map(|(_, text)| text).collect();
    let request = EstimateRequest {
        pods: only_texts(pods),
        place: only_texts(place),
        max: 0,
        snapshot: String::new(),
        options_json: Value::Object(options(args)?).to_string(),
        recommended: args.what_if.is_recommended()?,
        cluster: args.cluster.clone(),
    };
    Ok((request, Ask { shapes, ..Ask::default() }))
}

/// Each file's name and text.
fn texts(files: &[PathBuf]) -> Result<Vec<(String, String)>, Failure> {
    files.iter().map(|path| Ok((input::name(path), input::text(path)?))).collect()
}

/// The options by their pinned names, those alone that were given.
fn options(args: &CapacityArgs) -> Result<Map<String, Value>, Failure> {
    let what_if = &args.what_if;
    let reserve = reserve(&args.reserve)?;
    let reserve: Map<String, Value> =
        reserve.iter().map(|(name, amount)| (name.clone(), amount.canonical().into())).collect();
    let scheduler_config = args.scheduler_config.as_deref().map(read::scheduler_config).transpose()?;
    // Read here first, so that what is wrong with the table is told by its name.
    what_if.types()?;
    let steps = match args.steps.unwrap_or_default() {
        Steps::None => Value::Null,
        Steps::First(most) => most.into(),
        Steps::All => "all".into(),
    };
    let version = match args.scheduler_version {
        Version::V1_34 => "1.34",
        Version::V1_36 => "1.36",
    };
    let all = json!({
        "namespace": args.namespace,
        "largest": args.largest,
        "nodes": args.nodes,
        "excludeNodes": args.exclude_nodes,
        "reserve": reserve,
        "max": args.max,
        "need": args.need,
        "steps": steps,
        "schedulerConfig": scheduler_config,
        "schedulerVersion": version,
        "seed": what_if.seed,
        "trials": what_if.trials,
        "preempt": what_if.preempt,
        "lose": what_if.lose,
        "drain": what_if.drain,
        "add": what_if.table()?,
        "daemonset": what_if.daemonset,
        "compact": what_if.compact,
        "defrag": what_if.defrag,
    });
    let given = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
        _ => true,
    };
    let Value::Object(all) = all else { return Ok(Map::new()) };
    Ok(all.into_iter().filter(|(_, value)| given(value)).collect())
}
