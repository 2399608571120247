//! The Kubernetes cluster whose users and nodes are known.

use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_kubernetes::ApiSource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Span, UpdaterSection};

/// The Kubernetes cluster whose API server says whose a token is and what its users may.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSection {
    /// Ask the API server about tokens that are none of `access.tokens`: agents are known by the account of their pod and the
    /// node it runs on, people by their Kubernetes user.
    pub enabled: bool,
    /// Follow the objects of this cluster, so that questions about capacity are answered from them, and each node is told what its own pods
    /// require (`docs/kubernetes.md`). It needs to list and watch them, and reads nothing else: no Secrets, no ConfigMaps.
    pub view: bool,
    /// Write recommendations into the status of objects of this cluster that ask for them: `VerticalPodAutoscaler` of `evenkeel.dev/v1`, each of
    /// which is a policy, and of `autoscaling.k8s.io/v1` with `recommenders: [{name: evenkeel}]`, whose checkpoints are read and written, too.
    /// Needs `view`. It writes nothing else, and applies nothing.
    pub recommend: bool,
    /// Tell of kills, evictions and other decisions of agents as Events of the pods that they are about. Needs `view`.
    pub events: bool,
    /// Tell the classes of each pod's containers as its condition `evenkeel.dev/QoS`. Needs `view`.
    pub conditions: bool,
    /// The MutatingWebhookConfiguration of the admission webhook, such as `evenkeel`, which is looked at once a minute: an authority in it that has
    /// ended, or will soon, is told in status and doctor. Empty = none.
    pub registration: String,
    /// Look after pods that wait for the gate `evenkeel.dev/policy`, which the webhook gives where a namespace wishes it: resize them when their
    /// requests are known, and free them. It needs to list and patch pods, to resize and delete them, and to make Events.
    pub gates: bool,
    /// How long a pod waits for its gate at most.
    pub gate_deadline: Span,
    /// Give back the CPU of starts (`startupBoost` of policies), which the webhook gives with `webhook.startup_boost`: in place, when a pod is ready and
    /// its use is back below its request for a while, at the latest after the policy's time. It needs to list and patch pods, to resize them, and to
    /// make Events.
    pub startup_boost: bool,
    /// The Lease (`coordination.k8s.io`) that recommenders of one cluster share, NAMESPACE/NAME: who holds it leads, which is to act and to take
    /// changes; the others are fed by the same agents, answer, and take over within 30 s. Empty = this one leads always.
    pub lease: String,
    /// The file that says where the API server is, as kubectl takes it; empty = as kubectl finds it (`KUBECONFIG`), else the account
    /// of the pod that this program runs in.
    pub kubeconfig: PathBuf,
    /// A context of this file; empty = the current one.
    pub context: String,
    /// Audience of the tokens that agents' pods are given (`serviceAccountToken.audience`). One for another audience is
    /// no agent's.
    pub audience: String,
    /// Audiences of people's tokens; empty = that of the API server, as in files of kubectl. A token for `audience` is taken, too.
    pub user_audiences: Vec<String>,
    /// The cluster's authority for clients, PEM (`client-ca-file` of the ConfigMap kube-system/extension-apiserver-authentication): who
    /// shows a certificate of it at `serve.grpc` or `serve.http`, as files of kubectl hold them, is the user that the API server
    /// takes its holder for, and never a node. Needs `enabled`, and TLS on these addresses; empty = tokens alone.
    pub client_ca: PathBuf,
    /// The service account of agents, NAMESPACE/NAME. Whoever may make pods with it can be the node that they run on.
    pub agent: String,
    /// Cluster to which these nodes belong, as `node.cluster` of the agents.
    pub cluster: String,
    /// How long an answer of the API server is waited for.
    pub timeout: Span,
    /// How long an answer holds before it is asked for again; a refusal, 10 s at most. Where the API server is silent, its last
    /// good answer holds on until the token ends, or for a day.
    pub answers_hold: Span,
    /// A ConfigMap of this cluster, NAMESPACE/NAME, that holds the panic switch on while it has the key `panic` with anything but `false`; each
    /// recommender reads it every 2 s, and holds the switch on until it has read it once. Empty = none.
    pub panic_map: String,
    /// What changes pods that run.
    pub updater: UpdaterSection,
}

impl KubernetesSection {
    /// Where the API server is.
    pub(crate) fn source(&self) -> ApiSource {
        let path = Some(self.kubeconfig.clone()).filter(|path| !path.as_os_str().is_empty());
        let context = Some(self.context.clone()).filter(|context| !context.is_empty());
        ApiSource { kubeconfig: path, context, patience: self.timeout.get() }
    }

    /// The cluster's authority for clients, where there is one.
    pub(crate) fn client_ca(&self) -> Option<&Path> {
        Some(self.client_ca.as_path()).filter(|path| !path.as_os_str().is_empty())
    }

