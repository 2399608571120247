//! Volumes: disks in use, attachment limits, volumes reachable from a node, zones (`volumerestrictions`,
//! `nodevolumelimits`, `volumebinding`, `volumezone`).

use std::collections::{HashMap, HashSet};

use super::reason::Rejection;
use crate::cluster::storage::{Binding, Claim, DiskUse, Volume};
use crate::cluster::{Cluster, NodeIndex, Pod, Symbol};
use crate::profile::{Filter, Profile};
use crate::state::State;

/// Driver and handle (or claim) of a volume as attachments count it.
type Handle = (Symbol, Symbol);

/// One claim of the pod.
#[derive(Debug, Clone)]
struct Wanted {
    key: Symbol,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    /// Bound to this volume.
    Bound(Symbol),
    /// A volume is found or made at placing.
    Waiting,
    /// Made at placing on this node: reachable where zone and region are the same.
    Made(NodeIndex),
}

/// Volume rules of one pod.
#[derive(Debug, Clone)]
pub(crate) struct VolumeRules {
    wanted: Vec<Wanted>,
    disks: Box<[DiskUse]>,
    /// Disks in use by node.
    disks_on: HashMap<NodeIndex, Vec<DiskUse>>,
    /// Attached volumes by node.
    attached: Vec<HashSet<Handle>>,
    /// A claim for one pod that somebody uses.
    one_pod_in_use: bool,
    one_pod: Vec<Symbol>,
    /// Volumes taken by claims bound while placing.
    taken: HashSet<Symbol>,
}

