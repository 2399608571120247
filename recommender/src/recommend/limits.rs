//! Owns what namespaces allow containers: LimitRange and ResourceQuota objects of files, those applied over the interfaces, those of a cluster
//! whose API server is followed, and LimitRanges of the configuration.
//!
//! The objects of an API server hold in its cluster alone, and go there over those of the same name from elsewhere.
//! What people keep in a file goes over what was applied under the same name. Files hold the objects as `kubectl get limitranges,resourcequotas -A -o yaml` or `evenkeel snapshot` writes them. A file
//! that cannot be read keeps what it last gave, and says so until it is put right.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use evenkeel_capacity::object::{LimitRange, LimitRangeItem, ObjectMeta, ResourceList, ResourceQuota};
use evenkeel_kubernetes::NamespaceBounds;
use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::LimitsMode;
use tracing::{info, warn};

use super::advice::index;
use super::caps::scaled;
use crate::audit::{Audit, FileDigests};
use crate::capacity::read;
use crate::config::{Config, LimitRangeSection};
use crate::policy::bounds::{BoundKey, BoundObject};
use crate::policy::{Listing, Print, Unlisted};

/// Largest file read, bytes: a snapshot of a cluster is larger, its quotas and limit ranges are not.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What a namespace allows of one resource: thousandths of a core, or bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Least request of a container.
    pub min: Option<u64>,
    /// Greatest limit of a container, and so its greatest request.
    pub max: Option<u64>,
    /// The same of a whole pod, which no container of it can exceed.
    pub pod_max: Option<u64>,
    /// Limit of a container that gives none.
    pub default_limit: Option<u64>,
    /// Request of a container that gives none.
    pub default_request: Option<u64>,
    /// Limit over request at most, thousandths.
    pub ratio_milli: Option<u64>,
    /// What quotas leave of requests.
    pub requests_left: Option<u64>,
    /// And of limits.
    pub limits_left: Option<u64>,
}

impl Allowed {
    /// The limit beside a request, within the greatest one and the greatest ratio, where it follows the request.
    pub(super) fn limit_beside(&self, mode: LimitsMode, request: u64, limit: u64) -> u64 {
        if mode != LimitsMode::Ratio {
            return limit;
        }
        let most = self.ratio_milli.map(|ratio| scaled(request, ratio, 1000, false));
        most.into_iter().chain(self.max).fold(limit, u64::min).max(request)
    }

    fn item(&mut self, item: &LimitRangeItem, resource: Resource) {
        let of = |list: &ResourceList| list.get(resource.as_str()).and_then(|q| amount(*q, resource));
        let (min, max) = (of(&item.min), of(&item.max));
        match item.kind.as_str() {
            "Container" => {
                least(&mut self.max, max);
                self.min = self.min.max(min);
                // Filled up as the API server does when the range is stored.
                let default_limit = of(&item.default_limit).or(max);
                self.default_limit = self.default_limit.or(default_limit);
                self.default_request =
                    self.default_request.or(of(&item.default_request)).or(default_limit).or(min);
                let ratio = item.max_limit_request_ratio.get(resource.as_str());
                least(&mut self.ratio_milli, ratio.and_then(|q| q.milli_u64()).filter(|ratio| *ratio > 0));
            }
            "Pod" => least(&mut self.pod_max, max),
            _ => {}
        }
    }

    fn quota(&mut self, quota: &ResourceQuota, resource: Resource) {
        let name = resource.as_str();
        let left = |names: [&str; 2]| {
            let hard = names.iter().find_map(|name| quota.spec.hard.get(*name));
            let used = names.iter().find_map(|name| quota.status.used.get(*name));
            let hard = hard.and_then(|q| amount(*q, resource))?;
            Some(hard.saturating_sub(used.and_then(|q| amount(*q, resource)).unwrap_or(0)))
        };
        least(&mut self.requests_left, left([&format!("requests.{name}"), name]));
        let limits = format!("limits.{name}");
        least(&mut self.limits_left, left([&limits, &limits]));
    }
}

/// The lesser of what is known.
fn least(into: &mut Option<u64>, other: Option<u64>) {
    *into = into.map_or(other, |known| Some(other.map_or(known, |other| known.min(other))));
}

