//! Suite `hostile`: attacks on the recommender, in one program.

mod common;

mod hostile;
mod hostile_enroll;
mod hostile_identity;
mod hostile_kubernetes;
mod hostile_kubernetes_tls;
mod hostile_tls;
