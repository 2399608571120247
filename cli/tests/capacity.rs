//! `evenkeel capacity`, run as people run it.

use std::path::PathBuf;

use crate::common::{Run, run, run_with};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The answer's text without the directory's name, which is another one each time.
    fn hide(&self, text: &str) -> String {
        text.replace(&self.0.path().display().to_string(), "DIR")
    }
}

const POD: &str = "
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, resources: {requests: {cpu: 300m, memory: 1Gi}}}]}
";

const CLUSTER: &str = "
apiVersion: v1
kind: List
items:
- kind: Node
  metadata: {name: big, labels: {pool: a, topology.kubernetes.io/zone: z1}}
  status: {allocatable: {cpu: 2, memory: 8Gi, pods: 110}}
- kind: Node
  metadata: {name: small, labels: {pool: b, topology.kubernetes.io/zone: z2}}
  status: {allocatable: {cpu: 1, memory: 8Gi, pods: 110}}
- kind: Pod
  metadata: {name: old, namespace: default}
  spec: {nodeName: big, containers: [{name: c, resources: {requests: {cpu: 500m}}}]}
- kind: ConfigMap
  metadata: {name: settings}
";

fn ask(files: &Files, more: &[&str]) -> Run {
    let (pod, cluster) = (files.write("pod.yaml", POD), files.write("cluster.yaml", CLUSTER));
    let mut arguments = vec!["capacity", "-f", &pod, "--snapshot", &cluster];
    arguments.extend(more);
    run(&arguments)
}

#[test]
fn people_get_the_count_the_places_and_the_reason() {
    let files = Files::new();
    let found = ask(&files, &["--lose", "any", "-o", "wide"]);
    assert_eq!(found.status, 0, "{found:?}");
    insta::assert_snapshot!("capacity_wide", found.out);
}

#[test]
fn spreadsheets_get_a_row_for_each_node() {
    let found = ask(&Files::new(), &["-o", "csv", "--nodes", "pool in (a, b)"]);
    let rows = "NODE,PODS,WHY-NOT-ONE-MORE,SHORT-BY\nbig,5,Insufficient cpu,cpu 300m\nsmall,3,Insufficient cpu,cpu 200m\n";
    assert_eq!((found.status, found.out.replace('\r', "").as_str()), (0, rows), "{found:?}");
    let wrong = ask(&Files::new(), &["--nodes", "pool of (a)"]);
    assert!(wrong.status == 2 && wrong.err.contains("\"pool of (a)\" has neither in nor notin"), "{wrong:?}");
}

#[test]
fn nodes_to_add_are_those_the_nodes_lack_and_a_quota_is_told() {
    let files = Files::new();
    let types = files.write("types.csv", "name,cpu,memory,pods\nhuge,8,32Gi,110\n");
    let quota = files.write(
        "quota.yaml",
        "kind: ResourceQuota\nmetadata: {name: few, namespace: default}\nspec: {hard: {pods: 4}}\n",
    );
    let found = ask(&files, &["--snapshot", &quota, "--need", "9", "--add", &types]);
    assert!(found.out.contains("Note: quota/few lets only 3 in, whatever nodes are added"), "{}", found.out);
    assert!(found.out.contains("Nodes to add for 1 more:"), "{}", found.out);
}

#[test]
fn sets_across_nodes_are_bought_no_dearer_than_of_one_type() {
    let files = Files::new();
    // A set is three cores: a node of four holds one, and four nodes five.
    let two = files.write("two.yaml", "kind: Pod\nmetadata: {name: two}\nspec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}\n");
    let one = files.write("one.yaml", "kind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}\n");
    let types = files.write("types.csv", "name,cpu,memory,pods,price\nfour,4,32Gi,110,1\n");
    let none = files.write("none.yaml", "kind: List\nitems: []\n");
    let arguments =
        ["capacity", "-f", &two, &one, "--snapshot", &none, "--need", "5", "--add", &types, "-o", "json"];
    let answer = run(&arguments).json();
    assert_eq!(answer["add"], json!([{"type": "four", "perNode": 1, "nodes": 4, "price": 4.0}]));
    assert_eq!(
        answer["cheapest"],
        json!({"nodes": {"four": 4}, "holds": 5, "price": 4.0, "lowerBound": 3.75})
    );
}