fn amount(quantity: Quantity, resource: Resource) -> Option<u64> {
    match resource {
        Resource::Cpu => quantity.milli_u64(),
        Resource::Memory => quantity.to_u64(),
    }
}

type ByNamespace = HashMap<String, [Allowed; 2]>;

/// What one file gave.
#[derive(Debug, Default)]
struct LimitsFile {
    print: Option<Print>,
    ranges: Vec<LimitRange>,
    quotas: Vec<ResourceQuota>,
    /// What is in force of it, for the audit record: what quotas allow, and not what is used of them.
    said: FileDigests,
    /// Why it could not be read.
    trouble: Option<String>,
}

/// What namespaces allow: in the cluster that is followed, and in all others.
#[derive(Debug, Default)]
struct Made {
    others: ByNamespace,
    /// The cluster, and its namespaces.
    followed: Option<(String, ByNamespace)>,
}

/// All that is known.
#[derive(Debug, Default)]
struct LimitsState {
    files: BTreeMap<PathBuf, LimitsFile>,
    unlisted: Unlisted,
    /// Over the interfaces.
    applied: Vec<Arc<BoundObject>>,
    /// A cluster that is followed, and its objects.
    followed: Option<(String, NamespaceBounds)>,
    sections: Vec<LimitRangeSection>,
}

/// What all namespaces allow.
#[derive(Debug)]
pub struct Limits {
    made: RwLock<Arc<Made>>,
    held: Mutex<LimitsState>,
}

impl Limits {
    /// Limits of the configuration; its files are read when limits are next looked up.
    pub fn new(sections: &[LimitRangeSection]) -> Self {
        let held = LimitsState { sections: sections.to_vec(), ..LimitsState::default() };
        Self { made: RwLock::new(Arc::new(held.made())), held: Mutex::new(held) }
    }

    /// What a namespace of a cluster allows of a resource; of none, of the one that is followed, if any.
    pub(crate) fn of(&self, cluster: Option<&str>, namespace: &str, resource: Resource) -> Allowed {
        let made = self.made.read().unwrap_or_else(PoisonError::into_inner);
        let followed = made.followed.as_ref().filter(|(of, _)| cluster.is_none_or(|cluster| cluster == of));
        let all = followed.map_or(&made.others, |(_, all)| all);
        all.get(namespace).map(|both| both[index(resource)]).unwrap_or_default()
    }

    /// The least request of a container that a namespace allows: CPU, then memory.
    pub(crate) fn least(&self, namespace: &str) -> [Option<u64>; 2] {
        Resource::ALL.map(|resource| self.of(None, namespace, resource).min)
    }

    fn held(&self) -> MutexGuard<'_, LimitsState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_anew(&self, held: &LimitsState) {
        *self.made.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(held.made());
    }

    /// The quotas of a cluster.
    pub(crate) fn quotas(&self, cluster: &str) -> Vec<ResourceQuota> {
        let held = self.held();
        let followed = held.followed.as_ref().filter(|(of, _)| of == cluster);
        held.quotas(followed.map(|(_, bounds)| bounds)).cloned().collect()
    }

    /// Takes the objects of a cluster that is followed, where they changed: `news` gives them, told of which state the last were.
    pub(crate) fn follow(&self, cluster: &str, news: impl FnOnce(u64) -> Option<NamespaceBounds>) {
        let mut held = self.held();
        let before = held.followed.as_ref().map_or(0, |(_, bounds)| bounds.changes);
        if let Some(bounds) = news(before) {
            held.followed = Some((cluster.to_owned(), bounds));
            self.make_anew(&held);
        }
    }

    /// The objects that were applied and are in no file.
    pub(crate) fn in_force(&self) -> Vec<Arc<BoundObject>> {
        self.held().in_force().cloned().collect()
    }

    /// The file an object is kept in.
    pub(crate) fn file_of(&self, key: &BoundKey) -> Option<PathBuf> {
        self.held().file_of(key).map(Path::to_owned)
    }

    /// What is wrong with files: path, and the trouble.
    pub(crate) fn troubles(&self) -> Vec<(PathBuf, String)> {
        let held = self.held();
        let of_files = held.files.iter().filter_map(|(path, file)| Some((path, file.trouble.as_ref()?)));
        held.unlisted.iter().chain(of_files).map(|(path, why)| (path.clone(), why.clone())).collect()
    }

    /// Takes what is applied over the interfaces now; it is asked for when nobody else takes it.
    pub(crate) fn apply(&self, applied: impl FnOnce() -> Vec<Arc<BoundObject>>) {
        let mut held = self.held();
        held.applied = applied();
        self.make_anew(&held);
    }

    /// Reads files that have changed since the last look. With a `record`, what has no entry there does not come in force, and is
    /// tried again at the next look.
    pub(crate) fn look(&self, config: &Config, record: Option<&Audit>) {
        let mut held = self.held();
        let found = Listing::of(&config.objects);
        found.tell(&mut held.unlisted);
        let ranges = &config.recommend.limit_ranges;
        let before = held.files.len();
        held.files.retain(|path, file| {
            found.may_have(path) || file.recorded(path, &FileDigests::default(), record).is_err()
        });
        let mut changed = held.files.len() != before || held.sections != *ranges;
        held.sections.clone_from(ranges);
        for (path, print) in found.files {
            let file = held.files.entry(path.clone()).or_default();
            changed |= file.print != Some(print) && file.read(&path, print, record);
        }
        if changed {
            self.make_anew(&held);
        }
    }
}

