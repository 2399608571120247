//! The `systemd` source: services and slices with requests and limits from `[X-Evenkeel]` in their unit files.
//!
//! Owned here: listing over the system bus, waking on the manager's signals, reading unit files once for each time the
//! manager reads them, and naming controllers a unit lacks. Not owned: the section itself ([`section`]), the calls
//! ([`crate::systemd::bus`]), units bound by manifests. Nothing is set from here.

mod convert;
mod files;
mod section;
mod signals;

pub(crate) use convert::NAMESPACE;
pub(crate) use section::SECTION;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_enforce::shared::{SourceProblem, SourceUpdate, UpdateSender, lock};
use evenkeel_enforce::systemd::bus::BusError;
use evenkeel_enforce::systemd::is_booted;
use evenkeel_enforce::systemd::names::UnitMembership;
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_model::workload::{Managed, Requested, SourceKind, Workload};

use self::section::Statement;
use crate::config::sections::systemd::{Enabled, Units};
use crate::sources::reach::Reach;
use crate::systemd::bus::{ListedUnit, Manager};
use files::{missing, read};
use signals::{Signals, UnitChanges};

/// How the source is named in `status`.
pub(crate) const ADDRESS: &str = "org.freedesktop.systemd1";
/// Kinds of units that are looked at.
const PATTERNS: [&str; 2] = ["*.service", "*.slice"];
/// Listing without being woken: a safety net behind the manager's signals.
const PERIOD: Duration = Duration::from_secs(30);
/// After units appeared, to see which controllers they have once the converger has set what they should have.
const SECOND_LOOK: Duration = Duration::from_secs(3);
/// A start is several signals in a row; a burst of them costs one listing.
const SETTLE: Duration = Duration::from_millis(50);
/// First and longest wait before connecting again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Nobody waits for a listing, and a manager that reads its files again answers no one for seconds on a slow machine.
const CALL: Duration = Duration::from_secs(20);
/// Unit files larger than this are refused; systemd's own limit is 1 MiB.
const MAX_FILE: u64 = 1 << 20;
/// Units looked at most.
const MAX_UNITS: usize = 20_000;

/// Whether this source says anything at all.
pub(crate) fn is_wanted(units: &Units) -> bool {
    match units.enabled {
        Enabled::No => false,
        Enabled::Auto => is_booted(),
        Enabled::Yes => true,
    }
}

/// Follows the manager until the agent ends. Without systemd or a bus it says nothing, unless it was enabled by name.
pub(crate) async fn run(units: Units, tree: Option<Arc<CgroupTree>>, reach: Reach, updates: UpdateSender) {
    if !is_wanted(&units) {
        return;
    }
    let mut source = SystemdSource {
        units,
        tree,
        reach,
        updates,
        files: HashMap::new(),
        known: BTreeSet::new(),
        last: None,
    };
    let mut pause = RECONNECT.0;
    loop {
        let error = source.follow(&mut pause).await;
        source.report_failure(&error);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT.1);
    }
}

struct SystemdSource {
    units: Units,
    tree: Option<Arc<CgroupTree>>,
    reach: Reach,
    updates: UpdateSender,
    /// What each unit's files said when they were last read.
    files: HashMap<String, UnitStatement>,
    /// Units of the last listing.
    known: BTreeSet<String>,
    last: Option<(Vec<Arc<Workload>>, Vec<SourceProblem>)>,
}

/// What a unit's files say, and what is wrong with them.
#[derive(Default)]
struct UnitStatement {
    statement: Option<Statement>,
    problems: Vec<SourceProblem>,
    /// The system did not give a file: they are read again with the next listing.
    is_open: bool,
}

/// Scopes of containers come and go by the hundred and never have the section.
fn is_looked_at(unit: &str) -> bool {
    unit.ends_with(".service") || unit.ends_with(".slice")
}

impl SystemdSource {
    /// Connects and lists until something fails.
    async fn follow(&mut self, pause: &mut Duration) -> BusError {
        let (manager, signals) = match connect(&self.reach).await {
            Ok(connected) => connected,
            Err(error) => return error,
        };
        *pause = RECONNECT.0;
        tracing::info!(version = manager.version, "following systemd");
        self.files.clear();
        loop {
            let appeared = match self.list(&manager).await {
                Ok(appeared) => appeared,
                Err(error) => return error,
            };
            let patience = if appeared { SECOND_LOOK } else { PERIOD };
            if tokio::time::timeout(patience, signals.bell.notified()).await.is_ok() {
                tokio::time::sleep(SETTLE).await;
            }
            if signals.ended.load(Ordering::Acquire) {
                return BusError::Away("the connection ended".into());
            }
            self.forget(std::mem::take(&mut *lock(&signals.changed)));
        }
    }

    /// Unit files count as the manager last read them: at a reload, or when it loaded the unit.
    fn forget(&mut self, changed: UnitChanges) {
        if changed.reloaded {
            self.files.clear();
        }
        for unit in changed.units {
            self.files.remove(&unit);
        }
    }

