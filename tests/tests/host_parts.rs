//! Suite `host`: the agent in three processes, of which one has the network and one the runtimes, and nothing else.

#[path = "cases/parts_apart.rs"]
mod apart;
#[path = "cases/parts_matrix.rs"]
mod matrix;
