//! `evenkeel describe`: one container of the agent, with every knob and its reason.

use clap::Args;
use evenkeel_proto::v1::ListContainersRequest;

use crate::client::{self, Address};
use crate::commands::status::Container;
use crate::failure::Failure;
use crate::output::{Answer, Output};

/// Show the containers of one pod: class, cgroup, every knob with its value and reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel describe web
  evenkeel describe shop/web app -o json")]
pub(crate) struct DescribeArgs {
    /// The pod: NAME or NAMESPACE/NAME.
    pod: String,
    /// Only this container.
    container: Option<String>,
}

pub(crate) async fn run(args: &DescribeArgs, address: &Address, output: &Output) -> Result<Answer, Failure> {
    let mut agent = client::agent(address).await?;
    let answer = agent.list_containers(ListContainersRequest {}).await.map_err(|e| address.failed(&e))?;
    let all = answer.into_inner().containers.into_iter().map(Container::from);
    let found: Vec<Container> = all.filter(|c| c.is_named(&args.pod, args.container.as_deref())).collect();
    if found.is_empty() {
        let what =
            args.container.as_ref().map_or(args.pod.clone(), |c| format!("{}, container {c}", args.pod));
        return Err(Failure::new(
            format!("the agent knows no pod {what}"),
            "its containers",
            "no source found it on this node, or it has ended",
            "see evenkeel status for those it knows",
        ));
    }
    let text = || found.iter().map(|c| c.describe(output.has_colour())).collect::<Vec<_>>().join("\n");
    output.answer_text(&found, text)?;
    Ok(Answer::Yes)
}
