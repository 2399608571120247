//! Owns the answer to "is it ready": whether the state is complete, and whether what arrives can be kept.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_net::fingerprint;
use evenkeel_net::tls::{Certificate, Tls, certificates};
use evenkeel_store::clock::WallClock;
use evenkeel_store::ingest::health::Health;

use crate::audit::{Audit, FileDigests};
use crate::authority::{Authority, Server};
use crate::config::Config;
use crate::events::Events;
use crate::followed::Followed;
use crate::identity::{Kubernetes, Tokens};
use crate::leading::Leading;
use crate::objects::RecommendedObjects;
use crate::policy::panic;
use crate::policy::panic_map::PanicMap;
use crate::registration::Registration;
use crate::updater::Updater;

/// Where the process is in its life, and what of its surroundings should not stay as it is.
#[derive(Debug)]
pub struct Readiness {
    replayed: AtomicBool,
    stopping: AtomicBool,
    insecure: Option<String>,
    tokens: Arc<Tokens>,
    audit: Arc<Audit>,
    tls: Option<Arc<Tls>>,
    served: ServedCertificates,
    authority: Option<Own>,
    kubernetes: Option<Arc<Kubernetes>>,
    followed: Option<Arc<Followed>>,
    objects: Option<Arc<RecommendedObjects>>,
    events: Option<Arc<Events>>,
    updater: Option<Arc<Updater>>,
    panic_map: Option<Arc<PanicMap>>,
    registration: Option<Arc<Registration>>,
    leading: Arc<Leading>,
}

/// The own authority, and what it makes for this program.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) authority: Arc<Authority>,
    pub(crate) server: Option<Server>,
    pub(crate) clock: WallClock,
}

/// The certificates that are served and trusted, for the audit record.
#[derive(Debug, Default)]
struct ServedCertificates {
    files: Vec<PathBuf>,
    said: Mutex<Vec<FileDigests>>,
}

impl ServedCertificates {
    fn new(config: &Config) -> Self {
        let files = config.tls_files();
        let files = files.iter().flat_map(|files| iter::once(&files.cert).chain(files.authorities()));
        let files: Vec<PathBuf> = files.cloned().collect();
        let said = Mutex::new(files.iter().map(|path| certificates_of(path)).collect());
        Self { files, said }
    }

    /// Leaves an entry for each file whose certificates are other ones now.
    fn recorded(&self, audit: &Audit) -> Result<(), String> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, said) in self.files.iter().zip(said.iter_mut()) {
            said.follow(path, &certificates_of(path), Some(audit))?;
        }
        Ok(())
    }
}

/// The certificates of a file; what cannot be read is not served.
fn certificates_of(path: &Path) -> FileDigests {
    let named = |der: &[u8]| {
        let ends = i64::try_from(Certificate::of(der).expires()).ok();
        let ends = ends.and_then(|ends| jiff::Timestamp::from_second(ends).ok());
        let ends = ends.map_or_else(String::new, |ends| format!(" until {ends}"));
        (format!("certificate sha256:{}{ends}", fingerprint(der)), String::new())
    };
    FileDigests::of(certificates(path).iter().flatten().map(|der| named(der)))
}

/// One check of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// What is wrong, where something is.
    pub(crate) trouble: Option<String>,
    /// Whether the trouble makes the process unready.
    pub(crate) needed: bool,
}

impl Readiness {
    /// At the start of a process.
    pub(crate) fn new(
        config: &Config,
        tokens: Arc<Tokens>,
        audit: Arc<Audit>,
        tls: Option<Arc<Tls>>,
        authority: Option<Own>,
    ) -> Self {
        let (replayed, stopping) = Default::default();
        let (insecure, served) = (config.plaintext(), ServedCertificates::new(config));
        let (kubernetes, followed, objects, events) = (None, None, None, None);
        let (updater, panic_map, registration) = (None, None, None);
        let leading = Arc::default();
        Self {
            replayed,
            stopping,
            insecure,
            tokens,
            audit,
            tls,
            served,
            authority,
            kubernetes,
            followed,
            objects,
            events,
            updater,
            panic_map,
            registration,
            leading,
        }
    }

    /// The same with a cluster whose API server knows callers.
    #[must_use]
    pub(crate) fn with_kubernetes(self, kubernetes: Option<Arc<Kubernetes>>) -> Self {
        Self { kubernetes, ..self }
    }

    /// The same with a cluster whose objects are followed.
    #[must_use]
    pub(crate) fn with_followed(self, followed: Option<Arc<Followed>>) -> Self {
        Self { followed, ..self }
    }

    /// The cluster whose objects are followed.
    pub(crate) fn followed(&self) -> Option<&Arc<Followed>> {
        self.followed.as_ref()
    }

    /// The same with objects of it that ask for recommendations.
    #[must_use]
    pub(crate) fn with_objects(self, objects: Option<Arc<RecommendedObjects>>) -> Self {
        Self { objects, ..self }
    }

    /// Objects that ask for recommendations.
    pub(crate) fn objects(&self) -> Option<&Arc<RecommendedObjects>> {
        self.objects.as_ref()
    }

    /// The same with Events that are written to it.
    #[must_use]
    pub(crate) fn with_events(self, events: Option<Arc<Events>>) -> Self {
        Self { events, ..self }
    }

    /// Events that are written.
    pub(crate) fn events(&self) -> Option<&Arc<Events>> {
        self.events.as_ref()
    }

    /// The same with what changes its pods.
    #[must_use]
    pub(crate) fn with_updater(self, updater: Option<Arc<Updater>>) -> Self {
        Self { updater, ..self }
    }

