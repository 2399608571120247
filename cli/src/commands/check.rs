//! `evenkeel check`: whether manifests keep the rules of the resource model, and policies their own.

use std::path::{Path, PathBuf};

use clap::Args;
use evenkeel_model::pod::{MAX_TEXT_BYTES, Pod, PodObjects, ReadError, SkippedObject, read_pod_objects};
use evenkeel_model::resource_type::{ResourceType, ResourceTypes};
use evenkeel_rightsizing::policy::{self, KINDS, Policy, PolicyError};
use serde::Serialize;

use crate::failure::Failure;
use crate::input;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, Tone};

/// Check manifests: quantities, names, requests and limits, pod-level resources; and policies of right-sizing.
///
/// Pods are checked, and the pod templates of Deployments and their like, and policies; other objects are named and skipped.
/// The exit status is 1 when something is wrong or nothing could be checked.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel check -f pod.yaml
  evenkeel check -f manifests/*.yaml policies/*.yaml -o json
  evenkeel check -f pod.yaml --types types.yaml
  kubectl get pods -A -o yaml | evenkeel check -f -")]
pub(crate) struct CheckArgs {
    /// Files in YAML or JSON; - is standard input.
    #[arg(short, long = "file", required = true, num_args = 1.., value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Resource types in YAML (resourceTypes, by name); types of users that it does not define are errors then.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    types: Option<PathBuf>,
}

/// What came of one object, or of a file that could not be read as objects.
#[derive(Debug, Serialize)]
struct CheckResult {
    file: String,
    /// Place of the document in the file, from 0; absent when the whole file is meant.
    document: Option<usize>,
    kind: Option<String>,
    name: Option<String>,
    state: CheckState,
    /// Of a resource type: unit, compressible or not, default request, granularity.
    #[serde(skip_serializing_if = "Option::is_none")]
    told: Option<String>,
    errors: Vec<RuleViolation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    Ok,
    Error,
    Skipped,
}

/// One broken rule.
#[derive(Debug, Serialize)]
struct RuleViolation {
    r#where: String,
    why: String,
    remedy: String,
}

pub(crate) fn run(args: &CheckArgs, output: &Output) -> Result<YesOrNo, Failure> {
    let types = args.types.as_deref().map(input::types).transpose()?;
    let mut findings =
        args.types.iter().zip(&types).flat_map(|(file, types)| defined(file, types)).collect::<Vec<_>>();
    for file in &args.files {
        findings.extend(check_file(file, types.as_ref())?);
    }
    output.answer(&findings, || table(&findings))?;
    let wrong = findings.iter().any(|f| f.state == CheckState::Error);
    let checked = findings.iter().any(|f| f.state == CheckState::Ok && f.told.is_none());
    Ok(if checked && !wrong { YesOrNo::Yes } else { YesOrNo::No })
}

/// The types that are known with these definitions.
fn defined(file: &Path, types: &ResourceTypes) -> Vec<CheckResult> {
    let one = |defined: &ResourceType| CheckResult {
        file: input::name(file),
        document: None,
        kind: Some("ResourceType".to_owned()),
        name: Some(defined.name().to_string()),
        state: CheckState::Ok,
        told: Some(defined.told()),
        errors: Vec::new(),
    };
    types.iter().filter(|defined| !defined.name().is_native()).map(one).collect()
}

/// Findings of one file, in the order of its documents.
fn check_file(path: &Path, types: Option<&ResourceTypes>) -> Result<Vec<CheckResult>, Failure> {
    let text = input::text(path)?;
    let file = input::name(path);
    let PodObjects { pods, skipped, errors } = match read_pod_objects(&text, &file, MAX_TEXT_BYTES) {
        Ok(objects) => objects,
        Err(error) => return Ok(vec![unreadable(&error)]),
    };
    let mut findings: Vec<CheckResult> = errors.iter().map(unreadable).collect();
    findings.extend(pods.iter().map(|pod| check_pod(&file, pod, types)));
    let mut policies = Vec::new();
    if skipped.iter().any(|object| KINDS.contains(&object.kind.as_str())) {
        policies = policy::find(&text);
    }
    let is_policy = |object: &SkippedObject| {
        policies.iter().any(|(document, name, _)| *document == object.document && *name == object.name)
    };
    let others: Vec<SkippedObject> = skipped.into_iter().filter(|object| !is_policy(object)).collect();
    findings
        .extend(policies.into_iter().map(|(document, name, read)| check_policy(&file, document, name, read)));
    findings.extend(others.into_iter().map(|object| CheckResult {
        file: file.clone(),
        document: Some(object.document),
        kind: Some(object.kind),
        name: Some(object.name),
        state: CheckState::Skipped,
        told: None,
        errors: Vec::new(),
    }));
    findings.sort_by_key(|f| f.document);
    if findings.is_empty() {
        findings.push(empty(file));
    }
    Ok(findings)
}

fn check_pod(file: &str, pod: &Pod, types: Option<&ResourceTypes>) -> CheckResult {
    let mut errors: Vec<RuleViolation> = pod
        .check()
        .into_iter()
        .map(|e| RuleViolation {
            why: format!("{}: {}", e.value, e.reason),
            remedy: e.reason.remedy().to_owned(),
            r#where: e.path,
        })
        .collect();
    errors.extend(types.into_iter().flat_map(|types| undefined(pod, types)));
    CheckResult {
        file: file.to_owned(),
        document: Some(pod.origin.document),
        kind: Some(pod.origin.kind.clone()),
        name: Some(format!("{}/{}", pod.metadata.namespace, pod.metadata.name)),
        state: if errors.is_empty() { CheckState::Ok } else { CheckState::Error },
        told: None,
        errors,
    }
}

/// Types of users that nobody defined.
fn undefined<'a>(pod: &'a Pod, types: &'a ResourceTypes) -> impl Iterator<Item = RuleViolation> + 'a {
    let lists = pod.counted_containers().flat_map(|container| {
        [("requests", &container.resources.requests), ("limits", &container.resources.limits)]
            .map(|(list, amounts)| (&container.name, list, amounts))
    });
    lists.flat_map(move |(container, list, amounts)| {
        let unknown = amounts.iter().filter(|(name, _)| !name.is_native() && !types.has(name));
        unknown.map(move |(name, _)| RuleViolation {
            r#where: format!("spec.containers[{container}].resources.{list}.{name}"),
            why: format!("the resource type {name} is not defined"),
            remedy: "define it in the file of --types, or correct its name".to_owned(),
        })
    })
}

fn check_policy(file: &str, document: usize, name: String, read: Result<Policy, PolicyError>) -> CheckResult {
    let (name, errors) = match read {
        Ok(policy) => (policy.key(), Vec::new()),
        Err(error) => {
            (name, vec![RuleViolation { r#where: error.place, why: error.why, remedy: error.remedy }])
        }
    };
    CheckResult {
        file: file.to_owned(),
        document: Some(document),
        kind: Some(KINDS[0].to_owned()),
        name: Some(name),
        state: if errors.is_empty() { CheckState::Ok } else { CheckState::Error },
        told: None,
        errors,
    }
}

fn unreadable(error: &ReadError) -> CheckResult {
    let problem = input::problem(error);
    CheckResult {
        file: error.source_name.clone(),
        document: error.document,
        kind: None,
        name: None,
        state: CheckState::Error,
        told: None,
        errors: vec![RuleViolation { r#where: problem.place, why: problem.why, remedy: problem.remedy }],
    }
}

fn empty(file: String) -> CheckResult {
    let problem = RuleViolation {
        r#where: file.clone(),
        why: "it holds no object".into(),
        remedy: "give a manifest such as kind: Pod".into(),
    };
    CheckResult {
        file,
        document: None,
        kind: None,
        name: None,
        state: CheckState::Error,
        told: None,
        errors: vec![problem],
    }
}

fn table(findings: &[CheckResult]) -> Table {
    let mut table = Table::new(&["FILE", "DOC", "KIND", "NAME", "STATE", "WHERE", "WHY", "REMEDY"]);
    for finding in findings {
        let state = match finding.state {
            CheckState::Ok => Cell::toned("ok", Tone::Good),
            CheckState::Error => Cell::toned("error", Tone::Bad),
            CheckState::Skipped => Cell::toned("skipped", Tone::Faint),
        };
        let mut start: Vec<Cell> = vec![
            finding.file.as_str().into(),
            finding.document.map_or(String::new(), |d| d.to_string()).into(),
            finding.kind.as_deref().unwrap_or("").into(),
            finding.name.as_deref().unwrap_or("").into(),
            state,
        ];
        if finding.errors.is_empty() {
            if let Some(told) = &finding.told {
                start.extend([Cell::from(""), Cell::from(told.as_str())]);
            }
            if finding.state == CheckState::Skipped {
                start.extend([Cell::from(""), Cell::from("objects of this kind are not checked")]);
            }
            table.row(start);
            continue;
        }
        for problem in &finding.errors {
            let end = [&problem.r#where, &problem.why, &problem.remedy].map(|t| Cell::from(t.as_str()));
            table.row(start.iter().cloned().chain(end).collect());
        }
    }
    table
}
