//! `evenkeel status`: what an agent does, can do and cannot.

mod form;
mod pressure;
mod text;

use clap::Args;
use evenkeel_proto::v1::GetStatusRequest;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Answer, Output};

pub(crate) use form::Container;

/// Show the state of the agent: mode, knobs, sources, stream, and every container.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel status
  evenkeel status -o json
  evenkeel status --agent http://10.0.0.5:9522 -o wide")]
pub(crate) struct StatusArgs {}

pub(crate) async fn run(_: &StatusArgs, address: &Address, output: &Output) -> Result<Answer, Failure> {
    let mut agent = client::agent(address).await?;
    let answer = agent.get_status(GetStatusRequest {}).await.map_err(|e| address.failed(&e))?;
    let status = form::Status::from(answer.into_inner());
    output.answer_text(&status, || text::status(&status, output))?;
    Ok(Answer::Yes)
}
