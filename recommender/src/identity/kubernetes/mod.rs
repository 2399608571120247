//! Callers whom the API server of a Kubernetes cluster knows: agents by their pod's projected token, people by their user's.
//!
//! Owned here: what an answer of the API server makes of a token, how long it holds (`answers.rs`), how often it is asked (`gate.rs`),
//! what people may (`rights.rs`). Not owned: how a question is put (the crate `kubernetes`).

mod answers;
mod gate;
mod rights;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::{ApiServer, Claims, ConnectError, Reviewed, Silence, User};
use evenkeel_net::Peer;
use evenkeel_net::tls::Certificate;
use evenkeel_store::clock::WallClock;

use super::rate;
use super::tokens::hash;
use super::{AccessRefusal, Grant, Identity, Nodes, Proof, RefusalKind, Who};
use crate::config::KubernetesSection;
use answers::{AnswerCache, ApiAnswer};
use gate::ApiServerGate;
use rights::Right;
pub(crate) use rights::Rights;

/// What the API server knows of a bound token, since Kubernetes 1.30 with the node.
const NODE: &str = "authentication.kubernetes.io/node-name";
const POD: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// What the API server adds of a certificate to what it knows of a user (from 1.32).
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";
/// Group of everybody whom the API server knows.
const AUTHENTICATED: &str = "system:authenticated";
/// What lets in a call that lasts is asked for again after so many times `kubernetes.answers_hold`.
const LASTING: u32 = 5;
/// No good answer outlives the last word of the API server by more.
const LONGEST: u64 = 24 * 3600;
/// Longest token that is asked about, as longest read from a file.
const MAX_TOKEN: usize = 8 << 10;
/// Audiences of a refused token that are told, and letters of each.
const MAX_AUDIENCES: usize = 3;
const MAX_SHOWN: usize = 64;
/// A call that lasts has its token asked about no sooner again.
const AGAIN: Duration = Duration::from_secs(5);

/// Callers that the API server knows.
pub(crate) struct Kubernetes {
    server: ApiServer,
    section: KubernetesSection,
    agent: String,
    clock: WallClock,
    /// Of tokens that strangers may have made up.
    of_tokens: ApiServerGate,
    /// Of what was answered well before, and of tokens on streams of nodes.
    of_known: ApiServerGate,
    of_rights: ApiServerGate,
    reviews: AnswerCache<[u8; 32], Arc<TokenReviewResult>>,
    rights: AnswerCache<Right, Allowed>,
    asked: AtomicU64,
    unanswered: AtomicU64,
    /// Since when and why the API server is silent.
    silent: Mutex<Option<(Instant, String)>>,
}

/// Until when a right holds while the API server is silent, seconds since 1970.
type Allowed = u64;

/// Whose token it is, and what it gives.
#[derive(Debug)]
struct TokenReviewResult {
    who: Who,
    nodes: Nodes,
    user: User,
    /// End of the token, seconds since 1970.
    expires: Option<u64>,
    /// When the API server said so.
    said: u64,
}

impl TokenReviewResult {
    /// Whether it holds while the API server is silent.
    fn holds(&self, now: u64) -> bool {
        now < self.said + LONGEST && self.expires.is_none_or(|expires| now < expires)
    }
}

/// A token that the API server knows, as what an identity rests on.
pub(crate) struct Shown {
    hash: [u8; 32],
    token: String,
    expires: Option<u64>,
    /// When it may be asked about again.
    next: Mutex<Instant>,
    /// Why it was refused since.
    refused: OnceLock<String>,
}

