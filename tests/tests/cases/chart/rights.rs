//! What pods may do on their nodes, and accounts at the API server.

use anyhow::{Context, Result, bail};
use evenkeel_tests::chart::{Helm, name};
use evenkeel_tests::require;
use serde_json::{Value, json};

use super::parts::{NAMESPACE, containers, pod, rendered};

/// All of the host that is mounted, and whether it may be written.
const HOST_PATHS: [&str; 9] = [
    "/dev/kmsg",
    "/proc",
    "/run/containerd",
    "/run/crio",
    "/run/evenkeel",
    "/run/k3s/containerd",
    "/sys/fs/cgroup",
    "/var/lib/evenkeel/agent",
    "/var/lib/kubelet/pki/kubelet.crt",
];

#[test]
fn no_container_is_privileged_and_the_host_is_mounted_where_it_must_be() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    for (values, all) in rendered(&helm?)? {
        for (of, pod) in all.iter().filter_map(|object| Some((name(object), pod(object)?))) {
            let spec = &pod["spec"];
            let is_agent = of.starts_with("DaemonSet/");
            for container in containers(pod) {
                let of = format!("{of} {} with {values}", container["name"]);
                let context = &container["securityContext"];
                assert!(context.get("privileged").is_none(), "{of}");
                assert_eq!(context["allowPrivilegeEscalation"], false, "{of}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{of}");
                assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{of}");
                let profile =
                    context.get("seccompProfile").unwrap_or(&spec["securityContext"]["seccompProfile"]);
                assert_eq!(profile["type"], "RuntimeDefault", "{of}");
                let added = &context["capabilities"]["add"];
                let mut wanted = json!(["SYS_RESOURCE", "DAC_OVERRIDE", "NET_ADMIN", "KILL", "SYSLOG"]);
                if let Some(more) =
                    wanted.as_array_mut().filter(|_| values["agent"]["parts"] == "three-processes")
                {
                    more.extend([json!("SETUID"), json!("SETGID")]);
                }
                assert_eq!(*added, if is_agent { wanted } else { Value::Null }, "{of}");
                assert!(container["resources"]["requests"]["memory"].is_string(), "{of}");
            }
            for host in ["hostNetwork", "hostPID"] {
                assert_eq!(spec.get(host).is_some(), is_agent, "{of}: {host}");
            }
            assert!(spec.get("hostIPC").is_none() && spec.get("hostUsers").is_none(), "{of}");
            if !is_agent {
                assert_eq!(spec["securityContext"]["runAsNonRoot"], true, "{of}");
            }
            for volume in spec["volumes"].as_array().into_iter().flatten() {
                if let Some(path) = volume["hostPath"]["path"].as_str() {
                    assert!(is_agent && HOST_PATHS.contains(&path), "{of} mounts {path} of the host");
                }
            }
        }
    }
    Ok(())
}

