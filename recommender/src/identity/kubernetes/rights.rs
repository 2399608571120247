//! What a Kubernetes user may: each role is a verb on a resource of the group `evenkeel.dev`, which RBAC (or whatever authorizes in
//! the cluster) gives by namespace. The resources need not exist for that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use evenkeel_kubernetes::{Act, Silence, User};

use super::answers::ApiAnswer;
use super::{AGAIN, Allowed, Kubernetes, LASTING, LONGEST, silent};
use crate::identity::tokens::hash;
use crate::identity::{AccessRefusal, RefusalKind, Role};

/// Group of the resources.
const GROUP: &str = "evenkeel.dev";
/// Longest name of a namespace (RFC 1123, label).
const MAX_NAMESPACE: usize = 63;
/// Rights of one call that are looked at again while it lasts; a call asks for one or two.
const USED: usize = 16;

/// The verb and the resource of a role.
pub(super) const fn act(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::View => ("get", "recommendations"),
        Role::Simulate => ("create", "capacityestimates"),
        Role::Apply => ("update", "policies"),
        Role::Panic => ("update", "panic"),
        Role::Enroll => ("create", "enrollments"),
    }
}

/// A question about a user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Right {
    /// Of everything that is known of the user.
    user: [u8; 32],
    role: Role,
    /// Empty for all of them.
    namespace: String,
}

/// What one caller may, by the API server's word.
#[derive(Clone)]
pub(crate) struct Rights(Arc<UserRights>);

struct UserRights {
    kubernetes: Arc<Kubernetes>,
    user: User,
    hash: [u8; 32],
    /// Rights this call rests on, and when each may be asked about again.
    used: Mutex<BTreeMap<(Role, String), Instant>>,
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rights").field(&self.0.user.name).finish()
    }
}

impl Rights {
    pub(super) fn new(kubernetes: Arc<Kubernetes>, user: User) -> Self {
        let hash = hash(&format!("{user:?}"));
        Self(Arc::new(UserRights { kubernetes, user, hash, used: Mutex::default() }))
    }

    /// Whether the user has a role in a namespace; in all of them where none is named.
    ///
    /// # Errors
    /// Says what is missing; also when the API server gives no answer.
    pub(in crate::identity) async fn may(&self, role: Role, namespace: &str) -> Result<(), AccessRefusal> {
        if namespace.len() > MAX_NAMESPACE {
            return Err(self.refused("no namespace has a name of more than 63 characters".to_owned()));
        }
        match self.ask(role, namespace).await.map_err(|_| silent("what its users may"))? {
            ApiAnswer::Yes(_) => {
                let mut used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
                if used.len() < USED {
                    used.insert((role, namespace.to_owned()), Instant::now() + AGAIN);
                }
                Ok(())
            }
            ApiAnswer::No(why) => Err(self.refused(why)),
        }
    }