impl LimitsFile {
    /// Leaves an entry that it says something else from now on.
    fn recorded(&mut self, path: &Path, said: &FileDigests, record: Option<&Audit>) -> Result<(), ()> {
        self.said.follow(path, said, record).map_err(|why| {
            if self.trouble.as_ref() != Some(&why) {
                warn!(file = %path.display(), why, "a file of limit ranges and quotas changed, which is not in force");
            }
            self.trouble = Some(why);
        })
    }

    /// Reads the file; whether something else is in force then, or is told of it.
    fn read(&mut self, path: &Path, print: Print, record: Option<&Audit>) -> bool {
        let bytes = print.1;
        let read = match (bytes, File::open(path)) {
            // The system does not give it now: it is tried at the next look.
            (_, Err(error)) => return self.told(path, error.to_string()),
            (0..=MAX_FILE_BYTES, Ok(file)) => read::snapshot(file, None),
            _ => Err(format!(
                "it has {bytes} bytes, over {MAX_FILE_BYTES}; give quotas and limit ranges alone"
            )),
        };
        match read {
            Ok(read) => {
                let (ranges, quotas) = (read.cluster.limit_ranges, read.cluster.quotas);
                if self.recorded(path, &said(&ranges, &quotas), record).is_err() {
                    return false;
                }
                (self.ranges, self.quotas) = (ranges, quotas);
                let (ranges, quotas) = (self.ranges.len(), self.quotas.len());
                info!(file = %path.display(), ranges, quotas, "limit ranges and quotas were read");
                self.trouble = None;
            }
            Err(why) => {
                self.told(path, why);
            }
        }
        self.print = Some(print);
        true
    }

    /// Tells why it was not read; whether that is new.
    fn told(&mut self, path: &Path, why: String) -> bool {
        let is_new = self.trouble.as_ref() != Some(&why);
        if is_new {
            warn!(file = %path.display(), why, "limit ranges and quotas were not read; those read before stay");
        }
        self.trouble = Some(why);
        is_new
    }

    fn holds(&self, key: &BoundKey) -> bool {
        let is_it = |meta: &ObjectMeta| meta.name == key.name && meta.namespace_or_default() == key.namespace;
        match key.kind.as_str() {
            "LimitRange" => self.ranges.iter().any(|range| is_it(&range.metadata)),
            _ => self.quotas.iter().any(|quota| is_it(&quota.metadata)),
        }
    }
}

fn said(ranges: &[LimitRange], quotas: &[ResourceQuota]) -> FileDigests {
    let named =
        |kind: &str, meta: &ObjectMeta| format!("{kind} {}/{}", meta.namespace_or_default(), meta.name);
    let ranges = ranges.iter().map(|r| (named("LimitRange", &r.metadata), format!("{:?}", r.spec)));
    let quotas = quotas.iter().map(|q| (named("ResourceQuota", &q.metadata), format!("{:?}", q.spec)));
    FileDigests::of(ranges.chain(quotas))
}

impl LimitsState {
    fn file_of(&self, key: &BoundKey) -> Option<&Path> {
        self.files.iter().find(|(_, file)| file.holds(key)).map(|(path, _)| path.as_path())
    }