#[test]
fn scripts_get_json_and_the_exit_status() {
    let files = Files::new();
    let found = ask(&files, &["-o", "json", "--steps", "all", "--need", "9"]);
    assert_eq!(found.status, 1, "fewer than needed");
    let answer = found.json();
    assert_eq!((&answer["count"], &answer["perNode"]), (&json!(8), &json!({"big": 5, "small": 3})));
    assert_eq!(answer["message"], "0/2 nodes are available: 2 Insufficient cpu.");
    assert_eq!(answer["sequence"].as_array().unwrap().len(), 8);
    assert_eq!(answer["snapshot"]["skipped"], json!({"ConfigMap": 1}));
    let limited = ask(&files, &["-o", "json", "--max", "2"]).json();
    assert_eq!(
        (&limited["count"], &limited["stop"], &limited["bounds"]["nodes"]),
        (&json!(2), &json!("LimitReached"), &json!(8))
    );
}

#[test]
fn nodes_are_chosen_left_out_and_kept_free() {
    let files = Files::new();
    let count = |more: &[&str]| {
        let mut all = vec!["-o", "json"];
        all.extend(more);
        ask(&files, &all).json()["count"].clone()
    };
    assert_eq!(count(&["--nodes", "pool=b"]), 3);
    assert_eq!(count(&["--nodes", "pool!=b"]), 5);
    assert_eq!(count(&["--exclude-nodes", "big"]), 3);
    assert_eq!(count(&["--reserve", "cpu=1500m"]), 3);
    assert_eq!(count(&["--scheduler-version", "1.34"]), 8);
    assert_eq!(count(&["--namespace", "default"]), 8);
    let config = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
      {matchExpressions: [{key: pool, operator: In, values: [b]}]}]}}}
";
    assert_eq!(count(&["--scheduler-config", &files.write("scheduler.yaml", config)]), 3);
    let wrong = ask(&files, &["--exclude-nodes", "none"]);
    assert!(wrong.status == 1 && wrong.err.contains("no node of the snapshot is named none"), "{wrong:?}");
}

#[test]
fn pods_are_placed_first_in_file_order() {
    let files = Files::new();
    let job = "kind: Pod\nmetadata: {name: job}\nspec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}\n";
    let first = files.write(
        "first.yaml",
        &format!("{job}---\n{}", job.replace("name: job", "name: huge").replace("cpu: 1", "cpu: 9")),
    );
    let answer = ask(&files, &["-o", "json", "--place", &first]).json();
    let message = "0/2 nodes are available: 2 Insufficient cpu.";
    assert_eq!(
        answer["placed"],
        json!([{"pod": "job", "node": "big", "message": ""}, {"pod": "huge", "node": null, "message": message}])
    );
    assert_eq!(answer["count"], 4);
}

/// Of 2 and 1 cores, `old` has half of one; `job` takes one of the others.
#[test]
fn what_if_sees_the_pods_that_were_placed_first() {
    let files = Files::new();
    let job = "kind: Pod\nmetadata: {name: job}\nspec: {priority: -5, containers: [{name: c, resources: {requests: {cpu: 1}}}]}\n";
    let first = files.write("first.yaml", job);
    let answer = ask(&files, &["-o", "json", "--place", &first, "--preempt", "--drain", "big"]).json();
    assert_eq!((&answer["placed"][0]["node"], &answer["count"]), (&json!("big"), &json!(4)));
    assert_eq!((&answer["preempt"]["without"], &answer["preempt"]["count"]), (&json!(4), &json!(8)));
    assert_eq!(answer["preempt"]["victims"][0]["pod"], "default/job", "{answer:#}");
    let drain = &answer["drain"][0];
    assert_eq!((&drain["pods"], &drain["placed"]), (&json!(2), &json!(1)), "{answer:#}");
    assert_eq!(drain["failed"][0]["pod"], "default/job");
}

