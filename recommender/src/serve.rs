//! Owns the life of the process: open, serve, drain, stop.

use std::future::Future;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_log::private;
use evenkeel_model::panic::Panic;
use evenkeel_model::shown::{Lines, LogLineFormat};
use evenkeel_net::{Connections, Reminder};
use evenkeel_proto::v1;
use evenkeel_proto::v1::audit_service_server::AuditServiceServer;
use evenkeel_proto::v1::capacity_service_server::CapacityServiceServer;
use evenkeel_proto::v1::enroll_service_server::EnrollServiceServer;
use evenkeel_proto::v1::ingest_service_server::{IngestService, IngestServiceServer};
use evenkeel_proto::v1::policy_service_server::PolicyServiceServer;
use evenkeel_proto::v1::recommender_service_server::RecommenderServiceServer;
use evenkeel_store::clock::WallClock;
use evenkeel_store::ingest::engine::Engine;
use evenkeel_store::ingest::health::Health;
use evenkeel_store::ingest::outside::Outside;
use evenkeel_store::ingest::report::tell_report;
use evenkeel_store::ingest::store::Store;
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tonic::server::NamedService;
use tonic::transport::Server;
use tracing::{info, warn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::acting::Acting;
use crate::api::Context;
use crate::api::grpc::Api;
use crate::api::http::Site;
use crate::api::ready::{Own, Readiness};
use crate::audit::{Audit, AuditOutcome, AuditedChange, Object, Recorder, Ticket};
use crate::authority::Authority;
use crate::authority::service::{Enrollment, MAX_MESSAGE};
use crate::config::{Config, KubernetesSection, LiveConfig, Sources};
use crate::events::Events;
use crate::followed::Followed;
use crate::identity::{Access, Door, Kubernetes};
use crate::ingest::service::Ingestion;
use crate::leading::Leading;
use crate::listen::{Gates, Listeners};
use crate::objects::RecommendedObjects;
use crate::policy::panic;
use crate::policy::panic_map::PanicMap;
use crate::recommend::stored::Stored;
use crate::registration::Registration;
use crate::reload::{InFiles, reload_at};
use crate::updater::Updater;

/// Silent clients are probed this often, so that a node that lost its power does not stay connected.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Writes log lines to standard error: text on a terminal, otherwise one JSON object each.
///
/// # Errors
/// When the filter cannot be read.
pub fn logging(filter: &str) -> anyhow::Result<()> {
    let filter =
        evenkeel_settings::targets(filter).map_err(|error| anyhow::anyhow!("--log-level: {error}"))?;
    let is_terminal = io::stderr().is_terminal();
    let form = if is_terminal { LogLineFormat::Text { coloured: true } } else { LogLineFormat::Json };
    let writer = move || Lines::new(io::stderr(), form);
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    if is_terminal {
        registry.with(lines).init();
    } else {
        registry.with(lines.json().flatten_event(true)).init();
    }
    Ok(())
}

/// Serves until SIGTERM or SIGINT; at SIGHUP the configuration is read from `sources` anew.
///
/// # Errors
/// When an address or the state directory cannot be had, or a server fails.
pub fn run(config: &Config, sources: &Sources) -> anyhow::Result<()> {
    unblock_signals()?;
    tell_warnings(config);
    let in_files = InFiles::read(sources);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.serve.workers)
        .thread_name("network")
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        // Before anything else is done: SIGHUP ends a process that has not asked for it.
        let hangup = signal(SignalKind::hangup())?;
        let stop = stop_signal()?;
        let recommender = Recommender::bind(config).await?;
        let record = recommender.record.subscribe();
        let reloading =
            tokio::spawn(reload_at(hangup, recommender.live.clone(), sources.clone(), in_files, record));
        let done = recommender.serve(stop).await;
        reloading.abort();
        done
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// Calls one connection may have open: a tool needs one, a dashboard a few.
const CALLS_PER_CONNECTION: u32 = 128;
/// A recommender that has its addresses and nothing else yet.
#[derive(Debug)]
pub struct Recommender {
    config: Config,
    live: LiveConfig,
    listeners: Listeners,
    authority: Option<Arc<Authority>>,
    /// It was made for this start.
    is_new_authority: bool,
    /// The audit record, once it is open.
    record: watch::Sender<Option<Arc<Audit>>>,
    clock: WallClock,
}

impl Recommender {
    /// Takes the configured socket and addresses.
    ///
    /// # Errors
    /// When one cannot be had.
    pub async fn bind(config: &Config) -> anyhow::Result<Self> {
        let clock = WallClock::system();
        let now = clock.now_usec() / 1_000_000;
        let mut is_new_authority = false;
        let authority = match config.tls.authority {
            true => {
                private::directory(&config.state_dir).context("state_dir is not used")?;
                let (dir, no_authority) =
                    (config.authority_dir(), "no certificate authority (tls.authority)");
                is_new_authority = !Authority::is_there(&dir).context(no_authority)?;
                let opened = Authority::open(&dir, config.tls.domain(), now).context(no_authority)?;
                Some(Arc::new(opened.with_node_life(config.tls.node_life.get())))
            }
            false => None,
        };
        Ok(Self {
            listeners: Listeners::bind(config, authority.as_ref(), now).await?,
            authority,
            is_new_authority,
            record: watch::Sender::new(None),
            live: LiveConfig::new(config),
            config: config.clone(),
            clock,
        })
    }

    /// The same with another clock than the machine's.
    #[must_use]
    pub fn with_clock(self, clock: WallClock) -> Self {
        Self { clock, ..self }
    }

    /// The gRPC and HTTP addresses, where it has any, with the ports that were given where port 0 was asked for.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn addresses(&self) -> io::Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        self.listeners.addresses()
    }

    /// Reads everything back, serves until `stop` ends, and leaves everything durable.
    ///
    /// # Errors
    /// When the state directory cannot be used or a server fails.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let Self { config, live, mut listeners, authority, is_new_authority, record, clock } = self;
        let at = listeners.shown();
        let kubernetes = Kubernetes::open(&config.kubernetes, clock.clone()).await;
        let kubernetes = kubernetes.context("no Kubernetes users and nodes (kubernetes.enabled)")?;
        let leading = Leading::open(&config.kubernetes).await;
        let leading = leading.context("no Lease to contend for (kubernetes.lease)")?;
        let access =
            Access::new(&config, clock.clone(), authority.clone()).with_kubernetes(kubernetes.clone());
        let access = Arc::new(access.with_leading(Arc::clone(&leading)));
        let server = listeners.server();
        let own = authority.clone().map(|authority| Own { authority, server, clock: clock.clone() });
        let audit = open_record(&config, clock.clone(), &record).await?;
        authority.iter().for_each(|authority| authority.told_to(&audit));
        if let Some(authority) = authority.as_ref().filter(|_| is_new_authority) {
            let object = Object::of_all("Authority", config.tls.domain());
            let ticket = Ticket::own(&audit, "tls.authority", "start");
            ticket.made(object, authority.summary()).await;
        }
        let (tokens, tls) = (Arc::clone(access.tokens()), listeners.tls());
        let readiness = Readiness::new(&config, tokens, Arc::clone(&audit), tls, own);
        let readiness = readiness.with_kubernetes(kubernetes).with_leading(Arc::clone(&leading));
        let readiness = Arc::new(connected(readiness, &config.kubernetes).await?);
        let stored = Arc::new(Stored::open(config.state_dir.join("recommendations")));
        let site = Site::new(Arc::clone(&readiness), Arc::clone(&stored), clock.clone());
        let (stopping, stopped) = watch::channel(false);
        let router = site.router(&config, &access);
        let gates = Gates::new(&config.serve, config.ingest.max_streams);
        // The socket's file goes when this ends.
        let (grpc, http, _file) = listeners.connections(&gates);
        let mut web = tokio::spawn(evenkeel_net::http::serve(http, router, ended(stopped.clone())));
        // Ended with this.
        let mut tasks = JoinSet::new();
        tasks.spawn(look_after(Arc::clone(&readiness), Arc::clone(&access)));
        tasks.spawn(look_at_record(Arc::clone(&audit)));
        let ingestion = LateIngestion::default();
        let serving = Arc::new(Notify::new());
        let mut rpc = tokio::spawn(rpc(
            grpc,
            Recorder(audit),
            Door(Arc::clone(&access)),
            &site,
            &ingestion,
            Enrollment::new(authority, clock.clone()),
            Arc::clone(&serving),
            &config,
            stopped.clone(),
        )?);
        info!(at, state_dir = %config.state_dir.display(), "reading back what was acknowledged");

        let to_open = config.clone();
        let (mut store, report) =
            tokio::task::spawn_blocking(move || Store::open(&to_open.store())).await??;
        if let Some(followed) = readiness.followed() {
            store.placed_by(Arc::<Followed>::clone(followed));
        }
        tell_report(&report);
        let outside = Outside::start(&config.store(), &store.state(), clock.now_usec())?;
        leading.begin(clock.clone());
        let (engine, threads) = Engine::start(store, &config.store(), clock)?;
        let health = Arc::clone(engine.health());
        health.set_engines(outside.counts());
        let context =
            Context::new(engine, &live, stored, gates, Arc::clone(&access), Arc::clone(&readiness))?;
        act(&context, &stopped, &mut tasks);
        site.open(context.clone());
        ingestion.open(Ingestion::new(
            context.engine.clone(),
            &config.ingest,
            Acting::of(&context),
            readiness.followed().cloned(),
            Arc::clone(&leading),
            Arc::clone(&context.access),
            stopped.clone(),
        ));
        serving.notify_one();
        let background = background(&context, &stopped).await?;
        readiness.replayed();
        info!(at, "ready");
        tasks.spawn(feed_watchdog(health));
        tell(&[NotifyState::Ready, NotifyState::Status(&at)]);

        let early = tokio::select! {
            () = stop => None,
            ended = &mut web => Some(ended.map_err(anyhow::Error::from).and_then(|e| Ok(e?)).context("HTTP server")),
            ended = &mut rpc => Some(ended.map_err(anyhow::Error::from).and_then(|e| Ok(e?)).context("gRPC server")),
        };
        info!("stopping");
        tell(&[NotifyState::Stopping]);
        readiness.stopping();
        // Others lead at once; who asks here is answered until it is known that this one ends.
        leading.step_down().await;
        if early.is_none() {
            tokio::time::sleep(live.now().serve.linger.get()).await;
        }
        let _nobody = stopping.send(true);
        let drained = async {
            if !web.is_finished() {
                let _ended = (&mut web).await;
            }
            if !rpc.is_finished() {
                let _ended = (&mut rpc).await;
            }
        };
        let drain = live.now().serve.drain.get();
        if tokio::time::timeout(drain, drained).await.is_err() {
            warn!("some requests did not end within serve.drain and are cut off");
        }
        tasks.abort_all();
        // The last checkpoint seals and offers; the engines are given what they take at once.
        tokio::task::spawn_blocking(move || {
            if background.join().is_err() {
                warn!("the thread that makes recommendations ended by a fault");
            }
            threads.stop();
            outside.stop(drain);
        })
        .await?;
        info!("stopped");
        early.unwrap_or(Ok(()))
    }
}

