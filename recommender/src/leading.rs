//! Owns whether this recommender leads: always, or, where `kubernetes.lease` names a Lease that another one shares, while it holds that.
//!
//! Only the leader acts and takes changes: it tells nodes what to change, writes into objects of the cluster, and answers calls that change
//! something. A follower is fed by the same agents and answers what is asked; it refuses changes and names the leader, so that the two never
//! differ. Of what is no stream the panic switch alone is handed on: beside the Lease, since it has to hold whoever leads.

use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evenkeel_kubernetes::lease::{Election, Leadership, LeaseCandidate, Times};
use evenkeel_kubernetes::{ApiServer, ApiSource, ConnectError};
use evenkeel_model::panic::{Panic, reason};
use evenkeel_proto::v1;
use evenkeel_store::clock::WallClock;
use evenkeel_store::state::PanicSwitch;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::api::Context;
use crate::audit::{AuditOutcome, Ticket};
use crate::config::KubernetesSection;
use crate::policy::panic;
use crate::serve::ended;

/// Annotation of the Lease with the panic switch.
const PANIC: &str = "evenkeel.dev/panic";
/// How often the panic switch is compared.
const LOOK: Duration = Duration::from_secs(1);

/// Whether this recommender leads.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// The Lease and where it is, where one is shared.
    shared: Option<(ApiServer, LeaseCandidate)>,
    /// Once it contends.
    election: OnceLock<Election>,
}

impl Leading {
    /// By the configured Lease; leads always where there is none.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn open(section: &KubernetesSection) -> Result<Arc<Self>, ConnectError> {
        let Some((namespace, name)) = section.lease.split_once('/') else { return Ok(Arc::default()) };
        let times = Times::default();
        // An answer that comes later is of no use any more.
        let patience = section.timeout.get().min(times.renew_within / 2);
        let api = ApiServer::at(&ApiSource { patience, ..section.source() }).await?;
        let candidate = LeaseCandidate {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity(),
            note: PANIC,
            times,
        };
        Ok(Arc::new(Self { shared: Some((api, candidate)), election: OnceLock::new() }))
    }

    /// Begins to contend, once everything that it would act on has been read back.
    pub(crate) fn begin(&self, clock: WallClock) {
        let Some((api, candidate)) = &self.shared else { return };
        info!(lease = candidate.name, identity = candidate.identity, "contending for the lead");
        let now = move || {
            let usec = i64::try_from(clock.now_usec()).unwrap_or_default();
            format!("{:.6}", Timestamp::from_microsecond(usec).unwrap_or_default())
        };
        self.election.get_or_init(|| Election::start(api.clone(), candidate.clone(), now));
    }

    /// Whether there is a Lease at all.
    pub(crate) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether it leads now.
    pub(crate) fn leads(&self) -> bool {
        !self.is_shared() || self.election.get().is_some_and(Election::leads)
    }

    /// How it stands, where there is a Lease.
    pub(crate) fn standing(&self) -> Option<Leadership> {
        self.is_shared().then(|| self.election.get().map(Election::standing).unwrap_or_default())
    }

    /// Changes when it stands otherwise; nothing where it does not contend.
    pub(crate) fn changes(&self) -> Option<watch::Receiver<Leadership>> {
        self.election.get().map(Election::changes)
    }

    /// What agents are told of it.
    pub(crate) fn said(&self) -> Option<v1::Leading> {
        let Leadership { leads, leader, term, .. } = self.standing()?;
        Some(v1::Leading { leads, term, leader: name_of(&leader).to_owned() })
    }

    /// Why it takes no changes, where it does not lead.
    pub(crate) fn refusal(&self) -> Option<String> {
        let standing = self.standing().filter(|standing| !standing.leads)?;
        Some(match name_of(&standing.leader) {
            "" => "no recommender leads at this moment, and only the leader takes changes".to_owned(),
            leader => format!("this recommender stands by, and only the leader, {leader}, takes changes"),
        })
    }

    /// What is wrong: the Lease is not to be had, or nobody leads.
    pub(crate) fn trouble(&self) -> Option<String> {
        let Leadership { leader, trouble, .. } = self.standing()?;
        trouble.or_else(|| leader.is_empty().then(|| "no recommender leads".to_owned()))
    }

    /// Leads no more, and gives the Lease back.
    pub(crate) async fn step_down(&self) {
        if let Some(election) = self.election.get() {
            election.step_down().await;
        }
    }
}

/// What to do about a refused change.
pub(crate) const REMEDY: &str =
    "ask the leader: evenkeel_recommender_leads and /readyz?verbose of each say who it is";

