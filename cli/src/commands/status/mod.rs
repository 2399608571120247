//! `evenkeel status`: what an agent does, can do and cannot.

mod cluster;
mod form;
mod pressure;
mod text;

use clap::Args;
use evenkeel_proto::v1::GetStatusRequest;

use crate::client::{self, Peers};
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};

pub(crate) use form::ContainerRow;

/// Show the state of the agent: mode, knobs, sources, stream, and every container.
///
/// Where the recommender answers, too, what it finds wrong, and how many pods its updater leaves alone, by reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel status
  evenkeel status -o json
  evenkeel status --agent http://10.0.0.5:9522 -o wide")]
pub(crate) struct StatusArgs {}

pub(crate) async fn run(_: &StatusArgs, peers: &Peers<'_>, output: &Output) -> Result<YesOrNo, Failure> {
    let address = peers.agent;
    let asked = async {
        let mut agent = client::agent(address).await?;
        agent.get_status(GetStatusRequest {}).await.map_err(|e| address.failed(&e))
    };
    let (answer, recommender) = tokio::join!(asked, cluster::asked(peers.recommender));
    let mut status = form::AgentStatus::from(answer?.into_inner());
    status.recommender = recommender;
    output.answer_text(&status, || text::status(&status, output))?;
    Ok(YesOrNo::Yes)
}
