//! Volumes: disks in use, attachment limits, volumes reachable from a node, zones (`volumerestrictions`,
//! `nodevolumelimits`, `volumebinding`, `volumezone`).

use evenkeel_model::narrow::usize_to_i64;
use std::collections::{HashMap, HashSet};

use super::binding::{Making, UnboundClaim, can_make, reachable, same_place};
use super::reason::Rejection;
use crate::cluster::storage::{Binding, DiskUse, Volume};
use crate::cluster::{Cluster, NodeIndex, PodInfo, Symbol};
use crate::profile::{Filter, Profile};
use crate::state::ClusterState;

/// Driver and handle (or claim) of a volume as attachments count it.
type Handle = (Symbol, Symbol);

/// One claim of the pod.
#[derive(Debug, Clone)]
struct PodClaim {
    /// How its volume is counted among attachments; `None` = by nobody, or anew for each clone.
    handle: Option<Handle>,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    /// Bound to this volume.
    Bound(Symbol),
    /// A volume is found or made at placing.
    Waiting(UnboundClaim),
    /// The same, anew for each clone.
    Own(UnboundClaim),
    /// Made at placing on this node, of this class: reachable where zone, region and what the class goes by are the
    /// same.
    Made(NodeIndex, Symbol),
}

impl What {
    fn open(&self) -> Option<&UnboundClaim> {
        match self {
            Self::Waiting(open) | Self::Own(open) => Some(open),
            Self::Bound(_) | Self::Made(..) => None,
        }
    }
}

/// Volume rules of one pod.
#[derive(Debug, Clone)]
pub(crate) struct VolumeRules {
    wanted: Vec<PodClaim>,
    disks: Box<[DiskUse]>,
    /// Those of the pod itself that a driver attaches.
    inline: Box<[Handle]>,
    /// Disks in use by node.
    disks_on: HashMap<NodeIndex, Vec<DiskUse>>,
    /// Attached volumes by node.
    attached: Vec<HashSet<Handle>>,
    /// Volumes of claims that were made for one clone each, by node and driver.
    own_attached: HashMap<(NodeIndex, Symbol), i64>,
    /// How many of them one more clone brings, by driver.
    own_drivers: Vec<(Symbol, i64)>,
    /// A claim for one pod that somebody uses.
    one_pod_in_use: bool,
    one_pod: Vec<Symbol>,
    /// Volumes taken by claims bound while placing.
    taken: HashSet<Symbol>,
}

/// Why the pod is refused before any node is looked at.
pub(crate) fn refuses_pod(cluster: &Cluster, profile: &Profile, pod: &PodInfo) -> Option<String> {
    if !profile.filters.has(Filter::VolumeBinding) {
        return None;
    }
    let (mut immediate, mut gone) = (false, None);
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
            Binding::Bound(volume) => {
                gone = gone.or((!cluster.storage.volumes.contains_key(&volume)).then_some(volume));
            }
            Binding::Waiting => {}
        }
    }
    if immediate {
        return Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
    }
    // The zone rule asks for the volume before any node is looked at (`volume_zone.go`, `PreFilter`).
    let gone = gone.filter(|_| profile.filters.has(Filter::VolumeZone))?;
    Some(format!("persistentvolume \"{}\" not found", cluster.word(gone)))
}

