//! A forged node: a gRPC client that tells a recommender whatever a test wants told.

use std::future::Future;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1;
use evenkeel_proto::v1::ingest_service_client::IngestServiceClient;
use evenkeel_proto::v1::stream_request::Message as Asked;
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_tests::wait;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

const SECOND: Duration = Duration::from_secs(1);

/// An open stream of a node that does not exist.
pub(crate) struct Forged {
    requests: mpsc::Sender<v1::StreamRequest>,
    answers: Streaming<v1::StreamResponse>,
    encoder: Encoder,
    sequence: u64,
    /// When the last frame was, microseconds since 1970, and how long after it the next one is.
    pub(crate) time_usec: u64,
    pub(crate) step: Duration,
    // Dropped last: the stream lives in it.
    runtime: Runtime,
}

/// A plausible Hello of a node.
pub(crate) fn hello(node: &str, epoch: u64) -> v1::Hello {
    v1::Hello {
        cluster: "test".into(),
        node: node.into(),
        epoch,
        version: "0".into(),
        facts: Some(v1::NodeFacts { memory_bytes: 8 << 30, cpu_milli: 4000, ..v1::NodeFacts::default() }),
        ..v1::Hello::default()
    }
}

impl Forged {
    /// Connects and says Hello.
    ///
    /// # Errors
    ///
    /// Fails when nobody answers, or with the [`tonic::Status`] that refuses the Hello.
    pub(crate) fn greet(address: &str, hello: v1::Hello) -> Result<Forged> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("cannot make an async runtime")?;
        let (requests, outgoing) = mpsc::channel(64);
        let answers = within(&runtime, "the stream to open", async {
            let mut client = IngestServiceClient::connect(address.to_string()).await?;
            requests.send(v1::StreamRequest { message: Some(Asked::Hello(hello)) }).await?;
            Ok(client.stream(ReceiverStream::new(outgoing)).await?.into_inner())
        })?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        // So far back that everything measured lies in the past.
        let time_usec = u64::try_from(now.as_micros())? - 600_000_000;
        let encoder = Encoder::new();
        let mut forged = Forged { requests, answers, encoder, sequence: 0, time_usec, step: SECOND, runtime };
        forged.hear("Resume", |said| matches!(said, Said::Resume(_)))?;
        Ok(forged)
    }

    /// The frame of the next second (or step, of which a minute counts), in which the containers of these slots use a quarter of a core and 64 MiB.
    pub(crate) fn second(&mut self, slots: Range<u32>) -> Result<v1::Frame> {
        self.sequence += 1;
        self.time_usec += u64::try_from(self.step.as_micros())?;
        let interval = self.step.min(Duration::from_secs(60));
        let mut sample = Sample::new(interval);
        sample.set(Field::CpuUsageUsec, self.sequence * 250_000);
        sample.set(Field::MemoryWorkingSetBytes, 64 << 20);
        let samples: Vec<_> = slots.map(|slot| (slot, sample)).collect();
        let (interval_usec, mut bytes) = (u32::try_from(interval.as_micros())?, Vec::new());
        self.encoder.encode_seconds(false, self.time_usec, interval_usec, &samples, &mut bytes)?;
        Ok(v1::Frame {
            sequence: self.sequence,
            samples_crc32c: crc32c::crc32c(&bytes),
            samples: bytes.into(),
            ..v1::Frame::default()
        })
    }

    /// Sends frames in one message.
    pub(crate) fn send(&self, frames: Vec<v1::Frame>) -> Result<()> {
        let message = Some(Asked::Frames(v1::Frames { frames }));
        let sending = async { Ok(self.requests.send(v1::StreamRequest { message }).await?) };
        within(&self.runtime, "frames to be sent", sending)
    }

    /// Waits until everything sent is acknowledged.
    pub(crate) fn acknowledged(&mut self) -> Result<()> {
        let last = self.sequence;
        self.hear("an Ack", |said| matches!(said, Said::Ack(ack) if ack.last_seq >= last))
    }

    fn hear(&mut self, what: &str, is: impl Fn(&Said) -> bool) -> Result<()> {
        let answers = &mut self.answers;
        within(&self.runtime, what, async {
            loop {
                let answer = answers.message().await?.context("the recommender ended the stream")?;
                if answer.message.as_ref().is_some_and(&is) {
                    return Ok(());
                }
            }
        })
    }
}

/// Runs something to its end, unless that takes too long.
fn within<T>(runtime: &Runtime, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = runtime.block_on(async { tokio::time::timeout(wait::PATIENCE, work).await });
    done.with_context(|| format!("waited for {what} in vain"))?
}