/// Opens the audit record, and hands it to who waits for it.
async fn open_record(
    config: &Config,
    clock: WallClock,
    record: &watch::Sender<Option<Arc<Audit>>>,
) -> anyhow::Result<Arc<Audit>> {
    private::directory(&config.state_dir).context("state_dir is not used")?;
    let (dir, most) = (config.audit_dir(), config.audit.max_bytes.get());
    let audit = tokio::task::spawn_blocking(move || Audit::open(&dir, most, clock)).await?;
    record.send_replace(Some(Arc::clone(&audit)));
    Ok(audit)
}

/// Connects to the API server for all that is followed, told and changed there.
async fn connected(readiness: Readiness, section: &KubernetesSection) -> anyhow::Result<Readiness> {
    let followed = Followed::open(section).await;
    let followed = followed.context("no view of the Kubernetes cluster (kubernetes.view)")?;
    let objects = RecommendedObjects::open(section).await;
    let objects = objects.context("no objects of the Kubernetes cluster (kubernetes.recommend)")?;
    let events = Events::open(section).await;
    let events = events.context("no Events to the Kubernetes cluster (kubernetes.events)")?;
    let updater = Updater::open(section).await;
    let updater = updater.context("no changes of the Kubernetes cluster's pods (kubernetes.updater)")?;
    let panic_map = PanicMap::open(section).await;
    let panic_map = panic_map.context("no ConfigMap of the panic switch (kubernetes.panic_map)")?;
    let registration = Registration::open(section).await;
    let registration = registration.context("no look at the webhook (kubernetes.registration)")?;
    let readiness = readiness.with_followed(followed).with_objects(objects).with_events(events);
    let readiness = readiness.with_updater(updater).with_panic_map(panic_map.map(Arc::new));
    Ok(readiness.with_registration(registration))
}