impl VolumeRules {
    /// Rules of a pod against everybody placed; `None` when it has no volume that matters.
    pub(crate) fn new(cluster: &Cluster, state: &ClusterState, pod: &PodInfo) -> Option<Self> {
        if pod.claims.is_empty()
            && pod.own_claims.is_empty()
            && pod.disks.is_empty()
            && pod.attached.is_empty()
        {
            return None;
        }
        let one_pod =
            pod.claims.iter().filter(|key| cluster.storage.claims.get(key).is_some_and(|c| c.one_pod));
        let mut rules = Self {
            wanted: wanted(cluster, pod),
            disks: pod.disks.clone(),
            inline: pod.attached.clone(),
            disks_on: HashMap::new(),
            attached: vec![HashSet::new(); cluster.nodes.len()],
            own_attached: HashMap::new(),
            own_drivers: own_drivers(cluster, pod),
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

    /// Whether placing this very pod changes nothing for the next but how much is attached to its node: every claim is
    /// bound and bears several pods, or a volume is made for each.
    pub(crate) fn is_settled(&self) -> bool {
        let settled = |wanted: &PodClaim| match &wanted.what {
            What::Waiting(_) => false,
            What::Own(open) => open.candidates.is_empty(),
            What::Bound(_) | What::Made(..) => true,
        };
        self.one_pod.is_empty() && self.wanted.iter().all(settled)
    }

    fn note_others(&mut self, cluster: &Cluster, other: &PodInfo, node: NodeIndex) {
        self.attached[node].extend(other.claims.iter().filter_map(|key| handle(cluster, *key)));
        self.attached[node].extend(&other.attached);
        for (driver, volumes) in own_drivers(cluster, other) {
            *self.own_attached.entry((node, driver)).or_default() += volumes;
        }
        if !self.disks.is_empty() && !other.disks.is_empty() {
            self.disks_on.entry(node).or_default().extend(other.disks.iter().cloned());
        }
        if self.one_pod.iter().any(|key| other.claims.contains(key)) {
            self.one_pod_in_use = true;
        }
    }

    /// Takes in that a pod was put on a node; `own` when it is one of this shape.
    pub(crate) fn note(
        &mut self,
        cluster: &Cluster,
        state: &ClusterState,
        id: u32,
        node: NodeIndex,
        own: bool,
    ) {
        if own {
            self.bind(cluster, node);
        }
        self.note_others(cluster, state.pod(id), node);
    }

    /// Claims that waited are bound where the first pod went; those of each clone anew.
    fn bind(&mut self, cluster: &Cluster, node: NodeIndex) {
        for (index, found) in self.choose(cluster, node) {
            self.taken.extend(found);
            if let What::Waiting(open) = &self.wanted[index].what {
                let class = open.claim.class;
                self.wanted[index].what = found.map_or(What::Made(node, class), What::Bound);
            }
        }
    }

    /// The volume each open claim would get on a node, the smallest claim choosing first as the scheduler has it.
    fn choose(&self, cluster: &Cluster, node: NodeIndex) -> Vec<(usize, Option<Symbol>)> {
        let mut open: Vec<(usize, &UnboundClaim)> = self
            .wanted
            .iter()
            .enumerate()
            .filter_map(|(at, wanted)| Some((at, wanted.what.open()?)))
            .collect();
        open.sort_by_key(|(_, open)| open.claim.bytes);
        let mut chosen: Vec<Symbol> = Vec::new();
        let one = |(index, open): (usize, &UnboundClaim)| {
            let free = |volume: &&Volume| {
                !self.taken.contains(&volume.name)
                    && !chosen.contains(&volume.name)
                    && reachable(cluster, volume, node)
            };
            let volumes = open.candidates.iter().filter_map(|name| cluster.storage.volumes.get(name));
            let found = volumes.into_iter().find(free).map(|volume| volume.name);
            chosen.extend(found);
            (index, found)
        };
        open.into_iter().map(one).collect()
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
        let mut new = self.new_shared(node);
        for (driver, volumes) in &self.own_drivers {
            *new.entry(*driver).or_default() += volumes;
        }
        new.into_iter()
            .any(|(driver, new)| self.free_attachments(cluster, node, driver).is_some_and(|free| new > free))
    }

    /// How many volumes a node would have to attach that the clones share, by driver.
    fn new_shared(&self, node: NodeIndex) -> HashMap<Symbol, i64> {
        let claimed = self.wanted.iter().filter_map(|wanted| wanted.handle);
        let handles: HashSet<Handle> = claimed.chain(self.inline.iter().copied()).collect();
        let mut new: HashMap<Symbol, i64> = HashMap::new();
        for (driver, _) in handles.difference(&self.attached[node]) {
            *new.entry(*driver).or_default() += 1;
        }
        new
    }

    /// Attachments a driver has left on a node; `None` = no limit.
    fn free_attachments(&self, cluster: &Cluster, node: NodeIndex, driver: Symbol) -> Option<i64> {
        let limit = cluster.storage.limits.get(&(cluster.nodes[node].name, driver))?;
        let shared = usize_to_i64(self.attached[node].iter().filter(|(known, _)| *known == driver).count());
        let own = self.own_attached.get(&(node, driver)).copied().unwrap_or(0);
        Some(limit - shared - own)
    }

    /// How many clones with volumes of their own a node can attach; `None` = as many as one likes.
    pub(crate) fn attach_room(&self, cluster: &Cluster, node: NodeIndex) -> Option<u64> {
        let shared = self.new_shared(node);
        let one = |(driver, each): &(Symbol, i64)| {
            let free = self.free_attachments(cluster, node, *driver)?;
            let free = free - shared.get(driver).copied().unwrap_or(0);
            Some(u64::try_from(free / each).unwrap_or(0))
        };
        self.own_drivers.iter().filter_map(one).min()
    }

    fn unreachable(&self, cluster: &Cluster, node: NodeIndex) -> Option<Rejection> {
        let (mut unreachable, mut unbound, mut space, mut missing) = (false, false, false, false);
        for wanted in &self.wanted {
            match &wanted.what {
                What::Bound(volume) => match cluster.storage.volumes.get(volume) {
                    Some(volume) => unreachable |= !reachable(cluster, volume, node),
                    None => missing = true,
                },
                What::Made(at, class) => unreachable |= !same_place(cluster, *class, *at, node),
                What::Waiting(_) | What::Own(_) => {}
            }
        }
        for (index, found) in self.choose(cluster, node) {
            let Some(open) = self.wanted[index].what.open().filter(|_| found.is_none()) else { continue };
            match can_make(cluster, &open.claim, node) {
                Making::Yes => {}
                Making::NotHere => unbound = true,
                Making::NoSpace => space = true,
            }
        }
        let any = unreachable || unbound || space || missing;
        any.then_some(Rejection::Volumes { unreachable, unbound, space, missing })
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
            let What::Bound(volume) = &wanted.what else { return false };
            let Some(volume) = cluster.storage.volumes.get(volume) else { return false };
            volume
                .zones
                .iter()
                .any(|(key, allowed)| !value(*key).is_some_and(|value| allowed.contains(&value)))
        })
    }
}

