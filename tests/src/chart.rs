//! The chart, rendered and carried through its life by Helm's own code (`scripts/helm.py`). Owns where that code lies and how it is asked.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use evenkeel_model::yaml::{self, YamlBounds};
use serde_json::{Value, json};

use crate::{machine, places};

/// Where the chart lies in the repository.
pub const CHART: &str = "packaging/helm/evenkeel";

/// Helm's code as a library.
#[derive(Debug, Clone)]
pub struct Helm {
    library: PathBuf,
}

impl Helm {
    /// The library in the fixtures' cache.
    ///
    /// # Errors
    ///
    /// Fails when it is not there, or there is no Python.
    pub fn find() -> Result<Helm> {
        let library = places::cache("helm")?.join("libhelm.so");
        if !library.is_file() {
            bail!("{} is not there: scripts/test chart fetches it from PyPI", library.display());
        }
        machine::find("python3")?;
        Ok(Helm { library })
    }

    /// Takes steps one after the other in a namespace; what became of each, as `scripts/helm.py` says it.
    ///
    /// # Errors
    ///
    /// Fails when the script does.
    pub fn steps(&self, namespace: &str, steps: &[Value]) -> Result<Vec<Value>> {
        let repository = places::repository();
        let mut helm = Command::new("python3");
        helm.arg(repository.join("scripts/helm.py")).arg(&self.library).arg(repository.join(CHART));
        helm.arg(namespace).args(steps.iter().map(Value::to_string));
        serde_json::from_str(&machine::run(&mut helm)?).context("scripts/helm.py printed no JSON")
    }

    /// What the chart is with each of these values: objects and, after them, those of hooks. Side by side, since Helm's client takes its
    /// time: a few questions a second to an API server.
    ///
    /// # Errors
    ///
    /// Fails when Helm refuses one of them.
    pub fn rendered(&self, namespace: &str, values: &[Value]) -> Result<Vec<Vec<Value>>> {
        let install = |values: &Value| -> Result<Vec<Value>> {
            let done = self.steps(namespace, &[json!({ "install": values })])?;
            let step = done.first().context("no step was taken")?;
            if let Some(error) = step["error"].as_str() {
                bail!("{values}: {error}");
            }
            let mut all = objects(step["manifest"].as_str().unwrap_or_default())?;
            for hook in step["hooks"].as_array().into_iter().flatten() {
                all.extend(objects(hook.as_str().unwrap_or_default())?);
            }
            Ok(all)
        };
        thread::scope(|scope| {
            let all: Vec<_> = values.iter().map(|values| scope.spawn(|| install(values))).collect();
            let joined = all.into_iter().map(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?);
            joined.collect()
        })
    }
}

/// The objects of a text; documents of nothing but comments are left out.
///
/// # Errors
///
/// Fails when it is no YAML.
pub fn objects(text: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = yaml::documents(text, YamlBounds { documents: 100, nodes: 100_000 })?;
    Ok(all.into_iter().filter(|object| !object.is_null()).collect())
}

/// Kind, namespace and name of an object, in one text.
pub fn name(object: &Value) -> String {
    let metadata = &object["metadata"];
    let parts = [&object["kind"], &metadata["namespace"], &metadata["name"]];
    parts.iter().filter_map(|part| part.as_str()).collect::<Vec<_>>().join("/")
}