/// Begins to tell and change what is recommended.
fn act(context: &Context, stopped: &watch::Receiver<bool>, tasks: &mut JoinSet<()>) {
    tasks.spawn(crate::capacity::watch::run(context.clone(), stopped.clone()));
    tasks.spawn(crate::objects::run(context.clone(), stopped.clone()));
    tasks.spawn(crate::events::run(context.clone(), stopped.clone()));
    tasks.spawn(crate::updater::run(context.clone(), stopped.clone()));
    tasks.spawn(crate::starts::run(context.clone(), stopped.clone()));
    tasks.spawn(crate::gates::run(context.clone(), stopped.clone()));
    tasks.spawn(crate::leading::run(context.clone(), stopped.clone()));
    if let Some(map) = context.readiness.panic_map().cloned() {
        let stopped = stopped.clone();
        tasks.spawn(async move { map.run(stopped).await });
    }
    if let Some(registration) = context.readiness.registration().cloned() {
        tasks.spawn(registration.run(stopped.clone()));
    }
}

/// Reads tokens and certificates again where their files changed, and says each minute who was refused and each hour what
/// should not stay.
async fn look_after(readiness: Arc<Readiness>, access: Arc<Access>) {
    const LOOK: Duration = Duration::from_secs(1);
    let (mut tick, mut reminder) = (tokio::time::interval(LOOK), Reminder::default());
    loop {
        tick.tick().await;
        access.look();
        let looked = Arc::clone(&readiness);
        // The disk may be slow.
        if let Err(error) = tokio::task::spawn_blocking(move || looked.look()).await {
            warn!(%error, "the files of tokens and certificates were not looked at");
        }
        if let Some(trouble) = readiness.insecure()
            && reminder.is_due(Instant::now())
        {
            warn!(trouble, "insecure = true");
        }
    }
}

