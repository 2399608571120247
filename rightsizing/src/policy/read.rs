//! Owns reading policies from YAML or JSON: one pass, after which nothing about them is in doubt.

use evenkeel_model::quantity::Quantity;
use evenkeel_model::selector::LabelSelector;
use evenkeel_model::yaml::{self, YamlBounds as TextBounds};
use serde_json::{Map, Value};

use super::fields::At;
use super::{
    ContainerPolicy, Goals, InitialResources, LimitsMode, More, Policy, PolicyError, RequestBounds,
    StartupBoost, UpdateMode, selector, update,
};

/// `apiVersion` of a policy.
pub const API_VERSION: &str = "evenkeel.dev/v1";
/// What a policy may call itself; the second is the document's name.
pub const KINDS: [&str; 2] = ["Policy", "VerticalPodAutoscaler"];
/// Largest text of one policy, bytes: far above any that people write.
pub const MAX_POLICY_BYTES: usize = 64 << 10;

/// What one text may hold: more documents than there are policies in the largest clusters, and 40 lists, maps and scalars
/// for each, twice what a policy of two containers has.
const BOUNDS: TextBounds = TextBounds { documents: 50_000, nodes: 40 * 50_000 };
/// Most containers named in one policy: more than any pod has.
const MAX_CONTAINERS: usize = 256;
/// Longest name (RFC 1123 subdomain, as Kubernetes bounds names of objects).
const MAX_NAME: usize = 253;
const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
const SPEC: [&str; 9] = [
    "target",
    "targetRef",
    "updatePolicy",
    "resourcesPolicy",
    "initialResourcesPolicy",
    "startupBoost",
    "goals",
    "rule",
    "parameters",
];
const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "labels",
    "annotations",
    "creationTimestamp",
    "uid",
    "resourceVersion",
    "generation",
    "managedFields",
];

/// Whether an object calls itself a policy.
pub fn is_policy(object: &Value) -> bool {
    let named = object.get("kind").and_then(Value::as_str).is_some_and(|kind| KINDS.contains(&kind));
    named && object.get("apiVersion").and_then(Value::as_str).is_none_or(|v| v == API_VERSION)
}

/// Reads exactly one policy.
///
/// # Errors
/// [`PolicyError`] naming the field.
pub fn read(text: &str) -> Result<Policy, PolicyError> {
    if text.len() > MAX_POLICY_BYTES {
        return Err(PolicyError::new(
            "",
            format!("it has {} bytes, over {MAX_POLICY_BYTES}", text.len()),
            "shorten it",
        ));
    }
    let mut all = read_all(text)?;
    match (all.pop(), all.len()) {
        (Some(policy), 0) => Ok(policy),
        (None, _) => Err(PolicyError::new("", "there is no policy", "write one of kind Policy")),
        (Some(_), more) => {
            Err(PolicyError::new("", format!("there are {} policies", more + 1), "give one at a time"))
        }
    }
}

/// Reads the policies of a text: documents of YAML, a JSON object, or a `List`.
///
/// # Errors
/// [`PolicyError`] naming the object, where there are several, and the field.
pub fn read_all(text: &str) -> Result<Vec<Policy>, PolicyError> {
    let objects = objects(text)?;
    let several = objects.len() > 1;
    let place = |(number, object): (usize, &Value)| {
        read_object(object).map_err(|error| if several { error.of_object(number + 1) } else { error })
    };
    objects.iter().enumerate().map(place).collect()
}

/// The objects of a text, whatever they are: documents of YAML, a JSON object, or the items of a `List`.
///
/// # Errors
/// [`PolicyError`] when it is neither.
pub fn objects(text: &str) -> Result<Vec<Value>, PolicyError> {
    let unreadable = |why: String| PolicyError::new("", why, "write YAML or JSON");
    // Not all JSON is YAML to every reader, so JSON goes first.
    let documents: Vec<Value> = match serde_json::from_str(text) {
        Ok(document) => vec![document],
        Err(_) => yaml::documents(text, BOUNDS).map_err(|e| unreadable(e.to_string()))?,
    };
    Ok(documents.into_iter().filter(|document| !document.is_null()).flat_map(members).collect())
}