    /// Whether the user still may what this call rests on. What the API server says counts at the next look.
    ///
    /// # Errors
    /// Says what was taken back.
    pub(in crate::identity) fn stand(&self) -> Result<(), AccessRefusal> {
        let kubernetes = &self.0.kubernetes;
        let (now, hold) = (kubernetes.now(), kubernetes.section.answers_hold.get() * LASTING);
        let mut used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        for ((role, namespace), next) in used.iter_mut() {
            match kubernetes.rights.known(&self.right(*role, namespace), hold, |until| now < *until) {
                Some(ApiAnswer::Yes(_)) => {}
                Some(ApiAnswer::No(why)) => return Err(self.refused(why)),
                None if Instant::now() >= *next => {
                    *next = Instant::now() + AGAIN;
                    let (rights, role, namespace) = (self.clone(), *role, namespace.clone());
                    tokio::spawn(async move {
                        // Silence changes nothing.
                        let _silent = rights.ask(role, &namespace).await;
                    });
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Whether everything that is known of this user is known of ours.
    pub(super) fn is_of(&self, user: &User) -> bool {
        self.0.hash == hash(&format!("{user:?}"))
    }

    fn right(&self, role: Role, namespace: &str) -> Right {
        Right { user: self.0.hash, role, namespace: namespace.to_owned() }
    }

    async fn ask(&self, role: Role, namespace: &str) -> Result<ApiAnswer<Allowed>, Silence> {
        let UserRights { kubernetes, user, .. } = &*self.0;
        let (verb, resource) = act(role);
        let right = self.right(role, namespace);
        let question = async {
            let act = Act { verb, group: GROUP, resource, namespace };
            let asked = kubernetes.noted(kubernetes.server.may(user, act));
            // A user whose right was taken back would keep it by asking for others too often.
            let may = match kubernetes.rights.was_good(&right) {
                true => kubernetes.of_known.pass(None, asked).await?,
                false => kubernetes.of_rights.pass(Some(&user.name), asked).await?,
            };
            if may {
                return Ok(ApiAnswer::Yes(kubernetes.now() + LONGEST));
            }
            let place = match namespace {
                "" => "in all namespaces".to_owned(),
                one => format!("in namespace {one:?}"),
            };
            let name = &user.name;
            Ok(ApiAnswer::No(format!(
                "Kubernetes user {name} may not {verb} {resource}.{GROUP} {place}, which is the role {}",
                role.as_str()
            )))
        };
        kubernetes.rights.get(&right, |until| kubernetes.now() < *until, question).await
    }

    fn refused(&self, why: String) -> AccessRefusal {
        AccessRefusal {
            kind: RefusalKind::Named,
            why,
            remedy: "bind the user to the cluster role evenkeel-view or evenkeel-admin there (kubectl create rolebinding), or ask about \
                     a namespace where that is so",
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_model::yaml::{self, YamlBounds};
    use serde_json::Value;

    use super::*;

    /// Verbs and resources that a cluster role of the manifests gives.
    fn given(role: &str) -> Vec<(String, String)> {
        let text = include_str!("../../../../packaging/kubernetes/base/access.yaml");
        let documents: Vec<Value> = yaml::documents(text, YamlBounds { documents: 10, nodes: 1000 }).unwrap();
        let found = documents.iter().find(|object| object["metadata"]["name"] == role).unwrap();
        let texts = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap();
        let rules = found["rules"].as_array().unwrap();
        assert!(rules.iter().all(|rule| texts(&rule["apiGroups"]) == [GROUP]));
        let of = |rule: &Value| {
            let resources = texts(&rule["resources"]).into_iter();
            let verbs = texts(&rule["verbs"]);
            resources
                .flat_map(|resource| {
                    verbs.iter().map(|verb| (verb.clone(), resource.clone())).collect::<Vec<_>>()
                })
                .collect::<Vec<_>>()
        };
        rules.iter().flat_map(of).collect()
    }

    #[test]
    fn the_cluster_roles_of_the_manifests_are_the_roles() {
        let of = |roles: &[Role]| -> Vec<(String, String)> {
            let act = |role: &Role| (act(*role).0.to_owned(), act(*role).1.to_owned());
            roles.iter().map(act).collect()
        };
        assert_eq!(given("evenkeel-view"), of(&[Role::View, Role::Simulate]));
        assert_eq!(given("evenkeel-admin"), of(&Role::ALL));
        let documented = include_str!("../../../../docs/security.md");
        for role in Role::ALL {
            let (verb, resource) = act(role);
            let row = format!("| `{}` | `{verb}` | `{resource}` |", role.as_str());
            assert!(documented.contains(&row), "{row}");
        }
    }

    #[test]
    fn the_manifests_and_the_defaults_mean_the_same_audience_and_account() {
        let defaults = crate::config::KubernetesSection::default();
        let agent = include_str!("../../../../packaging/kubernetes/base/agent.yaml");
        let recommender = include_str!("../../../../packaging/kubernetes/base/recommender.yaml");
        for (text, want) in [
            (agent, format!("audience: {},", defaults.audience)),
            (recommender, format!("audience = {:?}", defaults.audience)),
            (recommender, format!("agent = {:?}", defaults.agent)),
        ] {
            assert!(text.contains(&want), "{want}");
            let documents: Vec<Value> =
                yaml::documents(text, YamlBounds { documents: 20, nodes: 10_000 }).unwrap();
            assert!(documents.iter().all(|object| object["kind"].is_string()));
        }
    }
}
