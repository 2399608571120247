//! What each gRPC method and HTTP route asks for. What is not listed is answered to nobody.

use axum::http::Method;

use Need::{Everywhere, InNamespace, Name, Node, Nothing};
use Role::{Apply, Enroll, Panic, Simulate, View};

use super::{AccessRefusal, Identity, Role};

/// What a method or route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Nothing,
    /// A caller that is known.
    Name,
    /// A role in all namespaces.
    Everywhere(Role),
    /// A role in the namespace that the question is about: whoever answers asks for it.
    InNamespace(Role),
    /// A node.
    Node,
}

impl Need {
    /// Whether a caller has what is asked for, as far as that is known before the question is read.
    ///
    /// # Errors
    /// Says what is missing.
    pub(crate) async fn check(self, identity: &Identity) -> Result<(), AccessRefusal> {
        match self {
            Self::Nothing => Ok(()),
            Self::Name if identity.is_known() => Ok(()),
            // No stranger has a role: the refusal says what would help.
            Self::Name => identity.has(View),
            Self::Everywhere(role) => identity.may(role, "").await,
            Self::InNamespace(role) => identity.has(role),
            Self::Node => identity.is_node(),
        }
    }

    /// Whether it changes something.
    pub(crate) const fn changes(self) -> bool {
        matches!(self, Self::Everywhere(Apply | Panic | Enroll) | Self::InNamespace(Apply | Panic))
    }
}

/// By gRPC path.
pub(crate) const METHODS: [(&str, Need); 29] = [
    ("/evenkeel.v1.IngestService/Stream", Node),
    ("/evenkeel.v1.RecommenderService/RecommendPod", InNamespace(View)),
    ("/evenkeel.v1.RecommenderService/ListRecommendations", InNamespace(View)),
    ("/evenkeel.v1.RecommenderService/WatchRecommendations", Everywhere(View)),
    ("/evenkeel.v1.RecommenderService/QueryUsage", InNamespace(View)),
    ("/evenkeel.v1.RecommenderService/QuerySeries", InNamespace(View)),
    ("/evenkeel.v1.RecommenderService/WatchUsage", Everywhere(View)),
    ("/evenkeel.v1.RecommenderService/ListNodes", Everywhere(View)),
    ("/evenkeel.v1.RecommenderService/ListNamespaces", Everywhere(View)),
    ("/evenkeel.v1.RecommenderService/ListEvents", Everywhere(View)),
    ("/evenkeel.v1.RecommenderService/ListUpdates", Everywhere(View)),
    ("/evenkeel.v1.RecommenderService/SetPanic", Everywhere(Panic)),
    ("/evenkeel.v1.PolicyService/List", InNamespace(View)),
    ("/evenkeel.v1.PolicyService/Get", InNamespace(View)),
    ("/evenkeel.v1.PolicyService/Apply", InNamespace(Apply)),
    ("/evenkeel.v1.PolicyService/Delete", InNamespace(Apply)),
    ("/evenkeel.v1.CapacityService/Estimate", Everywhere(Simulate)),
    ("/evenkeel.v1.CapacityService/Snapshot", Everywhere(View)),
    ("/evenkeel.v1.CapacityService/ListWatched", Everywhere(View)),
    // The join token in the question says who asks.
    ("/evenkeel.v1.EnrollService/Sign", Nothing),
    ("/evenkeel.v1.EnrollService/Renew", Node),
    ("/evenkeel.v1.EnrollService/CreateToken", Everywhere(Enroll)),
    ("/evenkeel.v1.EnrollService/Revoke", Everywhere(Enroll)),
    ("/evenkeel.v1.EnrollService/ListEnrolled", Everywhere(View)),
    ("/evenkeel.v1.AuditService/ListChanges", InNamespace(View)),
    ("/grpc.health.v1.Health/Check", Nothing),
    ("/grpc.health.v1.Health/Watch", Nothing),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Name),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Name),
];

/// By HTTP method and route. `HEAD` is as `GET`.
pub(crate) const ROUTES: [(&str, &str, Need); 22] = [
    ("GET", "/healthz", Nothing),
    // Reasons are told to those who may see.
    ("GET", "/readyz", Nothing),
    ("GET", "/openapi.json", Name),
    ("GET", "/metrics", Everywhere(View)),
    ("GET", "/recommendedPodResources", InNamespace(View)),
    ("POST", "/recommendedPodResources", InNamespace(View)),
    ("GET", "/api/v1/recommendations", InNamespace(View)),
    ("GET", "/api/v1/policies", InNamespace(View)),
    ("POST", "/api/v1/policies", InNamespace(Apply)),
    ("GET", "/api/v1/policies/{namespace}/{name}", InNamespace(View)),
    ("PUT", "/api/v1/policies/{namespace}/{name}", InNamespace(Apply)),
    ("DELETE", "/api/v1/policies/{namespace}/{name}", InNamespace(Apply)),
    ("GET", "/api/v1/usage", InNamespace(View)),
    ("GET", "/api/v1/usage/series", InNamespace(View)),
    ("GET", "/api/v1/nodes", Everywhere(View)),
    ("GET", "/api/v1/namespaces", Everywhere(View)),
    ("GET", "/api/v1/events", Everywhere(View)),
    ("GET", "/api/v1/updates", Everywhere(View)),
    ("GET", "/api/v1/audit", InNamespace(View)),
    ("POST", "/api/v1/capacity", Everywhere(Simulate)),
    ("GET", "/api/v1/capacity/watched", Everywhere(View)),
    ("GET", "/api/v1/capacity/snapshot", Everywhere(View)),
];

