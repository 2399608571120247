//! `evenkeel policy`: which workloads are right-sized, within which bounds, and the one switch that stops it.

use evenkeel_model::panic::Panic;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use evenkeel_proto::v1::policy_service_client::PolicyServiceClient;
use evenkeel_proto::v1::{
    ApplyRequest, DeleteRequest, GetRequest, ListRequest, Recommendation, SetPanicRequest,
};
use evenkeel_rightsizing::policy::{PolicyError, objects, read_object};
use serde::Serialize;
use serde_json::Value;

use crate::client::{self, Address, Line};
use crate::commands::recommend::amount;
use crate::failure::Failure;
use crate::input;
use crate::output::{Format, Output, YesOrNo};
use crate::table::{Cell, Table, Tone};
use crate::wire::ClassChange;

/// Show, apply and delete policies: which pods, within which bounds, by which rule, and what is done with the answer.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    Get(GetArgs),
    Apply(ApplyArgs),
    Delete(DeleteArgs),
    Panic(PanicArgs),
}

/// Show policies, what they recommend, and what is wrong with them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel policy get
  evenkeel policy get web --namespace shop -o yaml")]
pub(crate) struct GetArgs {
    /// Only this one.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Namespace; all without a name, default with one.
    #[arg(short, long, value_name = "NS", default_value = "", hide_default_value = true)]
    namespace: String,
    /// What NAME is.
    #[arg(long, value_enum, default_value_t = ManifestKind::Policy, requires = "name")]
    kind: ManifestKind,
}

/// What is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ManifestKind {
    #[value(alias = "Policy")]
    Policy,
    #[value(name = "limitrange", alias = "LimitRange")]
    LimitRange,
    #[value(name = "resourcequota", alias = "ResourceQuota")]
    ResourceQuota,
}

impl ManifestKind {
    fn name(self) -> &'static str {
        match self {
            Self::Policy => "Policy",
            Self::LimitRange => "LimitRange",
            Self::ResourceQuota => "ResourceQuota",
        }
    }

    /// What an object calls itself.
    fn of(object: &Value) -> Self {
        let named = |kind: &Self| object["kind"] == kind.name();
        [Self::LimitRange, Self::ResourceQuota].into_iter().find(named).unwrap_or(Self::Policy)
    }
}