/// Takes into the audit record what commands left, and tries again what could not be written. By itself: a disk that does not
/// answer holds up nothing else.
async fn look_at_record(audit: Arc<Audit>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let looked = Arc::clone(&audit);
        if let Err(error) = tokio::task::spawn_blocking(move || looked.look()).await {
            warn!(%error, "the audit record was not looked at");
        }
    }
}

/// Ends when the process is to end.
pub(crate) async fn ended(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is the end too.
    let _gone = stopped.wait_for(|stop| *stop).await;
}

/// Ingest, which begins once history has been read back.
#[derive(Clone, Default)]
struct LateIngestion(Arc<OnceLock<Ingestion>>);

impl LateIngestion {
    fn open(&self, ingestion: Ingestion) {
        // Set once, by the one place that starts the engine.
        let _already = self.0.set(ingestion);
    }
}

#[tonic::async_trait]
impl IngestService for LateIngestion {
    type StreamStream = <Ingestion as IngestService>::StreamStream;

    async fn stream(
        &self,
        request: tonic::Request<tonic::Streaming<v1::StreamRequest>>,
    ) -> Result<tonic::Response<Self::StreamStream>, tonic::Status> {
        match self.0.get() {
            Some(ingestion) => ingestion.stream(request).await,
            None => Err(tonic::Status::unavailable("history is still being read back; connect again later")),
        }
    }
}

