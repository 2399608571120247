//! The admission policy that stands in the place of the webhook: its expressions, as far as an evaluator of this project's tests goes, set of pods
//! what the webhook would.

use anyhow::{Context, Result, anyhow};
use evenkeel_tests::chart::Helm;
use evenkeel_tests::require;
use serde_json::{Value, json};

use super::cel::{Scope, value};
use super::parts::{NAMESPACE, object};

/// What the policy makes of a pod under an object: nothing where it is not asked, else requests by container.
fn applied(policy: &Value, params: &Value, pod: &Value) -> Result<Option<Value>> {
    let named =
        [("object", pod.clone()), ("params", params.clone()), ("request", json!({ "namespace": "shop" }))];
    let mut scope: Scope = named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let list = |field: &str| policy["spec"][field].as_array().cloned().unwrap_or_default();
    let evaluate = |of: &Value, scope: &Scope| {
        let text = of["expression"].as_str().unwrap_or_default();
        value(text, scope).map_err(|why| anyhow!("{}: {why}: {text}", of["name"]))
    };
    for condition in list("matchConditions") {
        if evaluate(&condition, &scope)? != true {
            return Ok(None);
        }
    }
    let mut variables = json!({});
    for variable in list("variables") {
        scope.insert("variables".to_owned(), variables.clone());
        variables[variable["name"].as_str().context("no name")?] = evaluate(&variable, &scope)?;
    }
    scope.insert("variables".to_owned(), variables);
    let change = evaluate(&list("mutations")[0]["applyConfiguration"], &scope)?;
    let containers = change["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let requests = containers.iter().map(|container| {
        Some((container["name"].as_str()?.to_owned(), container["resources"]["requests"].clone()))
    });
    Ok(Some(Value::Object(requests.collect::<Option<_>>().context("a container without a name")?)))
}

fn policy(helm: &Helm) -> Result<Value> {
    let all = helm.rendered(NAMESPACE, &[json!({ "webhook": { "policy": true } })])?.remove(0);
    assert!(object(&all, "Deployment/keel/evenkeel-webhook").is_none(), "it needs no program");
    let binding = object(&all, "MutatingAdmissionPolicyBinding/evenkeel").context("no binding")?;
    assert_eq!(binding["spec"]["paramRef"]["parameterNotFoundAction"], "Allow");
    let policy = object(&all, "MutatingAdmissionPolicy/evenkeel").context("no policy")?.clone();
    assert_eq!(policy["spec"]["failurePolicy"], "Ignore");
    let left_alone =
        &policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*left_alone, json!(["kube-system", "kube-public", "kube-node-lease", NAMESPACE]));
    Ok(policy)
}

fn merged(mut of: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        let inner = if of[key].is_object() && value.is_object() {
            merged(of[key].clone(), value)
        } else {
            value.clone()
        };
        of[key] = inner;
    }
    of
}

