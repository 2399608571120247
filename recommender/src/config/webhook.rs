//! The admission webhook.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_net::tls::TlsFiles;
use evenkeel_proto::line::Trust;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// What is done with recommendations for pods that are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookMode {
    /// They are told in the annotation `evenkeel.dev/estimate`.
    #[default]
    DryRun,
    /// They are set, and told in the annotation `evenkeel.dev/initial-resources`.
    Apply,
}

/// The admission webhook, which `evenkeel-recommender webhook` serves: pods that are made get requests (`docs/kubernetes.md`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookSection {
    /// Address of the webhook; reviews of pods are answered at `/admit/pods`.
    pub address: SocketAddr,
    /// Certificate that it serves, PEM, read again when it changes. API servers ask over TLS alone; without, it listens on loopback only.
    pub cert: PathBuf,
    /// The key of it, PEM.
    pub key: PathBuf,
    /// Authority of API servers' certificates, PEM: then nobody else is answered. Empty = whoever reaches the address is.
    pub client_ca: PathBuf,
    /// What is done with recommendations.
    pub mode: WebhookMode,
    /// Answer from the status of objects of `evenkeel.dev` that this program follows by the API server of `[kubernetes]`, and ask the recommender
    /// only about pods that none governs. It needs to list and watch these objects, limit ranges and quotas.
    pub objects: bool,
    /// With `objects`: answer from the status of objects of `autoscaling.k8s.io` that name Evenkeel as their recommender, too, by the rules of the
    /// Vertical Pod Autoscaler, where its own admission controller is not at work. It needs to list and watch these objects.
    pub autoscalers: bool,
    /// Lease NAMESPACE/NAME by which that controller is known to be at work; needs to get it. Empty = a pod tells it alone.
    pub vpa_lease: String,
    /// The recommender that is asked: `unix:///PATH` or `https://HOST:PORT`.
    pub recommender: String,
    /// Authority of the recommender's certificate, PEM.
    pub ca: PathBuf,
    /// File with the token for the recommender (role `view`), read again for each question.
    pub token: PathBuf,
    /// How long a pod may wait for an answer; then it is let through as it is.
    pub timeout: Span,
    /// Namespaces whose pods are left alone.
    pub exclude_namespaces: Vec<String>,
    /// MutatingWebhookConfiguration whose `caBundle` is kept equal to `authority`, by the API server of `[kubernetes]`; empty = none.
    pub registration: String,
    /// Authority of `cert`, PEM, which the registration is to have.
    pub authority: PathBuf,
    /// Secret NAMESPACE/NAME in which the webhook's replicas keep an authority and certificate of their own, by the API server of `[kubernetes]`:
    /// made where there is none, and renewed when a third of its time is left. They are written to `authority`, `cert` and `key`, which have to
    /// be in a directory of this program's alone. Empty = these files are made by others.
    pub secret: String,
    /// Names of DNS in that certificate, such as `evenkeel-webhook.evenkeel.svc`.
    pub names: Vec<String>,
    /// How long that certificate, and its authority, hold.
    pub certificate_life: Span,
    /// Tell as Events of pods' controllers what was set of their pods and why; needs to create and patch Events.
    pub events: bool,
    /// Give containers of policies with `startupBoost` more CPU while they start, which the recommender has to give back
    /// (`kubernetes.startup_boost`).
    pub startup_boost: bool,
    /// Answer at `/admit/gates`, where pods without requests of which nothing is known get the gate `evenkeel.dev/policy` and a least request, for
    /// which the recommender has to have `kubernetes.gates`. Each pod that waits longer than `kubernetes.gate_deadline` and a minute is freed; needs
    /// to list and patch pods.
    pub gates: bool,
    /// File with the token that `/metrics` asks for; without, metrics are not served.
    pub metrics_token: PathBuf,
}

impl Default for WebhookSection {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9443)),
            cert: PathBuf::new(),
            key: PathBuf::new(),
            client_ca: PathBuf::new(),
            mode: WebhookMode::default(),
            objects: false,
            autoscalers: false,
            // AdmissionControllerStatusName and the namespace of its shipped manifests.
            vpa_lease: "kube-system/vpa-admission-controller".to_owned(),
            recommender: "unix:///run/evenkeel/recommender.sock".to_owned(),
            ca: PathBuf::new(),
            token: PathBuf::new(),
            // Less than the second that the registration gives it.
            timeout: Span::from_millis(800),
            exclude_namespaces: ["kube-system", "kube-public", "kube-node-lease", "evenkeel"]
                .map(str::to_owned)
                .into(),
            registration: String::new(),
            authority: PathBuf::new(),
            secret: String::new(),
            names: Vec::new(),
            certificate_life: Span::from_secs(90 * 86_400),
            events: false,
            startup_boost: false,
            gates: false,
            metrics_token: PathBuf::new(),
        }
    }
}

fn named(path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}

/// NAMESPACE/NAME.
fn place(text: &str) -> Option<(&str, &str)> {
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    text.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name))
}

