//! The edge of the Kubernetes API server: who a token names, what a user may, and on which node a pod runs.
//!
//! Owned here: the connection, how a question is put, what an answer means, and a deadline for each. Not owned: what follows
//! from an answer, and how long it holds.

mod claims;
mod connect;
mod pods;
mod review;

pub use claims::Claims;
pub use connect::{ApiServer, ConnectError, Silence, Source};
pub use pods::Placed;
pub use review::{Act, Reviewed, User};
