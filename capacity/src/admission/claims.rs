//! Claims that every clone of a pod gets anew: what quotas charge for them, and what limit ranges allow.
//!
//! A quota with scopes counts no claims (`persistent_volume_claims.go`): scopes speak of pods.

use std::collections::BTreeMap;

use evenkeel_model::quantity::Quantity;

use crate::cluster::Cluster;
use crate::object::{ClaimSpec, LimitRange, Pod, ResourceList, ResourceQuota};

/// What resource names of one storage class end with, before the resource.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Names of what claims are charged.
const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";

/// Whether a quota's resource speaks of claims.
pub(super) fn is_of_claims(resource: &str) -> bool {
    let plain = resource.rsplit_once(OF_CLASS).map_or(resource, |(_, plain)| plain);
    matches!(plain, CLAIMS | STORAGE | "count/persistentvolumeclaims")
}

/// Whether a quota counts claims at all.
pub(super) fn counts(quota: &ResourceQuota) -> bool {
    quota.spec.scopes.is_empty() && quota.spec.scope_selector.match_expressions.is_empty()
}

/// Templates of the claims each clone gets, with the name of the volume.
fn templates(pod: &Pod) -> impl Iterator<Item = (&str, &ClaimSpec)> {
    let volumes = pod.spec.volumes.iter();
    volumes.filter_map(|v| Some((v.name.as_str(), &v.ephemeral.as_ref()?.volume_claim_template.spec)))
}

/// Name of the first claim that a clone of this name gets.
pub(super) fn first_name(pod: &Pod, clone: &str) -> Option<String> {
    templates(pod).next().map(|(volume, _)| format!("{volume}-{clone}"))
}

/// What the claims of one clone are charged, by every name a quota may use.
pub(super) fn charge(cluster: &Cluster, pod: &Pod) -> BTreeMap<String, Quantity> {
    let mut charge = BTreeMap::new();
    for (_, claim) in templates(pod) {
        let class = claim.storage_class_name.as_deref();
        let class = class.or_else(|| cluster.storage.default_class().map(|class| cluster.word(class)));
        add(&mut charge, class.unwrap_or(""), claim.resources.requests.get("storage").copied());
    }
    charge
}

/// What the claims of a namespace are charged.
pub(super) fn used(cluster: &Cluster, namespace: &str, used: &mut ResourceList) {
    for (key, claim) in &cluster.storage.claims {
        if cluster.word(*key).split_once('/').is_some_and(|(of, _)| of == namespace) {
            let bytes = Quantity::from_bytes(u64::try_from(claim.bytes).unwrap_or(0));
            add(used, cluster.word(claim.class), Some(bytes));
        }
    }
}

fn add(charge: &mut BTreeMap<String, Quantity>, class: &str, storage: Option<Quantity>) {
    let mut one = |name: &str, amount: Quantity| {
        let mut raise = |name: String| {
            let slot = charge.entry(name).or_insert(Quantity::from_units(0));
            *slot = slot.saturating_add(amount);
        };
        raise(name.to_owned());
        if !class.is_empty() {
            raise(format!("{class}{OF_CLASS}{name}"));
        }
    };
    one(CLAIMS, Quantity::from_units(1));
    if let Some(storage) = storage {
        one(STORAGE, storage);
    }
    let slot = charge.entry(format!("count/{CLAIMS}")).or_insert(Quantity::from_units(0));
    *slot = slot.saturating_add(Quantity::from_units(1));
}

/// Checks the claims against the limit ranges of their namespace; the API server's words.
pub(super) fn check(ranges: &[&LimitRange], pod: &Pod) -> Result<(), String> {
    let items = || ranges.iter().flat_map(|range| &range.spec.limits);
    for (volume, claim) in templates(pod) {
        let request = claim.resources.requests.get("storage");
        for item in items().filter(|item| item.kind == "PersistentVolumeClaim") {
            for (bound, amount, broken) in [
                (
                    "minimum",
                    item.min.get("storage"),
                    (|request, least| request < least) as fn(i128, i128) -> bool,
                ),
                ("maximum", item.max.get("storage"), |request, most| request > most),
            ] {
                let Some(amount) = amount else { continue };
                let why = match request {
                    Some(request) if !broken(request.nano(), amount.nano()) => continue,
                    Some(request) => format!(", but request is {}", request.canonical()),
                    None => ".  No request is specified".to_owned(),
                };
                let amount = amount.canonical();
                return Err(format!(
                    "persistentvolumeclaims \"{volume}-{}\" is forbidden: {bound} storage usage per PersistentVolumeClaim \
                     is {amount}{why}",
                    pod.metadata.name
                ));
            }
        }
    }
    Ok(())
}
