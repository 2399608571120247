//! Suite `host`: attacks on the programs as they are shipped, by a forged node, a recommender that lies and clients of the
//! agent. Each is refused or bounded, with a reason and a counter, and the neighbours are served meanwhile.

#[path = "cases/hostile_clients.rs"]
mod clients;
#[path = "cases/hostile_forged.rs"]
mod forged;
#[path = "cases/hostile_liar.rs"]
mod liar;
#[path = "cases/hostile_names.rs"]
mod names;
#[path = "cases/hostile_quota.rs"]
mod quota;
#[path = "cases/hostile_recommender.rs"]
mod recommender;
#[path = "cases/hostile_trust.rs"]
mod trust;
