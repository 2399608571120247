//! Suite `hostile`: attacks on the recommender, in one program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod common;

mod hostile;
mod hostile_enroll;
mod hostile_identity;
mod hostile_kubernetes;
mod hostile_kubernetes_tls;
mod hostile_tls;