#[test]
fn what_if_answers_stand_under_their_own_names() {
    let files = Files::new();
    let types = files.write("types.csv", "name,cpu,memory,pods,price\nhuge,8,32Gi,110,1.5\n");
    let recommended = files.write(
        "recommended.json",
        &json!([{"namespace": "default", "workload": "old", "container": "c", "resource": "cpu", "request": 100}]).to_string(),
    );
    let answer = ask(
        &files,
        &[
            "-o",
            "json",
            "--need",
            "40",
            "--add",
            &types,
            "--drain",
            "big",
            "--lose",
            "zone=z2",
            "--trials",
            "3",
            "--daemonset",
            "--preempt",
            "--compact",
            "--defrag",
            "2",
            "--seed",
            "7",
            "--what-if",
            &recommended,
        ],
    )
    .json();
    assert_eq!(answer["add"], json!([{"type": "huge", "perNode": 26, "nodes": 2, "price": 3.0}]));
    assert_eq!(
        (&answer["cheapest"]["nodes"], &answer["cheapest"]["price"]),
        (&json!({"huge": 2}), &json!(3.0))
    );
    assert!(answer["cheapest"]["lowerBound"].as_f64().unwrap() < 2.0);
    assert_eq!(
        (&answer["compact"]["found"], &answer["compact"]["bound"], &answer["defrag"]["moves"]),
        (&json!(1), &json!(1), &json!([]))
    );
    assert_eq!((&answer["drain"][0]["placed"], &answer["lose"][0]["nodes"]), (&json!(1), &json!(["small"])));
    assert_eq!(
        (&answer["trials"]["min"], &answer["daemonset"]["fits"], &answer["preempt"]["count"]),
        (&json!(8), &json!(2), &json!(8))
    );
    assert_eq!(answer["recommended"]["count"], 9, "the old pod asks for less");
}

#[test]
fn broken_input_is_named_by_file_place_and_kind() {
    let files = Files::new();
    let pod = files.write("pod.yaml", POD);
    let try_one = |name: &str, text: &str| {
        let file = files.write(name, text);
        let found = run(&["capacity", "-f", &pod, "--snapshot", &file, "-o", "json"]);
        assert_eq!((found.status, found.out.as_str()), (1, ""), "{found:?}");
        let error: Value = serde_json::from_str(&found.err).unwrap();
        files.hide(&format!(
            "{}: {}",
            error["error"]["where"].as_str().unwrap(),
            error["error"]["why"].as_str().unwrap()
        ))
    };
    let node = json!({"kind": "Node", "metadata": {"name": "n"}});
    let twice = try_one("twice.json", &json!({"kind": "List", "items": [node, node]}).to_string());
    assert!(twice.contains("DIR/twice.json: items[1] (Node): Node n is there twice"), "{twice}");
    let bad = json!({"nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "lots"}}}]});
    let bad = try_one("bad.json", &bad.to_string());
    assert!(bad.contains("DIR/bad.json: nodes[0] (Node)") && bad.contains("lots"), "{bad}");
    let kindless = try_one("kindless.json", "{\"items\": [{\"metadata\": {}}]}");
    assert!(kindless.contains("items[0]: kind is missing"), "{kindless}");
    let deep = try_one("deep.yaml", &format!("a: {}", "[".repeat(5000)));
    assert!(deep.contains("deep.yaml"), "{deep}");
    let cut = try_one("cut.json", "{\"nodes\": [");
    assert!(cut.contains("EOF"), "{cut}");
}

#[test]
fn a_few_moves_make_room_and_people_read_them() {
    let files = Files::new();
    let node = |name: &str| {
        format!(
            "- {{kind: Node, metadata: {{name: {name}}}, status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 9}}}}}}\n"
        )
    };
    let pod = |name: &str, node: &str| {
        format!(
            "- {{kind: Pod, metadata: {{name: {name}}}, spec: {{nodeName: {node}, containers: [{{name: c, resources: {{requests: {{cpu: 2}}}}}}]}}}}\n"
        )
    };
    let list = format!("kind: List\nitems:\n{}{}{}{}", node("a"), node("b"), pod("p1", "a"), pod("p2", "b"));
    let cluster = files.write("halves.yaml", &list);
    let whole = files.write("whole.yaml", &POD.replace("300m", "4"));
    let arguments = ["capacity", "-f", &whole, "--snapshot", &cluster, "--defrag", "3", "--compact"];
    let found = run(&arguments);
    assert_eq!(found.status, 1, "none fits as it is");
    assert!(
        found.out.contains("After 1 moves 1 fit, not 0:\n\tdefault/p1 from a to b (nobody makes it anew)"),
        "{}",
        found.out
    );
    assert!(
        found.out.contains("The pods of 2 nodes would fit on 1; fewer than 1 cannot hold them."),
        "{}",
        found.out
    );
}

#[test]
fn what_a_pod_needs_is_told_as_in_the_design_document() {
    let files = Files::new();
    let pod = files.write("pod.yaml", "
kind: Pod
metadata: {name: hpc}
spec:
  nodeSelector: {zone: Europe, type: HPC}
  containers: [{name: c, resources: {requests: {cpu: '2.5', memory: 40Mi}}}]
  volumes:
  - {name: a, persistentVolumeClaim: {claimName: a}}
  - {name: b, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: made, resources: {requests: {storage: 4Gi}}}}}}
");
    let cluster = "
kind: List
items:
- {kind: Node, metadata: {name: n1, labels: {zone: Europe, type: HPC}}, status: {allocatable: {cpu: 60, memory: 8Gi, pods: 110}}}
- {kind: StorageClass, metadata: {name: made}, provisioner: d, volumeBindingMode: WaitForFirstConsumer}
- {kind: PersistentVolumeClaim, metadata: {name: a}, spec: {storageClassName: made, resources: {requests: {storage: 6Gi}}}}
";
    // From standard input, too.
    let found = run_with(&["capacity", "-f", &pod, "--snapshot", "-"], cluster);
    assert_eq!(found.status, 0, "{found:?}");
    let wanted = "PodRequirements:\n- cpu: 2500m\n- memory: 40Mi\n- PVClaim:\n  - count: 2\n  - total_storage: 10Gi\n- labels:\n  - name: type\n    value: HPC\n";
    assert!(found.out.starts_with(wanted), "{}", found.out);
    assert!(found.out.contains("The cluster can schedule 24 instance(s) of the pod.\n"), "{}", found.out);
    let yaml = run_with(&["capacity", "-f", &pod, "--snapshot", "-", "-o", "yaml"], cluster);
    assert!(yaml.out.starts_with("count: 24\n") && yaml.out.contains("totalStorage: 10Gi"), "{}", yaml.out);
    let none: [&str; 0] = [];
    let asked = run(&["capacity", "--snapshot", "x"]);
    assert_eq!((asked.status, asked.out.lines().collect::<Vec<_>>().as_slice()), (2, none.as_slice()));
}