/// The name of the host, and what tells this run from others: one that starts again is not taken for the run before.
fn identity() -> String {
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        bytes = (u64::from(std::process::id()) << 32).to_be_bytes();
    }
    let mut name = if host.is_empty() { "recommender".to_owned() } else { host };
    name.push('_');
    for byte in bytes {
        // Writing to a text cannot fail.
        let _never = write!(name, "{byte:02x}");
    }
    name
}

/// The host of a holder.
fn name_of(holder: &str) -> &str {
    holder.rsplit_once('_').map_or(holder, |(host, _)| host)
}

/// Tells who leads when that changes, and keeps the panic switch the same with all, until the process ends.
pub(crate) async fn run(context: Context, stopped: watch::Receiver<bool>) {
    let leading = Arc::clone(context.readiness.leading());
    let Some(election) = leading.election.get() else { return };
    let mut changes = election.changes();
    let looks = async {
        let (mut known, mut has_read) = (None, false);
        loop {
            let standing = election.standing();
            let said = (standing.leads, standing.leader.clone());
            if known.as_ref() != Some(&said) {
                let (leader, term) = (name_of(&standing.leader), standing.term);
                info!(leads = standing.leads, leader, term, "the lead");
                known = Some(said);
            }
            if let Some(note) = standing.note.as_deref().filter(|_| !standing.leads || !has_read) {
                adopt(&context, note, name_of(&standing.leader)).await;
                has_read = true;
            }
            let says = standing.leads && has_read;
            election.leave(says.then(|| note(&context.engine.state().panic())));
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    };
    tokio::select! { () = looks => {}, () = ended(stopped) => {} }
}

/// The panic switch for others.
fn note(switch: &PanicSwitch) -> String {
    if !switch.on {
        return json!({ "on": false }).to_string();
    }
    json!({ "on": true, "revert": switch.revert, "reason": switch.reason }).to_string()
}

/// What a note says; nothing where there is none that can be meant.
fn read(note: &str) -> Option<(Panic, String)> {
    let told: Value = serde_json::from_str(note).ok()?;
    let switch = Panic::of(told["on"].as_bool()?, told["revert"].as_bool().unwrap_or(false));
    Some((switch, reason(told["reason"].as_str().unwrap_or_default().to_owned())))
}

/// Sets the panic switch as the leader has it, unless the own configuration holds it.
async fn adopt(context: &Context, note: &str, leader: &str) {
    let Some((switch, why)) = read(note) else { return };
    let config = context.config.now();
    let now = context.engine.state().panic();
    let is_same = now.on == switch.is_on() && (!now.on || now.revert == (switch == Panic::Revert));
    if is_same || context.readiness.panic_held(&config).is_some() {
        return;
    }
    // It is none of this one's own flag or file, which would take it back.
    let why = reason(format!("as {leader} has it: {why}"));
    warn!(leader, why, "the panic switch is set as the leader has it: {}", switch.meaning());
    let ticket = Ticket::own(context.readiness.audit(), &why, "lease");
    let change = panic::change(&now, switch, &why);
    let set = async {
        let set = context.engine.set_panic(switch, why.clone()).await;
        set.map_err(|error| (format!("{error:#}"), AuditOutcome::Failed))
    };
    let done = ticket.around_async(change, true, set).await.unwrap_or_else(|error| Err(error.told()));
    if let Err(error) = done {
        warn!(error, "the panic switch was not set as the leader has it; it is tried again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_meant_and_others_change_nothing() {
        let switch =
            |on, revert, reason: &str| PanicSwitch { on, revert, reason: reason.into(), since_usec: 7 };
        for (written, want) in [
            (switch(false, false, ""), Some((Panic::Off, ""))),
            (switch(true, false, "a \"b\""), Some((Panic::Freeze, "a \"b\""))),
            (switch(true, true, "c"), Some((Panic::Revert, "c"))),
        ] {
            let read = read(&note(&written));
            assert_eq!(read.as_ref().map(|(switch, why)| (*switch, why.as_str())), want);
        }
        for other in ["", "{}", "[]", "null", "{\"on\": 1}", "on"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn each_run_has_an_identity_of_its_own_and_the_name_of_its_host() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        assert_eq!(name_of(&one), name_of(&other));
        assert_eq!((name_of("evenkeel-recommender-0_00ff"), name_of("")), ("evenkeel-recommender-0", ""));
    }

    #[test]
    fn without_a_lease_it_leads() {
        let alone = Leading::default();
        assert!(alone.leads() && !alone.is_shared());
        assert_eq!((alone.said(), alone.refusal(), alone.trouble()), (None, None, None));
    }
}
