//! `evenkeel snapshot` against a server that speaks the protocol of paged lists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::api_server::{Behaviour, Server, TOKEN};
use crate::common::{Run, command, finish};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A cluster in which every bound plays a part, by path.
fn lists() -> BTreeMap<String, Vec<Value>> {
    let node = |name: &str, zone: &str| {
        json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone } },
            "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "20" } },
        })
    };
    let pod = |at: usize| {
        json!({
            "metadata": { "name": format!("web-{at}"), "namespace": "shop", "labels": { "app": "web" } },
            "spec": { "nodeName": (["a", "b"][at % 2]), "containers": [{ "name": "c", "env": [{ "name": "KEY", "value": "SECRET" }],
                "resources": { "requests": { "cpu": "100m" } } }] },
            "status": { "phase": "Running" },
        })
    };
    let quota = json!({
        "metadata": { "name": "q", "namespace": "shop" },
        "spec": { "hard": { "pods": "12" } }, "status": { "hard": { "pods": "12" }, "used": { "pods": "7" } },
    });
    let volume = json!({
        "metadata": { "name": "v" },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany"], "claimRef": { "name": "data", "namespace": "shop" },
            "csi": { "driver": "d", "volumeHandle": "h", "volumeAttributes": { "key": "SECRET" } } },
        "status": { "phase": "Bound" },
    });
    let claim = json!({
        "metadata": { "name": "data", "namespace": "shop", "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "volumeName": "v", "accessModes": ["ReadWriteMany"], "storageClassName": "s" }, "status": { "phase": "Bound" },
    });
    let named = |name: &str| json!({ "metadata": { "name": name } });
    let core = [
        ("nodes", vec![node("a", "x"), node("b", "y"), node("c", "y")]),
        ("pods", (0..7).map(pod).collect()),
        ("namespaces", vec![named("shop")]),
        (
            "services",
            vec![
                json!({ "metadata": { "name": "s", "namespace": "shop" }, "spec": { "selector": { "app": "web" } } }),
            ],
        ),
        ("replicationcontrollers", vec![]),
        ("persistentvolumes", vec![volume]),
        ("persistentvolumeclaims", vec![claim]),
        ("resourcequotas", vec![quota]),
        (
            "limitranges",
            vec![json!({ "metadata": { "name": "l", "namespace": "shop" },
            "spec": { "limits": [{ "type": "Container", "defaultRequest": { "cpu": "1" } }] } })],
        ),
    ];
    let storage = [
        ("storageclasses", vec![json!({ "metadata": { "name": "s" }, "provisioner": "d" })]),
        (
            "csinodes",
            vec![
                json!({ "metadata": { "name": "a" }, "spec": { "drivers": [{ "name": "d", "allocatable": { "count": 3 } }] } }),
            ],
        ),
        ("csidrivers", vec![named("d")]),
        ("csistoragecapacities", vec![]),
        ("volumeattachments", vec![]),
    ];
    let mut lists: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    lists.extend(core.into_iter().map(|(kind, list)| (format!("/api/v1/{kind}"), list)));
    lists.extend(storage.into_iter().map(|(kind, list)| (format!("/apis/storage.k8s.io/v1/{kind}"), list)));
    lists.insert("/apis/apps/v1/replicasets".into(), vec![]);
    lists.insert("/apis/apps/v1/statefulsets".into(), vec![]);
    lists.insert(
        "/apis/scheduling.k8s.io/v1/priorityclasses".into(),
        vec![json!({ "metadata": { "name": "high" }, "value": 7 })],
    );
    lists.insert("/apis/node.k8s.io/v1/runtimeclasses".into(), vec![]);
    lists.insert("/apis/policy/v1/poddisruptionbudgets".into(), vec![]);
    lists
}

fn served() -> Behaviour {
    Behaviour { lists: lists(), ..Behaviour::default() }
}

struct Desk {
    dir: TempDir,
    server: Server,
}

