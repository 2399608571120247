//! Objects that ask for recommendations, and what is written into them.
//!
//! Owned here: which objects are followed and which of them are meant for this recommender ([`Autoscaler::is_for`]), what their status says,
//! the controllers they name ([`Resolved`]), and the requests that write. Not owned: what is recommended, and when something is written.

mod ask;
mod autoscaler;
mod checkpoint;
mod condition;
mod event;
mod following;
mod kept;
mod meta;
mod status;
mod target;

pub use ask::ApiError;
pub(crate) use ask::{collection, place};
pub use autoscaler::{Autoscaler, ContainerPolicy, NAME, ResourcePolicy, Spec, TargetRef};
pub use checkpoint::{CHECKPOINTS, Checkpoint, CheckpointHistogram, CheckpointStatus};
pub use condition::PodCondition;
pub use event::ObjectEvent;
pub use following::{AUTOSCALERS, Asking, KINDS, OWN};
pub use kept::{Key, ObjectCache};
pub use meta::Meta;
pub use status::{
    Amounts, FROZEN, FROZEN_NAMESPACE, OWN_CONDITIONS, ObjectPods, Recommended, is_alike, is_same, patch,
    stamped, status,
};
pub use target::{Resolved, Targets};
