//! Where answers come from: this process, or over the border from the one that knows.

use evenkeel_border::ask::{Ask, DecisionFilter, Decisions, Failure};
use evenkeel_border::coded::Coded as _;
use evenkeel_border::link::{Channel, Ended, Link};
use evenkeel_model::requirements::ResourceList;
use evenkeel_proto::v1;
use futures::{Stream, StreamExt as _};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::local::{Local, amounts, of_amounts};
use super::watch::Messages;

/// Where answers come from.
#[derive(Clone)]
pub(crate) enum Answers {
    /// From here.
    Here(Local),
    /// From the other side of the border.
    There(Link),
}

impl Answers {
    pub(super) async fn status(&self) -> Result<v1::GetStatusResponse, Status> {
        match self {
            Self::Here(local) => Ok(local.status()),
            Self::There(link) => one(link, &Ask::Status).await,
        }
    }

    pub(super) async fn containers(&self) -> Result<v1::ListContainersResponse, Status> {
        match self {
            Self::Here(local) => Ok(local.containers()),
            Self::There(link) => one(link, &Ask::Containers).await,
        }
    }

    pub(super) async fn watch_usage(&self) -> Result<Messages<v1::WatchUsageResponse>, Status> {
        match self {
            Self::Here(local) => Ok(local.watch_usage()),
            Self::There(link) => many(link, &Ask::WatchUsage).await,
        }
    }

    pub(super) async fn usage(&self, at_usec: u64) -> Result<v1::GetUsageResponse, Status> {
        match self {
            Self::Here(local) => local.usage(at_usec).await,
            Self::There(link) => one(link, &Ask::Usage(at_usec)).await,
        }
    }

    pub(super) async fn watch_decisions(
        &self,
        request: v1::WatchDecisionsRequest,
    ) -> Result<Messages<v1::WatchDecisionsResponse>, Status> {
        let link = match self {
            Self::Here(local) => return local.watch_decisions(request),
            Self::There(link) => link,
        };
        let request = super::watch::check(request).map_err(Status::invalid_argument)?;
        let v1::WatchDecisionsRequest { from_seq, since_usec, kinds, pod, limit, no_follow } = request;
        many(link, &Ask::WatchDecisions(Decisions { from_seq, since_usec, kinds, pod, limit, no_follow }))
            .await
    }

    pub(super) async fn oom_kills(&self) -> Result<v1::ListOomKillsResponse, Status> {
        match self {
            Self::Here(local) => Ok(local.oom_kills()),
            Self::There(link) => one(link, &Ask::OomKills).await,
        }
    }

    pub(super) async fn evictions(&self, all: bool) -> Result<v1::ListEvictionsResponse, Status> {
        match self {
            Self::Here(local) => Ok(local.evictions(all)),
            Self::There(link) => one(link, &Ask::Evictions(all)).await,
        }
    }

    pub(super) async fn fits(&self, asked: &ResourceList) -> Result<v1::AdmitResponse, Status> {
        match self {
            Self::Here(local) => Ok(local.fits(asked)),
            Self::There(link) => one(link, &Ask::Fits(amounts(asked))).await,
        }
    }

    pub(super) async fn metrics(&self) -> Result<String, Status> {
        match self {
            Self::Here(local) => Ok(local.metrics().await),
            Self::There(link) => text(link, &Ask::Metrics).await,
        }
    }

    pub(super) async fn node_page(&self, number: u32) -> Result<String, Status> {
        match self {
            Self::Here(local) => local.node_page(number).await,
            Self::There(link) => text(link, &Ask::NodePage(number)).await,
        }
    }

    pub(super) async fn decisions_page(&self, filter: DecisionFilter) -> Result<String, Status> {
        match self {
            Self::Here(local) => local.decisions_page(filter).await,
            Self::There(link) => text(link, &Ask::DecisionsPage(filter)).await,
        }
    }

    pub(super) async fn ticked(&self) -> Result<u64, Status> {
        match self {
            Self::Here(local) => Ok(local.ticked()),
            Self::There(link) => {
                let answer = bytes(link, &Ask::Ticked).await?;
                u64::of(&answer).map_err(|error| Status::internal(error.to_string()))
            }
        }
    }
}

