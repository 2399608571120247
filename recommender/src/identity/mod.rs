//! Who asks, and what they may: the one place where both are decided.
//!
//! Owned here: what an `Identity` is and may do, how a connection's peer and a token become one (`access.rs`, with
//! `groups.rs` and `tokens.rs`), the table of what each method and route asks for (`table.rs`), how much a caller may ask
//! (`rate.rs`, `paid.rs`), whom a cluster's API server knows (`kubernetes/`), and the doors of both servers that hold to it (`grpc.rs`, `web.rs`). Not owned: what is answered. A handler that answers for one namespace
//! asks its caller's identity for it.

mod access;
mod groups;
mod grpc;
mod kubernetes;
mod named;
mod paid;
mod rate;
mod recent;
mod standing;
pub(crate) mod table;
pub mod tokens;
mod web;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use evenkeel_net::tls::Certificate;
use serde::{Deserialize, Serialize};
use tonic::{Extensions, Status};

use crate::authority::Name;
pub(crate) use access::Access;
use evenkeel_store::ingest::store::OWN;
pub(crate) use grpc::Door;
pub(crate) use kubernetes::Kubernetes;
use kubernetes::{Rights, Shown};
pub(crate) use tokens::Tokens;
pub(crate) use web::{forbidden, guard};

/// What people may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See usage, recommendations, nodes, policies, metrics.
    View,
    /// Ask what would fit.
    Simulate,
    /// Apply and delete policies.
    Apply,
    /// Set the panic switch.
    Panic,
    /// Make join tokens and revoke nodes, which is to say who is a node.
    Enroll,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::View, Self::Simulate, Self::Apply, Self::Panic, Self::Enroll];

    /// As the configuration has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Simulate => "simulate",
            Self::Apply => "apply",
            Self::Panic => "panic",
            Self::Enroll => "enroll",
        }
    }
}

/// Who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Who {
    /// Nobody said so.
    Anonymous,
    /// A user of this machine, by the kernel's word.
    User(u32),
    /// Whoever holds the token of this name.
    Holder(String),
    /// Whoever holds a certificate with this name.
    Certified(String),
    /// Whoever the API server of the cluster says: a user, or an agent and its node.
    Kubernetes(String),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("an unnamed caller"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Holder(name) => write!(f, "the holder of token {name}"),
            Self::Certified(name) => write!(f, "the holder of certificate {name}"),
            Self::Kubernetes(name) => write!(f, "Kubernetes user {name}"),
        }
    }
}

/// For which nodes frames may be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// For none.
    #[default]
    None,
    /// For every one: the machine's administrator and the recommender's own user, to whom the store belongs anyway.
    All,
    /// For one node of a cluster, or for every node of it.
    Of {
        /// The cluster.
        cluster: String,
        /// The node; all of them without.
        node: Option<String>,
    },
}

/// What somebody may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) roles: BTreeSet<Role>,
    /// The namespaces in which the roles hold; everywhere without.
    pub(crate) namespaces: Option<BTreeSet<String>>,
    pub(crate) nodes: Nodes,
}

impl Grant {
    /// Everything.
    pub(crate) fn all() -> Self {
        Self { roles: Role::ALL.into(), namespaces: None, nodes: Nodes::All }
    }

    /// Roles everywhere.
    pub(crate) fn roles(roles: &[Role]) -> Self {
        Self { roles: roles.iter().copied().collect(), ..Self::default() }
    }
}

/// A caller, as every request carries it once it was let in.
#[derive(Debug, Clone)]
pub(crate) struct Identity(Arc<AccessState>);

#[derive(Debug)]
struct AccessState {
    who: Who,
    grant: Grant,
    /// Another proof of the same takes its place while a call lasts.
    proof: RwLock<Proof>,
    /// Where the API server of a cluster says what somebody may.
    rights: Option<Rights>,
}

