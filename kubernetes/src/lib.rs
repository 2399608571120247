//! The edge of the Kubernetes API server: who a token names, what a user may, on which node a pod runs; and the cluster's objects as they
//! change.
//!
//! Owned here: the connection, how a question is put, what an answer means, a deadline for each, and what is kept of a cluster. Not owned:
//! what follows from an answer, and how long it holds.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod bundle;
mod claims;
mod connect;
mod gates;
mod kinds;
mod kubeconfig;
pub mod lease;
pub mod objects;
mod pods;
mod review;
mod secret;
mod session;
mod updates;
mod view;
mod watch;

pub use claims::Claims;
pub use connect::{ApiServer, ApiSource, ConnectError, Silence};
pub use gates::SchedulingGate;
pub use kinds::{ApiKind, BOUNDS, KINDS};
pub use kubeconfig::{Caller, Choice, caller};
pub use pods::Placed;
pub use review::{Act, Reviewed, User};
pub use secret::Secret;
pub use session::{ListError, Session, TlsFiles};
pub use updates::{PodAt, RESIZE};
pub use view::{
    ClusterView, Failed, Live, NamespaceBounds, NodePods, PANIC, Placement, PodFailure, WorkloadGroup,
};
pub use watch::{KindStatus, Pace, WatchCounts, WatchState, Watching};