/// The objects of a list, or the object itself.
fn members(document: Value) -> Vec<Value> {
    let is_list = document.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match document.get("items").and_then(Value::as_array).filter(|_| is_list) {
        Some(items) => items.clone(),
        None => vec![document],
    }
}

/// Reads one object.
///
/// # Errors
/// [`PolicyError`] naming the field.
pub fn read_object(object: &Value) -> Result<Policy, PolicyError> {
    read_resolved(object, None)
}

/// Reads one object of a Kubernetes cluster; `labels` are what the controller that its `targetRef` names selects there.
///
/// # Errors
/// [`PolicyError`] naming the field.
pub fn read_resolved(object: &Value, labels: Option<&LabelSelector>) -> Result<Policy, PolicyError> {
    let root = At::root(object);
    root.only(&TOP)?;
    let version = root.required("apiVersion", &format!("write apiVersion: {API_VERSION}"))?;
    if version.text()? != API_VERSION {
        let why = format!("{} is not known", version.value);
        return Err(version.error(why, format!("write {API_VERSION}")));
    }
    let kind = root.required("kind", "write kind: Policy")?;
    if !KINDS.contains(&kind.text()?) {
        return Err(kind.error(format!("{} is no policy", kind.value), "write Policy"));
    }
    let metadata = root.required("metadata", "write metadata with a name")?;
    metadata.only(&METADATA)?;
    let name = name(&metadata.required("name", "give it a name")?)?;
    let namespace = metadata.get("namespace")?.map(|at| self::name(&at)).transpose()?;
    let created = metadata.get("creationTimestamp")?.map(|at| at.text().map(str::to_owned)).transpose()?;
    let spec = root.required("spec", "write spec with a target")?;
    spec.only(&SPEC)?;
    let selector = selector::of(&spec, labels)?;
    let labels = labels.filter(|_| spec.value.get("targetRef").is_some_and(|target| !target.is_null()));
    let mode = update_mode(&spec)?;
    let initial = spec.get("initialResourcesPolicy")?;
    let given: Option<InitialResources> =
        initial.as_ref().map(|at| at.word("always, if-not-set or never")).transpose()?;
    if let (Some(UpdateMode::Off), Some(InitialResources::Always | InitialResources::IfNotSet), Some(at)) =
        (mode, given, &initial)
    {
        let why = "updatePolicy.mode is off, so nothing is ever set";
        return Err(at.error(why, "write never, or another mode"));
    }
    let (containers, limits) = resources(&spec)?;
    Ok(Policy {
        namespace: namespace.unwrap_or_else(|| "default".to_owned()),
        name,
        created,
        selector,
        labels: labels.cloned(),
        mode: mode.unwrap_or_default(),
        updates: spec.get("updatePolicy")?.map(|at| update::read(&at)).transpose()?.unwrap_or_default(),
        containers,
        limits,
        initial: given.unwrap_or_default(),
        startup: startup(&spec)?,
        goals: goals(&spec)?,
        rule: spec.get("rule")?.map(|at| at.text().map(str::to_owned)).transpose()?,
        parameters: spec.get("parameters")?.map(|at| at.map().cloned()).transpose()?.unwrap_or_default(),
        kind: kind.text()?.to_owned(),
        metadata: metadata.map()?.clone(),
        spec: with_words(spec.value),
    })
}

/// A spec with its modes as words: `off` without quotes is false to a reader of YAML 1.1, and a client that compares with
/// the word must find it.
fn with_words(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let put = |mode: Option<&mut Value>| {
        if let Some(mode) = mode.filter(|mode| **mode == Value::Bool(false)) {
            *mode = "off".into();
        }
    };
    put(spec.pointer_mut("/updatePolicy/mode"));
    let containers = spec.pointer_mut("/resourcesPolicy/containers").and_then(Value::as_array_mut);
    containers.into_iter().flatten().for_each(|container| put(container.get_mut("mode")));
    spec
}

