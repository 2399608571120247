//! How pods that run get the requests that are recommended to them: what is known of them in, one bounded step at a time out. Pure: no file,
//! clock, network, randomness or log.
//!
//! [`facts`] is what is known of pods and what they should request, [`note`] what a step leaves on its pod, so that whoever leads next goes on
//! from it, [`mod@plan`] which steps are taken now and why the others are not. Not owned: asking the API server, and measuring.
//!
//! A choice can be made again from its [`replay::ReplayCase`].
//!
//! What is not done is as much an answer as what is: each workload or pod that is left alone though its requests differ has a
//! [`SkippedStep`].

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod canary;
pub mod facts;
mod kept;
pub mod note;
pub mod plan;
mod pods;
pub mod replay;
mod sizes;

pub use facts::{
    EvictionOffer, Health, Now, OfferCause, Resizing, RunningContainer, RunningPod, Size, Sizes,
    TargetRequest, Two, UpdateRules, Watched, Workload,
};
pub use kept::{Remembered, UpdaterMemory};
pub use note::{Note, Stage};
pub use plan::{Plan, PlanAnswer, PlannedStep, PodAction, Reason, Room, SkippedStep, plan};
pub use replay::ReplayCase;
pub use sizes::class;
