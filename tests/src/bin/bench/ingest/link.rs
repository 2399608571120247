//! One node's connection to the recommender: what an agent's stream client does, without an agent.

use anyhow::{Context, Result, bail};
use evenkeel_proto::bearer::Bearer;
use evenkeel_proto::line::endpoint;
use evenkeel_proto::tonic::Streaming;
use evenkeel_proto::v1::ingest_service_client::IngestServiceClient;
use evenkeel_proto::v1::{
    Frame, Frames, Hello, NodeFacts, StreamRequest, StreamResponse, stream_request, stream_response,
};
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;

use super::socket::{Counter, connect};
use crate::pair::{Line, Recommender};

/// An open stream.
pub(crate) struct Link {
    requests: Sender<StreamRequest>,
    responses: Streaming<StreamResponse>,
    credits: u64,
    acknowledged: u64,
}

impl Link {
    /// Connects and shakes hands; bytes on the socket are counted where somebody wants to know.
    pub(crate) async fn open(
        recommender: &Recommender,
        node: &str,
        epoch: u64,
        counter: Option<Counter>,
    ) -> Result<Link> {
        let (channel_, bearer) = match recommender.line() {
            Line::Socket => {
                let counted = connect(recommender.socket(), counter.unwrap_or_default()).await;
                (counted.context("cannot connect")?, Bearer::default())
            }
            Line::Address { address, trust, bearer } => {
                let channel = endpoint(address, trust)?.tcp_nodelay(true).connect().await;
                (channel.context("cannot connect")?, bearer.clone())
            }
        };
        let (requests, outgoing) = channel(1);
        let hello = Hello {
            cluster: "bench".into(),
            node: node.into(),
            boot_id: "00000000-0000-4000-8000-000000000000".into(),
            epoch,
            version: env!("CARGO_PKG_VERSION").into(),
            facts: Some(NodeFacts {
                memory_bytes: 1 << 44,
                cpu_milli: 4_096_000,
                swap_total_bytes: 0,
                page_bytes: 4096,
                ..NodeFacts::default()
            }),
            pods: None,
        };
        requests.try_send(of(stream_request::Message::Hello(hello))).context("a new channel is full")?;
        let mut client = IngestServiceClient::with_interceptor(channel_, bearer);
        let stream = client.stream(ReceiverStream::new(outgoing)).await.context("no stream")?;
        let mut link = Link { requests, responses: stream.into_inner(), credits: 0, acknowledged: 0 };
        match link.receive().await? {
            stream_response::Message::Resume(resume) => {
                link.credits = u64::from(resume.credits).max(1);
                link.acknowledged = resume.last_seq;
                Ok(link)
            }
            other => bail!("the recommender begins with {other:?}"),
        }
    }

    /// Last frame the recommender has for good.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Sends frames, each in a message of its own as an agent does every second, and awaits all acknowledgements.
    pub(crate) async fn send(&mut self, frames: &[Frame]) -> Result<()> {
        let Some(last) = frames.last().map(|frame| frame.sequence) else { return Ok(()) };
        let mut waiting = frames.iter().peekable();
        while self.acknowledged < last {
            while let Some(frame) =
                waiting.next_if(|frame| frame.sequence <= self.acknowledged + self.credits)
            {
                let frames = Frames { frames: vec![frame.clone()] };
                let sent = self.requests.send(of(stream_request::Message::Frames(frames))).await;
                sent.ok().context("the recommender ended the stream")?;
            }
            match self.receive().await? {
                stream_response::Message::Ack(ack) => self.acknowledged = ack.last_seq,
                stream_response::Message::Refused(refused) => bail!("refused: {refused:?}"),
                stream_response::Message::Resume(_) => bail!("resumed without being asked"),
                stream_response::Message::Overlay(_)
                | stream_response::Message::Ping(_)
                | stream_response::Message::Disbelieved(_)
                | stream_response::Message::Renewed(_)
                | stream_response::Message::Pods(_)
                | stream_response::Message::Leading(_) => {}
            }
        }
        Ok(())
    }

    /// Ends the stream in order.
    pub(crate) async fn close(self) -> Result<()> {
        let Link { requests, mut responses, .. } = self;
        drop(requests);
        while responses.message().await.context("the recommender ends with an error")?.is_some() {}
        Ok(())
    }

    async fn receive(&mut self) -> Result<stream_response::Message> {
        let response = self.responses.message().await.context("the recommender does not answer")?;
        response.and_then(|response| response.message).context("the recommender ended the stream")
    }
}

fn of(message: stream_request::Message) -> StreamRequest {
    StreamRequest { message: Some(message) }
}