fn name(at: &At<'_>) -> Result<String, PolicyError> {
    let text = at.text()?;
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if text.len() > MAX_NAME || !plain || !ends(text.chars().next()) || !ends(text.chars().last()) {
        return Err(at.error(
            format!("{text:?} is no name"),
            format!("use at most {MAX_NAME} lower-case letters, digits, '-' and '.', a letter or digit at both ends"),
        ));
    }
    Ok(text.to_owned())
}

fn update_mode(spec: &At<'_>) -> Result<Option<UpdateMode>, PolicyError> {
    let Some(update) = spec.get("updatePolicy")? else { return Ok(None) };
    let known: Vec<&str> = ["mode"].into_iter().chain(update::FIELDS).collect();
    update.only(&known)?;
    update.get("mode")?.map(|at| at.word("off, initial or auto")).transpose()
}

fn resources(spec: &At<'_>) -> Result<(Vec<ContainerPolicy>, LimitsMode), PolicyError> {
    let Some(at) = spec.get("resourcesPolicy")? else { return Ok(Default::default()) };
    at.only(&["containers", "limits"])?;
    let limits = at.get("limits")?.map(|at| at.word("none, keep or ratio")).transpose()?.unwrap_or_default();
    let mut containers: Vec<ContainerPolicy> = Vec::new();
    for item in at.get("containers")?.map(|list| list.items()).transpose()?.unwrap_or_default() {
        if containers.len() == MAX_CONTAINERS {
            return Err(item.error(format!("there are over {MAX_CONTAINERS} containers"), "name fewer"));
        }
        let read = container(&item)?;
        if containers.iter().any(|c| c.name == read.name) {
            let why = format!("container {:?} is named twice", read.name);
            return Err(item.error(why, "keep one of them"));
        }
        containers.push(read);
    }
    Ok((containers, limits))
}

fn container(at: &At<'_>) -> Result<ContainerPolicy, PolicyError> {
    at.only(&["name", "mode", "requests"])?;
    let name = at.required("name", "write the container's name, or * for all others")?.text()?.to_owned();
    let mode: Option<UpdateMode> = at.get("mode")?.map(|m| m.word("off or auto")).transpose()?;
    if mode == Some(UpdateMode::Initial) {
        return Err(At { path: format!("{}.mode", at.path), value: at.value }
            .error("a container is on or off", "write off or auto"));
    }
    let off = mode == Some(UpdateMode::Off);
    let requests = at.get("requests")?;
    if let Some(requests) = requests.as_ref().filter(|_| off) {
        return Err(
            requests.error("the container's mode is off, so its bounds mean nothing", "remove one of both")
        );
    }
    let (mut cpu, mut memory) = (RequestBounds::default(), RequestBounds::default());
    if let Some(requests) = requests {
        requests.only(&["cpu", "memory"])?;
        cpu = requests.get("cpu")?.map(|at| bounds(&at, milli)).transpose()?.unwrap_or_default();
        memory = requests.get("memory")?.map(|at| bounds(&at, bytes)).transpose()?.unwrap_or_default();
    }
    Ok(ContainerPolicy { name, off, cpu, memory })
}

