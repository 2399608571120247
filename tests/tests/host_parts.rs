//! Suite `host`: the agent in two processes, one of which has the network and nothing else.

#[path = "cases/parts_apart.rs"]
mod apart;
#[path = "cases/parts_matrix.rs"]
mod matrix;
