//! Owns the look at the admission webhook's registration (`kubernetes.registration`): whether API servers can trust its pods now and tomorrow. What
//! is wrong is a check of `/readyz`, and so in `evenkeel status` and `doctor`. Not owned: keeping it right, which the webhook's pods do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ApiServer, ConnectError};
use evenkeel_net::tls::parsed;
use evenkeel_store::clock::WallClock;
use tokio::sync::watch;
use tracing::warn;

use crate::config::KubernetesSection;
use crate::serve::ended;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(60);
/// An end that is told: what the pods renew has more time left, and a person needs some.
const SOON: u64 = 14 * 86_400;

/// The registration, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Registration {
    api: ApiServer,
    name: String,
    trouble: Mutex<Option<String>>,
}

impl Registration {
    /// Nothing where none is to be looked at.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn open(section: &KubernetesSection) -> Result<Option<Arc<Self>>, ConnectError> {
        if section.registration.is_empty() {
            return Ok(None);
        }
        let api = ApiServer::at(&section.source()).await?;
        Ok(Some(Arc::new(Self { api, name: section.registration.clone(), trouble: Mutex::default() })))
    }

    /// What is wrong with it.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn told(&self, trouble: Option<String>) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = trouble.as_ref().filter(|why| known.as_ref() != Some(why)) {
            warn!(why, "pods may be made without the webhook");
        }
        *known = trouble;
    }

    /// Looks at it until the process ends.
    pub(crate) async fn run(self: Arc<Self>, stopped: watch::Receiver<bool>) {
        let looks = async {
            loop {
                let found = self.api.bundles(&self.name).await;
                let now = WallClock::system().now_usec() / 1_000_000;
                self.told(told(&self.name, &found, now));
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! { () = looks => {}, () = ended(stopped) => {} }
    }
}

/// What is wrong, and what helps: by the authorities of each of its webhooks.
fn told(name: &str, found: &Result<Vec<Vec<u8>>, ApiError>, now: u64) -> Option<String> {
    let of = format!("MutatingWebhookConfiguration {name}");
    let bundles = match found {
        Ok(bundles) => bundles,
        Err(ApiError::Absent(_)) => {
            return Some(format!(
                "there is no {of}: pods are made without it; install the webhook, or clear kubernetes.registration"
            ));
        }
        Err(error) => {
            return Some(format!("{of} was not read: {error}; see that the recommender may get it"));
        }
    };
    let ends = |bundle: &Vec<u8>| parsed(bundle).iter().map(|authority| authority.expires()).max();
    match bundles.iter().map(ends).min().flatten() {
        None => Some(format!(
            "{of} has no authority: pods are made without it; see the log of the webhook's pods"
        )),
        Some(end) if end <= now => Some(format!(
            "the authority in {of} has ended: pods are made without it; renew the webhook's certificate"
        )),
        Some(end) if end - now < SOON => {
            let days = (end - now) / 86_400;
            Some(format!("the authority in {of} ends in {days} d; renew the webhook's certificate"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::once::pair;

    #[test]
    fn an_end_is_told_before_it_comes() {
        let (day, now) = (86_400, 1_800_000_000);
        let made = |days: u64| {
            let pair = pair(&["a.svc".to_owned()], Duration::from_secs(days * day), now).unwrap();
            pair.authority.into_bytes()
        };
        let both = [made(10), made(90)].concat();
        for (found, at, want) in [
            (Ok(vec![made(90)]), now, None),
            // The authority before is trusted on beside the new one.
            (Ok(vec![both]), now + 11 * day, None),
            (Ok(vec![made(90)]), now + 80 * day, Some("ends in 10 d")),
            (Ok(vec![made(90)]), now + 91 * day, Some("has ended")),
            // Each of several webhooks needs one.
            (Ok(vec![made(90), Vec::new()]), now, Some("has no authority")),
            (Ok(vec![made(90), made(5)]), now, Some("ends in 5 d")),
            (Ok(vec![b"rubbish".to_vec()]), now, Some("has no authority")),
            (Ok(Vec::new()), now, Some("has no authority")),
            (Err(ApiError::Absent("x".into())), now, Some("there is no")),
            (Err(ApiError::Forbidden("x".into())), now, Some("was not read: x")),
        ] {
            let told = told("evenkeel", &found, at);
            match want {
                None => assert_eq!(told, None),
                Some(want) => assert!(told.as_ref().unwrap().contains(want), "{told:?} {want}"),
            }
        }
    }
}
