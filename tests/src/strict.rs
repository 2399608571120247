//! Whether an object of Kubernetes has fields that its kind has, of their types, and all that it must have: it is read into the type that is
//! made of Kubernetes' own OpenAPI and written out again, which leaves out what is unknown and adds what is missing.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{
    admissionregistration, apps, batch, coordination, core, networking, policy, rbac, scheduling,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Fields of a ServiceMonitor that are written here, with an example of each: the Prometheus operator's API, monitoring.coreos.com/v1.
fn service_monitor() -> Value {
    json!({
        "selector": { "matchLabels": {} },
        "endpoints": [{
            "port": "", "path": "", "scheme": "", "interval": "", "bearerTokenFile": "",
            "tlsConfig": { "serverName": "", "ca": { "configMap": { "name": "", "key": "" } } },
            "authorization": { "credentials": { "name": "", "key": "" } },
        }],
    })
}

/// Checks an object against its kind.
///
/// # Errors
///
/// Fails with the first field that is unknown, of another type, or missing; for kinds that are not known here.
pub fn check(object: &Value) -> Result<()> {
    let (api, kind) = (&object["apiVersion"], &object["kind"]);
    let of = (api.as_str().context("no apiVersion")?, kind.as_str().context("no kind")?);
    match of {
        ("v1", "ConfigMap") => same::<core::v1::ConfigMap>(object),
        ("v1", "Namespace") => same::<core::v1::Namespace>(object),
        ("v1", "PersistentVolumeClaim") => same::<core::v1::PersistentVolumeClaim>(object),
        ("v1", "Pod") => same::<core::v1::Pod>(object),
        ("v1", "Secret") => same::<core::v1::Secret>(object),
        ("v1", "Service") => same::<core::v1::Service>(object),
        ("v1", "ServiceAccount") => same::<core::v1::ServiceAccount>(object),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration") => {
            same::<admissionregistration::v1::MutatingWebhookConfiguration>(object)
        }
        ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy") => {
            same::<admissionregistration::v1::MutatingAdmissionPolicy>(object)
        }
        ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding") => {
            same::<admissionregistration::v1::MutatingAdmissionPolicyBinding>(object)
        }
        ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy") => {
            same::<admissionregistration::v1beta1::MutatingAdmissionPolicy>(object)
        }
        ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicyBinding") => {
            same::<admissionregistration::v1beta1::MutatingAdmissionPolicyBinding>(object)
        }
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
            same::<apiextensions::v1::CustomResourceDefinition>(object)
        }
        ("apps/v1", "DaemonSet") => same::<apps::v1::DaemonSet>(object),
        ("apps/v1", "Deployment") => same::<apps::v1::Deployment>(object),
        ("apps/v1", "StatefulSet") => same::<apps::v1::StatefulSet>(object),
        ("batch/v1", "Job") => same::<batch::v1::Job>(object),
        ("coordination.k8s.io/v1", "Lease") => same::<coordination::v1::Lease>(object),
        ("monitoring.coreos.com/v1", "ServiceMonitor") => among("spec", &object["spec"], &service_monitor()),
        ("networking.k8s.io/v1", "NetworkPolicy") => same::<networking::v1::NetworkPolicy>(object),
        ("policy/v1", "PodDisruptionBudget") => same::<policy::v1::PodDisruptionBudget>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => same::<rbac::v1::ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => {
            same::<rbac::v1::ClusterRoleBinding>(object)
        }
        ("rbac.authorization.k8s.io/v1", "Role") => same::<rbac::v1::Role>(object),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => same::<rbac::v1::RoleBinding>(object),
        ("scheduling.k8s.io/v1", "PriorityClass") => same::<scheduling::v1::PriorityClass>(object),
        (api, kind) => bail!("no schema of {kind} in {api} is known here"),
    }
}

fn same<T: DeserializeOwned + Serialize>(object: &Value) -> Result<()> {
    let typed: T = serde_json::from_value(object.clone()).context("a field has another type")?;
    let known = serde_json::to_value(&typed)?;
    differs("", object, &known).map_or(Ok(()), |field| bail!("{field}"))
}

/// The first field that is in one alone, or has another value.
fn differs(at: &str, written: &Value, known: &Value) -> Option<String> {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            let missing = known.keys().find(|key| !written.contains_key(*key));
            let missing = missing.map(|key| format!("{at}.{key} is missing"));
            missing.or_else(|| {
                written.iter().find_map(|(key, value)| {
                    let at = format!("{at}.{key}");
                    match known.get(key) {
                        Some(known) => differs(&at, value, known),
                        None => Some(format!("{at} is no field")),
                    }
                })
            })
        }
        (Value::Array(written), Value::Array(known)) => {
            let pairs = written.iter().zip(known).enumerate();
            pairs.into_iter().find_map(|(n, (value, known))| differs(&format!("{at}[{n}]"), value, known))
        }
        _ => (written != known).then(|| format!("{at} is {written}, understood as {known}")),
    }
}

/// Fails where a field is not among those of an example.
fn among(at: &str, written: &Value, example: &Value) -> Result<()> {
    match (written, example) {
        // Labels, which are free.
        (Value::Object(_), Value::Object(known)) if known.is_empty() => Ok(()),
        (Value::Object(written), Value::Object(known)) => written.iter().try_for_each(|(key, value)| {
            let at = format!("{at}.{key}");
            among(&at, value, known.get(key).with_context(|| format!("{at} is no field"))?)
        }),
        (Value::Array(written), Value::Array(known)) => {
            let example = known.first().context("an example has one item")?;
            written.iter().try_for_each(|value| among(at, value, example))
        }
        (Value::String(_), Value::String(_)) => Ok(()),
        _ => bail!("{at} is {written}, which is of another type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_missing_or_of_another_type_is_named() {
        let map = |extra: Value| {
            let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "a": "b" } });
            for (key, value) in extra.as_object().unwrap() {
                object[key] = value.clone();
            }
            check(&object).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(map(json!({})), Ok(()));
        assert_eq!(map(json!({ "dato": {} })), Err(".dato is no field".to_owned()));
        assert_eq!(
            map(json!({ "metadata": { "name": "a", "lables": {} } })),
            Err(".metadata.lables is no field".to_owned())
        );
        assert!(map(json!({ "data": { "a": 1 } })).unwrap_err().contains("another type"));
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "a" }, "rules": [{}] });
        assert_eq!(check(&role).unwrap_err().to_string(), ".rules[0].verbs is missing");
        let other = json!({ "apiVersion": "v2", "kind": "Role" });
        assert!(check(&other).unwrap_err().to_string().contains("no schema"));
        let monitor = |endpoint: Value| json!({ "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "spec": { "endpoints": [endpoint] } });
        assert!(check(&monitor(json!({ "port": "http" }))).is_ok());
        assert!(check(&monitor(json!({ "porto": "http" }))).unwrap_err().to_string().contains("porto"));
    }
}
