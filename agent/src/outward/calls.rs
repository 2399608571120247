//! The calls to recommenders, from whichever process has the network.
//!
//! A unix socket may come connected, from a part with the right to it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::order::Call;
use evenkeel_proto::bearer::Bearer;
use evenkeel_proto::line::{self, LoadedTrust, Pair};
use evenkeel_proto::v1;
use evenkeel_proto::v1::enroll_service_client::EnrollServiceClient;
use evenkeel_proto::v1::ingest_service_client::IngestServiceClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Time for a connection to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// A recommender that does not answer for so long is taken for gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same, where one answer is waited for.
const SHORT: Duration = Duration::from_secs(10);

/// Opens the stream.
///
/// # Errors
/// When the recommender cannot be reached, or refuses.
pub(crate) async fn stream(
    call: &Call,
    connected: Option<OwnedFd>,
    requests: mpsc::Receiver<v1::StreamRequest>,
) -> anyhow::Result<Streaming<v1::StreamResponse>> {
    let bearer = match call.token.as_str() {
        "" => Bearer::default(),
        token => Bearer::of(token).context("the token cannot be sent (stream.token)")?,
    };
    let endpoint = endpoint(call)?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PATIENCE / 2)
        .keep_alive_timeout(PATIENCE / 2)
        .keep_alive_while_idle(true);
    let channel = connect(call, endpoint, connected).await?;
    let mut client = IngestServiceClient::with_interceptor(channel, bearer);
    let asked = client.stream(ReceiverStream::new(requests));
    let responses = tokio::time::timeout(PATIENCE, asked).await.context("no answer to Stream")?;
    Ok(responses?.into_inner())
}

/// Asks for a certificate by a join token.
///
/// # Errors
/// When the recommender cannot be reached, or refuses.
pub(crate) async fn sign(
    call: &Call,
    connected: Option<OwnedFd>,
    request: v1::SignRequest,
) -> anyhow::Result<Option<v1::Issued>> {
    let channel = connect(call, endpoint(call)?.connect_timeout(SHORT), connected).await?;
    let answer = EnrollServiceClient::new(channel).sign(request).await;
    Ok(answer.map_err(told).context("the join token was not taken")?.into_inner().issued)
}

/// Asks for a new certificate by the present one.
///
/// # Errors
/// When the recommender cannot be reached, or refuses.
pub(crate) async fn renew(
    call: &Call,
    connected: Option<OwnedFd>,
    csr: Vec<u8>,
) -> anyhow::Result<Option<v1::Issued>> {
    let channel = connect(call, endpoint(call)?.connect_timeout(SHORT), connected).await?;
    let asked = async { EnrollServiceClient::new(channel).renew(v1::RenewRequest { csr }).await };
    let answer = tokio::time::timeout(SHORT, asked).await.context("no answer to Renew")?;
    Ok(answer.map_err(told).context("the recommender gave no new certificate")?.into_inner().issued)
}

fn endpoint(call: &Call) -> anyhow::Result<Endpoint> {
    let pair = call.pair.clone().map(|(cert, key)| Pair { cert: cert.0, key: key.0 });
    let held = LoadedTrust {
        ca: call.ca.clone().map(|ca| ca.0),
        pair,
        name: call.name.clone(),
        has_token: !call.token.is_empty(),
        insecure: call.insecure,
    };
    Ok(line::endpoint_with(&call.address, &held)?)
}

async fn connect(call: &Call, endpoint: Endpoint, connected: Option<OwnedFd>) -> anyhow::Result<Channel> {
    let channel = match connected {
        None => endpoint.connect().await,
        Some(socket) => {
            let stream = std::os::unix::net::UnixStream::from(socket);
            stream.set_nonblocking(true)?;
            // There is one connection; a second one would be another stream, which begins anew.
            let mut stream = Some(TokioIo::new(UnixStream::from_std(stream)?));
            let connector = service_fn(move |_| {
                let taken = stream.take();
                std::future::ready(
                    taken.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected)),
                )
            });
            endpoint.connect_with_connector(connector).await
        }
    };
    channel.with_context(|| format!("cannot connect to {}", call.address))
}

/// A refusal in its own words.
fn told(status: tonic::Status) -> anyhow::Error {
    let text = status.message().to_owned();
    anyhow::Error::from(status).context(text)
}