/// What the accounts may, as (account, group/resource, verbs); the lists of view.yaml and objects.yaml are checked where they are used.
fn granted(all: &[Value]) -> Result<Vec<(String, String, String)>> {
    let mut found = Vec::new();
    for binding in
        all.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")))
    {
        let (kind, role) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
        let role = all.iter().find(|object| object["kind"] == *kind && object["metadata"]["name"] == *role);
        let role = role.with_context(|| format!("{} names no role", name(binding)))?;
        assert_eq!(binding["kind"], format!("{}Binding", role["kind"].as_str().unwrap_or_default()));
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            assert_eq!(
                (&subject["kind"], &subject["namespace"]),
                (&json!("ServiceAccount"), &json!(NAMESPACE))
            );
            for rule in role["rules"].as_array().into_iter().flatten() {
                let texts = |key: &str| -> Vec<String> {
                    let list = rule[key].as_array().into_iter().flatten();
                    list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
                };
                for resource in texts("resources") {
                    let resource = format!("{}/{resource}", texts("apiGroups").join(","));
                    let whose = subject["name"].as_str().unwrap_or_default();
                    found.push((format!("{whose} by {}", name(role)), resource, texts("verbs").join(",")));
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

#[test]
fn accounts_may_what_they_need_and_agents_nothing() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let helm = helm?;
    let told =
        granted(&helm.rendered(NAMESPACE, &[json!({ "recommender": { "events": true } })])?.remove(0))?;
    let events: Vec<_> = told.iter().filter(|(who, ..)| who.contains("recommender-events")).collect();
    assert!(
        matches!(&events[..], [(_, what, verbs)] if what == "events.k8s.io/events" && verbs == "create,patch"),
        "{events:?}"
    );
    let asks = json!({ "recommender": { "conditions": true } });
    let told = granted(&helm.rendered(NAMESPACE, &[asks])?.remove(0))?;
    let conditions: Vec<_> = told.iter().filter(|(who, ..)| who.contains("-conditions")).collect();
    assert!(
        matches!(&conditions[..], [(_, what, verbs)] if what == "/pods/status" && verbs == "patch"),
        "{conditions:?}"
    );
    for (mode, writes) in [
        ("off", &[][..]),
        ("dry-run", &[]),
        ("on", &["/pods/eviction create", "/pods/resize patch", "/pods/status patch"]),
    ] {
        let asks = json!({ "recommender": { "updater": mode } });
        let told = granted(&helm.rendered(NAMESPACE, &[asks])?.remove(0))?;
        let own = told.iter().filter(|(who, ..)| who.contains("recommender-updater"));
        let own: Vec<String> = own.map(|(_, what, verbs)| format!("{what} {verbs}")).collect();
        let found: Vec<&str> = own
            .iter()
            .map(String::as_str)
            .filter(|of| !of.ends_with(" get") && !of.ends_with(" list"))
            .collect();
        assert_eq!(found, writes, "{mode}");
        assert_eq!(own.is_empty(), mode == "off", "{mode}");
        assert!(mode == "off" || own.contains(&"/configmaps get".to_owned()), "{own:?}");
    }
    // Evictions that agents offer need nothing more.
    let with = |evictions: &str| json!({ "recommender": { "updater": "on", "evictions": evictions } });
    let told = helm.rendered(NAMESPACE, &[with("off"), with("on")])?;
    assert_eq!(granted(&told[0])?, granted(&told[1])?);
    let asks = json!({ "agent": { "kubelet": { "enabled": true } } });
    let agents: Vec<_> = granted(&helm.rendered(NAMESPACE, &[asks])?.remove(0))?;
    let agents: Vec<_> = agents.iter().filter(|(who, ..)| who.starts_with("evenkeel-agent")).collect();
    assert!(
        matches!(&agents[..], [(_, what, verbs)] if what == "/nodes/pods" && verbs == "get"),
        "{agents:?}"
    );
    let all = helm.rendered(NAMESPACE, &[json!({})])?.remove(0);
    let (view, rest): (Vec<_>, Vec<_>) =
        granted(&all)?.into_iter().partition(|(who, ..)| who.contains("recommender-view"));
    // These are checked where they are used, too.
    let (objects, rest): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|(who, ..)| who.contains("recommender-objects"));
    assert!(
        objects.len() == 7
            && objects.iter().all(|(_, what, verbs)| match verbs.as_str() {
                "get" | "list,watch" => true,
                "patch" => what.ends_with("/status"),
                verbs => verbs == "list,get,create,update" && what.ends_with("checkpoints"),
            }),
        "{objects:?}"
    );
    assert!(view.len() > 15 && view.iter().all(|(.., verbs)| verbs == "list,watch"), "{view:?}");
    assert!(view.iter().all(|(_, resource, _)| resource != "/secrets" && resource != "/configmaps"));
    let rest: Vec<String> = rest.iter().map(|(who, what, verbs)| format!("{who}: {verbs} {what}")).collect();
    assert_eq!(
        rest,
        [
            "evenkeel-recommender by ClusterRole/evenkeel-recommender: create authentication.k8s.io/tokenreviews",
            "evenkeel-recommender by ClusterRole/evenkeel-recommender: create authorization.k8s.io/subjectaccessreviews",
            "evenkeel-recommender by Role/keel/evenkeel-recommender: get /pods",
            "evenkeel-uninstall by ClusterRole/evenkeel-uninstall: list /nodes",
            "evenkeel-uninstall by Role/keel/evenkeel-uninstall: list,create,delete /pods",
            "evenkeel-uninstall by Role/keel/evenkeel-uninstall: list,patch apps/daemonsets",
        ]
    );
    Ok(())
}

#[test]
fn the_webhook_lets_every_pod_through_and_is_called_for_no_other() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let all = helm?.rendered(NAMESPACE, &[json!({ "webhook": { "enabled": true } })])?.remove(0);
    let of = |who: &str| -> Result<Vec<String>> {
        let granted = granted(&all)?.into_iter().filter(|(account, ..)| account.starts_with(who));
        Ok(granted.map(|(_, what, verbs)| format!("{verbs} {what}")).collect())
    };
    assert_eq!(
        of("evenkeel-webhook by")?,
        [
            "list,watch /limitranges",
            "list,watch /resourcequotas",
            "get,patch admissionregistration.k8s.io/mutatingwebhookconfigurations",
            "get evenkeel.dev/recommendations",
            "list,watch evenkeel.dev/verticalpodautoscalers"
        ]
    );
    let named = |name: &str| super::parts::object(&all, name).with_context(|| format!("no {name}"));
    let role = named("ClusterRole/evenkeel-webhook")?;
    assert_eq!(role["rules"][0]["resourceNames"], json!(["evenkeel"]));
    let registration = named("MutatingWebhookConfiguration/evenkeel")?;
    let [webhook] = registration["webhooks"].as_array().context("no webhooks")?.as_slice() else {
        bail!("not one")
    };
    assert_eq!((&webhook["failurePolicy"], &webhook["sideEffects"]), (&json!("Ignore"), &json!("None")));
    assert_eq!(webhook["timeoutSeconds"], 1);
    assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE"]));
    let left_alone = &webhook["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*left_alone, json!(["kube-system", "kube-public", "kube-node-lease", NAMESPACE]));
    // The certificate is for the name that API servers call.
    let secret = named(&format!("Secret/{NAMESPACE}/evenkeel-recommender-tls"))?;
    let hosts = secret["metadata"]["annotations"]["evenkeel.dev/hosts"].as_str().unwrap_or_default();
    let service = webhook["clientConfig"]["service"]["name"].as_str().unwrap_or_default();
    assert!(hosts.split(',').any(|host| host == format!("{service}.{NAMESPACE}.svc")), "{hosts}");
    Ok(())
}

/// Objects of the Vertical Pod Autoscaler are answered from with a right to follow them, and one to look at the Lease of that project's own webhook.
#[test]
fn autoscalers_give_the_webhook_two_rights_and_nobody_else_any() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let with = |autoscalers: bool| json!({ "webhook": { "enabled": true, "autoscalers": autoscalers } });
    let rendered = helm?.rendered(NAMESPACE, &[with(false), with(true)])?;
    let (before, after) = (granted(&rendered[0])?, granted(&rendered[1])?);
    let more: Vec<String> = after
        .iter()
        .filter(|right| !before.contains(right))
        .map(|(who, what, verbs)| format!("{who}: {verbs} {what}"))
        .collect();
    let role = "evenkeel-webhook by ClusterRole/evenkeel-webhook";
    let follows = format!("{role}: list,watch autoscaling.k8s.io/verticalpodautoscalers");
    let looks = format!("{role}: get coordination.k8s.io/leases");
    assert_eq!(more, [follows, looks]);
    assert_eq!(after.len(), before.len() + 2, "each right once");
    let role = super::parts::object(&rendered[1], "ClusterRole/evenkeel-webhook").context("no role")?;
    let rules = role["rules"].as_array().context("no rules")?;
    let lease = rules.iter().find(|rule| rule["resources"] == json!(["leases"])).context("no lease")?;
    // The one that the configuration names by default.
    assert_eq!(lease["resourceNames"], json!(["vpa-admission-controller"]));
    Ok(())
}
