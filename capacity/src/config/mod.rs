//! Profiles from a scheduler configuration (`KubeSchedulerConfiguration`, `kubescheduler.config.k8s.io/v1`).
//!
//! Plugins that decide nothing here (queueing, binding) are read over; a filter or score nobody knows is an
//! error, since the answer would not be that scheduler's.

mod extenders;

use std::sync::Arc;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::cluster::selector::{NodeTerm, NodeTerms, SelectorError};
use crate::object::NodeAffinity;
use crate::plugin::{AnyFilter, AnyScore, Registry};
use crate::profile::{DefaultSpread, Filter, Filters, FitStrategy, ListedSpread, Profile, Profiles, Version};
use extenders::{Extenders, extenders};

/// Largest weight of a score.
const MOST_WEIGHT: i64 = 1 << 20;

/// Why a configuration cannot be used: the field, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct ConfigError {
    /// Path of the field.
    pub field: String,
    /// What is wrong.
    pub why: String,
}

fn error<T>(field: impl Into<String>, why: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError { field: field.into(), why: why.into() })
}

/// Plugins without a say in where a pod fits.
const SILENT: [&str; 7] = [
    "SchedulingGates",
    "PrioritySort",
    "DefaultBinder",
    "DynamicResources",
    "NodeDeclaredFeatures",
    "GangScheduling",
    "DeferredPodScheduling",
];

/// Reads the profiles of a configuration; one without any is the default one.
///
/// # Errors
/// [`ConfigError`] with the field.
pub fn profiles(config: &Value, version: Version, cluster: &mut Cluster) -> Result<Profiles, ConfigError> {
    profiles_of(&Registry::default(), config, version, cluster)
}

/// The same with the plugins of a registry, which the configuration enables by name.
///
/// # Errors
/// [`ConfigError`] with the field.
pub fn profiles_of(
    registry: &Registry,
    config: &Value,
    version: Version,
    cluster: &mut Cluster,
) -> Result<Profiles, ConfigError> {
    let kind = config["kind"].as_str().unwrap_or("");
    if kind != "KubeSchedulerConfiguration" {
        return error("kind", format!("{kind:?} is not KubeSchedulerConfiguration"));
    }
    let Extenders { extenders, ignored } = extenders(registry, &config["extenders"])?;
    cluster.tells_extenders = !extenders.is_empty();
    let of_all = percentage("", config)?.unwrap_or(0);
    let Some(written) = config["profiles"].as_array() else {
        return Ok(Profiles::new(vec![Profile {
            version,
            percentage_of_nodes_to_score: of_all,
            ignored_resources: ignored,
            extenders,
            ..Profile::default()
        }]));
    };
    let read = |(index, written): (usize, &Value)| {
        let field = format!("profiles[{index}]");
        let percentage_of_nodes_to_score = percentage(&format!("{field}."), written)?.unwrap_or(of_all);
        let mut profile = profile(&field, registry, written, version, cluster)?;
        profile.ignored_resources.extend(ignored.iter().cloned());
        Ok(Profile { percentage_of_nodes_to_score, extenders: extenders.clone(), ..profile })
    };
    written.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>().map(Profiles::new)
}

/// The percentage of nodes to score, of all profiles or of one.
fn percentage(place: &str, written: &Value) -> Result<Option<u64>, ConfigError> {
    let value = &written["percentageOfNodesToScore"];
    match value.as_u64() {
        None if value.is_null() => Ok(None),
        Some(percentage @ 0..=100) => Ok(Some(percentage)),
        _ => error(format!("{place}percentageOfNodesToScore"), format!("{value} is not between 0 and 100")),
    }
}