fn bounds(
    at: &At<'_>,
    unit: impl Fn(&At<'_>, Quantity) -> Result<u64, PolicyError>,
) -> Result<RequestBounds, PolicyError> {
    at.only(&["min", "max"])?;
    let of = |name| at.get(name)?.map(|at| unit(&at, at.quantity()?)).transpose();
    let read = RequestBounds { min: of("min")?, max: of("max")? };
    if let (Some(min), Some(max)) = (at.get("min")?, at.get("max")?)
        && read.min > read.max
    {
        let why = format!("it is {} and above max, {}", min.value, max.value);
        return Err(min.error(why, "lower min or raise max"));
    }
    Ok(read)
}

fn milli(at: &At<'_>, amount: Quantity) -> Result<u64, PolicyError> {
    if amount.nano() % 1_000_000 != 0 {
        return Err(
            at.error(format!("{amount} is finer than a thousandth of a core"), "write whole thousandths")
        );
    }
    amount.milli_u64().ok_or_else(|| at.error(format!("{amount} is too much"), "write a smaller amount"))
}

fn bytes(at: &At<'_>, amount: Quantity) -> Result<u64, PolicyError> {
    if amount.nano() % 1_000_000_000 != 0 {
        return Err(at.error(format!("{amount} is finer than a byte"), "write whole bytes"));
    }
    amount.to_u64().ok_or_else(|| at.error(format!("{amount} is too much"), "write a smaller amount"))
}

/// How long a start may take, seconds, where it is not written, and at most.
const START: (u64, u64) = (300, 3600);
/// The greatest factor: more is not a start any more.
const MOST_FACTOR: f64 = 100.0;

fn startup(spec: &At<'_>) -> Result<Option<StartupBoost>, PolicyError> {
    let Some(at) = spec.get("startupBoost")? else { return Ok(None) };
    at.only(&["factor", "amount", "seconds", "learned"])?;
    let more = match (at.get("factor")?, at.get("amount")?) {
        (Some(factor), None) => match factor.value.as_f64() {
            Some(number) if (1.0..=MOST_FACTOR).contains(&number) => More::Factor(number),
            _ => {
                return Err(
                    factor.error(format!("{} is no factor", factor.value), "write a number of 1 to 100")
                );
            }
        },
        (None, Some(amount)) => More::Amount(milli(&amount, amount.quantity()?)?),
        _ => return Err(at.error("it has not one of factor and amount", "write one of them")),
    };
    let seconds = match at.get("seconds")? {
        None => START.0,
        Some(seconds) => match seconds.value.as_u64() {
            Some(number) if (1..=START.1).contains(&number) => number,
            _ => {
                return Err(
                    seconds.error(format!("{} is no such time", seconds.value), "write 1 to 3600 seconds")
                );
            }
        },
    };
    let learned = match at.get("learned")? {
        None => false,
        Some(learned) => learned.value.as_bool().ok_or_else(|| {
            learned.error(format!("{} is neither true nor false", learned.value), "write true or false")
        })?,
    };
    Ok(Some(StartupBoost { more, seconds, learned }))
}

fn goals(spec: &At<'_>) -> Result<Goals, PolicyError> {
    let Some(at) = spec.get("goals")? else { return Ok(Goals::default()) };
    at.only(&["cpu", "memory"])?;
    let mut goals = Goals::default();
    if let Some(cpu) = at.get("cpu")? {
        cpu.only(&["threshold", "over"])?;
        goals.cpu_threshold = cpu.get("threshold")?.map(|at| at.part()).transpose()?;
        goals.cpu_over = cpu.get("over")?.map(|at| at.part()).transpose()?;
    }
    if let Some(memory) = at.get("memory")? {
        memory.only(&["over"])?;
        goals.memory_over = memory.get("over")?.map(|at| at.part()).transpose()?;
    }
    Ok(goals)
}

/// The parameters of a rule: its defaults with those given in their place.
///
/// # Errors
/// What is wrong with the given ones.
pub fn merged<T>(defaults: &T, given: &Map<String, Value>) -> Result<T, String>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    let mut all = serde_json::to_value(defaults).map_err(|e| e.to_string())?;
    if let Some(map) = all.as_object_mut() {
        map.extend(given.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    serde_json::from_value(all).map_err(|e| e.to_string())
}

/// The policies among the objects of a text, each with the place of its document, from 0, and its name as far as it has
/// one. Other objects are left aside; nothing comes of a text that is neither YAML nor JSON. One that names a controller
/// selects nothing here, and is right.
pub fn find(text: &str) -> Vec<(usize, String, Result<Policy, PolicyError>)> {
    let documents: Vec<Value> = yaml::documents(text, BOUNDS).unwrap_or_default();
    let of = |(document, value): (usize, Value)| {
        members(value).into_iter().filter(is_policy).map(move |object| {
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            (document, name.to_owned(), read_resolved(&object, Some(&LabelSelector::default())))
        })
    };
    documents.into_iter().enumerate().flat_map(of).collect()
}
