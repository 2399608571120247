//! The controllers that objects name: which pods one selects, as the API server says.
//!
//! Asked about only where the view does not show the controller at the top of pods already: then it has none at the moment, is of a kind with
//! the scale subresource and none of Kubernetes' own, or does not exist. An answer is used again for a while, a bad one, too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_model::selector::{LabelSelector, Selector};
use serde::Deserialize;
use serde_json::Value;

use super::TargetRef;
use super::ask::ApiError;
use crate::connect::ApiServer;
use crate::watch::escaped;

/// How long an answer is used again that tells nothing: as often as the Vertical Pod Autoscaler's recommender looks (`--recommender-interval`).
const HOLDS: Duration = Duration::from_secs(60);
/// The same of a good one: the selectors of Kubernetes' own controllers never change.
const GOOD_HOLDS: Duration = Duration::from_secs(600);
/// How long it is known which kinds a group has.
const KINDS_HOLD: Duration = Duration::from_secs(300);
/// Answers kept at once; when there are more, those that are no longer used go first, then all.
const MOST: usize = 20_000;

/// What a controller selects.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// Pods with these labels.
    Selects {
        /// As they are written.
        labels: LabelSelector,
        /// The same, to be asked.
        selector: Selector,
    },
    /// Nothing that could be told; why, in the words of the Vertical Pod Autoscaler.
    Unusable(String),
}

/// Answers about controllers.
#[derive(Debug, Default)]
pub struct Targets {
    known: Mutex<Answers<(String, TargetRef), Resolved>>,
    /// By group and version, and kind: the plural.
    kinds: Mutex<Answers<(String, String), Option<String>>>,
}

type Answers<K, V> = HashMap<K, (Instant, V)>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn young<K: std::hash::Hash + Eq, V: Clone>(
    all: &Mutex<Answers<K, V>>,
    key: &K,
    holds: Duration,
) -> Option<V> {
    locked(all).get(key).filter(|(at, _)| at.elapsed() < holds).map(|(_, value)| value.clone())
}

fn keep<K: std::hash::Hash + Eq, V>(all: &Mutex<Answers<K, V>>, key: K, value: V) {
    let mut all = locked(all);
    if all.len() >= MOST {
        all.retain(|_, (at, _)| at.elapsed() < GOOD_HOLDS);
    }
    if all.len() >= MOST {
        all.clear();
    }
    all.insert(key, (Instant::now(), value));
}

/// A controller of Kubernetes' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Its scale subresource tells.
    Scale,
    /// Its `spec.selector` tells.
    Own,
    /// The labels of what it makes tell.
    Template,
}

/// Group and version, kind, plural, and how its pods are told.
const WELL_KNOWN: [(&str, &str, &str, How); 7] = [
    ("apps/v1", "Deployment", "deployments", How::Scale),
    ("apps/v1", "ReplicaSet", "replicasets", How::Scale),
    ("apps/v1", "StatefulSet", "statefulsets", How::Scale),
    ("v1", "ReplicationController", "replicationcontrollers", How::Scale),
    ("apps/v1", "DaemonSet", "daemonsets", How::Own),
    ("batch/v1", "Job", "jobs", How::Own),
    ("batch/v1", "CronJob", "cronjobs", How::Template),
];

impl Targets {
    /// What was answered about a controller lately.
    #[must_use]
    pub fn known(&self, namespace: &str, target: &TargetRef) -> Option<Resolved> {
        let key = (namespace.to_owned(), target.clone());
        let good =
            young(&self.known, &key, GOOD_HOLDS).filter(|known| matches!(known, Resolved::Selects { .. }));
        good.or_else(|| young(&self.known, &key, HOLDS))
    }

    /// Asks the API server about a controller.
    ///
    /// # Errors
    /// When there is no answer: nothing is known then.
    pub async fn ask(
        &self,
        api: &ApiServer,
        namespace: &str,
        target: &TargetRef,
    ) -> Result<Resolved, ApiError> {
        let resolved = match self.asked(api, namespace, target).await {
            Ok(resolved) => resolved,
            Err(error @ (ApiError::Later(..) | ApiError::Silent(_))) => return Err(error),
            Err(error) => unhandled(target, &error.to_string()),
        };
        keep(&self.known, (namespace.to_owned(), target.clone()), resolved.clone());
        Ok(resolved)
    }

    async fn asked(
        &self,
        api: &ApiServer,
        namespace: &str,
        target: &TargetRef,
    ) -> Result<Resolved, ApiError> {
        let TargetRef { api_version, kind, name } = target;
        if kind.is_empty() || name.is_empty() || api_version.is_empty() {
            return Ok(unusable("it has to name apiVersion, kind and name"));
        }
        let well_known = WELL_KNOWN.iter().find(|(version, of, ..)| version == api_version && of == kind);
        let (plural, how) = match well_known {
            Some((_, _, plural, how)) => ((*plural).to_owned(), *how),
            None => match self.plural(api, api_version, kind).await? {
                Some(plural) => (plural, How::Scale),
                None => {
                    let group = api_version.split_once('/').map_or("", |(group, _)| group);
                    return Ok(unhandled(
                        target,
                        &format!("no matches for kind {kind:?} in group {group:?}"),
                    ));
                }
            },
        };
        let sub = if how == How::Scale { "/scale" } else { "" };
        let path = format!(
            "{}/namespaces/{}/{plural}/{}{sub}",
            root(api_version),
            escaped(namespace),
            escaped(name)
        );
        match api.read(&path).await {
            Ok(object) => Ok(selects(&object, how, target)),
            Err(ApiError::Absent(_)) if well_known.is_some() => {
                Ok(unusable(&format!("{kind} {namespace}/{name} does not exist")))
            }
            Err(error) => Err(error),
        }
    }