/// Apply policies from files; they are stored when this returns.
///
/// What they recommend to the containers that run now is shown beside. With --dry-run nothing is stored. LimitRange and ResourceQuota
/// objects are taken, too: they cap recommendations and bound answers on capacity.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel policy apply -f policy.yaml
  evenkeel policy apply -f policy.yaml --dry-run
  cat policies/*.yaml | evenkeel policy apply -f -
  kubectl get limitranges,resourcequotas -A -o yaml | evenkeel policy apply -f -")]
pub(crate) struct ApplyArgs {
    /// Files in YAML or JSON; - is standard input.
    #[arg(short, long = "file", required = true, num_args = 1.., value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Only show what would come of it.
    #[arg(long)]
    dry_run: bool,
}

/// Delete policies. Pods stay as they are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel policy delete web --namespace shop
  evenkeel policy delete bounds --namespace shop --kind limitrange")]
pub(crate) struct DeleteArgs {
    /// Their names.
    #[arg(value_name = "NAME", required = true, num_args = 1..)]
    names: Vec<String>,
    /// Their namespace.
    #[arg(short, long, value_name = "NS", default_value = "default")]
    namespace: String,
    /// What they are.
    #[arg(long, value_enum, default_value_t = ManifestKind::Policy)]
    kind: ManifestKind,
}

/// Freeze what recommendations change, give back what was asked for, or allow changes again.
///
/// On: recommendations change nothing, running containers keep the requests in force, classes are enforced. This holds over
/// restarts of agents and recommender, and while the recommender is silent. What somebody asks for anew (a changed manifest)
/// is carried out. With --revert running containers get back the requests that were asked for, step by step. Off: policies
/// are carried out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel policy panic on --reason 'requests of shop look wrong'
  evenkeel policy panic on --revert
  evenkeel policy panic off")]
pub(crate) struct PanicArgs {
    /// On freezes, off allows changes again.
    #[arg(value_enum)]
    switch: Switch,
    /// With on: running containers get back the requests that were asked for, step by step.
    #[arg(long)]
    revert: bool,
    /// Why, for whoever finds it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

pub(crate) async fn run(
    command: &PolicyCommand,
    address: &Address,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    match command {
        PolicyCommand::Get(args) => get(args, address, output).await,
        PolicyCommand::Apply(args) => apply(args, address, output).await,
        PolicyCommand::Delete(args) => delete(args, address, output).await,
        PolicyCommand::Panic(args) => panic(args, address, output).await,
    }
}

async fn get(args: &GetArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let mut policies = client::policies(address).await?;
    let namespace = args.namespace.clone();
    if let Some(name) = &args.name {
        let request = GetRequest { namespace, name: name.clone(), kind: args.kind.name().to_owned() };
        let found = policies.get(request).await.map_err(|e| address.failed(&e))?.into_inner();
        let object = parsed(&found.policy, address)?;
        let shown = std::slice::from_ref(&object);
        output.answer(&object, || match args.kind {
            ManifestKind::Policy => overview(shown, output.is_wide()),
            ManifestKind::LimitRange | ManifestKind::ResourceQuota => bounds(shown),
        })?;
        return Ok(YesOrNo::Yes);
    }
    let found = policies.list(ListRequest { namespace }).await.map_err(|e| address.failed(&e))?.into_inner();
    let all =
        |texts: &[String]| texts.iter().map(|text| parsed(text, address)).collect::<Result<Vec<_>, _>>();
    let (policies, objects) = (all(&found.policies)?, all(&found.objects)?);
    // CSV is one table.
    if objects.is_empty() || output.format() == Format::Csv {
        output.answer(&policies, || overview(&policies, output.is_wide()))?;
        return Ok(YesOrNo::Yes);
    }
    let whole: Vec<&Value> = policies.iter().chain(&objects).collect();
    output.answer_text(&whole, || {
        let policies = output.rendered(&overview(&policies, output.is_wide()));
        format!("{policies}\n{}", output.rendered(&bounds(&objects)))
    })?;
    Ok(YesOrNo::Yes)
}

/// Limit ranges and quotas: what they bound.
fn bounds(objects: &[Value]) -> Table {
    let mut table = Table::new(&["KIND", "NAMESPACE", "NAME", "BOUNDS"]);
    for object in objects {
        let at = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("-");
        let spec = &object["spec"];
        let bounded = if spec["hard"].is_object() { &spec["hard"] } else { &spec["limits"] };
        table.row(vec![
            at("/kind").into(),
            at("/metadata/namespace").into(),
            at("/metadata/name").into(),
            bounded.to_string().into(),
        ]);
    }
    table
}

fn parsed(text: &str, address: &Address) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|e| address.silent(&format!("its policy cannot be read: {e}")))
}

fn overview(objects: &[Value], wide: bool) -> Table {
    let mut titles = vec!["NAMESPACE", "NAME", "MODE", "LIMITS", "RULE", "STATE", "SOURCE"];
    if wide {
        titles.extend(["CREATED", "CONTAINERS", "CONFLICTS"]);
    }
    let mut table = Table::new(&titles);
    for object in objects {
        let at = |path: &str| object.pointer(path).and_then(Value::as_str);
        let list = |path: &str| object.pointer(path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mode = match object.pointer("/spec/updatePolicy/mode") {
            // As some readers of YAML take the word without quotes.
            Some(Value::Bool(false)) => "off",
            mode => mode.and_then(Value::as_str).unwrap_or("auto"),
        };
        let source = at("/status/source").unwrap_or("-");
        // Which file it is takes a line's room.
        let source = if wide { source } else { source.split(' ').next().unwrap_or(source) };
        let mut row: Vec<Cell> = vec![
            at("/metadata/namespace").unwrap_or("default").into(),
            at("/metadata/name").unwrap_or("-").into(),
            mode.into(),
            at("/spec/resourcesPolicy/limits").unwrap_or("keep").into(),
            at("/spec/rule").unwrap_or("-").into(),
            state(list("/status/conditions")),
            source.into(),
        ];
        if wide {
            let names = |items: &[Value], key: &str| {
                let names: Vec<&str> = items.iter().filter_map(|v| v.get(key)?.as_str()).collect();
                names.join(",")
            };
            row.extend([
                Cell::from(at("/metadata/creationTimestamp").unwrap_or("-")),
                names(list("/status/recommendation/containers"), "name").into(),
                names(list("/status/conflicts"), "policy").into(),
            ]);
        }
        table.row(row);
    }
    table
}

/// The condition that matters most.
fn state(conditions: &[Value]) -> Cell {
    let text = |c: &Value, key: &str| c.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let of = |kind: &str| conditions.iter().find(|c| text(c, "type") == kind);
    if of("Conflict").is_some() {
        return Cell::toned("Conflict", Tone::Warn);
    }
    match of("Selects").or(conditions.first()) {
        Some(c) if text(c, "reason") == "Governs" => Cell::toned("Governs", Tone::Good),
        Some(c) => Cell::toned(text(c, "reason"), Tone::Warn),
        None => Cell::toned("-", Tone::Faint),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedPolicy {
    policy: String,
    /// Kind and name, for people.
    #[serde(skip)]
    key: String,
    outcome: String,
    dry_run: bool,
    preview: Vec<PreviewedChange>,
}

/// What a policy recommends to one container.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PreviewedChange {
    workload: String,
    container: String,
    resource: String,
    current: Option<u64>,
    request: Option<u64>,
    raw: Option<u64>,
    capped_by: Vec<String>,
    current_limit: Option<u64>,
    limit: Option<u64>,
    qos_class: ClassChange,
    changes_class: bool,
}

impl From<Recommendation> for PreviewedChange {
    fn from(r: Recommendation) -> Self {
        Self {
            workload: r.workload,
            container: r.container,
            resource: r.resource,
            current: r.current,
            request: r.request,
            raw: r.raw,
            capped_by: r.capped_by,
            current_limit: r.current_limit,
            limit: r.limit,
            qos_class: ClassChange::new(r.qos_class_before, r.qos_class_after),
            changes_class: r.changes_class,
        }
    }
}

async fn apply(args: &ApplyArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    // All are read before the first is applied: a mistake in the last file changes nothing.
    let mut objects = Vec::new();
    for file in &args.files {
        let read = applicable(&input::text(file)?).map_err(|e| {
            let place = format!("{}: {}", input::name(file), e.place);
            Failure::new("cannot read the policy", place, e.why, e.remedy)
        })?;
        objects.extend(read);
    }
    if objects.is_empty() {
        return Err(Failure::new(
            "cannot apply",
            "command line",
            "the files hold no policy",
            "give one of kind Policy",
        ));
    }
    let mut policies = client::policies(address).await?;
    let (mut all, mut refused) = (Vec::new(), None);
    for (key, object) in objects {
        let request = ApplyRequest { policy: object.to_string(), dry_run: args.dry_run };
        let answer = match policies.apply(request).await {
            Ok(answer) => answer.into_inner(),
            Err(error) => {
                refused = Some(address.failed(&error));
                break;
            }
        };
        all.push(AppliedPolicy {
            policy: key.strip_prefix("policy ").unwrap_or(&key).to_owned(),
            key,
            outcome: answer.outcome,
            dry_run: args.dry_run,
            preview: answer.preview.into_iter().map(PreviewedChange::from).collect(),
        });
    }
    // What was stored before a refusal is told, too.
    if refused.is_none() || !all.is_empty() {
        show_applied(&all, args.dry_run, output)?;
    }
    refused.map_or(Ok(YesOrNo::Yes), Err)
}

/// Prints what came of each object, and what policies recommend.
fn show_applied(all: &[AppliedPolicy], dry_run: bool, output: &Output) -> Result<(), Failure> {
    output.answer_text(&all, || {
        let mut text = String::new();
        if output.format() != Format::Csv {
            let done = if dry_run { " (dry run: nothing is stored)" } else { "" };
            all.iter().for_each(|a| text.push_str(&format!("{} {}{done}\n", a.key, a.outcome)));
        }
        let table = preview(all);
        text + &table.map_or_else(String::new, |table| output.rendered(&table))
    })
}

/// The objects of a text with their names: policies, checked, and others as they are.
fn applicable(text: &str) -> Result<Vec<(String, Value)>, PolicyError> {
    let objects = objects(text)?;
    let several = objects.len() > 1;
    let read = |(number, object): (usize, Value)| {
        let kind = ManifestKind::of(&object);
        if kind != ManifestKind::Policy {
            let at = |path: &str| object.pointer(path).and_then(Value::as_str);
            let (namespace, name) = (at("/metadata/namespace"), at("/metadata/name"));
            let key = format!("{} {}/{}", kind.name(), namespace.unwrap_or("default"), name.unwrap_or(""));
            return Ok((key, object));
        }
        let policy = read_object(&object).map_err(|e| if several { e.of_object(number + 1) } else { e })?;
        Ok((format!("policy {}", policy.key()), policy.object(policy.created.as_deref(), Value::Null)))
    };
    objects.into_iter().enumerate().map(read).collect()
}

/// What applied policies recommend; nothing where they govern nothing that runs.
fn preview(all: &[AppliedPolicy]) -> Option<Table> {
    let mut table = Table::new(&[
        "POLICY",
        "WORKLOAD",
        "CONTAINER",
        "RESOURCE",
        "CURRENT",
        "REQUEST",
        "LIMIT",
        "LIMIT-THEN",
        "CAPPED-BY",
        "CLASS",
    ]);
    let mut any = false;
    for (applied, c) in all.iter().flat_map(|a| a.preview.iter().map(move |c| (a, c))) {
        any = true;
        let amount = |value| Cell::from(amount(&c.resource, value));
        table.row(vec![
            applied.policy.as_str().into(),
            c.workload.as_str().into(),
            c.container.as_str().into(),
            c.resource.as_str().into(),
            amount(c.current),
            amount(c.request),
            amount(c.current_limit),
            amount(c.limit),
            c.capped_by.join(",").into(),
            c.qos_class.to_string().into(),
        ]);
    }
    any.then_some(table)
}

async fn delete(args: &DeleteArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let mut policies = client::policies(address).await?;
    let mut deleted = Vec::new();
    for name in &args.names {
        if args.kind != ManifestKind::Policy {
            known(&mut policies, args, name, address).await?;
        }
        let kind = args.kind.name().to_owned();
        let request = DeleteRequest { namespace: args.namespace.clone(), name: name.clone(), kind };
        policies.delete(request).await.map_err(|e| address.failed(&e))?;
        deleted.push(format!("{}/{name}", args.namespace));
    }
    output.answer_text(&serde_json::json!({ "deleted": deleted }), || {
        let kind = if args.kind == ManifestKind::Policy { "policy" } else { args.kind.name() };
        deleted.iter().map(|key| format!("{kind} {key} deleted\n")).collect()
    })?;
    Ok(YesOrNo::Yes)
}

/// Refuses where the recommender knows policies alone: it would delete the one of this name.
async fn known(
    policies: &mut PolicyServiceClient<Line>,
    args: &DeleteArgs,
    name: &str,
    address: &Address,
) -> Result<(), Failure> {
    let (namespace, kind) = (args.namespace.clone(), args.kind.name().to_owned());
    let request = GetRequest { namespace, name: name.to_owned(), kind };
    let found = policies.get(request).await.map_err(|e| address.failed(&e))?.into_inner();
    if ManifestKind::of(&parsed(&found.policy, address)?) == args.kind {
        return Ok(());
    }
    let why = "this recommender knows policies alone";
    Err(Failure::new("nothing was deleted", address.to_string(), why, "upgrade the recommender"))
}

async fn panic(args: &PanicArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let on = args.switch == Switch::On;
    if args.revert && !on {
        let why = "requests go back while the switch is on";
        let remedy = "evenkeel policy panic on --revert, and off once they are back";
        return Err(Failure::usage("--revert goes with on", "command line", why, remedy));
    }
    let mut recommender = client::recommender(address).await?;
    let request = SetPanicRequest { on, reason: args.reason.clone(), revert: args.revert };
    let set = recommender.set_panic(request).await.map_err(|e| address.failed(&e))?.into_inner();
    if args.revert && !set.revert {
        let why = "this recommender knows no --revert; it only set the switch";
        let remedy = "upgrade the recommender";
        return Err(Failure::new("requests do not go back", address.to_string(), why, remedy));
    }
    output.answer_text(&serde_json::json!({ "panic": set.on, "revert": set.revert }), || {
        let state = if set.on { "on" } else { "off" };
        format!("the panic switch is {state}: {}\n", Panic::of(set.on, set.revert).meaning())
    })?;
    Ok(YesOrNo::Yes)
}
