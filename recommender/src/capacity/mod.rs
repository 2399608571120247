//! Owns questions about capacity: who may ask how much, over which cluster, and the answers kept over time.
//!
//! The answer is `evenkeel_capacity`'s. Questions run on a few threads of their own ([`pool`]), are given up when whoever
//! asked has gone or their time is over, and never change anything.

pub(crate) mod kept;
pub(crate) mod pool;
pub(crate) mod read;
pub(crate) mod reported;
pub(crate) mod watch;

use evenkeel_capacity::answer::StopReason;
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::question::{QuestionError, Recommendations, RightSizedCluster, Snapshot, Whole};

use evenkeel_model::resource_type::ResourceTypes;

use crate::api::Context;
use crate::followed::Followed;
use crate::recommend::list;
use pool::StillWanted;
use read::CapacityRequest;
use reported::Reported;

/// Why a question got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EstimateError {
    /// It cannot be answered as it is put.
    #[error(transparent)]
    Question(#[from] QuestionError),
    /// What was sent cannot be read or used.
    #[error("{0}")]
    Unreadable(String),
    /// Nobody waits for the answer any more.
    #[error("whoever asked has gone, or the time was over")]
    GivenUp,
}

/// Answers a question; `wanted` is looked at all the while.
///
/// # Errors
/// [`EstimateError`].
pub(crate) fn estimate(
    context: &Context,
    asked: CapacityRequest,
    wanted: &StillWanted,
) -> Result<Whole, EstimateError> {
    let CapacityRequest { mut question, snapshot, cluster, recommended } = asked;
    if let Some(types) = types(context) {
        let shapes = question.shapes.iter_mut().map(|shape| &mut shape.pod);
        shapes.chain(&mut question.first).for_each(|pod| pod.fill(&types));
        question.types = Some(types);
    }
    if recommended && snapshot.is_some() {
        let why = "recommended: it belongs to what agents report, not to a posted snapshot; \
                   ask evenkeel capacity --what-if recommended for that";
        return Err(EstimateError::Unreadable(why.to_owned()));
    }
    let mut notes = Vec::new();
    let wishes = recommended.then(|| recommendations(context));
    let (snapshot, changed) = match snapshot {
        Some(snapshot) => (snapshot, None),
        None => {
            let source = ClusterSource::of(context, &cluster)?;
            let changed = match &wishes {
                Some(by) => Some(RightSizedCluster { cluster: source.load(context, Some(by))?.cluster, by }),
                None => None,
            };
            notes = source.notes();
            (source.load(context, None)?, changed)
        }
    };
    let (mut whole, _) = question.answer(snapshot, changed, &mut |_| wanted.is_wanted())?;
    if whole.answer.stop == StopReason::Cancelled || !wanted.is_wanted() {
        return Err(EstimateError::GivenUp);
    }
    whole.answer.notes.extend(notes);
    Ok(whole)
}

/// Where a cluster that nobody sent is known from.
enum ClusterSource<'a> {
    /// Its API server.
    Followed(&'a Followed),
    /// Its agents.
    Reported(Reported),
}

impl<'a> ClusterSource<'a> {
    /// The API server counts before the agents, which see what runs on their nodes alone.
    fn of(context: &'a Context, cluster: &str) -> Result<Self, EstimateError> {
        match context.readiness.followed().filter(|followed| followed.is_meant(cluster)) {
            Some(followed) => Ok(Self::Followed(followed)),
            None => gather(context, cluster).map(Self::Reported).map_err(EstimateError::Unreadable),
        }
    }

    fn load(&self, context: &Context, wishes: Option<&Recommendations>) -> Result<Snapshot, EstimateError> {
        match self {
            Self::Followed(followed) => followed.snapshot(wishes).map_err(EstimateError::Unreadable),
            Self::Reported(reported) => load(context, reported, wishes),
        }
    }

    /// What an answer rests on, where that is less than it might be.
    fn notes(&self) -> Vec<String> {
        match self {
            Self::Followed(followed) => followed.notes(),
            Self::Reported(_) => Vec::new(),
        }
    }
}

/// The resource types of the configuration; nothing where it defines none.
pub(crate) fn types(context: &Context) -> Option<ResourceTypes> {
    let config = context.config.now();
    let defined = || ResourceTypes::with(&config.resources).unwrap_or_default();
    (!config.resources.is_empty()).then(defined)
}

/// What the agents of a cluster reported.
///
/// # Errors
/// When it is not clear which cluster is meant.
pub(crate) fn gather(context: &Context, cluster: &str) -> Result<Reported, String> {
    let health = context.engine.health();
    Reported::gather(&context.engine.state().study(), |node| health.is_node_connected(node), cluster)
}

fn load(
    context: &Context,
    reported: &Reported,
    wishes: Option<&Recommendations>,
) -> Result<Snapshot, EstimateError> {
    let change = |pod: &mut Pod| {
        if let Some(wishes) = wishes {
            wishes.apply(pod);
        }
    };
    let mut loader = Loader::new().changing(&change);
    reported
        .objects(&context.config.now().capacity, |object| loader.document(object))
        .map_err(|error| EstimateError::Unreadable(error.to_string()))?;
    let config = context.config.now();
    read::objects(&mut loader, &config.objects).map_err(EstimateError::Unreadable)?;
    for bound in context.advisor.limits.in_force() {
        loader.document(&bound.object).map_err(|error| EstimateError::Unreadable(error.to_string()))?;
    }
    let (cluster, report) = loader.finish();
    Ok(Snapshot { cluster, report })
}

/// The recommender's own answers.
fn recommendations(context: &Context) -> Recommendations {
    let mut all = Recommendations::new();
    for r in context.at_desk(|desk| list::all(desk, "", &[])) {
        if let Some(request) = r.request {
            all.add(r.namespace, &r.workload, r.container, r.resource, request);
        }
    }
    all
}
