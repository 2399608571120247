//! How this agent reaches recommenders: from this process, or through the network's part.
//!
//! Owned here: which of the two, and reading what vouches for both sides. Not owned: what is said ([`crate::report`],
//! [`crate::trust`]), and the calls themselves ([`calls`]).

pub(crate) mod calls;

use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use evenkeel_border::coded::{Bytes, Coded as _};
use evenkeel_border::link::{Channel, Ended, Link};
use evenkeel_border::order::{Authority, Call, Order, Renew, Sign};
use evenkeel_border::told::{Answer, Told};
use evenkeel_enforce::shared::lock;
use evenkeel_proto::line::{LoadedTrust, Pair, Trust};
use evenkeel_proto::v1;
use prost::Message as _;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::serve::answers::failed;

/// How recommenders are reached.
#[derive(Clone, Default)]
pub(crate) enum Outward {
    /// By this process.
    #[default]
    Here,
    /// By the network's part, while there is one.
    There(Gate),
}

impl std::fmt::Debug for Outward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Here => "Here",
            Self::There(_) => "There",
        })
    }
}

/// The present border to a part that is ordered about.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<Option<Link>>>);

impl Gate {
    /// From now on this is the border; `None` while there is no such part.
    pub(crate) fn set(&self, link: Option<Link>) {
        *lock(&self.0) = link;
    }

    /// Whether there is such a part at present.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.0).is_some()
    }

    async fn ordered(&self, order: &Order, address: Option<&str>) -> anyhow::Result<Channel> {
        let link =
            lock(&self.0).clone().context("this part of the agent is not there; it is started again")?;
        // A socket of this machine is reached with this part's rights, and the connection handed on.
        let address = address.unwrap_or_default();
        let path = address.strip_prefix("unix://");
        let connected = match path {
            Some(path) => {
                let stream = UnixStream::connect(path).await;
                Some(stream.with_context(|| format!("cannot connect to {address}"))?)
            }
            None => None,
        };
        let channel = link.open().await?;
        channel.send_with(&order.message(), connected.as_ref().map(|stream| stream.as_fd())).await?;
        Ok(channel)
    }

    /// The one answer to an order.
    pub(crate) async fn answer(&self, order: &Order, address: Option<&str>) -> anyhow::Result<Vec<u8>> {
        let channel = self.ordered(order, address).await?;
        channel.receive().await.map_err(told)
    }
}

/// A refusal in its own words.
fn told(ended: Ended) -> anyhow::Error {
    match ended {
        Ended::Failed(failure) => anyhow::Error::msg(failure.message),
        other => other.into(),
    }
}

/// What a recommender says.
pub(crate) enum Responses {
    /// To this process.
    Here(Box<Streaming<v1::StreamResponse>>),
    /// To the network's part.
    There(Arc<Channel>),
}

impl Responses {
    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// The recommender's refusal, or that the connection broke.
    pub(crate) async fn message(&mut self) -> Result<Option<v1::StreamResponse>, Status> {
        let channel = match self {
            Self::Here(responses) => return responses.message().await,
            Self::There(channel) => channel,
        };
        match channel.receive().await {
            Ok(message) => {
                let Told(message) =
                    Told::of(&message).map_err(|error| Status::internal(error.to_string()))?;
                Ok(Some(v1::StreamResponse { message }))
            }
            Err(Ended::Done) => Ok(None),
            Err(ended) => Err(failed(ended)),
        }
    }
}

impl Outward {
    /// Holds a stream to a recommender.
    ///
    /// # Errors
    /// When there is none, or it refuses.
    pub(crate) async fn stream(
        &self,
        address: &str,
        trust: &Trust,
        token: &str,
        requests: mpsc::Receiver<v1::StreamRequest>,
    ) -> anyhow::Result<Responses> {
        let call = call(address, trust, token)?;
        match self {
            Self::Here => Ok(Responses::Here(Box::new(calls::stream(&call, None, requests).await?))),
            Self::There(gate) => {
                let channel = Arc::new(gate.ordered(&Order::Stream(call), Some(address)).await?);
                tokio::spawn(forward(requests, Arc::clone(&channel)));
                Ok(Responses::There(channel))
            }
        }
    }

    /// Asks for a certificate by a join token.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn sign(
        &self,
        address: &str,
        trust: &Trust,
        request: v1::SignRequest,
    ) -> anyhow::Result<Option<v1::Issued>> {
        let call = call(address, trust, "")?;
        match self {
            Self::Here => calls::sign(&call, None, request).await,
            Self::There(gate) => {
                Ok(Answer::of(&gate.answer(&Order::Sign(Sign { call, request }), Some(address)).await?)?.0)
            }
        }
    }

    /// Asks for a new certificate by the present one.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn renew(
        &self,
        address: &str,
        trust: &Trust,
        csr: Vec<u8>,
    ) -> anyhow::Result<Option<v1::Issued>> {
        let call = call(address, trust, "")?;
        match self {
            Self::Here => calls::renew(&call, None, csr).await,
            Self::There(gate) => {
                let order = Order::Renew(Renew { call, csr: Bytes(csr) });
                Ok(Answer::of(&gate.answer(&order, Some(address)).await?)?.0)
            }
        }
    }

    /// Looks for an authority by its fingerprint; DER.
    ///
    /// # Errors
    /// When it is not found.
    pub(crate) async fn authority(&self, host: &str, port: u16, sha256: &str) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Here => Ok(evenkeel_net::pin::authority(host, port, sha256).await?),
            Self::There(gate) => {
                let sha256 = sha256.to_owned();
                let order =
                    Order::Authority(Authority { host: host.to_owned(), port, sha256: sha256.clone() });
                let der = gate.answer(&order, None).await?;
                // The network's part may have been taken over: what it found is looked at here.
                let is_it = evenkeel_net::fingerprint(&der).eq_ignore_ascii_case(&sha256);
                anyhow::ensure!(
                    is_it,
                    "the network's part found another authority than that of stream.ca_sha256"
                );
                Ok(der)
            }
        }
    }
}

/// Hands on what is to be sent until nobody sends or takes any more.
async fn forward(mut requests: mpsc::Receiver<v1::StreamRequest>, channel: Arc<Channel>) {
    while let Some(request) = requests.recv().await {
        if channel.send(&request.encode_to_vec()).await.is_err() {
            return;
        }
    }
}

/// A recommender, with what the files hold that vouch for it and for this node.
fn call(address: &str, trust: &Trust, token: &str) -> anyhow::Result<Call> {
    let LoadedTrust { ca, pair, name, has_token: _, insecure } = trust.held(address)?;
    Ok(Call {
        address: address.to_owned(),
        ca: ca.map(Bytes),
        pair: pair.map(|Pair { cert, key }| (Bytes(cert), Bytes(key))),
        name,
        token: token.to_owned(),
        insecure,
    })
}
