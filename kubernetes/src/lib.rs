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
pub use connect::{ApiServer, ConnectError, Silence, Source};
pub use gates::Gate;
pub use kinds::{BOUNDS, KINDS, Kind};
pub use kubeconfig::{Caller, Choice, caller};
pub use pods::Placed;
pub use review::{Act, Reviewed, User};
pub use secret::Secret;
pub use session::{ListError, Session, TlsFiles};
pub use updates::{PodAt, RESIZE};
pub use view::{Bounds, Failed, Failure, Group, Live, NodePods, PANIC, Placement, View};
pub use watch::{Counts, KindStatus, Pace, State, Watching};