impl fmt::Debug for Shown {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Shown {
    /// End of the token, seconds since 1970.
    pub(super) fn expires(&self) -> Option<u64> {
        self.expires
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes").field("section", &self.section).finish_non_exhaustive()
    }
}

impl Kubernetes {
    /// By the configuration; nobody asks anything where it says so.
    ///
    /// # Errors
    /// When the API server is not told.
    pub(crate) async fn open(
        section: &KubernetesSection,
        clock: WallClock,
    ) -> Result<Option<Arc<Self>>, ConnectError> {
        if !section.enabled {
            return Ok(None);
        }
        let server = ApiServer::at(&section.source()).await?;
        let hold = section.answers_hold.get();
        Ok(Some(Arc::new(Self {
            server,
            agent: section.agent_user(),
            section: section.clone(),
            clock,
            of_tokens: ApiServerGate::new(section.timeout.get()),
            of_known: ApiServerGate::of_known(section.timeout.get()),
            of_rights: ApiServerGate::new(section.timeout.get()),
            reviews: AnswerCache::new(hold),
            rights: AnswerCache::new(hold),
            asked: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            silent: Mutex::default(),
        })))
    }

    /// Whose token it is that a peer shows.
    ///
    /// # Errors
    /// When the API server does not know it, or gives no answer.
    pub(super) async fn identify(
        self: &Arc<Self>,
        token: &str,
        peer: Option<&Peer>,
    ) -> Result<Identity, AccessRefusal> {
        let caller = peer.map(|peer| rate::caller(Some(peer)));
        self.named(token, &self.of_tokens, caller.as_deref()).await
    }

    /// Whose token it is that a node sends on its stream in place of the one before.
    ///
    /// # Errors
    /// As [`identify`](Self::identify).
    pub(super) async fn renewed(self: &Arc<Self>, token: &str) -> Result<Identity, AccessRefusal> {
        self.named(token, &self.of_known, None).await
    }

    async fn named(
        self: &Arc<Self>,
        token: &str,
        unknown_by: &ApiServerGate,
        caller: Option<&str>,
    ) -> Result<Identity, AccessRefusal> {
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(unknown("a token has 1 to 8192 bytes".to_owned()));
        }
        let hash = hash(token);
        let said = self.review(hash, token, unknown_by, caller).await;
        let verdict = match said.map_err(|_| silent("whose token this is"))? {
            ApiAnswer::Yes(verdict) => verdict,
            ApiAnswer::No(why) => return Err(unknown(why)),
        };
        if verdict.expires.is_some_and(|expires| expires <= self.now()) {
            return Err(unknown(OVER.to_owned()));
        }
        let shown = Shown {
            hash,
            token: token.to_owned(),
            expires: verdict.expires,
            next: Mutex::new(Instant::now() + AGAIN),
            refused: OnceLock::new(),
        };
        let grant = Grant { nodes: verdict.nodes.clone(), ..Grant::default() };
        let rights =
            (verdict.nodes == Nodes::None).then(|| Rights::new(Arc::clone(self), verdict.user.clone()));
        Ok(Identity::reviewed(verdict.who.clone(), grant, Proof::Reviewed(Arc::new(shown)), rights))
    }

