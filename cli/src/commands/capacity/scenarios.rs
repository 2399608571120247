//! What-if options of `evenkeel capacity`.

use std::path::{Path, PathBuf};

use clap::Args;
use evenkeel_capacity::question::{Recommendations, node_types};
use evenkeel_capacity::scenario::NodeType;

use super::read;
use crate::client::Address;
use crate::failure::Failure;

/// What-if options.
#[derive(Debug, Args)]
#[command(next_help_heading = "What if")]
pub(crate) struct WhatIf {
    /// Let ties between equally good nodes fall by this seed in an answer of its own; the count, the places
    /// and every other answer keep to the smallest name. With --trials, the first of the seeds.
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Let ties fall in so many ways and tell the smallest, middle and largest count.
    #[arg(long, value_name = "N")]
    pub(super) trials: Option<u64>,
    /// Count with displacing pods of lower priority.
    #[arg(long)]
    pub(super) preempt: bool,
    /// Lose a node (any one in turn with "node" or "any"), a node by name, or a zone with zone=Z.
    #[arg(long, value_name = "node|NAME|zone=Z|any")]
    pub(super) lose: Vec<String>,
    /// Drain this node: do its pods find another place?
    #[arg(long, value_name = "NAME")]
    pub(super) drain: Vec<String>,
    /// How many nodes to add by type, from a table with name, cpu, memory and, where known, other columns.
    #[arg(long, value_name = "TYPES.csv")]
    add: Option<PathBuf>,
    /// The pod is a daemon: does it fit on every node it belongs to, in place of the present one of its name?
    #[arg(long)]
    pub(super) daemonset: bool,
    /// How few nodes would hold what is there: a bound, and moves that were found.
    #[arg(long)]
    pub(super) compact: bool,
    /// Make room for more with at most so many moves.
    #[arg(long, value_name = "MOVES")]
    pub(super) defrag: Option<usize>,
    /// Count with recommended instead of current requests: "recommended" asks the recommender, a file holds what
    /// "evenkeel recommend -o json" printed.
    #[arg(long, value_name = "recommended|FILE")]
    what_if: Option<String>,
}

impl WhatIf {
    /// Recommended requests, where they were asked for.
    pub(super) async fn recommendations(
        &self,
        address: &Address,
    ) -> Result<Option<Recommendations>, Failure> {
        match self.what_if.as_deref() {
            None => Ok(None),
            Some("recommended") => read::ask_recommendations(address).await.map(Some),
            Some(file) => read::recommendations(Path::new(file)).map(Some),
        }
    }

    /// Whether the recommender counts with what it recommends.
    ///
    /// # Errors
    /// Where recommendations of a file were asked for, which it does not take.
    pub(super) fn is_recommended(&self) -> Result<bool, Failure> {
        match self.what_if.as_deref() {
            None => Ok(false),
            Some("recommended") => Ok(true),
            Some(file) => {
                let why = "the recommender counts with what it recommends itself";
                let remedy = "give --what-if recommended, or a cluster with --snapshot or --live";
                Err(Failure::usage("cannot count with the recommendations", file, why, remedy))
            }
        }
    }

    /// Types of nodes that could be added, where they were given.
    pub(super) fn types(&self) -> Result<Option<Vec<NodeType>>, Failure> {
        self.table()?.map(|text| node_types(&text).map_err(|why| self.wrong(why))).transpose()
    }

    /// The table of them.
    pub(super) fn table(&self) -> Result<Option<String>, Failure> {
        let text = self.add.as_ref().map(std::fs::read_to_string).transpose();
        text.map_err(|error| self.wrong(error.to_string()))
    }

    fn wrong(&self, why: String) -> Failure {
        let place = self.add.as_deref().unwrap_or(Path::new("--add")).display().to_string();
        let remedy = "give CSV with a head: name,cpu,memory,pods,price";
        Failure::new("cannot use the node types", place, why, remedy)
    }
}