    fn in_force(&self) -> impl Iterator<Item = &Arc<BoundObject>> {
        self.applied.iter().filter(|bound| self.file_of(&bound.key).is_none())
    }

    /// The limit ranges of files, those applied, and those of a cluster, which go over others of their name.
    fn ranges<'a>(&'a self, of: Option<&'a NamespaceBounds>) -> impl Iterator<Item = &'a LimitRange> {
        let own: &[LimitRange] = of.map_or(&[], |bounds| &bounds.ranges);
        let names: HashSet<_> = own.iter().map(|range| name(&range.metadata)).collect();
        let applied = self.in_force().filter_map(|bound| bound.range.as_ref());
        let others = self.files.values().flat_map(|file| &file.ranges).chain(applied);
        others.filter(move |range| !names.contains(&name(&range.metadata))).chain(own)
    }

    /// The same of quotas.
    fn quotas<'a>(&'a self, of: Option<&'a NamespaceBounds>) -> impl Iterator<Item = &'a ResourceQuota> {
        let own: &[ResourceQuota] = of.map_or(&[], |bounds| &bounds.quotas);
        let names: HashSet<_> = own.iter().map(|quota| name(&quota.metadata)).collect();
        let applied = self.in_force().filter_map(|bound| bound.quota.as_ref());
        let others = self.files.values().flat_map(|file| &file.quotas).chain(applied);
        others.filter(move |quota| !names.contains(&name(&quota.metadata))).chain(own)
    }

    fn made(&self) -> Made {
        let followed = self.followed.as_ref();
        Made {
            others: self.made_of(None),
            followed: followed.map(|(cluster, bounds)| (cluster.clone(), self.made_of(Some(bounds)))),
        }
    }

    /// Of several files, and of several objects of a namespace, all hold.
    fn made_of(&self, of: Option<&NamespaceBounds>) -> ByNamespace {
        let mut all = ByNamespace::new();
        for section in &self.sections {
            let both = all.entry(section.namespace.clone()).or_default();
            for resource in Resource::ALL {
                let (min, max) = section.of(resource);
                let allowed = &mut both[index(resource)];
                allowed.min = allowed.min.max(min);
                least(&mut allowed.max, max);
            }
        }
        for range in self.ranges(of) {
            let both = all.entry(range.metadata.namespace_or_default().to_owned()).or_default();
            for resource in Resource::ALL {
                range.spec.limits.iter().for_each(|item| both[index(resource)].item(item, resource));
            }
        }
        for quota in self.quotas(of).filter(|quota| is_for_all(quota)) {
            let both = all.entry(quota.metadata.namespace_or_default().to_owned()).or_default();
            Resource::ALL.into_iter().for_each(|resource| both[index(resource)].quota(quota, resource));
        }
        all
    }
}

/// Namespace and name of an object.
fn name(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace_or_default(), &meta.name)
}

