//! Many nodes at once, each over a connection of its own, each at its own moment of every second, as agents are.

use std::time::{Duration, Instant};

use anyhow::Result;
use evenkeel_proto::v1::Frame;

use super::link::Link;
use crate::pair::Recommender;
use crate::run::Run;

/// Connections opened and first frames sent at the same time.
const TOGETHER: usize = 250;

/// Opens a connection for every name, with epochs from 1 on.
pub(crate) async fn open(recommender: &Recommender, names: &[String]) -> Result<Vec<Link>> {
    let mut links = Vec::with_capacity(names.len());
    for names in names.chunks(TOGETHER) {
        let first = links.len() as u64 + 1;
        let opening =
            names.iter().zip(first..).map(|(name, epoch)| Link::open(recommender, name, epoch, None));
        links.extend(futures::future::try_join_all(opening).await?);
    }
    Ok(links)
}

/// Sends every node's first frames, and awaits that all are acknowledged.
pub(crate) async fn begin(links: &mut [Link], frames: impl Fn(usize) -> Vec<Frame>) -> Result<()> {
    for (chunk, links) in links.chunks_mut(TOGETHER).enumerate() {
        let first: Vec<Vec<Frame>> = (0..links.len()).map(|node| frames(chunk * TOGETHER + node)).collect();
        let sending = links.iter_mut().zip(&first).map(|(link, frames)| link.send(frames));
        futures::future::try_join_all(sending).await?;
    }
    Ok(())
}

/// When a frame was due, and how long after it was acknowledged.
pub(crate) type Late = (Instant, Duration);

/// Sends each node's frame of each second, the nodes spread evenly over it, until `done`; when each was acknowledged.
pub(crate) async fn feed<'a>(
    run: &Run,
    links: &mut [Link],
    seconds: std::ops::Range<usize>,
    frame: impl Fn(usize, usize) -> &'a [Frame],
    done: impl Fn() -> bool,
) -> Result<Vec<Late>> {
    let (began, nodes) = (Instant::now(), links.len() as u32);
    let (frame, done) = (&frame, &done);
    let feeding = links.iter_mut().enumerate().map(|(node, link)| {
        let (phase, seconds) = (Duration::from_secs(1) * node as u32 / nodes, seconds.clone());
        async move {
            let mut late = Vec::with_capacity(seconds.len());
            for (passed, second) in seconds.enumerate() {
                let due = began + phase + Duration::from_secs(passed as u64);
                tokio::time::sleep_until(due.into()).await;
                run.check()?;
                if done() {
                    break;
                }
                link.send(frame(node, second)).await?;
                late.push((due, due.elapsed()));
            }
            anyhow::Ok(late)
        }
    });
    Ok(futures::future::try_join_all(feeding).await?.into_iter().flatten().collect())
}