/// Why the pod is refused before any node is looked at.
pub(crate) fn refuses_pod(cluster: &Cluster, profile: &Profile, pod: &Pod) -> Option<String> {
    if !profile.filters.has(Filter::VolumeBinding) {
        return None;
    }
    let mut immediate = false;
    for key in &pod.claims {
        let name = cluster.word(*key).split_once('/').map_or("", |(_, name)| name);
        let Some(claim) = cluster.storage.claims.get(key) else {
            return Some(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        match claim.binding {
            Binding::Lost(volume) => {
                let volume = cluster.word(volume);
                return Some(format!(
                    "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
                ));
            }
            Binding::Deleted => return Some(format!("persistentvolumeclaim \"{name}\" is being deleted")),
            Binding::Immediate => immediate = true,
            Binding::Bound(_) | Binding::Waiting => {}
        }
    }
    immediate.then(|| "pod has unbound immediate PersistentVolumeClaims".to_owned())
}

impl VolumeRules {
    /// Rules of a pod against everybody placed; `None` when it has no volume that matters.
    pub(crate) fn new(cluster: &Cluster, state: &State, pod: &Pod) -> Option<Self> {
        if pod.claims.is_empty() && pod.disks.is_empty() {
            return None;
        }
        let wanted = pod.claims.iter().filter_map(|key| {
            let claim = cluster.storage.claims.get(key)?;
            let what = match claim.binding {
                Binding::Bound(volume) => What::Bound(volume),
                _ => What::Waiting,
            };
            Some(Wanted { key: *key, what })
        });
        let one_pod =
            pod.claims.iter().filter(|key| cluster.storage.claims.get(key).is_some_and(|c| c.one_pod));
        let mut rules = Self {
            wanted: wanted.collect(),
            disks: pod.disks.clone(),
            disks_on: HashMap::new(),
            attached: vec![HashSet::new(); cluster.nodes.len()],
            one_pod_in_use: false,
            one_pod: one_pod.copied().collect(),
            taken: HashSet::new(),
        };
        for (at, node) in cluster.nodes.iter().enumerate() {
            let volumes = cluster.storage.attached.get(&node.name).into_iter().flatten();
            rules.attached[at]
                .extend(volumes.filter_map(|(_, volume)| cluster.storage.volumes.get(volume)?.handle));
        }
        for (id, node) in &state.placements {
            rules.note_others(cluster, state.pod(*id), *node as usize);
        }
        Some(rules)
    }

    /// Whether placing this very pod changes nothing for the next: every claim is bound and bears several pods.
    pub(crate) fn is_settled(&self) -> bool {
        self.one_pod.is_empty() && !self.wanted.iter().any(|wanted| matches!(wanted.what, What::Waiting))
    }

    fn note_others(&mut self, cluster: &Cluster, other: &Pod, node: NodeIndex) {
        self.attached[node].extend(other.claims.iter().filter_map(|key| handle(cluster, *key)));
        if !self.disks.is_empty() && !other.disks.is_empty() {
            self.disks_on.entry(node).or_default().extend(other.disks.iter().cloned());
        }
        if self.one_pod.iter().any(|key| other.claims.contains(key)) {
            self.one_pod_in_use = true;
        }
    }

    /// Takes in that a pod was put on a node; `own` when it is one of this shape.
    pub(crate) fn note(&mut self, cluster: &Cluster, state: &State, id: u32, node: NodeIndex, own: bool) {
        if own {
            self.bind(cluster, node);
        }
        self.note_others(cluster, state.pod(id), node);
    }

    /// Claims that waited are bound where the first pod went.
    fn bind(&mut self, cluster: &Cluster, node: NodeIndex) {
        for index in 0..self.wanted.len() {
            if matches!(self.wanted[index].what, What::Waiting)
                && let Some(claim) = cluster.storage.claims.get(&self.wanted[index].key)
            {
                let found = self.find(cluster, claim, self.wanted[index].key, node).map(|volume| volume.name);
                self.taken.extend(found);
                self.wanted[index].what = found.map_or(What::Made(node), What::Bound);
            }
        }
    }

    /// Why a node is refused, by the filters that are on.
    pub(crate) fn refuses(&self, cluster: &Cluster, profile: &Profile, node: NodeIndex) -> Option<Rejection> {
        let on = |filter| profile.filters.has(filter);
        if on(Filter::VolumeRestrictions) {
            let in_use = self.disks_on.get(&node).into_iter().flatten();
            if in_use.into_iter().any(|used| self.disks.iter().any(|disk| disk.conflicts(used))) {
                return Some(Rejection::Disk);
            }
            if self.one_pod_in_use {
                return Some(Rejection::ClaimInUse);
            }
        }
        if on(Filter::NodeVolumeLimits) && self.exceeds_limit(cluster, node) {
            return Some(Rejection::VolumeCount);
        }
        if on(Filter::VolumeBinding)
            && let Some(rejection) = self.unreachable(cluster, node)
        {
            return Some(rejection);
        }
        (on(Filter::VolumeZone) && self.in_other_zone(cluster, node)).then_some(Rejection::Zone)
    }

    /// Whether a node has attachments free for what is not attached there yet.
    pub(crate) fn attaches(&self, cluster: &Cluster, node: NodeIndex) -> bool {
        !self.exceeds_limit(cluster, node)
    }

    fn exceeds_limit(&self, cluster: &Cluster, node: NodeIndex) -> bool {
        let attached = &self.attached[node];
        let mut new: HashMap<Symbol, HashSet<Handle>> = HashMap::new();
        for wanted in &self.wanted {
            if let Some(handle) = handle(cluster, wanted.key).filter(|handle| !attached.contains(handle)) {
                new.entry(handle.0).or_default().insert(handle);
            }
        }
        let name = cluster.nodes[node].name;
        new.into_iter().any(|(driver, new)| {
            let there = attached.iter().filter(|(known, _)| *known == driver).count();
            let limit = cluster.storage.limits.get(&(name, driver));
            limit.is_some_and(|limit| (there + new.len()) as i64 > *limit)
        })
    }

    fn unreachable(&self, cluster: &Cluster, node: NodeIndex) -> Option<Rejection> {
        let (mut unreachable, mut unbound, mut space, mut missing) = (false, false, false, false);
        for wanted in &self.wanted {
            match wanted.what {
                What::Bound(volume) => match cluster.storage.volumes.get(&volume) {
                    Some(volume) => unreachable |= !reachable(cluster, volume, node),
                    None => missing = true,
                },
                What::Made(at) => unreachable |= !same_zone(cluster, at, node),
                What::Waiting => {
                    let Some(claim) = cluster.storage.claims.get(&wanted.key) else { continue };
                    if self.find(cluster, claim, wanted.key, node).is_none() {
                        match can_make(cluster, claim, node) {
                            Making::Yes => {}
                            Making::NotHere => unbound = true,
                            Making::NoSpace => space = true,
                        }
                    }
                }
            }
        }
        let any = unreachable || unbound || space || missing;
        any.then_some(Rejection::Volumes { unreachable, unbound, space, missing })
    }

    /// The smallest free volume that serves a claim on a node.
    fn find<'a>(
        &self,
        cluster: &'a Cluster,
        claim: &Claim,
        key: Symbol,
        node: NodeIndex,
    ) -> Option<&'a Volume> {
        let serves = |volume: &&Volume| {
            let reserved = volume.claim == Some(key);
            (reserved || (volume.claim.is_none() && volume.available))
                && !self.taken.contains(&volume.name)
                && volume.class == claim.class
                && volume.block == claim.block
                && volume.bytes >= claim.bytes
                && claim.modes.iter().all(|mode| volume.modes.contains(mode))
                && claim.selector.as_ref().is_none_or(|s| s.matches(&volume.labels, &cluster.symbols))
                && reachable(cluster, volume, node)
        };
        let serving = cluster.storage.volumes.values().filter(serves);
        // One reserved for the claim goes first, then the smallest, then by name so that the answer is always the same.
        serving.min_by_key(|volume| (volume.claim.is_none(), volume.bytes, cluster.word(volume.name)))
    }

    fn in_other_zone(&self, cluster: &Cluster, node: NodeIndex) -> bool {
        let labels = &cluster.nodes[node].labels;
        let value = |key: Symbol| {
            labels.get(key).or_else(|| {
                // Volumes may still carry the old names.
                let stable = match cluster.word(key) {
                    "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
                    "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
                    _ => return None,
                };
                labels.get(cluster.symbols.find(stable)?)
            })
        };
        let mut keys = crate::object::ZONE_LABELS.iter().filter_map(|key| cluster.symbols.find(key));
        if !keys.any(|key| labels.get(key).is_some()) {
            return false;
        }
        self.wanted.iter().any(|wanted| {
            let What::Bound(volume) = wanted.what else { return false };
            let Some(volume) = cluster.storage.volumes.get(&volume) else { return false };
            volume
                .zones
                .iter()
                .any(|(key, allowed)| !value(*key).is_some_and(|value| allowed.contains(&value)))
        })
    }
}