#[test]
fn the_admission_policy_sets_what_objects_recommend() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let policy = policy(&helm?)?;
    let params = json!({
        "metadata": { "name": "web", "namespace": "shop", "generation": 3 }, "spec": { "target": {} },
        "status": {
            "observedGeneration": 3, "selector": { "matchLabels": { "app": "web" } },
            "recommendation": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "250m", "memory": "64Mi" } } }] },
        },
    });
    let pod = json!({
        "metadata": { "labels": { "app": "web", "tier": "a" } },
        "spec": { "containers": [{ "name": "main" }, { "name": "side" }] },
    });
    let whole = json!({ "main": { "cpu": "250m", "memory": "64Mi" } });
    let resources = |of: Value| json!({ "spec": { "containers": [{ "name": "main", "resources": of }] } });
    let asked = resources(json!({ "requests": { "cpu": "1", "memory": "1Gi" } }));
    let if_not_set = json!({ "spec": { "initialResourcesPolicy": "if-not-set" } });
    let ranged = |told: &str| {
        let told = format!("LimitRanger plugin set: {told}");
        merged(
            asked.clone(),
            &json!({ "metadata": { "annotations": { "kubernetes.io/limit-ranger": told } } }),
        )
    };
    let condition = |kind: &str, status: &str| json!({ "status": { "conditions": [{ "type": kind, "status": status }] } });
    let expression = |operator: &str, key: &str, values: Value| {
        let one = json!({ "key": key, "operator": operator, "values": values });
        json!({ "status": { "selector": { "matchExpressions": [one] } } })
    };
    let none = json!({});
    for (of_object, of_pod, want) in [
        (none.clone(), none.clone(), Some(whole.clone())),
        // What somebody set stays where that is the policy; what a limit range filled in is nobody's.
        (none.clone(), asked.clone(), Some(whole.clone())),
        (if_not_set.clone(), asked.clone(), Some(json!({ "main": { "cpu": "1", "memory": "1Gi" } }))),
        (if_not_set.clone(), ranged("cpu, memory request for container main"), Some(whole.clone())),
        (
            if_not_set.clone(),
            ranged("memory request for container main; cpu request for container side"),
            Some(json!({ "main": { "cpu": "1", "memory": "64Mi" } })),
        ),
        (if_not_set, none.clone(), Some(whole.clone())),
        // A limit stays, and caps.
        (
            none.clone(),
            resources(json!({ "limits": { "cpu": "100m", "memory": "1Gi" } })),
            Some(json!({ "main": { "cpu": "100m", "memory": "64Mi" } })),
        ),
        // It is not asked: the pod opts out, has resources as a whole, or is another's.
        (none.clone(), json!({ "metadata": { "annotations": { "evenkeel.dev/manage": "False" } } }), None),
        (none.clone(), json!({ "spec": { "resources": { "requests": { "cpu": "1" } } } }), None),
        (none.clone(), json!({ "metadata": { "labels": { "app": "db" } } }), None),
        (none.clone(), json!({ "spec": { "containers": [{ "name": "other" }] } }), None),
        // The object is another one by now, is frozen, overruled, off, or lets limits go.
        (json!({ "metadata": { "generation": 4 } }), none.clone(), None),
        (json!({ "status": null }), none.clone(), None),
        (condition("Frozen", "True"), none.clone(), None),
        (condition("Frozen", "False"), none.clone(), Some(whole.clone())),
        (condition("InForce", "False"), none.clone(), None),
        (
            json!({ "status": { "conflicts": [{ "policy": "shop/a", "governs": false }] } }),
            none.clone(),
            None,
        ),
        (
            json!({ "status": { "conflicts": [{ "policy": "shop/a", "governs": true }] } }),
            none.clone(),
            Some(whole.clone()),
        ),
        (json!({ "spec": { "updatePolicy": { "mode": "off" } } }), none.clone(), None),
        (json!({ "spec": { "initialResourcesPolicy": "never" } }), none.clone(), None),
        (json!({ "spec": { "resourcesPolicy": { "limits": "ratio" } } }), none.clone(), None),
        (
            json!({ "spec": { "resourcesPolicy": { "containers": [{ "name": "*", "mode": "off" }] } } }),
            none.clone(),
            Some(json!({})),
        ),
        (
            json!({ "spec": { "resourcesPolicy": { "containers": [{ "name": "*", "mode": "off" }, { "name": "main" }] } } }),
            none.clone(),
            Some(whole.clone()),
        ),
        // Labels.
        (expression("In", "tier", json!(["a", "b"])), none.clone(), Some(whole.clone())),
        (expression("In", "tier", json!(["b"])), none.clone(), None),
        (expression("NotIn", "tier", json!(["a"])), none.clone(), None),
        (expression("NotIn", "zone", json!(["a"])), none.clone(), Some(whole.clone())),
        (expression("Exists", "tier", json!([])), none.clone(), Some(whole.clone())),
        (expression("Exists", "zone", json!([])), none.clone(), None),
        (expression("DoesNotExist", "zone", json!([])), none.clone(), Some(whole)),
        (expression("DoesNotExist", "tier", json!([])), none.clone(), None),
        (expression("Odd", "tier", json!([])), none, None),
    ] {
        let found = applied(&policy, &merged(params.clone(), &of_object), &merged(pod.clone(), &of_pod))?;
        assert_eq!(found, want, "{of_object} {of_pod}");
    }
    Ok(())
}