fn profile(
    field: &str,
    registry: &Registry,
    written: &Value,
    version: Version,
    cluster: &mut Cluster,
) -> Result<Profile, ConfigError> {
    let mut profile = Profile { version, ..Profile::default() };
    if let Some(name) = written["schedulerName"].as_str() {
        name.clone_into(&mut profile.name);
    }
    let plugins = &written["plugins"];
    for point in ["multiPoint", "filter", "postFilter", "score"] {
        let field = format!("{field}.plugins.{point}");
        for (index, plugin) in list(&plugins[point]["disabled"]).iter().enumerate() {
            disable(&mut profile, registry, point, plugin["name"].as_str().unwrap_or(""))
                .or_else(|why| error(format!("{field}.disabled[{index}]"), why))?;
        }
        for (index, plugin) in list(&plugins[point]["enabled"]).iter().enumerate() {
            enable(&mut profile, registry, point, plugin)
                .or_else(|why| error(format!("{field}.enabled[{index}]"), why))?;
        }
    }
    for (index, config) in list(&written["pluginConfig"]).iter().enumerate() {
        let field = format!("{field}.pluginConfig[{index}].args");
        arguments(&field, &mut profile, config["name"].as_str().unwrap_or(""), &config["args"], cluster)?;
    }
    Ok(profile)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Which kinds of plugins an extension point speaks of: filters, post-filters, scores.
fn of_point(point: &str) -> [bool; 3] {
    ["filter", "postFilter", "score"].map(|kind| point == kind || point == "multiPoint")
}

fn disable(profile: &mut Profile, registry: &Registry, point: &str, name: &str) -> Result<(), String> {
    let [filters, post_filters, scores] = of_point(point);
    if name == "*" {
        if filters {
            profile.filters = Filter::ALL.into_iter().fold(profile.filters, Filters::without);
            profile.own_filters.clear();
        }
        if post_filters {
            profile.post_filter = None;
        }
        if scores {
            profile.scores.clear();
            profile.own_scores.clear();
        }
        return Ok(());
    }
    known(registry, name)?;
    match registry.find_filter(name).filter(|_| filters) {
        Some(AnyFilter::BuiltIn(filter)) => profile.filters = profile.filters.without(*filter),
        _ if filters => profile.own_filters.retain(|own| own.name() != name),
        _ => {}
    }
    if post_filters && profile.post_filter.as_ref().is_some_and(|plugin| plugin.name() == name) {
        profile.post_filter = None;
    }
    match registry.find_score(name).filter(|_| scores) {
        Some(AnyScore::BuiltIn(score)) => profile.scores.retain(|(known, _)| known != score),
        _ if scores => profile.own_scores.retain(|(own, _)| own.name() != name),
        _ => {}
    }
    Ok(())
}

fn enable(profile: &mut Profile, registry: &Registry, point: &str, plugin: &Value) -> Result<(), String> {
    let name = plugin["name"].as_str().unwrap_or("");
    let [filters, post_filters, scores] = of_point(point);
    known(registry, name)?;
    match registry.find_filter(name).filter(|_| filters) {
        Some(AnyFilter::BuiltIn(filter)) => profile.filters = profile.filters.with(*filter),
        Some(AnyFilter::Own(own)) => {
            profile.own_filters.retain(|known| known.name() != name);
            profile.own_filters.push(Arc::clone(own));
        }
        None => {}
    }
    if let Some(own) = registry.find_post_filter(name).filter(|_| post_filters) {
        profile.post_filter = Some(Arc::clone(own));
    }
    let Some(score) = registry.find_score(name).filter(|_| scores) else { return Ok(()) };
    let default = match score {
        AnyScore::BuiltIn(score) => Profile::default().weight(*score),
        AnyScore::Own(_) => 1,
    };
    let weight = match plugin["weight"].as_i64() {
        None | Some(0) => default.max(1),
        Some(weight) if weight > 0 && weight <= MOST_WEIGHT => weight,
        Some(weight) => return Err(format!("weight {weight} is not between 1 and {MOST_WEIGHT}")),
    };
    match score {
        AnyScore::BuiltIn(score) => {
            profile.scores.retain(|(known, _)| known != score);
            profile.scores.push((*score, weight));
        }
        AnyScore::Own(own) => {
            profile.own_scores.retain(|(known, _)| known.name() != name);
            profile.own_scores.push((Arc::clone(own), weight));
        }
    }
    Ok(())
}

fn known(registry: &Registry, name: &str) -> Result<(), String> {
    let known = registry.find_filter(name).is_some()
        || registry.find_score(name).is_some()
        || registry.find_post_filter(name).is_some()
        || SILENT.contains(&name);
    if known {
        Ok(())
    } else {
        Err(format!("plugin {name:?} is not known here, so the answer would not be this scheduler's"))
    }
}

fn arguments(
    field: &str,
    profile: &mut Profile,
    plugin: &str,
    args: &Value,
    cluster: &mut Cluster,
) -> Result<(), ConfigError> {
    match plugin {
        "NodeResourcesFit" => fit(field, profile, args, cluster),
        "NodeResourcesBalancedAllocation" => {
            if let Some(resources) = args["resources"].as_array() {
                let index = |resource: &Value| {
                    cluster.resources.index(resource["name"].as_str().unwrap_or(""), &mut cluster.symbols)
                };
                profile.balanced_resources = resources.iter().map(index).collect();
            }
            Ok(())
        }
        "NodeAffinity" => added_affinity(field, profile, &args["addedAffinity"], cluster),
        "PodTopologySpread" => default_spread(field, profile, args, cluster),
        "InterPodAffinity" => {
            if let Some(weight) = args["hardPodAffinityWeight"].as_i64() {
                if !(0..=100).contains(&weight) {
                    return error(
                        format!("{field}.hardPodAffinityWeight"),
                        format!("{weight} is not between 0 and 100"),
                    );
                }
                profile.hard_pod_affinity_weight = weight;
            }
            profile.own_pod_preferences_only = args["ignorePreferredTermsOfExistingPods"] == true;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn fit(field: &str, profile: &mut Profile, args: &Value, cluster: &mut Cluster) -> Result<(), ConfigError> {
    let ignored = ["ignoredResources", "ignoredResourceGroups"].map(|key| list(&args[key])).concat();
    profile.ignored_resources = ignored.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let strategy = &args["scoringStrategy"];
    if strategy.is_null() {
        return Ok(());
    }
    let field = format!("{field}.scoringStrategy");
    if let Some(resources) = strategy["resources"].as_array() {
        let mut weights = Vec::new();
        for (index, resource) in resources.iter().enumerate() {
            let weight = resource["weight"].as_i64().filter(|weight| *weight != 0).unwrap_or(1);
            if !(1..=100).contains(&weight) {
                return error(
                    format!("{field}.resources[{index}].weight"),
                    format!("{weight} is not between 1 and 100"),
                );
            }
            let name = resource["name"].as_str().unwrap_or("");
            weights.push((cluster.resources.index(name, &mut cluster.symbols), weight));
        }
        profile.fit_resources = weights;
    }
    profile.fit = match strategy["type"].as_str().unwrap_or("LeastAllocated") {
        "LeastAllocated" => FitStrategy::LeastAllocated,
        "MostAllocated" => FitStrategy::MostAllocated,
        "RequestedToCapacityRatio" => {
            let shape = list(&strategy["requestedToCapacityRatio"]["shape"]);
            FitStrategy::RequestedToCapacityRatio(points(
                &format!("{field}.requestedToCapacityRatio.shape"),
                shape,
            )?)
        }
        other => return error(format!("{field}.type"), format!("{other:?} is not a scoring strategy")),
    };
    Ok(())
}

/// Points of the broken line; scores are written as 0 to 10.
fn points(field: &str, shape: &[Value]) -> Result<Vec<(i64, i64)>, ConfigError> {
    if shape.is_empty() {
        return error(field, "at least one point is needed");
    }
    let mut points: Vec<(i64, i64)> = Vec::new();
    for (index, point) in shape.iter().enumerate() {
        let (used, score) =
            (point["utilization"].as_i64().unwrap_or(-1), point["score"].as_i64().unwrap_or(-1));
        if !(0..=100).contains(&used) || !(0..=10).contains(&score) {
            return error(format!("{field}[{index}]"), "utilization is 0 to 100 and score 0 to 10");
        }
        if points.last().is_some_and(|(before, _)| *before >= used) {
            return error(format!("{field}[{index}]"), "utilization must grow from point to point");
        }
        points.push((used, score * 10));
    }
    Ok(points)
}

fn added_affinity(
    field: &str,
    profile: &mut Profile,
    written: &Value,
    cluster: &mut Cluster,
) -> Result<(), ConfigError> {
    if written.is_null() {
        return Ok(());
    }
    let field = format!("{field}.addedAffinity");
    let affinity: NodeAffinity =
        serde_json::from_value(written.clone()).or_else(|why| error(field.clone(), why.to_string()))?;
    let symbols = &mut cluster.symbols;
    let required = affinity.required.as_ref().map(|terms| NodeTerms::new(terms, symbols)).transpose();
    profile.added_affinity = required.or_else(|why| error(field.clone(), why.to_string()))?;
    let preferred = affinity.preferred.iter().map(|p| Ok((p.weight, NodeTerm::new(&p.preference, symbols)?)));
    let preferred = preferred.collect::<Result<_, SelectorError>>();
    profile.added_preferences = preferred.or_else(|why| error(field, why.to_string()))?;
    Ok(())
}

fn default_spread(
    field: &str,
    profile: &mut Profile,
    args: &Value,
    cluster: &mut Cluster,
) -> Result<(), ConfigError> {
    let listed = list(&args["defaultConstraints"]);
    let kind = args["defaultingType"].as_str().unwrap_or(if listed.is_empty() { "System" } else { "List" });
    match kind {
        "System" if listed.is_empty() => profile.default_spread = DefaultSpread::System,
        "List" => {
            let one = |written: &Value| {
                let key = written["topologyKey"].as_str().unwrap_or("").to_owned();
                cluster.symbols.intern(&key);
                ListedSpread {
                    max_skew: written["maxSkew"].as_i64().unwrap_or(1).max(1),
                    key,
                    hard: written["whenUnsatisfiable"].as_str() == Some("DoNotSchedule"),
                }
            };
            profile.default_spread = DefaultSpread::Listed(listed.iter().map(one).collect());
        }
        "System" => {
            return error(
                format!("{field}.defaultConstraints"),
                "constraints are listed, but defaultingType is System",
            );
        }
        other => {
            return error(format!("{field}.defaultingType"), format!("{other:?} is neither System nor List"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Builder;
    use crate::profile::Score;
    use serde_json::json;

    fn read(profile: Value) -> Result<Profile, ConfigError> {
        let mut cluster = Builder::new().finish().0;
        let config = json!({"kind": "KubeSchedulerConfiguration", "profiles": [profile]});
        profiles(&config, Version::V1_36, &mut cluster).map(|profiles| profiles.of("x").clone())
    }

    #[test]
    fn a_profile_is_read_as_values() {
        let got = read(json!({
            "schedulerName": "pack",
            "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}], "enabled": [{"name": "ImageLocality", "weight": 7}]},
                        "filter": {"disabled": [{"name": "VolumeZone"}]}},
            "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio",
                    "resources": [{"name": "cpu", "weight": 3}, {"name": "nvidia.com/gpu"}],
                    "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}},
                {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 9}},
                {"name": "PodTopologySpread", "args": {"defaultConstraints": [
                    {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}], "defaultingType": "List"}},
            ],
        }))
        .unwrap();
        assert_eq!(got.name, "pack");
        assert_eq!(
            (got.weight(Score::NodeResourcesBalancedAllocation), got.weight(Score::ImageLocality)),
            (0, 7)
        );
        assert!(!got.filters.has(Filter::VolumeZone) && got.filters.has(Filter::NodeAffinity));
        assert_eq!(got.fit, FitStrategy::RequestedToCapacityRatio(vec![(0, 0), (100, 100)]));
        assert_eq!((got.fit_resources[0].1, got.fit_resources[1].1, got.hard_pod_affinity_weight), (3, 1, 9));
        assert!(matches!(got.default_spread, DefaultSpread::Listed(listed) if listed[0].max_skew == 2));
    }

    #[test]
    fn arguments_of_plugins_are_values_of_the_profile() {
        let hosts = json!([{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]);
        let got = read(json!({"pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"ignoredResources": ["x.io/a"], "ignoredResourceGroups": ["y.io"]}},
            {"name": "NodeAffinity", "args": {"addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": hosts},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": hosts[0]}]}}},
            {"name": "InterPodAffinity", "args": {"ignorePreferredTermsOfExistingPods": true}},
        ]}))
        .unwrap();
        assert_eq!(got.ignored_resources, ["x.io/a", "y.io"]);
        assert_eq!((got.added_affinity.unwrap().0.len(), got.added_preferences[0].0), (1, 7));
        assert!(got.own_pod_preferences_only);
    }

    #[test]
    fn what_is_not_known_is_named() {
        let table = [
            (
                json!({"plugins": {"filter": {"enabled": [{"name": "Mine"}]}}}),
                "profiles[0].plugins.filter.enabled[0]",
            ),
            (
                json!({"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}}]}),
                "profiles[0].pluginConfig[0].args.scoringStrategy.type",
            ),
            (
                json!({"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}]}),
                "profiles[0].pluginConfig[0].args.hardPodAffinityWeight",
            ),
        ];
        for (profile, field) in table {
            assert_eq!(read(profile).unwrap_err().field, field);
        }
    }
}