#[test]
fn the_largest_pod_of_a_namespace_is_asked_for() {
    let files = Files::new();
    let range = files.write(
        "range.yaml",
        "
kind: LimitRange
metadata: {name: r, namespace: team}
spec: {limits: [{type: Pod, max: {cpu: 500m, memory: 1Gi}}]}
",
    );
    let cluster = files.write("cluster.yaml", CLUSTER);
    let answer =
        run(&["capacity", "--largest", "--namespace", "team", "--snapshot", &cluster, &range, "-o", "json"])
            .json();
    assert_eq!(
        (&answer["count"], &answer["requirements"][0]["requests"]),
        (&json!(5), &json!({"cpu": "500m", "memory": "1Gi"}))
    );
}

#[test]
fn kubectl_runs_it_as_a_plugin() {
    let files = Files::new();
    let plugin = files.0.path().join("kubectl-evenkeel");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_evenkeel"), &plugin).unwrap();
    let output =
        std::process::Command::new(plugin).args(["capacity", "--help"]).env_clear().output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && help.contains("Usage: kubectl evenkeel capacity"), "{help}");
}

#[test]
fn types_say_what_counts_for_pods_that_say_nothing() {
    let files = Files::new();
    let cluster = "kind: List\nitems:\n- kind: Node\n  metadata: {name: n1}\n  \
        status: {allocatable: {cpu: 8, memory: 8Gi, pods: 110, example.com/disk: 10k}}\n- kind: Pod\n  metadata: {name: old}\n  \
        spec: {nodeName: n1, containers: [{name: c}]}\n";
    let (pod, cluster) = (files.write("pod.yaml", POD), files.write("cluster.yaml", cluster));
    let types =
        "resourceTypes: {example.com/disk: {units: byte per second, defaultRequest: 2500, quantization: 1k}}";
    let types = files.write("types.yaml", types);
    let count = |more: &[&str]| {
        let all = [&["capacity", "-f", &pod, "--snapshot", &cluster, "-o", "json"], more].concat();
        run(&all).json()["count"].clone()
    };
    assert_eq!(count(&[]), json!(8), "by memory");
    assert_eq!(count(&["--types", &types]), json!(2), "3k each, and 3k of the pod that is there");
}

