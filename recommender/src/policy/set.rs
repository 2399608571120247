//! Owns the policies in force at one moment, each with its rule and where it came from.

use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_rightsizing::policy::rank::{Dated, Ranked};
use evenkeel_rightsizing::policy::{Policy, PolicyError};

use crate::recommend::rules::Chosen;

/// Where a policy came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicySource {
    /// It was applied over an interface.
    Applied,
    /// It is an object of the followed Kubernetes cluster, of this name.
    Cluster(Arc<str>),
    /// It is kept in this file.
    File(PathBuf),
}

impl std::fmt::Display for PolicySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Applied => f.write_str("applied"),
            Self::Cluster(_) => f.write_str("cluster"),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

/// The policies in force.
#[derive(Debug, Default)]
pub struct Set {
    ranked: Ranked,
    /// By the places of `ranked`; nothing where the rule cannot be had.
    rules: Vec<Result<Chosen, PolicyError>>,
    sources: Vec<PolicySource>,
}

/// Who governs a container.
#[derive(Debug, Clone, Copy)]
pub struct Governing<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Its rule.
    pub rule: &'a Chosen,
    /// Place in the set.
    pub at: usize,
}

impl Set {
    pub(crate) fn new(
        all: impl Iterator<Item = (Dated, PolicySource)>,
        rule: impl Fn(&Policy) -> Result<Chosen, PolicyError>,
    ) -> Self {
        let (dated, sources): (Vec<_>, Vec<_>) = all.unzip();
        let by_key: std::collections::HashMap<String, PolicySource> =
            dated.iter().map(|d| d.policy.key()).zip(sources).collect();
        let ranked = Ranked::new(dated);
        let source = |d: &Dated| by_key.get(&d.policy.key()).cloned().unwrap_or(PolicySource::Applied);
        let sources = ranked.all().iter().map(source).collect();
        let rules = ranked.all().iter().map(|d| rule(&d.policy)).collect();
        Self { ranked, rules, sources }
    }

    /// All, first by precedence.
    pub fn all(&self) -> &[Dated] {
        self.ranked.all()
    }

    /// Where one came from.
    pub fn source(&self, at: usize) -> Option<&PolicySource> {
        self.sources.get(at)
    }

    /// One by name: its place.
    pub fn find(&self, namespace: &str, name: &str) -> Option<usize> {
        self.all().iter().position(|d| d.policy.namespace == namespace && d.policy.name == name)
    }

    /// One by its place; nothing where its rule cannot be had.
    pub fn get(&self, at: usize) -> Option<Governing<'_>> {
        let (dated, rule) = (self.all().get(at)?, self.rules.get(at)?.as_ref().ok()?);
        Some(Governing { policy: &dated.policy, rule, at })
    }

    /// Who governs a pod of a namespace, and of a cluster where it is known which, and the places of all that select it. What is an object
    /// of a cluster selects nothing in another one.
    pub fn governing<'a>(
        &self,
        cluster: Option<&str>,
        namespace: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
    ) -> (Option<Governing<'_>>, Vec<usize>) {
        let is_there = |at: &usize| match (self.sources.get(*at), cluster) {
            (Some(PolicySource::Cluster(own)), Some(cluster)) => **own == *cluster,
            _ => true,
        };
        let mut selecting = self.ranked.selecting(namespace, labels);
        selecting.retain(is_there);
        (selecting.first().and_then(|at| self.get(*at)), selecting)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_rightsizing::policy::{Goals, read};

    use super::*;
    use crate::recommend::rules::choose;

    #[test]
    fn an_object_of_a_cluster_selects_nothing_in_another_one() {
        let dated = |name: &str, created_ms| {
            let text = format!(
                "apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{target: {{}}}}\n"
            );
            Dated { policy: Arc::new(read(&text).unwrap()), created_ms }
        };
        // The older one goes first, wherever it is from.
        let all = [
            (dated("mine", 2), PolicySource::Applied),
            (dated("its", 1), PolicySource::Cluster("east".into())),
        ];
        let rule = |_: &Policy| {
            Ok(choose("vpa", &Default::default(), &Goals::default(), &Default::default()).unwrap())
        };
        let set = Set::new(all.into_iter(), rule);
        for (cluster, governs, selecting) in
            [(Some("east"), "its", 2), (Some("west"), "mine", 1), (None, "its", 2)]
        {
            let (governing, places) = set.governing(cluster, "shop", [("app", "web")]);
            assert_eq!(
                (governing.unwrap().policy.name.as_str(), places.len()),
                (governs, selecting),
                "{cluster:?}"
            );
        }
        assert!(set.governing(Some("east"), "elsewhere", [("app", "web")]).0.is_none());
        assert_eq!(set.source(0).unwrap().to_string(), "cluster");
    }
}
