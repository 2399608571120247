//! The part that reads what people write: it is handed manifests as their bytes, and says what they ask for.
//!
//! Owned here: its life, and taking orders. YAML and JSON of manifests end in this process, which has neither a network nor a runtime's
//! socket nor a file: whoever takes it over by a manifest can say of manifests alone what is not so, and only within what the
//! enforcing part believes of one. Not owned: what is read ([`crate::sources::manifests`]).

use evenkeel_border::coded::Coded as _;
use evenkeel_border::found::Read;
use evenkeel_border::link::{Bounds, Channel, Link};
use evenkeel_border::order::{Manifest, Order};
use evenkeel_model::resource_type::ResourceTypes;

use super::followed::crossing;
use super::life::live;
use super::{Given, Part};
use crate::config::scalar::Definitions;
use crate::serve::answers::failure;
use crate::sources::manifests::parse;

/// What this part takes of the enforcing one: a manifest, and a question whether it lives.
const BOUNDS: Bounds =
    Bounds { theirs: 16, ours: 0, message: 16 << 20, waiting: 24 << 20, packets: 0, descriptors: false };

/// Lives until the enforcing part ends.
///
/// # Errors
/// When it was not started by a starter, or cannot be confined or begin.
pub(crate) fn run(given: &Given) -> anyhow::Result<()> {
    live(Part::Reader, given, (BOUNDS, 1), taken)
}

async fn taken(_: Link, channel: Channel) {
    let Ok(message) = channel.receive().await else { return };
    let done = match Order::of(&message) {
        Ok(Order::Alive) => super::network::alive(&channel).await,
        Ok(Order::Manifest(manifest)) => match read(&manifest) {
            Ok(read) => channel.send(&read.message()).await.map_err(Into::into),
            Err(error) => Err(error),
        },
        Ok(_) => Err(anyhow::anyhow!("this is for another part to do")),
        Err(error) => Err(error.into()),
    };
    let failed = done.map_err(|error| failure(&tonic::Status::unavailable(format!("{error:#}"))));
    channel.end(failed).await;
}

fn read(manifest: &Manifest) -> anyhow::Result<Read> {
    let types = resource_types(&manifest.types)?;
    let (workloads, problems) = parse(&manifest.text.0, &manifest.place, &types);
    Ok(Read { workloads, problems: problems.into_iter().map(crossing).collect() })
}

/// Resource types from their definitions, JSON.
///
/// # Errors
/// When they are none.
pub(super) fn resource_types(definitions: &str) -> anyhow::Result<ResourceTypes> {
    use anyhow::Context as _;

    let definitions: Definitions =
        serde_json::from_str(definitions).context("definitions of resource types")?;
    ResourceTypes::with(&definitions.0).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("definitions of resource types: {}", texts.join("; "))
    })
}
