//! Owns the policies in force: those applied over the interfaces, kept in a log of their own (`store`), those that are objects of the
//! followed Kubernetes cluster (`cluster`), and those of files people edit (`files`); which one governs a container; what is told of each (`status`). Limit ranges and quotas that
//! are applied as policies are (`bounds`) are kept in the same log.
//!
//! Not owned: the object and its rules of precedence (`evenkeel_rightsizing::policy`), what follows from a policy
//! (`recommend`).

pub mod bounds;
mod cluster;
mod files;
mod listing;
pub mod panic;
pub(crate) mod panic_map;
mod set;
pub mod status;
mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use evenkeel_rightsizing::policy::rank::Dated;
use evenkeel_rightsizing::policy::{Policy, PolicyError, read};
use serde_json::Value;

use crate::audit::{Audit, AuditError, Object, Ticket};
use crate::config::LiveConfig;
use crate::recommend::rules::{self, Chosen};
use bounds::{BoundKey, BoundObject};
use cluster::ClusterPolicies;
pub(crate) use listing::{Listing, Print, Unlisted};
pub use set::{Governing, PolicySource, Set};
use status::Statuses;
use store::Store;
pub(crate) use store::created;

/// Why a policy was not applied or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The object is wrong.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
    /// It is kept in a file.
    #[error("{key} is kept in {}; edit that file", file.display())]
    InFile {
        /// Kind, and `namespace/name`.
        key: String,
        /// The file.
        file: PathBuf,
    },
    /// It is an object of the followed cluster.
    #[error("{key} is an object of the Kubernetes cluster; change it there (kubectl edit evpa)")]
    InCluster {
        /// Kind, and `namespace/name`.
        key: String,
    },
    /// There are as many as there may be.
    #[error("there are {0} of them already; delete some, or raise recommend.max_policies")]
    Full(usize),
    /// It could not be kept.
    #[error("the policy was not stored")]
    Store(#[from] evenkeel_log::LogError),
    /// There can be no entry of it in the audit record.
    #[error("{0}")]
    Unrecorded(String),
}

impl From<AuditError> for ChangeError {
    fn from(error: AuditError) -> Self {
        Self::Unrecorded(error.told())
    }
}

/// A policy as it is applied, without its dates and status.
fn plain(policy: &Policy) -> Value {
    policy.object(None, Value::Null)
}

/// What came of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// There was none of this name.
    Created,
    /// It took the place of another one.
    Changed,
    /// It is there already.
    Unchanged,
}

impl ApplyOutcome {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

/// All policies.
#[derive(Debug)]
pub struct Policies {
    inner: Mutex<PolicyState>,
    /// Made from `inner` when it is asked for after a change.
    set: RwLock<Option<Arc<Set>>>,
    /// What is told of each.
    pub statuses: Statuses,
    /// Objects that were refused over the interfaces because they are wrong.
    refused: AtomicU64,
    config: LiveConfig,
}

#[derive(Debug)]
struct PolicyState {
    store: Store,
    cluster: ClusterPolicies,
    files: files::PolicyFiles,
}

impl PolicyState {
    /// Refuses what is kept elsewhere than in the store.
    fn elsewhere(&self, namespace: &str, name: &str) -> Result<(), ChangeError> {
        let key = format!("policy {namespace}/{name}");
        match self.files.owner(namespace, name) {
            Some(file) => Err(ChangeError::InFile { key, file: file.to_owned() }),
            None if self.cluster.get(namespace, name).is_some() => Err(ChangeError::InCluster { key }),
            None => Ok(()),
        }
    }
}

impl Policies {
    /// Reads what was applied, and the files.
    ///
    /// # Errors
    /// When what was applied cannot be read.
    pub fn open(live: &LiveConfig, now_ms: u64) -> Result<Self, evenkeel_log::LogError> {
        let config = live.now();
        let store = Store::open(&config.state_dir.join("policies"))?;
        let section = &config.kubernetes;
        let own = section.recommend.then(|| Arc::from(section.cluster.as_str()));
        let cluster = ClusterPolicies::open(config.state_dir.join("policies-of-cluster"), own);
        let policies = Self {
            inner: Mutex::new(PolicyState { store, cluster, files: files::PolicyFiles::default() }),
            set: RwLock::new(None),
            statuses: Statuses::default(),
            refused: AtomicU64::new(0),
            config: live.clone(),
        };
        policies.look(now_ms, None);
        Ok(policies)
    }