/// What people keep in one file: what makes the pods, and what it comes with.
const APPLICATION: &str = "
kind: Namespace
metadata: {name: shop}
---
kind: LimitRange
metadata: {name: small, namespace: shop}
spec: {limits: [{type: Container, defaultRequest: {cpu: 500m}}]}
---
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}}
---
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, resources: {requests: {memory: 4G}}}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
";

#[test]
fn a_file_as_people_apply_it_brings_what_it_needs() {
    let files = Files::new();
    let (app, cluster) = (files.write("app.yaml", APPLICATION), files.write("cluster.yaml", CLUSTER));
    let more = files.write(
        "more.yaml",
        "kind: List\nitems:\n\
         - {kind: Namespace, metadata: {name: default}}\n\
         - {kind: StorageClass, metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, \
         provisioner: p, volumeBindingMode: WaitForFirstConsumer}\n",
    );
    let found = run(&["capacity", "-f", &app, "--snapshot", &cluster, &more, "-o", "json"]);
    let answer = found.json();
    assert_eq!((&answer["count"], &answer["binding"]), (&json!(1), &json!("nodes")), "{answer}");
    assert_eq!(answer["requirements"][0]["requests"], json!({"cpu": "500m", "memory": "4G"}));
    let changes = answer["changes"].to_string();
    for made in ["Namespace shop", "LimitRange shop/small", "PersistentVolumeClaim shop/data"] {
        assert!(changes.contains(&format!("{made}, which comes with the pods")), "{made}: {changes}");
    }
    assert!(answer["notes"].to_string().contains("what takes no part was left out: Service web"), "{answer}");
    // What is there already stays as it is; the namespace is the one that is asked for.
    let quota =
        files.write("quota.yaml", "kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 1}}\n");
    let pod = files.write("pod.yaml", POD);
    let ask = |more: &[&str]| {
        run(&[&["capacity", "-f", &pod, &quota, "--snapshot", &cluster, "-o", "json"], more].concat()).json()
    };
    assert_eq!(ask(&["--namespace", "default"])["binding"], "quota/q");
    let larger =
        files.write("larger.yaml", "kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 4}}\n");
    assert_eq!(ask(&["--snapshot", &larger])["bounds"]["quota/q"], 3, "one pod is there");
    let none = run(&["capacity", "-f", &quota, "--snapshot", &cluster]);
    assert!(none.status == 1 && none.err.contains("no file holds a pod"), "{none:?}");
}

#[test]
fn replicas_are_placed_first_as_many_as_there_are() {
    let files = Files::new();
    let first = files.write(
        "first.yaml",
        "kind: Deployment\nmetadata: {name: old}\nspec: {replicas: 3, template: {spec: {containers: [{name: c, resources: \
         {requests: {cpu: 300m}}}]}}}\n",
    );
    let answer = ask(&files, &["-o", "json", "--place", &first]).json();
    assert_eq!((&answer["count"], answer["placed"].as_array().unwrap().len()), (&json!(5), 3), "{answer}");
    assert_eq!(answer["placed"][2]["pod"], "old-2");
}

#[test]
fn placings_are_shown_to_people_with_their_scores() {
    let files = Files::new();
    let found = ask(&files, &["--steps", "2", "--max", "2"]);
    insta::assert_snapshot!("capacity_steps", found.out);
    let all = ask(&files, &["--steps", "all", "--max", "3"]).out;
    assert!(all.contains("Placings in order:\nPLACING   NODE\n1         "), "{all}");
    let daemons = files.write(
        "daemons.yaml",
        "kind: DaemonSet\nmetadata: {name: d}\nspec: {selector: {}, template: {spec: {containers: [{name: c}]}}}\n",
    );
    let cluster = files.write("cluster.yaml", CLUSTER);
    let found = run(&["capacity", "-f", &daemons, "--snapshot", &cluster, "--max", "2"]);
    assert!(found.out.contains("Note: a DaemonSet has one pod a node"), "{}", found.out);
}
