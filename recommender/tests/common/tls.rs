//! An agent's side of an encrypted stream.

use std::net::SocketAddr;

use evenkeel_proto::line::{Trust, endpoint};
use evenkeel_proto::v1;
use evenkeel_proto::v1::ingest_service_client::IngestServiceClient;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// A connection; `Unavailable` where hands are not shaken.
pub(crate) async fn channel(at: SocketAddr, trust: &Trust) -> Result<Channel, Status> {
    let unreached = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
    let endpoint = endpoint(&format!("https://{at}"), trust).map_err(|e| unreached(&e))?;
    endpoint.connect().await.map_err(|e| unreached(&e))
}

/// A stream on which Hello was said as a node, and answered.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) requests: mpsc::Sender<v1::StreamRequest>,
    pub(crate) answers: Streaming<v1::StreamResponse>,
}

/// Says Hello as a node of cluster `test`; the stream, or how it was refused.
pub(crate) async fn hello(at: SocketAddr, trust: &Trust, name: &str) -> Result<Greeted, Status> {
    let mut client = IngestServiceClient::new(channel(at, trust).await?);
    let hello = v1::Hello { cluster: "test".into(), node: name.into(), epoch: 7, ..v1::Hello::default() };
    let request = v1::StreamRequest { message: Some(v1::stream_request::Message::Hello(hello)) };
    let (requests, receiver) = mpsc::channel(1);
    requests.send(request).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut answers = client.stream(stream).await?.into_inner();
    answers.message().await?.ok_or_else(|| Status::unknown("the stream ended"))?;
    Ok(Greeted { requests, answers })
}

impl Greeted {
    /// How the stream ends, if nothing more is said.
    pub(crate) async fn end(mut self) -> Status {
        loop {
            match self.answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok("the stream ended"),
                Err(status) => return status,
            }
        }
    }
}
