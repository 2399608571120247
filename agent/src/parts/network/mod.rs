//! The part that has the network: it serves the addresses, calls recommenders and asks the kubelet, by order of the enforcing part, and knows
//! nothing else.
//!
//! Owned here: its life, and taking orders. All that strangers send ends in this process: TLS, HTTP, protobuf, manifests of pods that are to
//! be admitted. Not owned: what is served ([`crate::serve`]), the calls ([`crate::outward::calls`]).

mod files;
pub(crate) mod kubelet;
mod serve;

use std::os::fd::OwnedFd;

use evenkeel_border::coded::Coded as _;
use evenkeel_border::link::{Bounds, Channel, Link};
use evenkeel_border::order::{Authority, Call, Order, Renew, Sign};
use evenkeel_border::told::{Answer, Told};
use evenkeel_proto::v1;
use prost::Message as _;
use tokio::sync::mpsc;

use super::life::{Obeys, live, not_ours};
use super::{Given, Part};
use crate::outward::calls;

/// What this part takes of the enforcing one: answers about some thousand containers to a few dozen people at once.
const BOUNDS: Bounds =
    Bounds { theirs: 64, ours: 256, message: 32 << 20, waiting: 64 << 20, packets: 0, descriptors: true };

/// Lives until the enforcing part ends.
///
/// # Errors
/// When it has no border, or cannot be confined or begin.
pub(crate) fn run(given: &Given) -> anyhow::Result<()> {
    live(Part::Network, given, BOUNDS, 4, Network)
}

struct Network;

impl Obeys for Network {
    async fn obey(
        &self,
        order: Order,
        descriptor: Option<OwnedFd>,
        link: &Link,
        channel: &Channel,
    ) -> anyhow::Result<()> {
        let answer = match order {
            Order::Serve(order) => {
                let served = serve::run(order, descriptor, link, channel).await;
                return served
                    .inspect_err(|error| tracing::error!(error = format!("{error:#}"), "nothing is served"));
            }
            Order::Stream(call) => return stream(&call, descriptor, channel).await,
            Order::Sign(Sign { call, request }) => {
                Answer(calls::sign(&call, descriptor, request).await?).message()
            }
            Order::Renew(Renew { call, csr }) => {
                Answer(calls::renew(&call, descriptor, csr.0).await?).message()
            }
            Order::Authority(Authority { host, port, sha256 }) => {
                evenkeel_net::pin::authority(&host, port, &sha256).await?
            }
            Order::Kubelet(asked) => kubelet::ask(asked).await.message(),
            Order::Alive | Order::Follow(_) | Order::Stop(_) | Order::Manifest(_) | Order::Units(_) => {
                return Err(not_ours());
            }
        };
        Ok(channel.send(&answer).await?)
    }
}

/// Hands on what both sides of a stream say, until one of them has no more to say.
async fn stream(call: &Call, descriptor: Option<OwnedFd>, channel: &Channel) -> anyhow::Result<()> {
    let (requests, receiver) = mpsc::channel(1);
    let asking = async {
        loop {
            let message = channel.receive().await?;
            if requests.send(v1::StreamRequest::decode(&*message)?).await.is_err() {
                // The other direction tells why.
                std::future::pending::<()>().await;
            }
        }
    };
    let answering = async {
        let mut responses = calls::stream(call, descriptor, receiver).await?;
        while let Some(v1::StreamResponse { message }) = responses.message().await? {
            channel.send(&Told(message).message()).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = asking => ended,
        ended = answering => ended,
    }
}