/// Pages, by HTTP method and route, where `dashboard.enabled` serves them.
pub(crate) const PAGES: [(&str, &str, Need); 22] = [
    // To the pages.
    ("GET", "/", Nothing),
    ("GET", "/ui", Nothing),
    // What a page looks like is no secret, and the token is in the form.
    ("GET", "/ui/assets/{file}", Nothing),
    ("GET", "/ui/sign-in", Nothing),
    ("POST", "/ui/sign-in", Nothing),
    ("POST", "/ui/sign-out", Nothing),
    ("GET", "/ui/", InNamespace(View)),
    ("GET", "/ui/workloads", InNamespace(View)),
    ("GET", "/ui/workloads/export", InNamespace(View)),
    ("GET", "/ui/workload", InNamespace(View)),
    ("GET", "/ui/report", Everywhere(View)),
    ("GET", "/ui/nodes", Everywhere(View)),
    ("GET", "/ui/node", Everywhere(View)),
    ("GET", "/ui/decisions", Everywhere(View)),
    ("GET", "/ui/changes", InNamespace(View)),
    ("GET", "/ui/capacity", Everywhere(Simulate)),
    ("POST", "/ui/capacity", Everywhere(Simulate)),
    ("GET", "/ui/policies", InNamespace(View)),
    ("GET", "/ui/policies/edit", InNamespace(View)),
    ("POST", "/ui/policies", InNamespace(Apply)),
    ("POST", "/ui/panic", Everywhere(Panic)),
    ("GET", "/ui/live", Everywhere(View)),
];

/// What a gRPC path asks for; `None` where there is no such method.
pub(crate) fn of_method(path: &str) -> Option<Need> {
    METHODS.iter().find(|(known, _)| *known == path).map(|(_, need)| *need)
}

/// What a route asks for; `None` where it takes no such method.
pub(crate) fn of_route(method: &Method, route: &str) -> Option<Need> {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    ROUTES
        .iter()
        .chain(&PAGES)
        .find(|(known, at, _)| *known == method && *at == route)
        .map(|(_, _, need)| *need)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// Services this program does not serve.
    const OTHERS: [&str; 1] = ["AgentService"];

    fn methods(descriptors: &[u8]) -> BTreeSet<String> {
        let set = FileDescriptorSet::decode(descriptors).unwrap();
        let mut found = BTreeSet::new();
        for file in &set.file {
            for service in file.service.iter().filter(|s| !OTHERS.contains(&s.name())) {
                for method in &service.method {
                    found.insert(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
                }
            }
        }
        found
    }

    #[test]
    fn every_method_there_is_has_a_row_and_no_other() {
        let mut there = methods(evenkeel_proto::DESCRIPTORS);
        there.extend(methods(tonic_health::pb::FILE_DESCRIPTOR_SET));
        there.extend(methods(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET));
        there.extend(methods(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET));
        let listed: BTreeSet<String> = METHODS.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(listed, there);
    }

    #[test]
    fn every_route_there_is_has_a_row_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(crate::api::http::openapi()).unwrap();
        let mut there = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                there.insert((method.to_uppercase(), path.clone()));
            }
        }
        let listed: BTreeSet<_> =
            ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(listed, there);
    }

    #[test]
    fn what_reads_never_asks_for_a_role_that_changes() {
        for (method, path, need) in ROUTES.into_iter().chain(PAGES) {
            assert!(method != "GET" || !need.changes(), "{path}");
            assert!(!matches!(method, "PUT" | "DELETE") || need.changes(), "{path}");
        }
    }

    #[tokio::test]
    async fn strangers_are_answered_health_and_join_tokens_alone() {
        let nobody = Identity::anonymous();
        let mut open = Vec::new();
        for (path, need) in METHODS {
            if need.check(&nobody).await.is_ok() {
                open.push(path);
            }
        }
        assert!(
            open.iter().all(|path| path.starts_with("/grpc.health.v1.Health/")
                || *path == "/evenkeel.v1.EnrollService/Sign"),
            "{open:?}"
        );
        let mut open = Vec::new();
        for (_, path, need) in ROUTES {
            if need.check(&nobody).await.is_ok() {
                open.push(path);
            }
        }
        assert_eq!(open, ["/healthz", "/readyz"]);
        let mut open = Vec::new();
        for (_, path, need) in PAGES {
            if need.check(&nobody).await.is_ok() {
                open.push(path);
            }
        }
        let doors = ["/", "/ui", "/ui/assets/{file}", "/ui/sign-in", "/ui/sign-in", "/ui/sign-out"];
        assert_eq!(open, doors, "they show nothing of what is known");
    }
}