/// What an identity rests on, and can be looked at again: it may be taken back while a call lasts.
#[derive(Debug, Clone)]
pub(crate) enum Proof {
    /// The kernel's word, or nothing.
    Lasting,
    /// A token, by its hash.
    Token([u8; 32]),
    /// A certificate.
    Certificate(Certificate),
    /// A token that the API server of the cluster knows.
    Reviewed(Arc<Shown>),
}

/// What kind of refusal it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// Nobody known asks; a credential would help.
    Unnamed,
    /// It is known who asks, and it is not enough.
    Named,
    /// Who asks could not be found out; later it may be.
    Silence,
}

/// Why somebody was not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessRefusal {
    /// What kind of no it is.
    pub(crate) kind: RefusalKind,
    /// What was claimed and what was expected.
    pub(crate) why: String,
    /// What helps.
    pub(crate) remedy: &'static str,
}

impl From<AccessRefusal> for Status {
    fn from(refusal: AccessRefusal) -> Self {
        let text = format!("{}; {}", refusal.why, refusal.remedy);
        match refusal.kind {
            RefusalKind::Unnamed => Self::unauthenticated(text),
            RefusalKind::Named => Self::permission_denied(text),
            RefusalKind::Silence => Self::unavailable(text),
        }
    }
}

impl Identity {
    pub(crate) fn new(who: Who, grant: Grant) -> Self {
        Self::proven(who, grant, Proof::Lasting)
    }

    /// One that rests on something.
    pub(crate) fn proven(who: Who, grant: Grant, proof: Proof) -> Self {
        Self::reviewed(who, grant, proof, None)
    }

    /// One whose rights a cluster's API server may say.
    fn reviewed(who: Who, grant: Grant, proof: Proof, rights: Option<Rights>) -> Self {
        Self(Arc::new(AccessState { who, grant, proof: RwLock::new(proof), rights }))
    }

    /// What it rests on now.
    fn proof(&self) -> Proof {
        self.0.proof.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what another credential of the same nodes rests on, for as long as a call lasts.
    ///
    /// # Errors
    /// When it is for other nodes.
    pub(crate) fn renew(&self, by: &Self) -> Result<(), AccessRefusal> {
        let same = self.0.grant.nodes != Nodes::None && self.0.grant.nodes == by.0.grant.nodes;
        if !same || self.owner() != by.owner() {
            return Err(self.refused(
                "the new token is not for the node that opened the stream".to_owned(),
                "give each agent the token of its own node",
            ));
        }
        *self.0.proof.write().unwrap_or_else(PoisonError::into_inner) = by.proof();
        Ok(())
    }

    /// What the API server of a cluster says that it may.
    fn rights(&self) -> Option<&Rights> {
        self.0.rights.as_ref()
    }

    /// Whether it is this one, for these nodes; one node is itself by whatever credential.
    fn is(&self, who: &Who, nodes: &Nodes) -> bool {
        self.0.grant.nodes == *nodes && (self.0.who == *who || self.node().is_some())
    }

    /// Whether it may end while a call lasts.
    pub(crate) fn may_end(&self) -> bool {
        !matches!(self.proof(), Proof::Lasting)
    }

    /// Whether another credential gives the same.
    fn is_as(&self, other: &Self) -> bool {
        let same_name = self.0.who == other.0.who || (self.node().is_some() && self.node() == other.node());
        same_name && self.0.grant == other.0.grant
    }

    /// The one node that this is, where it is one.
    pub(crate) fn node(&self) -> Option<Name> {
        match &self.0.grant.nodes {
            Nodes::Of { cluster, node: Some(node) } => {
                Some(Name { cluster: cluster.clone(), node: node.clone() })
            }
            _ => None,
        }
    }

    pub(crate) fn anonymous() -> Self {
        Self::new(Who::Anonymous, Grant::default())
    }

    /// The caller of a request; nobody where no door has let it in.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_else(Self::anonymous)
    }

