//! Two recommenders: agents find both by names that their certificate bears, one Lease is all that either may change, and each keeps its own.

use anyhow::{Context, Result};
use evenkeel_tests::chart::{Helm, name};
use evenkeel_tests::require;
use serde_json::{Value, json};

use super::parts::{NAMESPACE, object};

/// What a ConfigMap has in one of its files.
fn file<'a>(all: &'a [Value], of: &str, file: &str) -> Result<&'a str> {
    let map = object(all, &format!("ConfigMap/{NAMESPACE}/{of}")).context("no ConfigMap")?;
    map["data"][file].as_str().context("no such file")
}

#[test]
fn agents_stream_to_both_and_one_lease_says_who_acts() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let all = helm?.rendered(NAMESPACE, &[json!({ "recommender": { "replicas": 2 } })])?.remove(0);
    let set =
        object(&all, &format!("StatefulSet/{NAMESPACE}/evenkeel-recommender")).context("no StatefulSet")?;
    let names =
        object(&all, &format!("Service/{NAMESPACE}/evenkeel-recommender-pair")).context("no Service")?;
    assert_eq!(set["spec"]["serviceName"], names["metadata"]["name"]);
    assert_eq!(
        (&names["spec"]["clusterIP"], &names["spec"]["publishNotReadyAddresses"]),
        (&json!("None"), &json!(true))
    );
    let agent = file(&all, "evenkeel-agent", "agent.toml")?;
    for pod in 0..2 {
        let host = format!("evenkeel-recommender-{pod}.evenkeel-recommender-pair.{NAMESPACE}.svc");
        assert!(agent.contains(&format!("\"https://{host}:9520\"")), "{agent}");
    }
    // Certificates that were made before there were two are as good.
    let called = format!("evenkeel-recommender.{NAMESPACE}.svc");
    assert!(agent.contains(&format!("name = \"{called}\"")), "{agent}");
    let secret =
        object(&all, &format!("Secret/{NAMESPACE}/evenkeel-recommender-tls")).context("no Secret")?;
    let hosts = secret["metadata"]["annotations"]["evenkeel.dev/hosts"].as_str().unwrap_or_default();
    assert!(hosts.split(',').any(|host| host == called), "{hosts}");
    let recommender = file(&all, "evenkeel-recommender", "recommender.toml")?;
    assert!(recommender.contains(&format!("lease = \"{NAMESPACE}/evenkeel-recommender\"")), "{recommender}");
    object(&all, &format!("Lease/{NAMESPACE}/evenkeel-recommender")).context("no Lease")?;
    let role = object(&all, &format!("Role/{NAMESPACE}/evenkeel-recommender")).context("no Role")?;
    let rules = role["rules"].as_array().context("no rules")?;
    let leases: Vec<&Value> = rules.iter().filter(|rule| rule["resources"] == json!(["leases"])).collect();
    let [rule] = leases.as_slice() else { anyhow::bail!("not one rule about leases: {rules:?}") };
    assert_eq!(rule["resourceNames"], json!(["evenkeel-recommender"]));
    assert_eq!(rule["verbs"], json!(["get", "update"]));
    // Each has a claim of its own, which goes with the release.
    let claims = &set["spec"]["volumeClaimTemplates"];
    assert_eq!(claims[0]["metadata"]["name"], "state");
    assert_eq!(set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], "Delete");
    assert!(!all.iter().any(|object| object["kind"] == "PersistentVolumeClaim"));
    Ok(())
}

#[test]
fn one_recommender_knows_nothing_of_a_lease_and_a_claim_is_not_shared() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let helm = helm?;
    let all = helm.rendered(NAMESPACE, &[json!({})])?.remove(0);
    let text = serde_json::to_string(&all)?;
    let left: Vec<String> = all.iter().map(name).filter(|name| name.starts_with("Lease/")).collect();
    assert!(left.is_empty() && !text.contains("leases") && !text.contains("linger"), "{left:?}");
    let shared = json!({ "recommender": { "replicas": 2, "storage": { "existingClaim": "mine" } } });
    let refused =
        helm.rendered(NAMESPACE, &[shared]).err().map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(refused.contains("recommender.storage.existingClaim"), "{refused}");
    Ok(())
}