/// Asks over the border.
async fn asked(link: &Link, ask: &Ask) -> Result<Channel, Status> {
    let channel = link.open().await.map_err(failed)?;
    channel.send(&ask.message()).await.map_err(failed)?;
    Ok(channel)
}

async fn bytes(link: &Link, ask: &Ask) -> Result<Vec<u8>, Status> {
    asked(link, ask).await?.receive().await.map_err(failed)
}

async fn one<T: Message + Default>(link: &Link, ask: &Ask) -> Result<T, Status> {
    decoded(&bytes(link, ask).await?)
}

async fn text(link: &Link, ask: &Ask) -> Result<String, Status> {
    String::from_utf8(bytes(link, ask).await?).map_err(|error| Status::internal(error.to_string()))
}

/// Messages until the answer ends, or nobody listens any more.
async fn many<T: Message + Default + 'static>(link: &Link, ask: &Ask) -> Result<Messages<T>, Status> {
    let channel = asked(link, ask).await?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                message = channel.receive() => message,
                () = sender.closed() => return,
            };
            let message = match message {
                Ok(message) => decoded(&message),
                Err(Ended::Done) => return,
                Err(ended) => Err(failed(ended)),
            };
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    Ok(ReceiverStream::new(receiver))
}

fn decoded<T: Message + Default>(message: &[u8]) -> Result<T, Status> {
    T::decode(message).map_err(|error| Status::internal(error.to_string()))
}

/// An end of the border's words in gRPC's.
pub(crate) fn failed(ended: Ended) -> Status {
    match ended {
        Ended::Failed(Failure { code, message }) => Status::new(Code::from(i32::from(code)), message),
        Ended::Busy => Status::resource_exhausted(ended.to_string()),
        Ended::Done => Status::internal("the answer ended before it began"),
        Ended::Gone(_) => Status::unavailable(format!("the agent starts again: {ended}")),
    }
}

/// gRPC's words in those of the border.
pub(crate) fn failure(status: &Status) -> Failure {
    let code = u8::try_from(i32::from(status.code())).unwrap_or(2);
    Failure { code, message: status.message().to_owned() }
}

/// Answers what was asked over the border, on this side of it.
pub(crate) async fn answer(local: &Local, channel: Channel) {
    let asked = match channel.receive().await {
        Ok(message) => Ask::of(&message),
        Err(_) => return,
    };
    let how = match asked {
        Ok(ask) => answered(local, ask, &channel).await,
        Err(error) => Err(Status::invalid_argument(error.to_string())),
    };
    channel.end(how.map_err(|status| failure(&status))).await;
}

async fn answered(local: &Local, ask: Ask, channel: &Channel) -> Result<(), Status> {
    let answer = match ask {
        Ask::WatchUsage => return stream(local.watch_usage(), channel).await,
        Ask::WatchDecisions(Decisions { from_seq, since_usec, kinds, pod, limit, no_follow }) => {
            let asked = v1::WatchDecisionsRequest { from_seq, since_usec, kinds, pod, limit, no_follow };
            return stream(local.watch_decisions(asked)?, channel).await;
        }
        Ask::Status => local.status().encode_to_vec(),
        Ask::Containers => local.containers().encode_to_vec(),
        Ask::Usage(at_usec) => local.usage(at_usec).await?.encode_to_vec(),
        Ask::OomKills => local.oom_kills().encode_to_vec(),
        Ask::Evictions(all) => local.evictions(all).encode_to_vec(),
        Ask::Fits(asked) => local.fits(&of_amounts(asked)?).encode_to_vec(),
        Ask::Metrics => local.metrics().await.into_bytes(),
        Ask::NodePage(number) => local.node_page(number).await?.into_bytes(),
        Ask::DecisionsPage(filter) => local.decisions_page(filter).await?.into_bytes(),
        Ask::Ticked => local.ticked().message(),
    };
    channel.send(&answer).await.map_err(failed)
}

async fn stream<T: Message>(
    mut messages: impl Stream<Item = Result<T, Status>> + Unpin,
    channel: &Channel,
) -> Result<(), Status> {
    loop {
        let message = tokio::select! {
            message = messages.next() => message,
            // Whoever asked says nothing more but that it is enough.
            ended = channel.receive() => return ended.map(drop).map_err(failed),
        };
        match message {
            Some(message) => channel.send(&message?.encode_to_vec()).await.map_err(failed)?,
            None => return Ok(()),
        }
    }
}
