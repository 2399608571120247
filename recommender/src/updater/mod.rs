//! Owns what becomes of pods of the followed cluster that run (`kubernetes.updater`): recommendations of policies in mode `auto` are brought to
//! them in place, or by eviction where a policy lets it be.
//!
//! Each pass says what is recommended to which workload (`wishes`), asks the API server how the pods of namespaces where that differs are now
//! (`gather`, `facts`), fills in what the store measured (`measured`), lets the crate `evenkeel-updater` decide, which asks the simulator (`room`),
//! and carries its steps out (`carry`). What a step leaves behind is on its pod; what is told of it, in `told`, with all that it rests on in `cases`.
//! Only the leader makes passes.
//!
//! With `kubernetes.updater.evictions`, pods of which their agents rule that they should go (`offers`) take the same road. What kubelets say went
//! wrong, which agents may have missed, is in `failures`.

mod carry;
mod cases;
mod facts;
mod failures;
mod gather;
mod measured;
mod offers;
mod room;
pub(crate) mod told;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ApiServer, ConnectError};
use evenkeel_model::panic::Panic;
use evenkeel_updater::{Note, Now, PlannedStep, Reason, SkippedStep, Stage, UpdaterMemory, Workload, plan};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::api::Context;
use crate::config::{KubernetesSection, UpdaterMode};
use crate::events::EventRecorder;
use crate::followed::Followed;
use crate::serve::ended;
use measured::Remembered;
use offers::Offers;
use room::Simulator;
use told::UpdaterStatus;
use wishes::{Wishes, WorkloadTarget};

/// Namespaces that are looked at in one pass; the others are in the next ones.
const MOST_NAMESPACES: usize = 100;
/// A namespace where nothing could be done is looked at again after so many intervals, unless something else is recommended.
const QUIET: u32 = 10;

/// What changes pods that run.
#[derive(Debug)]
pub(crate) struct Updater {
    api: ApiServer,
    recorder: EventRecorder,
    pub(crate) told: UpdaterStatus,
    trouble: Mutex<Option<String>>,
}

impl Updater {
    /// Nothing where no pods are to be changed.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn open(section: &KubernetesSection) -> Result<Option<Arc<Self>>, ConnectError> {
        if section.updater.mode == UpdaterMode::Off {
            return Ok(None);
        }
        let api = ApiServer::at(&section.source()).await?;
        let recorder = EventRecorder::start(api.clone());
        Ok(Some(Arc::new(Self { api, recorder, told: UpdaterStatus::default(), trouble: Mutex::default() })))
    }

    /// Why pods are not changed.
    pub(crate) fn told_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn trouble(&self, trouble: Option<String>) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = trouble.as_ref().filter(|why| known.as_ref() != Some(why)) {
            warn!(why, "pods that run are not changed");
        }
        *known = trouble;
    }
}

/// What is remembered from one pass to the next.
#[derive(Debug, Default)]
struct Passes {
    kept: UpdaterMemory,
    remembered: Remembered,
    /// Namespaces with something under way.
    active: BTreeSet<String>,
    /// Namespaces that were looked at since this one leads: who led before may have left something under way in others.
    seen: BTreeSet<String>,
    /// Namespaces where nothing could be done, with what was recommended then, and when that was.
    quiet: BTreeMap<String, (BTreeMap<String, WorkloadTarget>, Instant)>,
    /// The last namespace that was looked at, where not all were.
    after: String,
    pause: Option<Instant>,
}

/// The panic switch. Who holds it holds it at once, though the state says so a moment later.
fn panic_of(context: &Context) -> Panic {
    let set = context.engine.state().panic();
    let set = Panic::of(set.on, set.revert);
    match set {
        Panic::Off if context.readiness.panic_held(&context.config.now()).is_some() => Panic::Freeze,
        set => set,
    }
}