impl Desk {
    fn new(behaviour: Behaviour) -> Self {
        let desk = Self { dir: TempDir::new().unwrap(), server: Server::start(behaviour) };
        desk.write("ca.crt", &desk.server.ca);
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// A kubeconfig whose one user is told by these lines.
    fn config(&self, user: &str) -> PathBuf {
        let text = format!(
            "current-context: one\ncontexts: [{{name: one, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {user}}}]\n",
            self.server.url()
        );
        self.write("config", &text)
    }

    fn command(&self, user: &str, arguments: &[&str]) -> Command {
        let mut all = vec!["snapshot"];
        all.extend(arguments);
        let mut command = command(&all);
        command.env("KUBECONFIG", self.config(user)).env("PATH", "/usr/bin:/bin");
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        finish(&mut self.command(&format!("{{token: {TOKEN}}}"), arguments))
    }
}

fn items(run: &Run) -> Vec<Value> {
    assert_eq!(run.status, 0, "{run:?}");
    run.json()["items"].as_array().unwrap().clone()
}

#[test]
fn a_saved_cluster_answers_as_its_objects_do() {
    let desk = Desk::new(served());
    let file = desk.path("cluster.json");
    let run = desk.run(&[file.to_str().unwrap(), "--page-size", "2", "-o", "json"]);
    assert_eq!(run.status, 0, "{run:?}");
    let counts: BTreeMap<String, u64> = run.json()["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| (kind["kind"].as_str().unwrap().to_owned(), kind["objects"].as_u64().unwrap()))
        .collect();
    assert_eq!((counts["Node"], counts["Pod"], counts["PriorityClass"], counts.len()), (3, 7, 1, 19));
    let listed = &serde_json::from_str::<Value>(&std::fs::read_to_string(&file).unwrap()).unwrap()["listed"];
    assert!(listed.as_array().unwrap().contains(&json!("RuntimeClass")), "{listed}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("SECRET"), "{text}");
    assert_eq!(desk.server.requests().iter().filter(|r| r.starts_with("/api/v1/pods?")).count(), 4);
    assert!(!desk.server.requests().iter().any(|r| r.contains("secrets") || r.contains("configmaps")));

    // The same objects written by hand, as one list for each kind.
    let key = |path: &str| match path.rsplit('/').next().unwrap() {
        "persistentvolumes" => "pvs".to_owned(),
        "persistentvolumeclaims" => "pvcs".to_owned(),
        "storageclasses" => "storageClasses".to_owned(),
        "csinodes" => "csiNodes".to_owned(),
        "resourcequotas" => "resourceQuotas".to_owned(),
        "limitranges" => "limitRanges".to_owned(),
        "priorityclasses" => "priorityClasses".to_owned(),
        "csidrivers" => "csiDrivers".to_owned(),
        other => other.to_owned(),
    };
    let by_hand: BTreeMap<String, Vec<Value>> = lists()
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(path, list)| (key(&path), list))
        .collect();
    let by_hand = desk.write("by-hand.json", &serde_json::to_string(&by_hand).unwrap());
    let pod = desk.write(
        "pod.yaml",
        "metadata: {name: web, namespace: shop, labels: {app: web}}\nspec: {containers: [{name: c}], \
         volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}\n",
    );
    let ask = |snapshot: &Path| {
        let run = crate::common::run(&[
            "capacity",
            "-f",
            pod.to_str().unwrap(),
            "--snapshot",
            snapshot.to_str().unwrap(),
            "--lose",
            "any",
            "-o",
            "json",
        ]);
        assert_eq!(run.status, 0, "{run:?}");
        run.json()
    };
    let answer = ask(&file);
    assert_eq!((&answer["count"], &answer["binding"]), (&json!(5), &json!("quota/q")), "{answer}");
    assert_eq!(answer, ask(&by_hand));

    let live = ["capacity", "-f", pod.to_str().unwrap(), "--live", "--lose", "any", "-o", "json"];
    let live = finish(command(&live).env("KUBECONFIG", desk.config("{token: right}")));
    assert_eq!(live.json(), answer);
}

#[test]
fn lists_that_expire_begin_again_and_passing_failures_are_waited_for() {
    let mut behaviour = served();
    behaviour.expire.insert("/api/v1/pods".into(), 2);
    behaviour.failures.insert("/api/v1/nodes".into(), vec![(503, Some(0)), (429, Some(0)), (0, None)]);
    let desk = Desk::new(behaviour);
    // Something has to be reached before a broken connection is believed to pass.
    desk.server.behaviour.lock().unwrap().failures.get_mut("/api/v1/nodes").unwrap().push((500, Some(0)));
    let run = desk.run(&["--page-size", "3"]);
    let names: Vec<String> = items(&run)
        .iter()
        .filter(|object| object["kind"] == "Pod")
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, (0..7).map(|at| format!("web-{at}")).collect::<Vec<_>>());
    assert_eq!(items(&run).iter().filter(|object| object["kind"] == "Node").count(), 3);

    let mut behaviour = served();
    behaviour.expire.insert("/api/v1/pods".into(), 100);
    let desk = Desk::new(behaviour);
    let file = desk.write("cluster.json", "old");
    let run = desk.run(&[file.to_str().unwrap(), "--page-size", "3"]);
    assert!(run.status == 1 && run.err.contains("--page-size"), "{run:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    let partial = std::fs::read_dir(desk.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!partial.into_iter().any(|name| name.to_str().unwrap().ends_with(".partial")));
}

#[test]
fn what_may_not_be_seen_is_named_with_its_cost_and_refused_when_strict() {
    let mut behaviour = served();
    behaviour.forbidden.insert("/api/v1/resourcequotas".into());
    behaviour.lists.remove("/apis/storage.k8s.io/v1/csistoragecapacities");
    let desk = Desk::new(behaviour);
    let run = desk.run(&[]);
    assert!(items(&run).iter().all(|object| object["kind"] != "ResourceQuota"));
    assert!(run.err.contains("without ResourceQuota") && run.err.contains("quotas do not bind"), "{run:?}");
    assert!(run.err.contains("cannot list") && run.err.contains("without CSIStorageCapacity"), "{run:?}");
    let (file, asked) = (desk.path("less.json"), desk.path("asked.yaml"));
    desk.write("less.json", &run.out);
    desk.write("asked.yaml", "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n");
    let [file, asked] = [&file, &asked].map(|path| path.to_str().unwrap());
    let answer = crate::common::run(&["capacity", "-f", asked, "--snapshot", file, "--max", "1"]);
    assert!(answer.out.contains("lists no ResourceQuota (quotas do not bind)"), "{answer:?}");
    let run = desk.run(&["--strict"]);
    assert!(run.status == 1 && run.err.contains("resourcequotas") && run.out.is_empty(), "{run:?}");
    desk.server.behaviour.lock().unwrap().forbidden.insert("/api/v1/nodes".into());
    let run = desk.run(&["-o", "json"]);
    let error: Value = serde_json::from_str(&run.err).unwrap();
    assert!(error["error"]["where"].as_str().unwrap().ends_with("/api/v1/nodes"), "{run:?}");
    assert!(!run.err.contains("--strict"), "it was not given: {run:?}");
}

#[test]
fn whoever_may_ask_is_let_in_by_the_table() {
    let desk = Desk::new(served());
    desk.write("token", &format!("{TOKEN}\n"));
    desk.write("client.crt", &desk.server.client.0);
    desk.write("client.key", &desk.server.client.1);
    desk.write("other.key", &Server::start(Behaviour::default()).client.1);
    desk.write("v1.crt", include_str!("certificates/v1.crt"));
    desk.write("v1.key", include_str!("certificates/v1.key"));
    desk.write("p521.crt", include_str!("certificates/p521.crt"));
    desk.write("p521.key", include_str!("certificates/p521.key"));
    let plugin = |token: &str| {
        let answer = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": token },
        });
        format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, installHint: get it, \
             args: [-c, 'test -n \"$KUBERNETES_EXEC_INFO\" && test \"$WHO\" = me && echo ''{answer}'''], \
             env: [{{name: WHO, value: me}}]}}}}"
        )
    };
    let good = plugin(TOKEN);
    let bad = plugin("wrong");
    let absent = good.replace("command: sh", "command: no-such-plugin");
    let table: [(&str, i32, &str); 13] = [
        ("{token: right}", 0, ""),
        ("{tokenFile: token}", 0, ""),
        ("{client-certificate: client.crt, client-key: client.key}", 0, ""),
        (&good, 0, ""),
        ("{token: wrong}", 1, "401"),
        (&bad, 1, "401"),
        (&absent, 1, "get it"),
        ("{client-certificate: client.crt}", 1, "no key"),
        ("{tokenFile: missing}", 1, "missing"),
        ("{client-certificate: v1.crt, client-key: v1.key}", 1, "X.509 version 1"),
        ("{client-certificate: p521.crt, client-key: p521.key}", 1, "P-256 or P-384"),
        ("{client-certificate: client.crt, client-key: other.key}", 1, "another certificate"),
        ("{as-groups: [dev], token: right}", 1, "without as"),
    ];
    for (user, status, part) in table {
        let run = finish(&mut desk.command(user, &[]));
        assert_eq!(run.status, status, "{user}: {run:?}");
        assert!(run.err.contains(part), "{user}: {run:?}");
        assert!(!run.err.contains(TOKEN), "the token is not told: {run:?}");
    }
}