    fn inner(&self) -> MutexGuard<'_, PolicyState> {
        // Every change of it is whole: the log takes a record before the map does.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rule of a policy.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn rule(&self, policy: &Policy) -> Result<Chosen, PolicyError> {
        let config = self.config.now();
        rules::of_policy(policy, &config.recommend).map_err(|why| {
            let field = match (&policy.rule, policy.parameters.is_empty()) {
                (_, false) => "spec.parameters",
                (Some(_), true) => "spec.rule",
                (None, true) => "spec.goals",
            };
            PolicyError {
                place: field.to_owned(),
                why,
                remedy: format!("choose one of the rules {}, and its parameters", rules::NAMES.join(", ")),
            }
        })
    }

    /// Reads an object and says what applying it would do.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn check(&self, text: &str) -> Result<(Policy, ApplyOutcome), ChangeError> {
        let policy = self.valid(text)?;
        let inner = self.inner();
        let outcome = self.allowed(&inner, &policy)?;
        Ok((policy, outcome))
    }

    /// Reads an object that is free of mistakes.
    fn valid(&self, text: &str) -> Result<Policy, PolicyError> {
        let read = read(text).and_then(|policy| self.rule(&policy).map(|_| policy));
        if read.is_err() {
            self.count_refused();
        }
        read
    }

    /// Objects that were refused because they are wrong, since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn allowed(&self, inner: &PolicyState, policy: &Policy) -> Result<ApplyOutcome, ChangeError> {
        inner.elsewhere(&policy.namespace, &policy.name)?;
        let max = self.config.now().recommend.max_policies;
        match inner.store.get(&policy.namespace, &policy.name) {
            None if inner.store.len() >= max => Err(ChangeError::Full(max)),
            None => Ok(ApplyOutcome::Created),
            Some(before) if before.policy.is_same(policy) => Ok(ApplyOutcome::Unchanged),
            Some(_) => Ok(ApplyOutcome::Changed),
        }
    }

    /// Keeps a policy; it is durable when this returns.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub(crate) fn apply(
        &self,
        text: &str,
        now_ms: u64,
        ticket: &Ticket,
    ) -> Result<(Policy, ApplyOutcome), ChangeError> {
        let policy = self.valid(text)?;
        let object = Object::new("Policy", &policy.namespace, &policy.name);
        ticket.about(object.clone());
        let mut inner = self.inner();
        let outcome = self.allowed(&inner, &policy)?;
        if outcome == ApplyOutcome::Unchanged {
            ticket.quiet();
            return Ok((policy, outcome));
        }
        let before = inner.store.get(&policy.namespace, &policy.name).map(|dated| plain(&dated.policy));
        ticket.around(object, before.as_ref(), Some(&plain(&policy)), || {
            inner.store.apply(policy.clone(), now_ms).map_err(ChangeError::from)
        })?;
        self.changed();
        Ok((policy, outcome))
    }

    /// Forgets a policy, durably; whether there was one.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub(crate) fn delete(&self, namespace: &str, name: &str, ticket: &Ticket) -> Result<bool, ChangeError> {
        let object = Object::new("Policy", namespace, name);
        ticket.about(object.clone());
        let mut inner = self.inner();
        inner.elsewhere(namespace, name)?;
        let Some(before) = inner.store.get(namespace, name).map(|dated| plain(&dated.policy)) else {
            return Ok(false);
        };
        ticket.around(object, Some(&before), None, || {
            inner.store.delete(namespace, name).map_err(ChangeError::from)
        })?;
        self.changed();
        Ok(true)
    }

    /// Limit ranges and quotas that were applied, by key.
    pub fn bounds(&self) -> Vec<Arc<BoundObject>> {
        self.inner().store.bounds().values().cloned().collect()
    }

    /// Keeps a limit range or quota, durably; `dry_run` only says what would come of it.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub(crate) fn bind(
        &self,
        bound: &BoundObject,
        dry_run: bool,
        ticket: &Ticket,
    ) -> Result<ApplyOutcome, ChangeError> {
        let max = self.config.now().recommend.max_policies;
        let mut inner = self.inner();
        let known = inner.store.bounds();
        let before = known.get(&bound.key).map(|bound| bound.object.clone());
        let outcome = match &before {
            None if known.len() >= max => return Err(ChangeError::Full(max)),
            None => ApplyOutcome::Created,
            Some(before) if *before == bound.object => ApplyOutcome::Unchanged,
            Some(_) => ApplyOutcome::Changed,
        };
        if dry_run || outcome == ApplyOutcome::Unchanged {
            ticket.quiet();
            return Ok(outcome);
        }
        ticket.around(bound.key.object(), before.as_ref(), Some(&bound.object), || {
            inner.store.bind(bound).map_err(ChangeError::from)
        })?;
        Ok(outcome)
    }

    /// Forgets a limit range or quota, durably; whether there was one.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub(crate) fn unbind(&self, key: &BoundKey, ticket: &Ticket) -> Result<bool, ChangeError> {
        let mut inner = self.inner();
        let Some(before) = inner.store.bounds().get(key).map(|bound| bound.object.clone()) else {
            return Ok(false);
        };
        ticket
            .around(key.object(), Some(&before), None, || inner.store.unbind(key).map_err(ChangeError::from))
    }

    /// Counts an object that was refused because it is wrong.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn changed(&self) {
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The policies in force, where they are at hand.
    pub(crate) fn at_hand(&self) -> Option<Arc<Set>> {
        self.set.try_read().ok().and_then(|set| set.clone())
    }

    /// The policies in force.
    pub fn set(&self) -> Arc<Set> {
        if let Some(set) = &*self.set.read().unwrap_or_else(PoisonError::into_inner) {
            return Arc::clone(set);
        }
        // Held while the set is made, so that no change falls between reading and keeping it.
        let inner = self.inner();
        let mut all: BTreeMap<(String, String), (Dated, PolicySource)> = BTreeMap::new();
        let applied = inner.store.all().map(|d| (d.clone(), PolicySource::Applied));
        for (dated, source) in applied.chain(inner.cluster.all()).chain(inner.files.all()) {
            let key = (dated.policy.namespace.clone(), dated.policy.name.clone());
            // Files come last: what people keep in a file goes over what was applied before it was there.
            all.insert(key, (dated, source));
        }
        let rule = |policy: &Policy| self.rule(policy);
        let set = Arc::new(Set::new(all.into_values(), rule));
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&set));
        set
    }

    /// Takes the policies that are objects of the followed cluster now, each of which was found free of mistakes.
    pub(crate) fn replace_of_cluster(&self, all: Vec<Policy>) {
        if self.inner().cluster.replace(all) {
            self.changed();
        }
    }

    /// A policy that is an object of the followed cluster, as it was known last.
    pub(crate) fn of_cluster(&self, namespace: &str, name: &str) -> Option<Arc<Policy>> {
        self.inner().cluster.get(namespace, name).map(|dated| Arc::clone(&dated.policy))
    }

    /// Reads files that have changed since the last look, which leaves entries in the audit record where it is given.
    pub(crate) fn look(&self, now_ms: u64, record: Option<&Audit>) {
        let mut inner = self.inner();
        let PolicyState { store, files, .. } = &mut *inner;
        let config = self.config.now();
        let check = |policy: &Policy| self.rule(policy).map(|_| ());
        if files.look(&config.policies, config.recommend.max_policies, check, record) {
            // A file's own dates change with every edit: the first sight of a policy is its age.
            store.date(files.undated(), now_ms);
            self.changed();
        }
    }

    /// What is wrong with files: path, and the trouble.
    pub fn troubles(&self) -> Vec<(PathBuf, String)> {
        self.inner().files.troubles()
    }
}
