//! A recommender that comes back to a whole cluster: 5,000 nodes connect at once, over TLS.

use std::time::{Duration, Instant};

use anyhow::Result;
use evenkeel_proto::frame::synth::Load;

use super::link::Link;
use super::replay::Recording;
use super::{VARIANTS, crowd, node_name, pin, pinned, processors};
use crate::figure::{Figure, Target};
use crate::pair::{Carrier, Place, Recommender};
use crate::run::Run;

const NODES: usize = 5000;
const CONTAINERS: u32 = 20;
/// Frames of a node before the storm, and those it has kept when the storm begins.
const BEFORE: usize = 2;
const KEPT: usize = 5;
/// An agent's first pause before it tries again, and its longest.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(8);

/// Gives the time until the last node streams again.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let (place, processors) = (Place::new()?, processors()?);
    let start = || Recommender::start_over(&place, Carrier::Tls);
    pinned(start, |recommender, apart| measure(run, &place, recommender, processors, apart))
}

fn measure(
    run: &Run,
    place: &Place,
    recommender: Recommender,
    (first, last): (usize, usize),
    apart: bool,
) -> Result<Vec<Figure>> {
    let make = |seed: usize| Recording::make_until_now(seed as u64, CONTAINERS, Load::Busy, BEFORE + KEPT);
    let recordings: Vec<Recording> = (0..VARIANTS).map(make).collect::<Result<_>>()?;
    let names: Vec<String> = (0..NODES).map(node_name).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        run.say(&format!("connecting {NODES} nodes"));
        let mut links = crowd::open(&recommender, &names).await?;
        let first = |node: usize| {
            let recording = &recordings[node % VARIANTS];
            let mut frames = vec![recording.first_of_node(&names[node])];
            frames.extend_from_slice(recording.frames(1..BEFORE));
            frames
        };
        crowd::begin(&mut links, first).await?;
        drop(links);
        anyhow::Ok(())
    })?;
    recommender.kill()?;
    run.say("starting the recommender again, and all nodes at once");
    // On a processor of its own, as before.
    pin(last)?;
    let again = Recommender::start_over(place, Carrier::Tls);
    pin(first)?;
    let again = again?;
    let began = Instant::now();
    let mut took: Vec<Duration> = runtime.block_on(async {
        let returning = names.iter().enumerate().map(|(node, name)| {
            let frames = recordings[node % VARIANTS].frames(BEFORE..BEFORE + KEPT);
            let again = &again;
            async move {
                let mut pause = PAUSE;
                loop {
                    run.check()?;
                    let opened = Link::open(again, name, node as u64 + 1, None).await;
                    let sent = match opened {
                        Ok(mut link) => link.send(frames).await.map(|()| link),
                        Err(error) => Err(error),
                    };
                    match sent {
                        Ok(link) => return anyhow::Ok((began.elapsed(), link)),
                        // As agents do.
                        Err(_) => tokio::time::sleep(pause).await,
                    }
                    pause = (pause * 2).min(LONGEST);
                }
            }
        });
        let back = futures::future::try_join_all(returning).await?;
        anyhow::Ok(back.into_iter().map(|(took, _)| took).collect())
    })?;
    took.sort_unstable();
    let at = |part: usize| took[(NODES * part / 100).min(NODES - 1)].as_secs_f64();
    let what = format!(
        "time from the start of a storm until the last of {NODES} nodes, each with a TLS connection of its own, is \
         acknowledged {KEPT} frames of {CONTAINERS} containers it had kept, by a recommender that was killed and started \
         again {}; half of the nodes after {:.1} s, 99 % after {:.1} s",
        if apart {
            "on one processor, with the nodes on another"
        } else {
            "on this machine's only processor"
        },
        at(50),
        at(99),
    );
    drop(runtime);
    again.stop()?;
    Ok(vec![Figure::new("ingest/storm-5000", at(100), "s", Target::AtMost(60.0)).what(what)])
}