    /// What changes pods of the cluster that run.
    pub(crate) fn updater(&self) -> Option<&Arc<Updater>> {
        self.updater.as_ref()
    }

    /// The same with a ConfigMap that holds the panic switch.
    #[must_use]
    pub(crate) fn with_panic_map(self, panic_map: Option<Arc<PanicMap>>) -> Self {
        Self { panic_map, ..self }
    }

    /// The ConfigMap that holds the panic switch.
    pub(crate) fn panic_map(&self) -> Option<&Arc<PanicMap>> {
        self.panic_map.as_ref()
    }

    /// Who holds the panic switch against calls: the reason to set, while somebody does.
    pub(crate) fn panic_held(&self, config: &Config) -> Option<String> {
        let by_map = || self.panic_map.as_ref().and_then(|map| map.held());
        panic::held(config.panic, &config.panic_file).or_else(by_map)
    }

    /// The same with the webhook's registration, which is looked at.
    #[must_use]
    pub(crate) fn with_registration(self, registration: Option<Arc<Registration>>) -> Self {
        Self { registration, ..self }
    }

    /// The webhook's registration.
    pub(crate) fn registration(&self) -> Option<&Arc<Registration>> {
        self.registration.as_ref()
    }

    /// The same with a Lease that says who leads.
    #[must_use]
    pub(crate) fn with_leading(self, leading: Arc<Leading>) -> Self {
        Self { leading, ..self }
    }

    /// Whether this recommender leads.
    pub(crate) fn leading(&self) -> &Arc<Leading> {
        &self.leading
    }

    /// The record of changes.
    pub(crate) fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    /// What encrypts the addresses.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }

    /// The own authority.
    pub(crate) fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref().map(|own| &*own.authority)
    }

    /// What goes over networks in plain text.
    pub(crate) fn insecure(&self) -> Option<&str> {
        self.insecure.as_deref()
    }

    /// Looks whether files changed.
    pub(crate) fn look(&self) {
        self.tokens.look(Some(&self.audit));
        if let Some(Own { authority, server, clock }) = &self.authority {
            if let (Some(server), Some(tls)) = (server, &self.tls) {
                server.renew(tls, clock.now_usec() / 1_000_000);
            }
            authority.look();
        }
        if let Some(tls) = &self.tls {
            tls.look_if(|| self.served.recorded(&self.audit));
        }
    }

    /// The log has been replayed: questions are answered from everything acknowledged.
    pub fn replayed(&self) {
        self.replayed.store(true, Ordering::SeqCst);
    }

    /// The process is about to end.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whether the log has been replayed and the process is not about to end.
    pub fn answers(&self) -> bool {
        self.replayed.load(Ordering::SeqCst) && !self.stopping.load(Ordering::SeqCst)
    }

    /// All checks.
    pub(crate) fn checks(&self, health: &Health, now_usec: u64) -> Vec<Check> {
        let check = |name, trouble: Option<String>, needed| Check { name, trouble, needed };
        let unless = |fine: bool, trouble: &str| (!fine).then(|| trouble.to_owned());
        [
            check("replay", unless(self.replayed.load(Ordering::SeqCst), "the log is being replayed"), true),
            check("stopping", unless(!self.stopping.load(Ordering::SeqCst), "the process is stopping"), true),
            check("log", health.log_trouble(), true),
            check("checkpoint", health.checkpoint_trouble(), false),
            check("clock", health.clock_trouble(), false),
            check("streams", health.contest_trouble(), false),
            check("room", health.room_trouble(), false),
        ]
        .into_iter()
        .chain(self.of_trust(now_usec))
        .collect()
    }

    /// What is wrong with the store, certificates, tokens, the audit record, encryption and agents of one name, by check.
    pub(crate) fn troubles(&self, health: &Health, now_usec: u64) -> BTreeMap<String, String> {
        let of = |check: Check| Some((check.name.to_owned(), check.trouble?));
        let own = [
            ("log", health.log_trouble()),
            ("checkpoint", health.checkpoint_trouble()),
            ("room", health.room_trouble()),
            ("streams", health.contest_trouble()),
        ];
        let own = own.into_iter().filter_map(|(name, trouble)| Some((name.to_owned(), trouble?)));
        self.of_trust(now_usec).into_iter().filter_map(of).chain(own).collect()
    }

    fn of_trust(&self, now_usec: u64) -> [Check; 13] {
        let now = now_usec / 1_000_000;
        let check = |name, trouble: Option<String>| Check { name, trouble, needed: false };
        [
            check("tokens", self.tokens.trouble().or_else(|| self.tokens.told(now))),
            check("audit", self.audit.trouble()),
            check("kubernetes", self.kubernetes.as_ref().and_then(|kubernetes| kubernetes.trouble())),
            check("view", self.followed.as_ref().and_then(|followed| followed.trouble())),
            check("objects", self.objects.as_ref().and_then(|objects| objects.trouble())),
            check("events", self.events.as_ref().and_then(|events| events.trouble())),
            check("updater", self.updater.as_ref().and_then(|updater| updater.told_trouble())),
            check("panic", self.panic_map.as_ref().and_then(|map| map.trouble())),
            check("lease", self.leading.trouble()),
            check("webhook", self.registration.as_ref().and_then(|registration| registration.trouble())),
            check("authority", self.authority().and_then(|authority| authority.trouble(now))),
            check("encryption", self.insecure.clone()),
            check("certificate", self.tls.as_ref().and_then(|tls| tls.told(now))),
        ]
    }
}
