//! Owns the interfaces: gRPC, HTTP, metrics, and the forms of their answers. What is answered is made in `recommend`.

pub(crate) mod answers;
pub(crate) mod audit;
pub(crate) mod capacity;
pub(crate) mod convert;
mod deadline;
pub(crate) mod grpc;
pub mod http;
pub(crate) mod metrics;
pub(crate) mod policies;
pub(crate) mod ready;
mod series;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use evenkeel_model::pod::Pod;
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_store::clock::WallClock;
use evenkeel_store::ingest::engine::Engine;
use evenkeel_store::state::StoreState;

use self::ready::Readiness;
use crate::allocated::Latest;
use crate::capacity::pool::Pool;
use crate::capacity::watch::Watched;
use crate::config::LiveConfig;
use crate::identity::Access;
use crate::listen::Gates;
use crate::policy::{Policies, Set};
use crate::recommend::Desk;
use crate::recommend::advice::{Advisor, largest_node};
use crate::recommend::pod::{self, PodAdvice};
use crate::recommend::rules::{self, Chosen};
use crate::recommend::stored::{Stored, StoredRecommendations};
use crate::turns::{StillWanted, Turns};

/// What every interface needs.
#[derive(Debug, Clone)]
pub struct Context {
    /// The ingest threads and the state.
    pub engine: Engine,
    /// The configuration in force.
    pub config: LiveConfig,
    /// What makes answers.
    pub advisor: Arc<Advisor>,
    /// The policies.
    pub policies: Arc<Policies>,
    /// The recommendations kept of every workload.
    pub stored: Arc<Stored>,
    /// Threads for questions about capacity.
    pub(crate) capacity: Pool,
    /// Answers to watched questions.
    pub(crate) watched: Watched,
    /// What is allocated, as it was last summed up.
    pub(crate) allocated: Latest,
    /// How many questions are worked on at once.
    pub(crate) work: Work,
    /// Who is let in.
    pub(crate) gates: Gates,
    /// Who asks.
    pub(crate) access: Arc<Access>,
    /// How the process does.
    pub(crate) readiness: Arc<Readiness>,
    /// Whether the question this is asked for is still wanted.
    wanted: StillWanted,
}

/// How many questions are worked on at once, by kind.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    /// Questions that walk over the state; they wait for each other anyway.
    pub(crate) questions: Turns,
    /// Large texts of others, which take a hundred times their length of memory while they are read.
    pub(crate) texts: Turns,
    /// Watches, each of which remembers all that it told; they have places alone, and take no turns.
    pub(crate) watches: Turns,
    /// Requests refused because their text is too large or cannot be read.
    pub(crate) refused_texts: Arc<AtomicU64>,
}

impl Work {
    /// A text was refused.
    pub(crate) fn refuse_text(&self) {
        self.refused_texts.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for Work {
    fn default() -> Self {
        Self {
            questions: Turns::new(8, 256),
            // With texts of serve.max_body, 2 MiB, waiting ones take 32 MiB.
            texts: Turns::new(2, 16),
            watches: Turns::new(1, 100),
            refused_texts: Arc::default(),
        }
    }
}

impl Context {
    /// Of a started engine.
    ///
    /// # Errors
    /// When rule, predefined values or stored policies cannot be used, or the threads for questions cannot be had.
    pub(crate) fn new(
        engine: Engine,
        live: &LiveConfig,
        stored: Arc<Stored>,
        gates: Gates,
        access: Arc<Access>,
        readiness: Arc<Readiness>,
    ) -> anyhow::Result<Self> {
        let config = live.now();
        // The configuration was checked: wrong definitions are told there.
        let types = ResourceTypes::with(&config.resources).unwrap_or_default();
        let advisor = Arc::new(Advisor::new(&config.recommend)?.in_steps(&types));
        advisor.limits.look(&config, None);
        let policies = Arc::new(Policies::open(live, engine.now_usec() / 1000)?);
        advisor.limits.apply(|| policies.bounds());
        let capacity = Pool::start(config.capacity.workers, config.capacity.queue)
            .context("cannot start the threads for questions")?;
        let answers = config.watched_file();
        let unread = || format!("cannot read the answers to watched questions, {}", answers.display());
        let watched = Watched::open(answers.clone()).with_context(unread)?;
        let (work, wanted, allocated) = Default::default();
        let config = live.clone();
        let context = Self {
            engine,
            config,
            advisor,
            policies,
            stored,
            capacity,
            watched,
            allocated,
            work,
            gates,
            access,
            readiness,
            wanted,
        };
        Ok(context)
    }

    /// Whether the answer is still wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.is_wanted()
    }

    /// The same for one question.
    pub(crate) fn asked_by(&self, wanted: &StillWanted) -> Self {
        Self { wanted: wanted.clone(), ..self.clone() }
    }

    /// Answers a question about recommendations from the present state. May take its time.
    pub(crate) fn at_desk<T>(&self, question: impl FnOnce(&Desk<'_>) -> T) -> T {
        let set = self.policies.set();
        question(&self.desk(&set, &self.stored.kept(), &self.engine.state().study()))
    }

    fn desk<'a>(
        &'a self,
        policies: &'a Set,
        before: &'a StoredRecommendations,
        state: &'a StoreState,
    ) -> Desk<'a> {
        let largest = largest_node(state);
        let (advisor, wanted) = (&self.advisor, &self.wanted);
        let now_usec = self.engine.now_usec();
        Desk { advisor, policies, before, state, now_usec, largest, frozen: false, wanted }
    }