    /// The agents' user.
    pub(crate) fn agent_user(&self) -> String {
        format!("system:serviceaccount:{}", self.agent.replacen('/', ":", 1))
    }

    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut check = |ok: bool, key, what: &str| {
            if !ok {
                found.push((key, what.to_owned()));
            }
        };
        let has_authority = self.client_ca().is_some();
        check(self.enabled || !has_authority, "kubernetes.client_ca", "needs kubernetes.enabled = true");
        let is_name = |name: &str| !name.is_empty() && !name.contains(['/', ':']) && name.len() <= 253;
        let agent = self.agent.split_once('/');
        check(
            agent.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name)),
            "kubernetes.agent",
            "must be NAMESPACE/NAME of a service account",
        );
        let lease = self.lease.split_once('/');
        check(
            self.lease.is_empty()
                || lease.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name)),
            "kubernetes.lease",
            "must be NAMESPACE/NAME of a Lease, or empty",
        );
        let map = self.panic_map.split_once('/');
        check(
            self.panic_map.is_empty()
                || map.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name)),
            "kubernetes.panic_map",
            "must be NAMESPACE/NAME of a ConfigMap, or empty",
        );
        let deadline = Duration::from_secs(10)..=Duration::from_secs(86_400);
        check(deadline.contains(&self.gate_deadline.get()), "kubernetes.gate_deadline", "must be 10s to 1d");
        check(!self.audience.is_empty(), "kubernetes.audience", "must not be empty");
        check(self.view || !self.recommend, "kubernetes.recommend", "needs kubernetes.view = true");
        check(self.view || !self.events, "kubernetes.events", "needs kubernetes.view = true");
        check(self.view || !self.conditions, "kubernetes.conditions", "needs kubernetes.view = true");
        let audiences = &self.user_audiences;
        let short = audiences.len() <= 16 && audiences.iter().all(|audience| !audience.is_empty());
        check(short, "kubernetes.user_audiences", "must be at most 16, and none of them empty");
        check(is_name(&self.cluster), "kubernetes.cluster", "must be a name without / and :");
        let within = |span: Span, least, most| (least..=most).contains(&span.get());
        let (short, minute) = (Duration::from_millis(100), Duration::from_secs(60));
        check(within(self.timeout, short, minute), "kubernetes.timeout", "must be 100ms to 60s");
        let hour = Duration::from_secs(3600);
        let hold = within(self.answers_hold, Duration::from_secs(1), hour);
        check(hold, "kubernetes.answers_hold", "must be 1s to 1h");
        found.extend(self.updater.problems(self.view));
        found
    }
}

impl Default for KubernetesSection {
    fn default() -> Self {
        Self {
            enabled: false,
            view: false,
            recommend: false,
            events: false,
            conditions: false,
            registration: String::new(),
            gates: false,
            gate_deadline: Span::from_secs(600),
            startup_boost: false,
            lease: String::new(),
            kubeconfig: PathBuf::new(),
            context: String::new(),
            audience: "evenkeel".to_owned(),
            user_audiences: Vec::new(),
            client_ca: PathBuf::new(),
            agent: "evenkeel/evenkeel-agent".to_owned(),
            cluster: "default".to_owned(),
            // An API server answers either question in milliseconds, and one whose etcd elects a leader in a second or two.
            timeout: Span::from_secs(3),
            // As long as the kubelet takes to give a pod a new token that it asked for.
            answers_hold: Span::from_secs(60),
            panic_map: String::new(),
            updater: UpdaterSection::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_named() {
        let told = |change: &dyn Fn(&mut KubernetesSection)| {
            let mut section = KubernetesSection::default();
            change(&mut section);
            section.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert!(told(&|_| {}).is_empty());
        for agent in ["", "agent", "/agent", "a/b/c", "a/", "a:b/c"] {
            assert_eq!(told(&|section| section.agent = agent.to_owned()), ["kubernetes.agent"], "{agent}");
        }
        for (found, key) in [
            (told(&|section| section.audience.clear()), "kubernetes.audience"),
            (told(&|section| section.user_audiences = vec![String::new()]), "kubernetes.user_audiences"),
            (told(&|section| section.cluster.clear()), "kubernetes.cluster"),
            (told(&|section| section.client_ca = "ca.crt".into()), "kubernetes.client_ca"),
            (told(&|section| section.recommend = true), "kubernetes.recommend"),
            (told(&|section| section.events = true), "kubernetes.events"),
            (told(&|section| section.gate_deadline = Span::from_secs(1)), "kubernetes.gate_deadline"),
            (told(&|section| section.lease = "evenkeel".into()), "kubernetes.lease"),
            (told(&|section| section.lease = "a/b/c".into()), "kubernetes.lease"),
            (told(&|section| section.panic_map = "panic".into()), "kubernetes.panic_map"),
            (told(&|section| section.timeout = Span::from_secs(61)), "kubernetes.timeout"),
            (told(&|section| section.answers_hold = Span::from_millis(1)), "kubernetes.answers_hold"),
        ] {
            assert_eq!(found, [key]);
        }
        assert_eq!(
            KubernetesSection::default().agent_user(),
            "system:serviceaccount:evenkeel:evenkeel-agent"
        );
    }
}
