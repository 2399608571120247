//! Owns the ConfigMap that holds the panic switch on while it says so (`kubernetes.panic_map`): `kubectl create configmap` stops every replica at
//! once, also where nobody may call the recommender.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ApiServer, ConnectError};
use evenkeel_model::panic::reason;
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;

use super::panic::BY_MAP;
use crate::config::KubernetesSection;
use crate::serve::ended;

/// How often it is asked for.
const LOOK: Duration = Duration::from_secs(2);
/// The key that says it.
const KEY: &str = "panic";

/// The ConfigMap, and what it says.
#[derive(Debug)]
pub(crate) struct PanicMap {
    api: ApiServer,
    namespace: String,
    name: String,
    known: Mutex<PanicMapState>,
}

#[derive(Debug)]
struct PanicMapState {
    /// Why the switch is on, while it says so. Before it was read once it may say so.
    held: Option<String>,
    trouble: Option<String>,
}

impl PanicMap {
    /// Nothing where none is named.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn open(section: &KubernetesSection) -> Result<Option<Self>, ConnectError> {
        let Some((namespace, name)) = section.panic_map.split_once('/') else { return Ok(None) };
        let api = ApiServer::at(&section.source()).await?;
        let unread = PanicMapState {
            held: Some(reason(format!("{BY_MAP}{}: it was not read yet", section.panic_map))),
            trouble: None,
        };
        let map =
            Self { api, namespace: namespace.to_owned(), name: name.to_owned(), known: Mutex::new(unread) };
        map.look().await;
        Ok(Some(map))
    }

    /// Why the switch is on, while it says so.
    pub(crate) fn held(&self) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).held.clone()
    }

    /// Why it cannot be read: then it says what it said.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }

    async fn look(&self) {
        let Self { namespace, name, .. } = self;
        let told = self.api.object("/api/v1/namespaces", &[namespace, "configmaps", name]).await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Ok(map) => (known.held, known.trouble) = (says(&map).map(|what| self.reason(what)), None),
            // Only one that is surely not there lets go.
            Err(ApiError::Absent(_)) => *known = PanicMapState { held: None, trouble: None },
            Err(error) => {
                let why = format!("ConfigMap {namespace}/{name}: {error}");
                if known.trouble.as_ref() != Some(&why) {
                    warn!(why, "the panic switch may not be set as the cluster says");
                }
                known.trouble = Some(why);
            }
        }
    }

    fn reason(&self, what: &str) -> String {
        reason(format!("{BY_MAP}{}/{}: {what}", self.namespace, self.name))
    }

    /// Looks at it until the process ends.
    pub(crate) async fn run(&self, stopped: watch::Receiver<bool>) {
        let looks = async {
            loop {
                tokio::time::sleep(LOOK).await;
                self.look().await;
            }
        };
        tokio::select! { () = looks => {}, () = ended(stopped) => {} }
    }
}

/// Why the switch is to be on, by what a ConfigMap says; nothing where it says nothing, or `false`.
fn says(map: &Value) -> Option<&str> {
    map["data"][KEY].as_str().map(str::trim).filter(|text| !matches!(*text, "" | "false"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_map_says_it_by_one_key() {
        for (data, want) in [
            (json!({ "panic": "true" }), Some("true")),
            (json!({ "panic": " drill \n" }), Some("drill")),
            (json!({ "panic": "false" }), None),
            (json!({ "panic": "" }), None),
            (json!({ "other": "true" }), None),
            (Value::Null, None),
        ] {
            assert_eq!(says(&json!({ "data": data })), want, "{data}");
        }
    }
}
