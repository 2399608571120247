//! `VerticalPodAutoscalerCheckpoint` of `autoscaling.k8s.io/v1`, version v3: what the Vertical Pod Autoscaler's recommender keeps of each container
//! of an object over its restarts, as it writes and reads it (`pkg/recommender/checkpoint`, as recorded of 1.7).

use std::collections::BTreeMap;

use evenkeel_model::null::null_is_default;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Autoscaler;
use super::ask::{ApiError, collection, place};
use crate::connect::ApiServer;
use crate::kinds::ApiKind;
use crate::watch::escaped;

/// The kind.
pub static CHECKPOINTS: &ApiKind = &ApiKind {
    name: "VerticalPodAutoscalerCheckpoint",
    path: "/apis/autoscaling.k8s.io/v1/verticalpodautoscalercheckpoints",
    metadata_only: false,
};
/// The one version that is written and read.
const VERSION: &str = "v3";
/// Objects in a page of a list.
const PAGE: usize = 500;
/// Pages of a list at most: more than a namespace has.
const MOST_PAGES: usize = 100;

/// A histogram: buckets as the Vertical Pod Autoscaler has them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointHistogram {
    /// Weights by bucket, in ten thousandths of the greatest.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub bucket_weights: BTreeMap<usize, u32>,
    /// The time at which a sample has its own weight, RFC 3339.
    pub reference_timestamp: Option<String>,
    /// Sum of the weights; left out where there are none.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub total_weight: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(weight: &f64) -> bool {
    *weight == 0.0
}

/// What is kept of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointStatus {
    /// CPU, cores.
    #[serde(deserialize_with = "null_is_default")]
    pub cpu_histogram: CheckpointHistogram,
    /// Start of the first sample, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_sample_start: Option<String>,
    /// Start of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sample_start: Option<String>,
    /// When it was written.
    pub last_update_time: Option<String>,
    /// Peaks of memory, bytes.
    #[serde(deserialize_with = "null_is_default")]
    pub memory_histogram: CheckpointHistogram,
    /// Samples in all.
    #[serde(deserialize_with = "null_is_default")]
    pub total_samples_count: u64,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Name of the object that it is of.
    pub autoscaler: String,
    /// The container.
    pub container: String,
    /// What is kept.
    pub status: CheckpointStatus,
}

impl Checkpoint {
    /// Reads one; nothing of another version, or without names.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let status = CheckpointStatus::deserialize(&object["status"]).ok()?;
        let (autoscaler, container) =
            (text(&object["spec"]["vpaObjectName"])?, text(&object["spec"]["containerName"])?);
        (object["status"]["version"] == VERSION).then_some(Self { autoscaler, container, status })
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}", self.autoscaler, self.container)
    }

    /// The object that it is, in the place of one that is there. A new one goes with the object that it is of.
    fn object(&self, of: &Autoscaler, before: Option<Value>) -> Value {
        let metadata = before.map_or_else(
            || {
                let owner = json!([{
                    "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "name": of.metadata.name,
                    "uid": of.metadata.uid,
                }]);
                json!({ "name": self.name(), "namespace": of.metadata.namespace, "ownerReferences": owner })
            },
            |mut before| before["metadata"].take(),
        );
        let mut status = json!(self.status);
        status["version"] = VERSION.into();
        json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": CHECKPOINTS.name, "metadata": metadata,
            "spec": { "vpaObjectName": self.autoscaler, "containerName": self.container },
            "status": status,
        })
    }
}

impl ApiServer {
    /// The checkpoints of a namespace that can be read.
    ///
    /// # Errors
    /// [`ApiError`]; that there is no such kind is [`ApiError::Absent`].
    pub async fn checkpoints(&self, namespace: &str) -> Result<Vec<Checkpoint>, ApiError> {
        let (mut found, mut next) = (Vec::new(), String::new());
        for _ in 0..MOST_PAGES {
            let mut path = format!("{}?limit={PAGE}", collection(CHECKPOINTS, namespace));
            if !next.is_empty() {
                path.push_str(&format!("&continue={}", escaped(&next)));
            }
            let page = self.read(&path).await?;
            let items = page["items"].as_array().map_or(&[][..], |items| items);
            found.extend(items.iter().filter_map(Checkpoint::read));
            next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Writes a checkpoint of an object's container, in the place of the one that is there.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn write_checkpoint(&self, of: &Autoscaler, checkpoint: &Checkpoint) -> Result<(), ApiError> {
        let namespace = &of.metadata.namespace;
        let path = place(CHECKPOINTS, namespace, &checkpoint.name());
        match self.read(&path).await {
            Ok(before) => self.replace(&path, &checkpoint.object(of, Some(before))).await,
            Err(ApiError::Absent(_)) => {
                self.create(&collection(CHECKPOINTS, namespace), &checkpoint.object(of, None)).await
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a recorded recommender wrote is written again as it was.
    #[test]
    fn a_checkpoint_is_the_recorded_one_field_by_field() {
        let file: Value = serde_json::from_str(include_str!("../../tests/recordings/vpa.json")).unwrap();
        let exchanges = file["exchanges"].as_array().unwrap();
        let listed = exchanges
            .iter()
            .filter_map(|exchange| exchange["response"]["body"]["items"].as_array())
            .flatten();
        let recorded: Vec<&Value> = listed.filter(|object| object["kind"] == CHECKPOINTS.name).collect();
        assert!(recorded.len() >= 2, "{}", recorded.len());
        for object in recorded {
            let checkpoint = Checkpoint::read(object).unwrap();
            assert_eq!(checkpoint.name(), object["metadata"]["name"]);
            let again = checkpoint.object(&Autoscaler::default(), Some(object.clone()));
            assert_eq!(again, *object);
        }
    }

    #[test]
    fn what_is_no_checkpoint_of_this_version_is_not_read() {
        let object = |version: &str, container: &str| json!({ "spec": { "vpaObjectName": "a", "containerName": container }, "status": { "version": version } });
        assert!(Checkpoint::read(&object("v3", "main")).is_some());
        for wrong in [object("v2", "main"), object("v3", ""), json!({}), json!({ "status": 7 })] {
            assert_eq!(Checkpoint::read(&wrong), None, "{wrong}");
        }
    }
}