/// The pod's claims: those the clones share, and those each of them gets anew.
fn wanted(cluster: &Cluster, pod: &PodInfo) -> Vec<PodClaim> {
    let shared = pod.claims.iter().filter_map(|key| {
        let claim = cluster.storage.claims.get(key)?;
        let what = match claim.binding {
            Binding::Bound(volume) => What::Bound(volume),
            _ => What::Waiting(UnboundClaim::new(cluster, claim, Some(*key))),
        };
        Some(PodClaim { handle: handle(cluster, *key), what })
    });
    let own = pod.own_claims.iter();
    let own =
        own.map(|claim| PodClaim { handle: None, what: What::Own(UnboundClaim::new(cluster, claim, None)) });
    shared.chain(own).collect()
}

/// Drivers of the claims each clone gets anew, with the number of volumes.
fn own_drivers(cluster: &Cluster, pod: &PodInfo) -> Vec<(Symbol, i64)> {
    let mut drivers: Vec<(Symbol, i64)> = Vec::new();
    for claim in &pod.own_claims {
        let Some(driver) = cluster.storage.classes.get(&claim.class).and_then(|c| c.driver) else {
            continue;
        };
        match drivers.iter_mut().find(|(known, _)| *known == driver) {
            Some((_, volumes)) => *volumes += 1,
            None => drivers.push((driver, 1)),
        }
    }
    drivers
}

/// How a claim's volume is counted among attachments.
fn handle(cluster: &Cluster, key: Symbol) -> Option<Handle> {
    let claim = cluster.storage.claims.get(&key)?;
    match claim.binding {
        Binding::Bound(volume) | Binding::Lost(volume) => cluster.storage.volumes.get(&volume)?.handle,
        _ => Some((cluster.storage.classes.get(&claim.class)?.driver?, key)),
    }
}