    /// Whether a namespace of the followed cluster says that nothing of it is to be changed, or it is not known yet whether it does.
    pub(crate) fn freezes(&self, namespace: &str) -> bool {
        self.readiness.followed().is_some_and(|followed| followed.freezes(namespace))
    }

    /// Whether nothing of a namespace is to be changed: the panic switch is on, or the namespace says so.
    pub(crate) fn is_frozen(&self, namespace: &str) -> bool {
        self.engine.state().is_panic() || self.freezes(namespace)
    }

    /// Whether a cluster of this name is followed.
    pub(crate) fn is_followed(&self, cluster: &str) -> bool {
        self.readiness.followed().is_some_and(|followed| followed.cluster() == cluster)
    }

    /// Whether it is known how much pods of the followed cluster may have.
    pub(crate) fn knows_bounds(&self) -> bool {
        self.readiness.followed().is_none_or(|followed| followed.knows_bounds())
    }

    /// Whether a pod that is made now gets what it asks for: its namespace is frozen, or may allow less than would be set, and the API server
    /// would refuse the pod. Every pod that is made names an image; who asks about one that does not reads the switch off the answer.
    fn is_held(&self, pod: &Pod) -> bool {
        let is_made = || pod.counted_containers().any(|container| container.image.is_some());
        self.is_frozen(&pod.metadata.namespace) || is_made() && !self.knows_bounds()
    }

    /// Answers for a pod of which nothing is to be changed or not, and notes how long that took.
    pub(crate) fn recommend_pod(&self, pod: &Pod, rules: &[Chosen], frozen: bool) -> PodAdvice {
        let began = std::time::Instant::now();
        let (set, kept) = (self.policies.set(), self.stored.kept());
        // One pod's answer takes less than a millisecond: nobody need wait for it at the gate, nor it for others.
        let state = self.engine.state().read();
        let advice = pod::advise_pod(&Desk { frozen, ..self.desk(&set, &kept, &state) }, pod, rules);
        drop(state);
        self.advisor.times.observe(began.elapsed());
        advice
    }

    /// The rules of these names; `*` stands for all.
    ///
    /// # Errors
    /// The name that is none, for people.
    pub(crate) fn rules(&self, names: &[String]) -> Result<Vec<Chosen>, String> {
        let config = self.config.now();
        let one =
            |name: &str| rules::choose(name, &Default::default(), &Default::default(), &config.recommend);
        if names.iter().any(|name| name == "*") {
            return rules::NAMES.iter().map(|name| one(name)).collect();
        }
        names.iter().map(|name| one(name)).collect()
    }
}

/// The context once there is one: history is read back while the interfaces are served already.
#[derive(Debug, Clone)]
pub(crate) struct Late {
    pub(crate) context: Arc<OnceLock<Context>>,
    /// What was kept of the run before.
    pub(crate) stored: Arc<Stored>,
    /// The machine's clock.
    pub(crate) clock: WallClock,
}