    /// Whether this is somebody who was given something: a user of the machine in no group is a stranger.
    pub(crate) fn is_known(&self) -> bool {
        !self.0.grant.roles.is_empty() || self.0.grant.nodes != Nodes::None || self.0.rights.is_some()
    }

    /// Whether the roles hold in some namespaces only.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.grant.namespaces.is_some() || self.0.rights.is_some()
    }

    /// Whether the caller has a role, somewhere at least. Of a Kubernetes user that is not known before the namespace is.
    ///
    /// # Errors
    /// Says what the caller has and what was asked for.
    pub(crate) fn has(&self, role: Role) -> Result<(), AccessRefusal> {
        if self.0.grant.roles.contains(&role) || self.0.rights.is_some() {
            return Ok(());
        }
        let roles: Vec<&str> = self.0.grant.roles.iter().map(|role| role.as_str()).collect();
        let roles = match roles.as_slice() {
            [] => "no role".to_owned(),
            [one] => format!("the role {one}"),
            several => format!("the roles {}", several.join(", ")),
        };
        Err(self.refused(
            format!("{} has {roles}, this asks for {}", self.0.who, role.as_str()),
            match self.0.who {
                Who::Anonymous => {
                    "ask over the recommender's Unix socket, or send a token (evenkeel --token-file FILE)"
                }
                Who::User(_) => {
                    "ask as root, or as a user of the groups access.read_group and access.change_group name"
                }
                Who::Certified(_) => "send a token with this role as well (evenkeel --token-file FILE)",
                Who::Holder(_) => "use a token with this role (evenkeel-recommender token add)",
                Who::Kubernetes(_) => "an agent's account sends frames; ask as a user of the cluster, or with a token of one's own",
            },
        ))
    }

    /// Whether the caller has a role in a namespace; in all of them where none is named.
    ///
    /// # Errors
    /// Says what the caller has and what was asked for.
    pub(crate) async fn may(&self, role: Role, namespace: &str) -> Result<(), AccessRefusal> {
        if let Some(rights) = &self.0.rights {
            return rights.may(role, namespace).await;
        }
        self.has(role)?;
        let Some(allowed) = &self.0.grant.namespaces else { return Ok(()) };
        if allowed.contains(namespace) {
            return Ok(());
        }
        let asked = if namespace.is_empty() { "all namespaces".to_owned() } else { format!("{namespace:?}") };
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        Err(self.refused(
            format!("{} has its roles in {}, this asks about {asked}", self.0.who, allowed.join(", ")),
            "name one of these namespaces, or use a token without this bound",
        ))
    }

    /// Whether the caller is told why this program is not well.
    pub(crate) async fn sees_reasons(&self) -> bool {
        match &self.0.rights {
            Some(rights) => rights.may(Role::View, "").await.is_ok(),
            None => self.has(Role::View).is_ok(),
        }
    }

    /// Whether the caller may send frames of some node.
    ///
    /// # Errors
    /// Says who may.
    pub(crate) fn is_node(&self) -> Result<(), AccessRefusal> {
        if self.0.grant.nodes != Nodes::None {
            return Ok(());
        }
        Err(self.refused(
            format!("{} is no node; frames are sent by agents", self.0.who),
            "run the agent as root at the recommender's Unix socket, or give it the token or certificate of its node",
        ))
    }

    /// The node that the caller's certificate names.
    ///
    /// # Errors
    /// When something else names the caller.
    pub(crate) fn certified_node(&self) -> Result<Name, AccessRefusal> {
        self.node().filter(|_| matches!(self.0.who, Who::Certified(_))).ok_or_else(|| {
            self.refused(
                format!("{} shows no certificate of a node, which is what is renewed", self.0.who),
                "join with a token first (evenkeel ca token NODE)",
            )
        })
    }

    /// Whether the caller is this node.
    ///
    /// # Errors
    /// Says which node the credential is for; of others nothing is told.
    pub(crate) fn speaks_for(&self, cluster: &str, node: &str) -> Result<(), AccessRefusal> {
        self.is_node()?;
        let Nodes::Of { cluster: of, node: one } = &self.0.grant.nodes else { return Ok(()) };
        if of == cluster && one.as_deref().is_none_or(|one| one == node) {
            return Ok(());
        }
        let one = one.as_deref().unwrap_or("*");
        Err(self.refused(
            format!("{} is for node {of}/{one}, the agent says it is {cluster}/{node}", self.0.who),
            "give each agent the token or certificate of its own node, or correct node.cluster and node.name",
        ))
    }

    /// Whether what is known of the node it speaks for may be told to it: its credential is that node's alone, or it is the recommender's
    /// own user.
    pub(crate) fn is_of_one_node(&self) -> bool {
        matches!(&self.0.grant.nodes, Nodes::All | Nodes::Of { node: Some(_), .. })
    }

    /// Who it is, where a credential or the kernel says so.
    pub(crate) fn name(&self) -> Option<String> {
        (self.0.who != Who::Anonymous).then(|| self.0.who.to_string())
    }

    /// Whether it is root or the recommender's own user.
    fn is_owner(&self) -> bool {
        self.0.grant.nodes == Nodes::All
    }

    /// To whom an epoch of a node belongs that this caller opens: one word for all credentials that name that node and no
    /// other, so that they may be replaced.
    pub(crate) fn owner(&self) -> String {
        match &self.0.grant.nodes {
            Nodes::Of { node: Some(_), .. } => OWN.to_owned(),
            _ => self.0.who.to_string(),
        }
    }

    fn refused(&self, why: String, remedy: &'static str) -> AccessRefusal {
        let kind = if self.0.who == Who::Anonymous { RefusalKind::Unnamed } else { RefusalKind::Named };
        AccessRefusal { kind, why, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn roles_hold_where_they_were_given() {
        let shop = Grant {
            namespaces: Some(BTreeSet::from(["shop".to_owned()])),
            ..Grant::roles(&[Role::View, Role::Apply])
        };
        let identity = |grant: &Grant| Identity::new(Who::Holder("x".into()), grant.clone());
        for (grant, role, namespace, want) in [
            (&Grant::all(), Role::Panic, "", true),
            (&Grant::all(), Role::Apply, "shop", true),
            (&Grant::roles(&[Role::View]), Role::View, "", true),
            (&Grant::roles(&[Role::View]), Role::Apply, "shop", false),
            (&shop, Role::Apply, "shop", true),
            (&shop, Role::Apply, "shop2", false),
            (&shop, Role::View, "", false),
            (&Grant::default(), Role::View, "shop", false),
        ] {
            let refused = identity(grant).may(role, namespace).await;
            assert_eq!(refused.is_ok(), want, "{grant:?} {role:?} {namespace}: {refused:?}");
        }
        assert!(Identity::anonymous().may(Role::View, "").await.unwrap_err().kind == RefusalKind::Unnamed);
    }

    #[test]
    fn a_node_speaks_for_itself() {
        let of = |node: Option<&str>| Grant {
            nodes: Nodes::Of { cluster: "c".into(), node: node.map(str::to_owned) },
            ..Grant::default()
        };
        let identity = |grant: Grant| Identity::new(Who::Holder("x".into()), grant);
        for (grant, cluster, node, want) in [
            (of(Some("a")), "c", "a", true),
            (of(Some("a")), "c", "b", false),
            (of(Some("a")), "d", "a", false),
            (of(None), "c", "b", true),
            (of(None), "d", "b", false),
            (Grant::all(), "any", "any", true),
            (Grant::roles(&Role::ALL), "c", "a", false),
        ] {
            let is_own = identity(grant.clone()).is_of_one_node();
            assert_eq!(is_own, grant == of(Some("a")) || grant == Grant::all(), "{grant:?}");
            let said = identity(grant.clone()).speaks_for(cluster, node);
            assert_eq!(said.is_ok(), want, "{grant:?} {cluster}/{node}: {said:?}");
        }
    }
}
