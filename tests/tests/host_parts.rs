//! Suite `host`: the agent in three processes, of which one has the network and one the runtimes, and nothing else.

#[path = "cases/parts_apart.rs"]
mod apart;
#[path = "cases/parts_hostile.rs"]
mod hostile;
#[path = "cases/parts_matrix.rs"]
mod matrix;

#[test]
fn each_part_may_what_it_needs_and_nothing_else() -> anyhow::Result<()> {
    matrix::each_part_may_what_it_needs_and_nothing_else()
}