/// Changes pods until the process ends.
pub(crate) async fn run(context: Context, stopped: watch::Receiver<bool>) {
    let (updater, followed) = match (context.readiness.updater(), context.readiness.followed()) {
        (Some(updater), Some(followed)) => (Arc::clone(updater), Arc::clone(followed)),
        _ => return,
    };
    info!(mode = ?context.config.now().kubernetes.updater.mode, "the updater begins");
    let mut passes = Passes::default();
    let looks = async {
        loop {
            tokio::time::sleep(context.config.now().kubernetes.updater.interval.get()).await;
            let leads = context.readiness.leading().leads();
            if !leads {
                // What another one does meanwhile is on the pods.
                passes = Passes::default();
            }
            let is_early = !context.readiness.answers() || context.stored.passed().0 == 0;
            if !leads || is_early || passes.pause.is_some_and(|until| Instant::now() < until) {
                continue;
            }
            if let Err(error) = pass(&updater, &followed, &context, &mut passes).await {
                updater.trouble(Some(error.to_string()));
            }
        }
    };
    tokio::select! { () = looks => {}, () = ended(stopped) => {} }
}

/// Looks at pods once, and does what is to be done.
async fn pass(
    updater: &Updater,
    followed: &Arc<Followed>,
    context: &Context,
    passes: &mut Passes,
) -> Result<(), ApiError> {
    // Before it is known which pods belong together, and what is recommended keeps within what they may have, nothing is decided.
    if followed.grouped().is_none() || !context.stored.is_bounded() {
        return Ok(());
    }
    let panic = panic_of(context);
    let config = context.config.now();
    let section = &config.kubernetes.updater;
    let seconds = context.engine.now_usec() / 1_000_000;
    let rules = section.rules();
    let (wishes, offers, mut due) = wished(context, followed, panic, seconds).await;
    updater.told.offers(offers.count());
    passes.seen.retain(|namespace| wishes.contains_key(namespace));
    due.extend(passes.active.iter().filter(|of| wishes.contains_key(*of)).cloned());
    due.extend(wishes.keys().filter(|of| !passes.seen.contains(*of)).cloned());
    let quiet = section.interval.get() * QUIET;
    passes.quiet.retain(|namespace, (then, at)| wishes.get(namespace) == Some(then) && at.elapsed() < quiet);
    due.retain(|namespace| !passes.quiet.contains_key(namespace));
    due.extend(offers.namespaces().into_iter().filter(|of| wishes.contains_key(of)));
    if panic == Panic::Revert {
        due.extend(wishes.keys().cloned());
    }
    let due = turn(due, &mut passes.after);
    // Nor before the simulator knows the cluster.
    if !due.is_empty() && followed.snapshot(None).is_err() {
        return Ok(());
    }
    let (mut all, mut set_at) = (Vec::new(), None);
    let view = followed.view();
    // While nothing is changed, nothing is asked for.
    for namespace in due.iter().filter(|_| panic != Panic::Freeze) {
        let Some(wishes) = wishes.get(namespace) else { continue };
        let gathered = gather::namespace(updater, view, namespace, wishes, &offers, seconds).await?;
        all.extend(gathered.workloads);
        set_at = set_at.max(gathered.set_at);
    }
    let is_proof_wanted =
        all.iter().any(|of| of.updates.evict != evenkeel_rightsizing::policy::update::Evict::Never);
    let admission = match is_proof_wanted {
        true => gather::admission(updater, &section.webhook, set_at, seconds).await,
        false => Err("nobody asked".to_owned()),
    };
    let now = Now { seconds, panic, admission };
    let (of, following) = (context.clone(), Arc::clone(followed));
    let (mut kept, mut remembered) =
        (std::mem::take(&mut passes.kept), std::mem::take(&mut passes.remembered));
    let decided = tokio::task::spawn_blocking(move || {
        {
            let state = of.engine.state().study();
            all.iter_mut().for_each(|one| remembered.fill(&state, following.cluster(), one, seconds));
        }
        remembered.forget_others(&all);
        let plan = plan(&all, &mut kept, &rules, &now, &mut Simulator::of(following.view()));
        (all, kept, remembered, plan, now)
    });
    let Ok((all, kept, remembered, plan, now)) = decided.await else {
        return Err(ApiError::Silent("the updater's thread ended by a fault".to_owned()));
    };
    let (actions, refusals) = (&plan.actions, &plan.refusals);
    (passes.kept, passes.remembered) = (kept, remembered);
    active(&mut passes.active, &all, &due, actions, refusals);
    if panic != Panic::Freeze {
        passes.seen.extend(due.iter().cloned());
        let nothing = due.iter().filter(|of| !passes.active.contains(*of));
        let nothing = nothing.filter_map(|of| Some((of.clone(), (wishes.get(of)?.clone(), Instant::now()))));
        passes.quiet.extend(nothing);
    }
    let there: BTreeSet<String> =
        wishes.into_keys().filter(|of| panic != Panic::Freeze && !due.contains(of)).collect();
    let new = updater.told.passed(refusals.clone(), &there, seconds.saturating_mul(1_000_000));
    updater.told.keep(&all, &plan, &new, |of| plan.case(of, &rules, &now));
    carry::say_left(updater, context, &all, &new).await;
    passes.pause = carry::out(updater, context, &all, plan.actions, &mut passes.kept).await;
    if passes.pause.is_none() {
        updater.trouble(None);
    }
    Ok(())
}

