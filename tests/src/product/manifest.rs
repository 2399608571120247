//! Pod manifests bound to test cgroups by annotation.

use serde_json::{Map, Value, json};

/// A pod with one container, `main`, unless more are added.
#[derive(Debug, Clone)]
pub struct Manifest {
    name: String,
    namespace: String,
    annotations: Map<String, Value>,
    containers: Vec<Value>,
}

impl Manifest {
    /// A pod in the namespace `default` whose container `main` is in the cgroup at `path` and asks for `resources`, as
    /// Kubernetes writes them.
    pub fn new(name: &str, path: &str, resources: &Value) -> Manifest {
        let empty = Manifest {
            name: name.to_string(),
            namespace: "default".to_string(),
            annotations: Map::new(),
            containers: Vec::new(),
        };
        empty.container("main", path, resources)
    }

    /// A pod whose container asks for and is limited to the same.
    pub fn guaranteed(name: &str, path: &str, cpu: &str, memory: &str) -> Manifest {
        let asked = json!({ "cpu": cpu, "memory": memory });
        Manifest::new(name, path, &json!({ "requests": asked, "limits": asked }))
    }

    /// A pod whose container asks for something without limit.
    pub fn burstable(name: &str, path: &str, cpu: &str, memory: &str) -> Manifest {
        Manifest::new(name, path, &json!({ "requests": { "cpu": cpu, "memory": memory } }))
    }

    /// A pod whose container asks for nothing.
    pub fn best_effort(name: &str, path: &str) -> Manifest {
        Manifest::new(name, path, &json!({}))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Manifest {
        self.namespace = namespace.to_string();
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Manifest {
        self.annotations.insert(key.to_string(), json!(value));
        self
    }

    /// Adds a container.
    #[must_use]
    pub fn container(mut self, name: &str, path: &str, resources: &Value) -> Manifest {
        self.containers
            .push(json!({ "name": name, "image": "localhost/workload:1", "resources": resources }));
        self.annotation(&format!("evenkeel.dev/cgroup.{name}"), path)
    }

    /// As it is written.
    pub fn json(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": self.namespace, "annotations": self.annotations,
            },
            "spec": { "containers": self.containers },
        })
    }
}