/// How a claim's volume is counted among attachments.
fn handle(cluster: &Cluster, key: Symbol) -> Option<Handle> {
    let claim = cluster.storage.claims.get(&key)?;
    match claim.binding {
        Binding::Bound(volume) | Binding::Lost(volume) => cluster.storage.volumes.get(&volume)?.handle,
        _ => Some((cluster.storage.classes.get(&claim.class)?.provisioner?, key)),
    }
}

fn reachable(cluster: &Cluster, volume: &Volume, node: NodeIndex) -> bool {
    let node = &cluster.nodes[node];
    volume.nodes.as_ref().is_none_or(|terms| terms.matches(node.name, &node.labels, &cluster.symbols))
}

fn same_zone(cluster: &Cluster, a: NodeIndex, b: NodeIndex) -> bool {
    let value = |node: NodeIndex, key: &str| cluster.nodes[node].labels.get(cluster.symbols.find(key)?);
    crate::object::ZONE_LABELS.iter().all(|key| value(a, key).is_none() || value(a, key) == value(b, key))
}

enum Making {
    Yes,
    NotHere,
    NoSpace,
}

/// Whether a volume can be made for a claim on a node.
fn can_make(cluster: &Cluster, claim: &Claim, node: NodeIndex) -> Making {
    let Some(class) = cluster.storage.classes.get(&claim.class) else { return Making::NotHere };
    let Some(driver) = class.provisioner else { return Making::NotHere };
    let labels = &cluster.nodes[node].labels;
    let allowed = class.topologies.is_empty()
        || class.topologies.iter().any(|all| {
            all.iter().all(|(key, values)| labels.get(*key).is_some_and(|value| values.contains(&value)))
        });
    if !allowed {
        return Making::NotHere;
    }
    let looked_at = cluster.storage.space_drivers.contains(&driver);
    let room = |space: &&crate::cluster::storage::Space| {
        space.class == claim.class
            && space.bytes >= claim.bytes
            && space.nodes.matches(labels, &cluster.symbols)
    };
    if looked_at && !cluster.storage.spaces.iter().any(|space| room(&space)) {
        Making::NoSpace
    } else {
        Making::Yes
    }
}
