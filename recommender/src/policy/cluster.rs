//! Owns policies that are objects of the followed Kubernetes cluster, as they were known last: kept in a file, so that they hold from the start of
//! the process on, and while the API server is away. The API server keeps them and says who changed them; here is a copy.
//!
//! The file is replaced whole. One that cannot be read is ignored: what it held is known again as soon as the cluster was listed.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_log::private;
use evenkeel_model::selector::LabelSelector;
use evenkeel_rightsizing::policy::rank::Dated;
use evenkeel_rightsizing::policy::{Policy, read_resolved};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::warn;

use super::set::PolicySource;
use super::store::created;

/// Version of the file.
const VERSION: u64 = 1;

/// Namespace and name.
type Key = (String, String);

/// Policies of the cluster.
#[derive(Debug)]
pub(super) struct ClusterPolicies {
    /// Its name, where it is asked.
    name: Option<Arc<str>>,
    file: PathBuf,
    policies: BTreeMap<Key, Dated>,
}

impl ClusterPolicies {
    /// As the file has them; none where the cluster is no longer asked.
    pub(super) fn open(file: PathBuf, name: Option<Arc<str>>) -> Self {
        if name.is_none() {
            return Self { name, file, policies: BTreeMap::new() };
        }
        let policies = read(&file).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                warn!(%error, file = %file.display(), "the cluster's policies of the run before are not used");
            }
            BTreeMap::new()
        });
        Self { name, file, policies }
    }

    /// Takes what there is now; whether anything is another one.
    pub(super) fn replace(&mut self, all: Vec<Policy>) -> bool {
        let all: BTreeMap<Key, Dated> = all.into_iter().map(keyed).collect();
        let is_same = |(key, now): (&Key, &Dated)| {
            self.policies.get(key).is_some_and(|before| {
                before.created_ms == now.created_ms && before.policy.is_same(&now.policy)
            })
        };
        if self.policies.len() == all.len() && all.iter().all(is_same) {
            return false;
        }
        self.policies = all;
        if let Err(error) = private::replace(&self.file, self.text().as_bytes(), true) {
            warn!(%error, file = %self.file.display(), "the cluster's policies were not written for the next start");
        }
        true
    }

    fn text(&self) -> String {
        let entry = |dated: &Dated| {
            let policy = &dated.policy;
            json!({ "object": policy.object(policy.created.as_deref(), Value::Null), "labels": policy.labels })
        };
        let objects: Vec<Value> = self.policies.values().map(entry).collect();
        json!({ "version": VERSION, "policies": objects }).to_string()
    }

    /// All.
    pub(super) fn all(&self) -> impl Iterator<Item = (Dated, PolicySource)> {
        let of = |name: &Arc<str>| {
            let source = PolicySource::Cluster(Arc::clone(name));
            self.policies.values().map(move |dated| (dated.clone(), source.clone()))
        };
        self.name.iter().flat_map(of)
    }

    /// One by name.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Dated> {
        self.policies.get(&(namespace.to_owned(), name.to_owned()))
    }
}

fn keyed(policy: Policy) -> (Key, Dated) {
    let key = (policy.namespace.clone(), policy.name.clone());
    // Every object of a cluster says when it was made.
    let created_ms = created(&policy).unwrap_or_default();
    (key, Dated { policy: Arc::new(policy), created_ms })
}

fn read(file: &std::path::Path) -> io::Result<BTreeMap<Key, Dated>> {
    let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let text: Value =
        serde_json::from_slice(&private::read(file)?).map_err(|error| damaged(error.to_string()))?;
    if text["version"] != VERSION {
        return Err(damaged("it is of another version".to_owned()));
    }
    let objects = text["policies"].as_array().map_or(&[][..], |all| all);
    let read = |entry: &Value| {
        let labels = Option::<LabelSelector>::deserialize(&entry["labels"]).unwrap_or_default();
        read_resolved(&entry["object"], labels.as_ref())
    };
    let policies = objects.iter().filter_map(|entry| match read(entry) {
        Ok(policy) => Some(keyed(policy)),
        Err(error) => {
            warn!(%error, "a policy of the cluster cannot be read any more and is left out");
            None
        }
    });
    Ok(policies.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, created: &str, mode: &str) -> Policy {
        let metadata = json!({ "name": name, "namespace": "n", "creationTimestamp": created });
        let spec = json!({ "target": { "matchLabels": { "a": "b" } }, "updatePolicy": { "mode": mode } });
        read_resolved(&json!({
            "apiVersion": "evenkeel.dev/v1", "kind": "VerticalPodAutoscaler", "metadata": metadata, "spec": spec,
        }), None)
        .unwrap()
    }

    #[test]
    fn what_was_known_last_holds_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policies-of-cluster");
        let open = || ClusterPolicies::open(file.clone(), Some("test".into()));
        let names = |cluster: &ClusterPolicies| -> Vec<(String, u64)> {
            cluster.all().map(|(dated, _)| (dated.policy.name.clone(), dated.created_ms)).collect()
        };
        let (first, second) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let mut cluster = open();
        assert!(cluster.replace(vec![policy("b", first, "off"), policy("a", second, "auto")]));
        assert!(
            !cluster.replace(vec![policy("a", second, "auto"), policy("b", first, "off")]),
            "nothing changed"
        );
        let known = vec![("a".to_owned(), 1_767_312_000_000), ("b".to_owned(), 1_767_225_600_000)];
        let again = open();
        assert_eq!((names(&cluster), names(&again)), (known.clone(), known));
        assert!(again.get("n", "b").is_some() && again.get("m", "b").is_none());
        // An object that was made anew is another one, and one that says something else.
        assert!(cluster.replace(vec![policy("b", second, "off"), policy("a", second, "auto")]));
        assert!(cluster.replace(vec![policy("b", second, "auto"), policy("a", second, "auto")]));
        assert!(cluster.replace(Vec::new()) && names(&open()).is_empty());
        assert!(cluster.replace(vec![policy("b", first, "off")]));
        assert!(
            names(&ClusterPolicies::open(file.clone(), None)).is_empty(),
            "a cluster that is not asked has none"
        );
        std::fs::write(&file, "{").unwrap();
        assert!(names(&open()).is_empty());
    }

    #[test]
    fn what_a_controller_selects_is_kept_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policies-of-cluster");
        let of = |labels: &str| {
            let spec =
                json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } });
            let metadata = json!({ "name": "web", "namespace": "n" });
            let object = json!({
                "apiVersion": "evenkeel.dev/v1", "kind": "VerticalPodAutoscaler", "metadata": metadata, "spec": spec,
            });
            read_resolved(&object, Some(&LabelSelector::parse(labels).unwrap())).unwrap()
        };
        let mut cluster = ClusterPolicies::open(file.clone(), Some("test".into()));
        assert!(cluster.replace(vec![of("app=web")]) && !cluster.replace(vec![of("app=web")]));
        let again = ClusterPolicies::open(file, Some("test".into()));
        let known = &again.get("n", "web").unwrap().policy;
        assert!(
            known.selects("n", |key| (key == "app").then_some("web")) && !known.selects("n", |_| Some("db"))
        );
        assert!(cluster.replace(vec![of("app=web,tier=a")]), "the controller selects others now");
    }
}