/// Starts what goes on besides questions: recommendations of every workload, files of policies, the switch's file.
async fn background(context: &Context, stopped: &watch::Receiver<bool>) -> anyhow::Result<JoinHandle<()>> {
    const LOOK: Duration = Duration::from_secs(1);
    const FIRST_LOOK: Duration = Duration::from_secs(5);
    /// Sets the switch where flag or file say so.
    async fn look_at_switch(context: &Context, told: &mut Option<(bool, String)>) {
        let config = context.config.now();
        let held = context.readiness.panic_held(&config);
        let now = context.engine.state().panic();
        let wanted = panic::wanted(&now, held);
        // What does not succeed at once is one change all the same.
        let is_new = wanted.is_some() && *told != wanted;
        told.clone_from(&wanted);
        let Some((on, reason)) = wanted else { return };
        let switch = Panic::of(on, false);
        warn!(on, reason, "the panic switch is set: {}", switch.meaning());
        let change = panic::change(&now, switch, &reason);
        let set = context.engine.set_panic(switch, reason.clone());
        let done = match is_new {
            true => {
                let ticket = Ticket::own(context.readiness.audit(), &reason, "configuration");
                let set = async { set.await.map_err(|error| (format!("{error:#}"), AuditOutcome::Failed)) };
                ticket.around_async(change, true, set).await.unwrap_or_else(|error| Err(error.told()))
            }
            false => {
                let done = set.await.map_err(|error| format!("{error:#}"));
                if done.is_ok() {
                    // The entry of the first try says that it failed.
                    let AuditedChange { object, after, .. } = change;
                    Ticket::own(context.readiness.audit(), &reason, "configuration")
                        .made(object, after)
                        .await;
                }
                done
            }
        };
        if let Err(error) = done {
            warn!(error, "the panic switch was not set; it is tried again");
        }
    }
    let (looking, mut stopping) = (context.clone(), stopped.clone());
    let (looked, first_look) = oneshot::channel();
    tokio::spawn(async move {
        let mut told = None;
        look_at_switch(&looking, &mut told).await;
        let _nobody_waits = looked.send(());
        loop {
            tokio::select! { () = tokio::time::sleep(LOOK) => {}, _ = stopping.changed() => return }
            look_at_switch(&looking, &mut told).await;
        }
    });
    // By itself: the switch may wait for the log.
    let (looking, mut stopping) = (context.clone(), stopped.clone());
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(LOOK);
        loop {
            tokio::select! { _ = tick.tick() => {}, _ = stopping.changed() => return }
            let at = looking.clone();
            let looked = tokio::task::spawn_blocking(move || {
                let record = Some(&**at.readiness.audit());
                at.policies.look(at.engine.now_usec() / 1000, record);
                at.advisor.limits.look(&at.config.now(), record);
                if let Some(followed) = at.readiness.followed() {
                    followed.bound(&at.advisor.limits);
                }
            });
            if let Err(error) = looked.await {
                warn!(%error, "files of policies, limit ranges and quotas were not looked at");
            }
        }
    });
    // Before anything is answered: nothing may be changed that the switch forbids. A log that cannot be written keeps nobody
    // from answers, for the switch is in force without it.
    let _looked = tokio::time::timeout(FIRST_LOOK, first_look).await;
    let (context, stopped) = (context.clone(), stopped.clone());
    let stored = Arc::clone(&context.stored);
    let thread = std::thread::Builder::new().name("recommend".to_owned());
    Ok(thread.spawn(move || stored.run(&context, || *stopped.borrow()))?)
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(evenkeel_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The descriptors know more services than this program serves.
        .with_service_name(<IngestServiceServer<LateIngestion> as NamedService>::NAME)
        .with_service_name(<RecommenderServiceServer<Api> as NamedService>::NAME)
        .with_service_name(<PolicyServiceServer<Api> as NamedService>::NAME)
        .with_service_name(<AuditServiceServer<Api> as NamedService>::NAME)
        .with_service_name(<CapacityServiceServer<Api> as NamedService>::NAME)
        .with_service_name(<EnrollServiceServer<Enrollment> as NamedService>::NAME)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection")
        .with_service_name("grpc.reflection.v1alpha.ServerReflection")
}