impl WebhookSection {
    /// What it serves with, where it does over TLS.
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        TlsFiles::named(&self.cert, &self.key, &self.client_ca).ok().flatten()
    }

    /// Namespace and name of the Secret with the webhook's own pair.
    pub(crate) fn secret_name(&self) -> Option<(&str, &str)> {
        place(&self.secret)
    }

    /// Namespace and name of the Lease of the Vertical Pod Autoscaler's admission controller.
    pub(crate) fn vpa_lease(&self) -> Option<(&str, &str)> {
        place(&self.vpa_lease)
    }

    /// How the recommender is reached.
    pub(crate) fn trust(&self) -> Trust {
        Trust { ca: named(&self.ca), token: named(&self.token), ..Trust::default() }
    }

    /// File with the token for metrics.
    pub(crate) fn metrics_token(&self) -> Option<PathBuf> {
        named(&self.metrics_token)
    }

    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if let Err(what) = TlsFiles::named(&self.cert, &self.key, &self.client_ca) {
            found.push(("webhook", what.to_owned()));
        }
        if self.files().is_none() && !self.address.ip().is_loopback() {
            let what = "can be reached by others, and API servers ask over TLS alone: give webhook.cert and webhook.key";
            found.push(("webhook.address", what.to_owned()));
        }
        let schemes = ["unix:///", "https://", "http://127.0.0.1:", "http://[::1]:"];
        if !schemes.iter().any(|scheme| self.recommender.starts_with(scheme)) {
            found.push(("webhook.recommender", "must be unix:///PATH or https://HOST:PORT".to_owned()));
        }
        if self.recommender.starts_with("https://") && named(&self.ca).is_none() {
            found.push(("webhook.ca", "must name the authority of the recommender's certificate".to_owned()));
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(1)).contains(&self.timeout.get()) {
            found.push(("webhook.timeout", "must be 10ms to 1s: pods wait for it".to_owned()));
        }
        if !self.registration.is_empty() && named(&self.authority).is_none() {
            found.push(("webhook.authority", "must name what webhook.registration is to have".to_owned()));
        }
        if !self.vpa_lease.is_empty() && self.vpa_lease().is_none() {
            found.push(("webhook.vpa_lease", "must be NAMESPACE/NAME of a Lease, or empty".to_owned()));
        }
        if self.autoscalers && !self.objects {
            found.push(("webhook.autoscalers", "needs webhook.objects".to_owned()));
        }
        if !self.secret.is_empty() {
            if self.secret_name().is_none() {
                found.push(("webhook.secret", "must be NAMESPACE/NAME of a Secret, or empty".to_owned()));
            }
            if self.files().is_none() || named(&self.authority).is_none() || self.names.is_empty() {
                let what = "needs webhook.cert, webhook.key, webhook.authority and webhook.names, for which it is made";
                found.push(("webhook.secret", what.to_owned()));
            }
            let life = Duration::from_secs(3600)..=Duration::from_secs(10 * 366 * 86_400);
            if !life.contains(&self.certificate_life.get()) {
                found.push(("webhook.certificate_life", "must be 1h to ten years".to_owned()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_named() {
        let told = |change: &dyn Fn(&mut WebhookSection)| {
            let mut section = WebhookSection::default();
            change(&mut section);
            section.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        let open: SocketAddr = "0.0.0.0:9443".parse().unwrap();
        assert!(told(&|_| {}).is_empty());
        for (found, key) in [
            (told(&|section| section.address = open), "webhook.address"),
            (told(&|section| section.cert = "a".into()), "webhook"),
            (told(&|section| section.recommender = "https://r:9520".into()), "webhook.ca"),
            (told(&|section| section.recommender = "http://r:9520".into()), "webhook.recommender"),
            (told(&|section| section.timeout = Span::from_secs(2)), "webhook.timeout"),
            (told(&|section| section.registration = "evenkeel".into()), "webhook.authority"),
            (told(&|section| section.secret = "a/b".into()), "webhook.secret"),
            (told(&|section| section.vpa_lease = "a".into()), "webhook.vpa_lease"),
            (told(&|section| section.autoscalers = true), "webhook.autoscalers"),
        ] {
            assert_eq!(found, [key]);
        }
        let tls = |section: &mut WebhookSection| {
            (section.cert, section.key, section.address) = ("c".into(), "k".into(), open);
        };
        assert!(told(&tls).is_empty());
        let own = |section: &mut WebhookSection| {
            tls(section);
            (section.secret, section.names, section.authority) = ("a/b".into(), vec!["n".into()], "c".into());
        };
        assert!(told(&own).is_empty());
        for (change, key) in [
            (
                &(|section: &mut WebhookSection| section.secret = "b".into()) as &dyn Fn(&mut _),
                "webhook.secret",
            ),
            (
                &|section: &mut WebhookSection| section.certificate_life = Span::from_secs(60),
                "webhook.certificate_life",
            ),
        ] {
            let found = told(&|section: &mut WebhookSection| {
                own(section);
                change(section);
            });
            assert_eq!(found, [key]);
        }
    }
}