    /// Lists and sends; true when a unit is there that was not before.
    async fn list(&mut self, manager: &Manager) -> Result<bool, BusError> {
        let mut listed = manager.running(&PATTERNS).await?;
        listed.truncate(MAX_UNITS);
        listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let names: BTreeSet<&str> = listed.iter().map(|unit| unit.name.as_str()).collect();
        self.files.retain(|name, _| names.contains(name.as_str()));
        let (mut workloads, mut problems) = (Vec::new(), Vec::new());
        for unit in &listed {
            match self.workload(manager, unit, &mut problems).await {
                Ok(workload) => workloads.extend(workload),
                // It ended meanwhile.
                Err(BusError::NoUnit(_) | BusError::Unknown(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let found: BTreeSet<String> = workloads.iter().map(|w| w.pod.name.clone()).collect();
        for workload in workloads.iter().filter(|w| self.known.contains(&w.pod.name)) {
            self.missing_controllers(workload, &mut problems);
        }
        let appeared = !found.is_subset(&self.known);
        self.known = found;
        problems.sort_unstable();
        problems.dedup();
        self.send(workloads, problems);
        Ok(appeared)
    }

    async fn workload(
        &mut self,
        manager: &Manager,
        unit: &ListedUnit,
        problems: &mut Vec<SourceProblem>,
    ) -> Result<Option<Workload>, BusError> {
        if self.files.get(&unit.name).is_none_or(|told| told.is_open) {
            let files = manager.files(&unit.object).await?;
            self.files.insert(unit.name.clone(), read(files).await);
        }
        let Some(told) = self.files.get(&unit.name) else { return Ok(None) };
        problems.extend_from_slice(&told.problems);
        if told.statement.is_none() && (self.units.slices.is_empty() || unit.name.ends_with(".slice")) {
            return Ok(None);
        }
        let Some(cgroup) = manager.cgroup(unit).await? else { return Ok(None) };
        // The root slice is the machine; nothing can be set there.
        if cgroup == "/" || (told.statement.is_none() && !self.is_in_slices(&cgroup)) {
            return Ok(None);
        }
        Ok(Some(convert::workload(&unit.name, cgroup, told.statement.as_ref())))
    }

    /// Whether services there are sampled also when they say nothing.
    fn is_in_slices(&self, cgroup: &str) -> bool {
        self.units
            .slices
            .iter()
            .filter_map(|slice| super::slices::expand_slice(slice))
            .any(|slice| cgroup.strip_prefix(slice.as_str()).is_some_and(|rest| rest.starts_with('/')))
    }

    /// A unit without a controller can be neither measured nor protected in it.
    fn missing_controllers(&self, workload: &Workload, problems: &mut Vec<SourceProblem>) {
        let evenkeel_model::workload::CgroupBinding::Path(path) = &workload.cgroup else { return };
        let is_stated = matches!(workload.requested, Requested::Stated(_));
        if workload.managed != Managed::Yes || !is_stated {
            return;
        }
        for controller in self.tree.iter().flat_map(|tree| missing(tree, path)) {
            let remedy = evenkeel_enforce::systemd::remedy(
                &UnitMembership::Unit(workload.pod.name.clone()),
                Some(controller),
            );
            problems.push(SourceProblem {
                what: format!("manage {} of {}", controller.name(), workload.pod.name),
                where_: path.clone(),
                why: format!("its cgroup has no {} controller", controller.name()),
                remedy: remedy.unwrap_or_default().to_owned(),
            });
        }
    }

    fn send(&mut self, workloads: Vec<Workload>, problems: Vec<SourceProblem>) {
        let workloads = crate::sources::shared(self.last.as_ref().map(|(w, _)| w.as_slice()), workloads);
        if self.last.as_ref().is_some_and(|(w, p)| *w == workloads && *p == problems) {
            return;
        }
        let sent = self.updates.send(update(workloads.clone(), problems.clone(), true));
        self.last = sent.is_ok().then_some((workloads, problems));
    }

    /// The manager cannot be asked: what was last seen stays, marked as such. A machine where it never answered has no
    /// such source, unless somebody said that it should.
    fn report_failure(&mut self, error: &BusError) {
        if self.last.is_none() && self.units.enabled != Enabled::Yes {
            tracing::debug!(%error, "ignoring that systemd cannot be asked; trying again");
            return;
        }
        tracing::warn!(%error, "systemd lost; trying again");
        let workloads = self.last.take().map_or_else(Vec::new, |(workloads, _)| workloads);
        let problem = SourceProblem {
            what: "list units".into(),
            where_: ADDRESS.into(),
            why: error.to_string(),
            remedy: "start dbus.service (package dbus), or set sources.systemd.enabled = false; until then units' knobs are written directly, which a daemon-reload undoes".into(),
        };
        let sent = self.updates.send(update(workloads.clone(), vec![problem.clone()], false));
        if sent.is_ok() {
            self.last = Some((workloads, vec![problem]));
        }
    }
}

fn update(workloads: Vec<Arc<Workload>>, problems: Vec<SourceProblem>, healthy: bool) -> SourceUpdate {
    SourceUpdate { source: SourceKind::Systemd, address: ADDRESS.to_owned(), workloads, problems, healthy }
}

/// A connection whose signals are taken by a task of their own: a queue nobody empties would stop the answers too.
async fn connect(reach: &Reach) -> Result<(Manager, Arc<Signals>), BusError> {
    let manager = Manager::connect(reach, CALL).await?;
    let signals = Arc::new(Signals::default());
    let taker = Arc::clone(&signals);
    let following = manager.follow(move |change| taker.take_in(change)).await?;
    let ender = Arc::clone(&signals);
    tokio::spawn(async move {
        following.await;
        ender.end();
    });
    Ok((manager, signals))
}