#[test]
fn a_user_is_impersonated_as_the_kubeconfig_says() {
    let desk = Desk::new(served());
    let user = "{token: right, as: poor, as-uid: '7', as-groups: [dev, ops], as-user-extra: {a/b: [c]}}";
    let run = finish(&mut desk.command(user, &[]));
    assert_eq!(run.status, 0, "{run:?}");
    let headers = desk.server.behaviour.lock().unwrap().headers.clone();
    let asked: Vec<&str> =
        headers.iter().map(String::as_str).filter(|line| line.starts_with("impersonate-")).collect();
    let want = [
        "impersonate-user: poor",
        "impersonate-uid: 7",
        "impersonate-group: dev",
        "impersonate-group: ops",
        "impersonate-extra-a%2fb: c",
    ];
    assert_eq!(asked, want, "{headers:?}");
}

#[test]
fn a_server_may_have_another_name_in_its_certificate() {
    let server = Server::named(served(), "inside.example");
    let desk = Desk { dir: TempDir::new().unwrap(), server };
    desk.write("ca.crt", &desk.server.ca);
    let run = desk.run(&[]);
    assert!(run.status == 1 && run.err.contains("certificate"), "{run:?}");
    let with = |name: &str| {
        let text = std::fs::read_to_string(desk.config("{token: right}")).unwrap();
        let text =
            text.replace("certificate-authority", &format!("tls-server-name: {name}, certificate-authority"));
        let path = desk.write("named", &text);
        finish(command(&["snapshot"]).env("KUBECONFIG", path))
    };
    let run = with("inside.example");
    assert_eq!(run.status, 0, "{run:?}");
    let headers = desk.server.behaviour.lock().unwrap().headers.clone();
    assert!(headers.contains(&format!("host: {}", desk.server.at)), "{headers:?}");
    let run = with("outside.example");
    assert!(run.status == 1 && run.err.contains("certificate"), "{run:?}");
    let run = with("'no name'");
    assert!(run.status == 1 && run.err.contains("no host name"), "{run:?}");
}