/// The gRPC server as a future. It serves what it can from the start, and says that it serves once everything is read
/// back.
#[expect(clippy::too_many_arguments, reason = "each is a part of the program that the server joins")]
fn rpc(
    incoming: Connections,
    recorder: Recorder,
    door: Door,
    site: &Site,
    ingestion: &LateIngestion,
    enrollment: Enrollment,
    serving: Arc<Notify>,
    config: &Config,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<impl Future<Output = Result<(), tonic::transport::Error>> + Send + use<>> {
    let (max, questions) = (config.ingest.max_message.as_usize(), config.serve.max_body.as_usize());
    let api = Api { late: site.late(), stopping: stopped.clone() };
    // Python's own client of reflection, and older tools, speak v1alpha only.
    let (reflection, earlier_reflection) = (reflection().build_v1()?, reflection().build_v1alpha()?);
    let ingestion = IngestServiceServer::new(ingestion.clone()).max_decoding_message_size(max);
    Ok(async move {
        let (reporter, health) = tonic_health::server::health_reporter();
        // It needs nothing of the history.
        reporter.set_serving::<EnrollServiceServer<Enrollment>>().await;
        reporter.set_not_serving::<IngestServiceServer<LateIngestion>>().await;
        reporter.set_not_serving::<RecommenderServiceServer<Api>>().await;
        reporter.set_not_serving::<PolicyServiceServer<Api>>().await;
        reporter.set_not_serving::<AuditServiceServer<Api>>().await;
        reporter.set_not_serving::<CapacityServiceServer<Api>>().await;
        tokio::spawn(async move {
            serving.notified().await;
            reporter.set_serving::<IngestServiceServer<LateIngestion>>().await;
            reporter.set_serving::<RecommenderServiceServer<Api>>().await;
            reporter.set_serving::<PolicyServiceServer<Api>>().await;
            reporter.set_serving::<AuditServiceServer<Api>>().await;
            reporter.set_serving::<CapacityServiceServer<Api>>().await;
        });
        Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .max_concurrent_streams(CALLS_PER_CONNECTION)
            // Around the door: who is refused a change is recorded, too.
            .layer(recorder)
            .layer(door)
            .add_service(health)
            .add_service(reflection)
            .add_service(earlier_reflection)
            .add_service(ingestion)
            .add_service(EnrollServiceServer::new(enrollment).max_decoding_message_size(MAX_MESSAGE))
            .add_service(RecommenderServiceServer::new(api.clone()).max_decoding_message_size(questions))
            .add_service(AuditServiceServer::new(api.clone()).max_decoding_message_size(MAX_MESSAGE))
            .add_service(PolicyServiceServer::new(api.clone()).max_decoding_message_size(questions))
            .add_service(
                CapacityServiceServer::new(api).max_decoding_message_size(crate::api::capacity::MAX_MESSAGE),
            )
            .serve_with_incoming_shutdown(incoming, ended(stopped))
            .await
    })
}

/// Lets the signals through that end the process or reload: a parent that blocked them has left that to its children
/// (sigprocmask(2)). Before any thread is started, since threads inherit the mask too.
pub(crate) fn unblock_signals() -> anyhow::Result<()> {
    let ours: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    ours.thread_unblock().context("cannot unblock SIGTERM, SIGINT and SIGHUP")
}

/// Logs what a person should know of the configuration.
pub(crate) fn tell_warnings(config: &Config) {
    for warning in &config.warnings {
        warn!("configuration: {warning}");
    }
}

/// Feeds systemd's watchdog, where there is one, while the ingest thread is not stuck.
async fn feed_watchdog(health: Arc<Health>) {
    let Some(within) = sd_notify::watchdog_enabled() else { return };
    let mut tick = tokio::time::interval(within / 3);
    loop {
        tick.tick().await;
        if health.is_alive(within / 2) {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// Ends on SIGTERM or SIGINT; a second one ends the process at once.
pub(crate) fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            warn!("second signal: ending at once");
            std::process::exit(1);
        });
    })
}

/// Tells systemd, where it listens.
pub(crate) fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "systemd was not told");
    }
}
