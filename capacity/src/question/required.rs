//! What the pods asked about need, in the words of the design document's example.

use std::collections::BTreeMap;

use evenkeel_model::name::ResourceName;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::resource_type::ResourceTypes;
use serde::{Deserialize, Serialize};

use crate::admission::admit;
use crate::answer::{Shape, amount_text};
use crate::cluster::{Cluster, PodInfo};
use crate::object::StringMap;

/// What one pod needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Required {
    /// Name of the pod.
    pub pod: String,
    /// Effective requests by resource, as its namespace fills them in.
    pub requests: BTreeMap<String, String>,
    /// What was defined of the types among them: unit, compressible or not, default request, granularity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, String>,
    /// Claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims: Option<RequiredClaims>,
    /// Labels of the nodes it selects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: StringMap,
}

/// What a pod claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequiredClaims {
    /// How many claims.
    pub count: usize,
    /// Size of all of them that are known.
    pub total_storage: String,
}

/// What each shape needs; one that cannot be used is left out, since the question is refused for it.
pub(super) fn required(
    cluster: &mut Cluster,
    shapes: &[Shape],
    types: Option<&ResourceTypes>,
) -> Vec<Required> {
    let mut one = |shape: &Shape| {
        let pod = admit(cluster, shape.pod.clone()).pod;
        let compiled = cluster.shape(&pod).ok()?;
        let name = |resource| cluster.resources.name(resource, &cluster.symbols).to_owned();
        let requests: BTreeMap<_, _> = compiled
            .requests
            .plain
            .iter()
            .map(|(resource, amount)| {
                let name = name(*resource);
                let amount = amount_text(&name, *amount);
                (name, amount)
            })
            .collect();
        let told = |name: &String| Some((name.clone(), types?.told(&ResourceName::parse(name).ok()?)?));
        Some(Required {
            pod: pod.metadata.name,
            types: requests.keys().filter_map(told).collect(),
            requests,
            claims: claims(cluster, &compiled),
            labels: pod.spec.node_selector,
        })
    };
    shapes.iter().filter_map(&mut one).collect()
}

fn claims(cluster: &Cluster, pod: &PodInfo) -> Option<RequiredClaims> {
    let count = pod.claims.len() + pod.own_claims.len();
    let known = pod.claims.iter().filter_map(|key| cluster.storage.claims.get(key)).chain(&pod.own_claims);
    let bytes = known.fold(0_i64, |sum, claim| sum.saturating_add(claim.bytes));
    let total_storage = Quantity::from_bytes(u64::try_from(bytes).unwrap_or(0)).canonical();
    (count > 0).then_some(RequiredClaims { count, total_storage })
}
