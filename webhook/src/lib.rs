//! The admission webhook: what containers request when their pod is made.
//!
//! Owned here: the review as the API server sends it ([`review`]), what is read of the pod in it ([`object`]), what of the pod is set by whoever
//! made it ([`pod`]), the change ([`change`]) and its operations ([`patch`]), advice and what is kept of it ([`advice`]), the gate of a pod of which nothing is known ([`gate`]), what puts these together ([`serve`]), and the server ([`http`]). Not owned: rules, policies,
//! limit ranges and quotas, which the recommender asked knows.
//!
//! ```text
//! AdmissionReview -> pod::Question -> advice (kept, or asked of the recommender) -> change -> JSON patch
//! ```
//!
//! A pod is never refused and never held up: whatever fails, and whatever takes too long, lets it through as it is.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod advice;
pub mod change;
pub mod counts;
pub mod gate;
pub mod http;
pub mod object;
pub mod patch;
pub mod pod;
pub mod review;
pub mod serve;

/// The resources that are set, in the order in which amounts of both stand: thousandths of a core, bytes.
pub const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Amounts of CPU (thousandths of a core) and of memory (bytes).
pub type Amounts = [Option<u64>; 2];
