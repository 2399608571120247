//! `evenkeel version`.

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Output, YesOrNo};

/// Print the version.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel version
  evenkeel version -o json")]
pub(crate) struct VersionArgs {}

#[derive(Serialize)]
struct Version {
    name: &'static str,
    version: &'static str,
    target: String,
}

pub(crate) fn run(_: &VersionArgs, output: &Output) -> Result<YesOrNo, Failure> {
    let version = Version {
        name: "evenkeel",
        version: env!("CARGO_PKG_VERSION"),
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
    };
    output
        .answer_text(&version, || format!("{} {} ({})\n", version.name, version.version, version.target))?;
    Ok(YesOrNo::Yes)
}
