//! A recommender that lies: it takes frames like a true one, keeps account of them, and says what a test wants said.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use evenkeel_proto::frame::peek;
use evenkeel_proto::v1;
use evenkeel_proto::v1::ingest_service_server::{IngestService, IngestServiceServer};
use evenkeel_proto::v1::stream_request::Message as Asked;
use evenkeel_proto::v1::stream_response::Message as Said;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// What arrived.
#[derive(Default)]
pub(crate) struct Book {
    /// Last sequence of each epoch.
    pub(crate) epochs: BTreeMap<u64, u64>,
    /// Epoch of the last Hello.
    pub(crate) epoch: u64,
    /// Hellos heard.
    pub(crate) hellos: u64,
    /// Frames that did not follow the one before.
    pub(crate) gaps: Vec<String>,
    /// Time of each tick that had samples, and the time since the one before, microseconds.
    pub(crate) ticks: BTreeMap<u64, u32>,
    /// Why no stream is taken, while none is.
    refusal: Option<String>,
    replies: Option<Replies>,
}

type Replies = mpsc::Sender<Result<v1::StreamResponse, Status>>;

/// The recommender, gone when dropped.
pub(crate) struct Liar {
    book: Arc<Mutex<Book>>,
    address: String,
    _runtime: tokio::runtime::Runtime,
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Liar {
    /// Listens on a loopback port.
    pub(crate) fn start() -> Result<Liar> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("cannot make an async runtime")?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).context("cannot listen")?;
        let address = format!("http://{}", listener.local_addr().context("a listener without an address")?);
        let book = Arc::new(Mutex::new(Book::default()));
        let service = IngestServiceServer::new(Service { book: Arc::clone(&book) });
        let server = tonic::transport::Server::builder().add_service(service);
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(Liar { book, address, _runtime: runtime })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What it has heard.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Says something to the agent that is connected.
    pub(crate) fn say(&self, said: Said) -> Result<()> {
        let replies = self.book().replies.clone().context("nobody is connected")?;
        let answer = v1::StreamResponse { message: Some(said) };
        replies.blocking_send(Ok(answer)).context("the agent went away")
    }

    /// Ends the stream that stands and takes no other, for this reason.
    pub(crate) fn refuse(&self, why: &str) -> Result<()> {
        self.book().refusal = Some(why.to_string());
        let replies = self.book().replies.take().context("nobody is connected")?;
        replies.blocking_send(Err(Status::aborted(why))).context("the agent went away")
    }

    /// Takes streams again.
    pub(crate) fn take_again(&self) {
        self.book().refusal = None;
    }
}

struct Service {
    book: Arc<Mutex<Book>>,
}

impl Book {
    fn greet(&mut self, hello: &v1::Hello, replies: &Replies) -> Said {
        (self.epoch, self.hellos, self.replies) = (hello.epoch, self.hellos + 1, Some(replies.clone()));
        let known = self.epochs.get(&hello.epoch).copied();
        Said::Resume(v1::Resume {
            epoch: hello.epoch,
            last_seq: known.unwrap_or(0),
            credits: 64,
            knows_slots: known.is_some(),
            token_ends: 0,
            leading: None,
        })
    }

    fn take(&mut self, frame: &v1::Frame) -> Said {
        let epoch = self.epoch;
        let last = self.epochs.entry(epoch).or_default();
        if frame.sequence > *last {
            if frame.replaces_first != 0 || frame.sequence != *last + 1 {
                self.gaps.push(format!("{} after {last} of {epoch:016x}", frame.sequence));
            }
            *last = frame.sequence;
            if let Ok(header) = peek(&frame.samples)
                && header.count > 0
            {
                self.ticks.insert(header.time_usec, header.base_interval_usec);
            }
        }
        Said::Ack(v1::Ack { epoch, last_seq: *last })
    }
}

async fn serve(book: Arc<Mutex<Book>>, mut requests: Streaming<v1::StreamRequest>, replies: Replies) {
    while let Ok(Some(request)) = requests.message().await {
        let answers = match request.message {
            Some(Asked::Hello(hello)) => vec![lock(&book).greet(&hello, &replies)],
            Some(Asked::Frames(frames)) => {
                frames.frames.iter().map(|frame| lock(&book).take(frame)).collect()
            }
            Some(Asked::Pong(_) | Asked::Renewal(_)) | None => Vec::new(),
        };
        for answer in answers {
            if replies.send(Ok(v1::StreamResponse { message: Some(answer) })).await.is_err() {
                return;
            }
        }
    }
}

#[tonic::async_trait]
impl IngestService for Service {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<v1::StreamResponse, Status>> + Send>>;

    async fn stream(
        &self,
        call: Request<Streaming<v1::StreamRequest>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        if let Some(why) = &lock(&self.book).refusal {
            return Err(Status::unavailable(why));
        }
        let (replies, answers) = mpsc::channel(64);
        tokio::spawn(serve(Arc::clone(&self.book), call.into_inner(), replies));
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