/// What is recommended, what agents offer, and the namespaces where what is recommended differs.
async fn wished(
    context: &Context,
    followed: &Arc<Followed>,
    panic: Panic,
    seconds: u64,
) -> (Wishes, Offers, BTreeSet<String>) {
    let (of, following) = (context.clone(), Arc::clone(followed));
    let made = tokio::task::spawn_blocking(move || {
        let config = of.config.now();
        let section = &config.kubernetes.updater;
        let offers = match section.evictions {
            UpdaterMode::Off => Offers::default(),
            _ if panic.is_on() => Offers::default(),
            _ => offers::offers(&of, &following, seconds, section.rules().offer_seconds),
        };
        let wishes = wishes::wishes(&of, following.cluster(), panic == Panic::Revert, &offers);
        let differing = wishes::differing(following.view(), &wishes);
        (wishes, offers, differing)
    });
    made.await.unwrap_or_default()
}

/// As many as are looked at in one pass, going on after those of the last one.
fn turn(due: BTreeSet<String>, after: &mut String) -> Vec<String> {
    if due.len() <= MOST_NAMESPACES {
        after.clear();
        return due.into_iter().collect();
    }
    let (first, rest): (Vec<String>, Vec<String>) = due.into_iter().partition(|name| *name > *after);
    let turn: Vec<String> = first.into_iter().chain(rest).take(MOST_NAMESPACES).collect();
    *after = turn.last().cloned().unwrap_or_default();
    turn
}

/// Namespaces in which something is under way, after a look at some.
fn active(
    active: &mut BTreeSet<String>,
    all: &[Workload],
    looked: &[String],
    actions: &[PlannedStep],
    refusals: &[SkippedStep],
) {
    active.retain(|namespace| !looked.contains(namespace));
    active.extend(actions.iter().map(|action| action.namespace.clone()));
    let waits = |reason| matches!(reason, Reason::UnderWay | Reason::CanaryWatched | Reason::Frozen);
    active.extend(refusals.iter().filter(|of| waits(of.reason)).map(|of| of.namespace.clone()));
    // A canary is watched though nothing else differs.
    let is_open = |note: &Note| note.stage == Stage::Asked || note.is_canary && note.stage == Stage::Done;
    let is_watched =
        |workload: &&Workload| workload.pods.iter().any(|pod| pod.note.as_ref().is_some_and(is_open));
    active.extend(all.iter().filter(is_watched).map(|workload| workload.namespace.clone()));
    active.remove("");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_namespaces_take_turns() {
        let due: BTreeSet<String> = (0..250).map(|at| format!("n{at:03}")).collect();
        let (mut after, mut seen) = (String::new(), BTreeSet::new());
        for _ in 0..3 {
            let turn = turn(due.clone(), &mut after);
            assert_eq!(turn.len(), MOST_NAMESPACES);
            seen.extend(turn);
        }
        assert_eq!(seen.len(), 250);
        let few: BTreeSet<String> = ["a".to_owned()].into();
        assert_eq!((turn(few, &mut after), after.as_str()), (vec!["a".to_owned()], ""));
    }
}