#[test]
fn the_server_is_only_believed_with_its_certificate() {
    let desk = Desk::new(served());
    let stranger = Server::start(Behaviour::default());
    desk.write("ca.crt", &stranger.ca);
    let run = desk.run(&[]);
    assert!(run.status == 1 && run.err.contains("certificate"), "{run:?}");
    let text = std::fs::read_to_string(desk.config("{token: right}")).unwrap();
    let careless = desk
        .write("careless", &text.replace("certificate-authority: ca.crt", "insecure-skip-tls-verify: true"));
    let run = finish(&mut command(&["snapshot", "--kubeconfig", careless.to_str().unwrap()]));
    assert!(run.status == 0 && run.err.contains("not checked"), "{run:?}");
    let run =
        finish(&mut command(&["snapshot", "--kubeconfig", careless.to_str().unwrap(), "--context", "two"]));
    assert!(run.status == 1 && run.err.contains("there are: one"), "{run:?}");
    let run = finish(&mut command(&["snapshot"]));
    assert!(run.status == 1 && run.err.contains("no API server is known"), "{run:?}");
}

#[test]
fn one_namespace_is_asked_for_where_kinds_have_them() {
    let mut behaviour = served();
    let pods = behaviour.lists["/api/v1/pods"].clone();
    behaviour.lists.insert("/api/v1/namespaces/shop/pods".into(), pods);
    let desk = Desk::new(behaviour);
    let run = desk.run(&["--namespace", "shop"]);
    assert_eq!(items(&run).iter().filter(|object| object["kind"] == "Pod").count(), 7);
    assert!(run.err.contains("emptier"), "{run:?}");
    assert!(desk.server.requests().iter().all(|request| !request.starts_with("/api/v1/pods")));
}

#[test]
fn the_program_is_a_plugin_of_kubectl_under_its_other_name() {
    let dir = TempDir::new().unwrap();
    let plugin = dir.path().join("kubectl-evenkeel");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_evenkeel"), &plugin).unwrap();
    let help = finish(Command::new(&plugin).args(["capacity", "--help"]).env_clear());
    assert!(help.status == 0 && help.out.contains("Usage: kubectl evenkeel capacity [OPTIONS]"), "{help:?}");
    let own = crate::common::run(&["capacity", "--help"]);
    assert!(own.out.contains("Usage: evenkeel capacity [OPTIONS]"), "{own:?}");

    // As kubectl itself starts it, where there is one.
    let Some(kubectl) =
        ["/usr/bin/kubectl", "/usr/local/bin/kubectl"].into_iter().find(|path| Path::new(path).exists())
    else {
        eprintln!("skipped: no kubectl here");
        return;
    };
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let mut kubectl = Command::new(kubectl);
    kubectl.args(["evenkeel", "quantity", "129M", "-o", "json"]).env_clear();
    let run = finish(kubectl.env("PATH", path).env("HOME", dir.path()));
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!(run.json()[0]["canonical"], "129M");
}
