//! `evenkeel admit`: whether a pod fits the agent's node.

use std::path::PathBuf;

use clap::Args;
use evenkeel_proto::v1::AdmitRequest;
use serde::Serialize;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::input;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table};

/// Ask whether a pod fits the node by the sum of requests; the exit status is 1 when it does not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel admit -f pod.yaml
  evenkeel admit -f - -o json < pod.json")]
pub(crate) struct AdmitArgs {
    /// The pod in YAML or JSON; - is standard input.
    #[arg(short, long = "file", value_name = "POD")]
    file: PathBuf,
}

#[derive(Serialize)]
struct Admission {
    fits: bool,
    short: Vec<Short>,
}

#[derive(Serialize)]
struct Short {
    resource: String,
    requested: String,
    free: String,
    by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

pub(crate) async fn run(args: &AdmitArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let pod = input::text(&args.file)?;
    let mut agent = client::agent(address).await?;
    let answer = agent.admit(AdmitRequest { pod }).await.map_err(|e| address.failed(&e))?.into_inner();
    let short = answer.short.into_iter();
    let admission = Admission {
        fits: answer.fits,
        short: short
            .map(|s| Short {
                resource: s.resource,
                requested: s.requested,
                free: s.free,
                by: s.by,
                why: s.why,
            })
            .collect(),
    };
    output.answer_text(&admission, || text(&admission, output.has_colour()))?;
    Ok(if admission.fits { YesOrNo::Yes } else { YesOrNo::No })
}

fn text(admission: &Admission, colour: bool) -> String {
    if admission.fits {
        return "it fits\n".to_owned();
    }
    let mut table = Table::new(&["RESOURCE", "REQUESTED", "FREE", "SHORT-BY", "WHY"]);
    for s in &admission.short {
        table.row([&s.resource, &s.requested, &s.free, &s.by, &s.why].map(|t| Cell::from(t.as_str())).into());
    }
    format!("it does not fit\n\n{}", table.render(colour))
}
