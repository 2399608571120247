//! Owns where seconds come from: the agent's stream, the recommender's, or the agent's ring.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_proto::tonic::Streaming;
use evenkeel_proto::v1::recommender_service_watch_usage_response::Event as OfAll;
use evenkeel_proto::v1::watch_usage_response::Event;
use evenkeel_proto::v1::{
    ContainerUsage, GetUsageRequest, RecommenderServiceWatchUsageRequest,
    RecommenderServiceWatchUsageResponse, WatchUsageRequest, WatchUsageResponse,
};

use super::frame::Frame;
use crate::client::{self, Address};
use crate::failure::Failure;

/// Containers of all nodes are shown once in so long: each node has a second of its own.
const EVERY: Duration = Duration::from_secs(1);
/// One that was not heard of for so long has ended, or its node is away.
const SILENT: Duration = Duration::from_secs(10);
/// Containers of all nodes that are followed; more are left out.
const MOST: usize = 100_000;

/// Who is asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum TickSource<'a> {
    /// The agent of a node.
    Node(&'a Address),
    /// The recommender.
    Cluster(&'a Address),
}

/// Seconds as they come.
pub(super) struct Ticks<'a> {
    source: TickSource<'a>,
    stream: TickStream,
}

enum TickStream {
    Node(Box<Streaming<WatchUsageResponse>>),
    Cluster(Box<ClusterStream>),
}

/// The last second of every container of all nodes.
struct ClusterStream {
    stream: Streaming<RecommenderServiceWatchUsageResponse>,
    last: BTreeMap<(String, String, String), (Instant, ContainerUsage)>,
    next: Instant,
}

/// The second at or before a moment that the agent keeps.
///
/// # Errors
/// When it keeps none, or does not answer.
pub(super) async fn past(address: &Address, at_usec: u64) -> Result<Frame, Failure> {
    let mut agent = client::agent(address).await?;
    let answer = agent.get_usage(GetUsageRequest { at_usec }).await.map_err(|e| address.failed(&e))?;
    Ok(Frame::new(answer.into_inner().tick.unwrap_or_default().containers, false))
}

impl<'a> Ticks<'a> {
    /// Begins to follow.
    ///
    /// # Errors
    /// When nobody answers.
    pub(super) async fn open(source: TickSource<'a>) -> Result<Self, Failure> {
        let stream = match source {
            TickSource::Node(address) => {
                let mut agent = client::agent(address).await?;
                let stream = agent.watch_usage(WatchUsageRequest {}).await.map_err(|e| address.failed(&e))?;
                TickStream::Node(Box::new(stream.into_inner()))
            }
            TickSource::Cluster(address) => {
                let mut recommender = client::recommender(address).await?;
                let request = RecommenderServiceWatchUsageRequest::default();
                let stream = recommender.watch_usage(request).await.map_err(|e| address.failed(&e))?;
                let (last, next) = (BTreeMap::new(), Instant::now() + EVERY);
                TickStream::Cluster(Box::new(ClusterStream { stream: stream.into_inner(), last, next }))
            }
        };
        Ok(Self { source, stream })
    }

    pub(super) const fn address(&self) -> &'a Address {
        match self.source {
            TickSource::Node(address) | TickSource::Cluster(address) => address,
        }
    }

    /// What to say when the stream ended.
    pub(super) fn ended(&self) -> Failure {
        self.address().silent("it ended the stream")
    }

    /// The next second; `None` at the end of the stream. It may be asked for again where it was not waited for.
    ///
    /// # Errors
    /// When the stream fails.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, Failure> {
        let address = self.address();
        match &mut self.stream {
            TickStream::Node(stream) => {
                while let Some(message) = stream.message().await.map_err(|e| address.failed(&e))? {
                    match message.event {
                        Some(Event::Tick(tick)) => return Ok(Some(Frame::new(tick.containers, false))),
                        // What a slow reader missed is gone; the next tick is whole.
                        Some(Event::MissedTicks(_) | Event::Bookmark(_)) | None => {}
                    }
                }
                Ok(None)
            }
            TickStream::Cluster(cluster) => cluster.next().await.map_err(|e| address.failed(&e)),
        }
    }
}

impl ClusterStream {
    async fn next(&mut self) -> Result<Option<Frame>, evenkeel_proto::tonic::Status> {
        loop {
            let message = tokio::time::timeout_at(self.next.into(), self.stream.message()).await;
            match message {
                Ok(message) => match message? {
                    None => return Ok(None),
                    Some(message) => {
                        if let Some(OfAll::Usage(usage)) = message.event {
                            self.take(usage);
                        }
                    }
                },
                Err(_) => {
                    self.next = Instant::now() + EVERY;
                    self.last.retain(|_, (heard, _)| heard.elapsed() < SILENT);
                    let containers = self.last.values().map(|(_, usage)| usage.clone()).collect();
                    return Ok(Some(Frame::new(containers, true)));
                }
            }
        }
    }

    fn take(&mut self, usage: ContainerUsage) {
        let id = usage.identity.as_ref().map_or("", |identity| identity.id.as_str()).to_owned();
        let key = (usage.cluster.clone(), usage.node.clone(), id);
        if self.last.contains_key(&key) || self.last.len() < MOST {
            self.last.insert(key, (Instant::now(), usage));
        }
    }
}