    /// The user whom a certificate of the cluster's authority names: its common name, and its organizations as groups (kubernetes.io,
    /// "Authenticating", "X.509 client certificates"). What the user may is asked at the API server, as of everybody else.
    pub(super) fn certified(self: &Arc<Self>, certificate: &Certificate) -> Option<Identity> {
        if !certificate.vouched().by_cluster {
            return None;
        }
        let name = certificate.common_name()?;
        let mut groups = certificate.organizations()?;
        groups.push(AUTHENTICATED.to_owned());
        let print = format!("X509SHA256={}", certificate.fingerprint());
        let extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![print])]);
        let rights = Rights::new(Arc::clone(self), User { name: name.clone(), uid: None, groups, extra });
        let proof = Proof::Certificate(certificate.clone());
        Some(Identity::reviewed(Who::Kubernetes(name), Grant::default(), proof, Some(rights)))
    }

    /// Whether a token still gives an identity what it gave. It is asked in passing, so that what the API server says counts at the
    /// next look.
    ///
    /// # Errors
    /// Says what was taken back or has ended.
    pub(super) fn stands(
        self: &Arc<Self>,
        shown: &Arc<Shown>,
        identity: &Identity,
    ) -> Result<(), AccessRefusal> {
        let now = self.now();
        if shown.expires.is_some_and(|expires| expires <= now) {
            return Err(unknown(OVER.to_owned()));
        }
        if let Some(why) = shown.refused.get() {
            return Err(unknown(why.clone()));
        }
        let hold = self.section.answers_hold.get() * LASTING;
        match self.reviews.known(&shown.hash, hold, |verdict| verdict.holds(now)) {
            Some(ApiAnswer::Yes(verdict))
                if identity.is(&verdict.who, &verdict.nodes)
                    && identity.rights().is_none_or(|rights| rights.is_of(&verdict.user)) => {}
            Some(ApiAnswer::Yes(_)) => return Err(unknown("the token is now somebody else's".to_owned())),
            Some(ApiAnswer::No(why)) => return Err(unknown(why)),
            None => self.ask_again(shown),
        }
        identity.rights().map_or(Ok(()), Rights::stand)
    }

    /// Asks about the token of a call that lasts; the answer is found at a later look.
    fn ask_again(self: &Arc<Self>, shown: &Arc<Shown>) {
        let mut next = shown.next.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < *next {
            return;
        }
        *next = Instant::now() + AGAIN;
        drop(next);
        let (kubernetes, shown) = (Arc::clone(self), Arc::clone(shown));
        tokio::spawn(async move {
            // Silence changes nothing.
            if let Ok(ApiAnswer::No(why)) =
                kubernetes.review(shown.hash, &shown.token, &kubernetes.of_known, None).await
            {
                let _before = shown.refused.set(why);
            }
        });
    }

    /// Whose token it is: what was said before as long as that holds. One that was never good is asked about through `unknown`.
    async fn review(
        &self,
        hash: [u8; 32],
        token: &str,
        unknown: &ApiServerGate,
        caller: Option<&str>,
    ) -> Result<ApiAnswer<Arc<TokenReviewResult>>, Silence> {
        let claims = Claims::unproven(token);
        if claims.as_ref().and_then(|claims| claims.expires).is_some_and(|expires| expires <= self.now()) {
            return Ok(ApiAnswer::No(OVER.to_owned()));
        }
        let question = async {
            let asked = self.noted(self.verdict(token, claims.as_ref()));
            // Else the last good answer would outlive what took it back, for whoever has others asked about too often.
            let reviewed = match self.reviews.was_good(&hash) {
                true => self.of_known.pass(None, asked).await,
                false => unknown.pass(caller, asked).await,
            };
            if let Ok(ApiAnswer::No(why)) = &reviewed {
                tracing::debug!(why, "a token was not taken");
            }
            reviewed
        };
        self.reviews.get(&hash, |verdict| verdict.holds(self.now()), question).await
    }

    /// Asks the API server.
    async fn verdict(
        &self,
        token: &str,
        claims: Option<&Claims>,
    ) -> Result<ApiAnswer<Arc<TokenReviewResult>>, Silence> {
        let own = std::slice::from_ref(&self.section.audience);
        // What the token says of itself chooses the question; whether it is true is the answer.
        let is_own = claims.is_some_and(|claims| claims.audiences.contains(&self.section.audience));
        let audiences = if is_own { own } else { &self.section.user_audiences };
        let user = match self.server.review(token, audiences).await? {
            Reviewed::Of(user) => user,
            Reviewed::Nobody(why) => {
                tracing::debug!(why, "the API server does not know a token");
                return Ok(ApiAnswer::No(self.not_known(claims)));
            }
        };
        let expires = claims.and_then(|claims| claims.expires);
        let (who, nodes) = match user.name == self.agent {
            false => (Who::Kubernetes(user.name.clone()), Nodes::None),
            true if !is_own => {
                let audience = &self.section.audience;
                return Ok(ApiAnswer::No(format!(
                    "the token of the agent's account is not for audience {audience:?}"
                )));
            }
            true => match self.node(&user).await? {
                ApiAnswer::Yes(node) => {
                    let cluster = self.section.cluster.clone();
                    let who = Who::Kubernetes(format!("{} on node {node}", user.name));
                    (who, Nodes::Of { cluster, node: Some(node) })
                }
                ApiAnswer::No(why) => return Ok(ApiAnswer::No(why)),
            },
        };
        Ok(ApiAnswer::Yes(Arc::new(TokenReviewResult { who, nodes, user, expires, said: self.now() })))
    }

    /// What is told of a token that the API server does not know: for whom it says that it is, and for whom it has to be.
    fn not_known(&self, claims: Option<&Claims>) -> String {
        let text = "the Kubernetes API server does not know the token".to_owned();
        let Some(claims) = claims else { return text };
        let cut = |audience: &String| format!("{:?}", audience.chars().take(MAX_SHOWN).collect::<String>());
        let claimed: Vec<String> = claims.audiences.iter().take(MAX_AUDIENCES).map(cut).collect();
        let claimed = if claimed.is_empty() { "nobody".to_owned() } else { claimed.join(", ") };
        let people = match self.section.user_audiences.as_slice() {
            [] => "that of the API server".to_owned(),
            some => format!("{some:?}"),
        };
        let own = &self.section.audience;
        format!(
            "{text}, which says that it is for {claimed}: an agent's has to be for {own:?}, a person's for {own:?} or {people}"
        )
    }

    /// The node of the pod that an agent's token is bound to.
    async fn node(&self, user: &User) -> Result<ApiAnswer<String>, Silence> {
        let unbound = || {
            ApiAnswer::No(
                "the token is of the agent's account and bound to no pod that runs on a node".to_owned(),
            )
        };
        // A token may also be bound to a node alone, by whoever may create tokens of the account; no agent has such a one.
        let (Some(name), Some(uid)) = (user.one(POD), user.one(POD_UID)) else { return Ok(unbound()) };
        if let Some(node) = user.one(NODE) {
            return Ok(ApiAnswer::Yes(node.to_owned()));
        }
        let namespace = self.section.agent.split('/').next().unwrap_or_default();
        let pod = self.server.pod(namespace, name).await?;
        Ok(pod.filter(|pod| pod.uid == uid).map_or_else(unbound, |pod| ApiAnswer::Yes(pod.node)))
    }

    /// Counts a question, and tells the log when the API server falls silent and when it is back.
    async fn noted<T>(&self, question: impl Future<Output = Result<T, Silence>>) -> Result<T, Silence> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = question.await;
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        match &answer {
            Ok(_) => {
                if let Some((since, _)) = silent.take() {
                    tracing::info!(after = ?since.elapsed(), "the Kubernetes API server answers again");
                }
            }
            Err(Silence { why }) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                if silent.is_none() {
                    tracing::warn!(why, "the Kubernetes API server gives no answer: what it said last holds");
                }
                let since = silent.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                *silent = Some((since, why.clone()));
            }
        }
        answer
    }

    /// What is wrong.
    pub(crate) fn trouble(&self) -> Option<String> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.as_ref().map(|(since, why)| {
            let seconds = since.elapsed().as_secs();
            format!(
                "the Kubernetes API server gives no answer for {seconds} s: {why}; what it said last holds, new callers are refused"
            )
        })
    }

    /// Questions to the API server, and those without an answer.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed), self.unanswered.load(Ordering::Relaxed))
    }

    /// Seconds since 1970.
    fn now(&self) -> u64 {
        self.clock.now_usec() / 1_000_000
    }
}

const OVER: &str = "the token's time is over";

fn unknown(why: String) -> AccessRefusal {
    AccessRefusal {
        kind: RefusalKind::Unnamed,
        why,
        remedy: "send one that is in force: an agent the projected token of its pod for the audience kubernetes.audience, a person \
                 the token of kubectl, or one of `evenkeel-recommender token add`",
    }
}

fn silent(what: &str) -> AccessRefusal {
    AccessRefusal {
        kind: RefusalKind::Silence,
        why: format!("the Kubernetes API server, which knows {what}, was not asked or gives no answer"),
        remedy: "ask again later; the recommender's log and /readyz?verbose say why",
    }
}