/// Whether a quota counts every container that runs on and requests something. Of those with other scopes (priority,
/// terminating pods) the recommender does not know which containers they count.
fn is_for_all(quota: &ResourceQuota) -> bool {
    let is_usual = |name: &str| matches!(name, "NotTerminating" | "NotBestEffort");
    let selected = quota.spec.scope_selector.match_expressions.iter();
    quota.spec.scopes.iter().all(|name| is_usual(name))
        && selected.into_iter().all(|scope| scope.operator == "Exists" && is_usual(&scope.scope_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: &str = "\
kind: LimitRange
apiVersion: v1
metadata: {name: bounds, namespace: shop}
spec:
  limits:
  - {type: Container, min: {cpu: 20m}, max: {memory: 1Gi}, default: {memory: 512Mi}, defaultRequest: {memory: 256Mi}, maxLimitRequestRatio: {cpu: 4}}
  - {type: Pod, max: {cpu: 3}}
---
kind: ResourceQuota
apiVersion: v1
metadata: {name: all, namespace: shop}
spec: {hard: {requests.memory: 10Gi, cpu: 8, limits.memory: 20Gi}}
status: {used: {requests.memory: 9Gi, cpu: 10}}
---
kind: ResourceQuota
apiVersion: v1
metadata: {name: some, namespace: shop}
spec: {hard: {requests.memory: 1Mi}, scopes: [Terminating]}
";

    fn config(objects: PathBuf) -> Config {
        Config { objects: vec![objects], ..Config::default() }
    }

    #[test]
    fn objects_of_files_bound_their_namespace_and_a_broken_file_keeps_what_it_gave() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("objects.yaml");
        std::fs::write(&file, OBJECTS).unwrap();
        let limits = Limits::new(&[]);
        limits.look(&config(dir.path().to_owned()), None);
        let memory = Allowed {
            max: Some(1 << 30),
            default_limit: Some(512 << 20),
            default_request: Some(256 << 20),
            requests_left: Some(1 << 30),
            limits_left: Some(20 << 30),
            ..Allowed::default()
        };
        let cpu = Allowed {
            min: Some(20),
            pod_max: Some(3_000),
            default_request: Some(20),
            ratio_milli: Some(4_000),
            requests_left: Some(0),
            ..Allowed::default()
        };
        let seen = || Resource::ALL.map(|resource| limits.of(None, "shop", resource));
        assert_eq!((seen(), limits.of(None, "other", Resource::Cpu)), ([cpu, memory], Allowed::default()));
        std::fs::write(&file, "kind: LimitRange\nspec: {limits: [{type: Container, min: {cpu: much}}]}\n")
            .unwrap();
        limits.look(&config(dir.path().to_owned()), None);
        assert_eq!((seen(), limits.troubles().len()), ([cpu, memory], 1));
        // What is applied counts beside files, and under a name of a file not at all.
        let applied = |name: &str| {
            let text = format!(
                "kind: LimitRange\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{limits: [{{type: Container, max: {{memory: 9Mi}}}}]}}"
            );
            Arc::new(crate::policy::bounds::read(&text).unwrap())
        };
        limits.apply(|| vec![applied("bounds")]);
        assert_eq!((seen()[1].max, limits.in_force().len()), (Some(1 << 30), 0));
        assert_eq!(limits.file_of(&applied("bounds").key), Some(file.clone()));
        limits.apply(|| vec![applied("bounds"), applied("more")]);
        assert_eq!((seen()[1].max, limits.in_force().len()), (Some(9 << 20), 1));
        limits.apply(Vec::new);
        std::fs::remove_file(&file).unwrap();
        limits.look(&config(dir.path().to_owned()), None);
        assert_eq!((seen(), limits.troubles().len()), ([Allowed::default(); 2], 0));
    }

    #[test]
    fn objects_of_a_followed_cluster_hold_there_alone_and_go_over_others_of_their_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("objects.yaml");
        std::fs::write(&file, OBJECTS).unwrap();
        let limits = Limits::new(&[]);
        limits.look(&config(dir.path().to_owned()), None);
        let bounds = |changes, objects: &str| {
            let read = read::snapshot(objects.as_bytes(), None).unwrap().cluster;
            NamespaceBounds { changes, ranges: read.limit_ranges, quotas: read.quotas }
        };
        let memory = |cluster| limits.of(cluster, "shop", Resource::Memory);
        let before = memory(None);
        limits.follow("k", |changes| {
            assert_eq!(changes, 0);
            Some(bounds(
                7,
                &OBJECTS.replace("max: {memory: 1Gi}", "max: {memory: 2Gi}").replace("9Gi", "4Gi"),
            ))
        });
        // Of the same name: no part of the file's holds there any more.
        let here = memory(Some("k"));
        assert_eq!((here.max, here.requests_left), (Some(2 << 30), Some(6 << 30)));
        assert_eq!(here, memory(None), "a question that names no cluster is about the one that is followed");
        assert_eq!(memory(Some("other")), before);
        assert_eq!((limits.quotas("k").len(), limits.quotas("other").len()), (2, 2));
        // Nothing new: what was taken stays.
        limits.follow("k", |changes| {
            assert_eq!(changes, 7);
            None
        });
        assert_eq!(memory(Some("k")), here);
        // Of another name both hold, and what the API server has no more is the file's again.
        limits.follow("k", |_| Some(bounds(8, &OBJECTS.replace("bounds,", "other,").replace("1Gi", "3Mi"))));
        assert_eq!(memory(Some("k")).max, Some(3 << 20));
        limits.follow("k", |_| Some(NamespaceBounds { changes: 9, ..NamespaceBounds::default() }));
        assert_eq!(memory(Some("k")), before);
    }
}