    /// The plural of a kind that has the scale subresource, or may have it.
    async fn plural(
        &self,
        api: &ApiServer,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<String>, ApiError> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Resources {
            resources: Vec<ApiResource>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct ApiResource {
            name: String,
            kind: String,
        }
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = young(&self.kinds, &key, KINDS_HOLD) {
            return Ok(known);
        }
        let all = match api.read(&root(api_version)).await {
            Ok(all) => Resources::deserialize(all).unwrap_or_default(),
            Err(ApiError::Absent(_)) => Resources::default(),
            Err(error) => return Err(error),
        };
        let found = all.resources.into_iter().find(|one| one.kind == kind && !one.name.contains('/'));
        let found = found.map(|one| one.name);
        keep(&self.kinds, key, found.clone());
        Ok(found)
    }
}

/// Where a group and version is.
fn root(api_version: &str) -> String {
    match api_version.split_once('/') {
        Some((group, version)) => format!("/apis/{}/{}", escaped(group), escaped(version)),
        None => format!("/api/{}", escaped(api_version)),
    }
}

fn unusable(why: &str) -> Resolved {
    Resolved::Unusable(format!("Cannot read targetRef. Reason: {why}"))
}

fn unhandled(target: &TargetRef, error: &str) -> Resolved {
    let TargetRef { api_version, kind, name } = target;
    unusable(&format!("unhandled targetRef {api_version} / {kind} / {name}, last error {error}"))
}

/// What an answer says.
fn selects(object: &Value, how: How, target: &TargetRef) -> Resolved {
    let labels = match how {
        How::Scale => match object["status"]["selector"].as_str().unwrap_or_default() {
            "" => Err("the scale subresource has no selector".to_owned()),
            text => LabelSelector::parse(text),
        },
        How::Own => Option::<LabelSelector>::deserialize(&object["spec"]["selector"])
            .map_err(|error| error.to_string())
            .and_then(|selector| selector.ok_or_else(|| "it has no selector".to_owned())),
        How::Template => {
            let template = &object["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"];
            match Option::deserialize(template) {
                Ok(Some(match_labels)) => Ok(LabelSelector { match_labels, ..LabelSelector::default() }),
                Ok(None) => Err("its template has no labels".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        }
    };
    let read = |labels: LabelSelector| match Selector::new(&labels) {
        // One that selects everything would join what has nothing in common.
        Ok(selector) if selector.is_everything() => Err("it selects every pod".to_owned()),
        Ok(selector) => Ok(Resolved::Selects { labels, selector }),
        Err(error) => Err(error.to_string()),
    };
    labels.and_then(read).unwrap_or_else(|why| unhandled(target, &why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(object: &Value, how: How) -> Result<String, String> {
        let target = TargetRef { api_version: "apps/v1".into(), kind: "K".into(), name: "n".into() };
        match selects(object, how, &target) {
            Resolved::Selects { selector, .. } => Ok(format!("{:?}", selector.one_label())),
            Resolved::Unusable(why) => Err(why),
        }
    }

    #[test]
    fn what_a_controller_selects_is_read_from_where_its_kind_has_it() {
        let web = Ok(format!("{:?}", Some(("app", "web"))));
        let labels = json!({ "app": "web" });
        let template = json!({ "template": { "metadata": { "labels": labels } } });
        for (object, how, want) in [
            (json!({ "status": { "selector": "app=web" } }), How::Scale, web.clone()),
            (json!({ "spec": { "selector": { "matchLabels": labels } } }), How::Own, web.clone()),
            (json!({ "spec": { "jobTemplate": { "spec": template } } }), How::Template, web),
        ] {
            assert_eq!(told(&object, how), want);
        }
        for (object, how, why) in [
            (json!({}), How::Scale, "no selector"),
            (json!({ "status": { "selector": "app in (web" } }), How::Scale, "bracket"),
            (json!({ "spec": {} }), How::Own, "no selector"),
            (json!({ "spec": { "selector": {} } }), How::Own, "every pod"),
            (json!({ "spec": { "selector": 7 } }), How::Own, "invalid type"),
            (json!({ "spec": {} }), How::Template, "no labels"),
        ] {
            let told = told(&object, how).unwrap_err();
            assert!(
                told.starts_with("Cannot read targetRef. Reason: unhandled targetRef apps/v1 / K / n")
                    && told.contains(why),
                "{told}"
            );
        }
    }

    #[test]
    fn groups_are_where_the_api_server_has_them() {
        for (version, want) in
            [("v1", "/api/v1"), ("apps/v1", "/apis/apps/v1"), ("../x/v1", "/apis/../x%2Fv1")]
        {
            assert_eq!(root(version), want);
        }
    }
}
