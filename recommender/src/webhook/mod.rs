//! The admission webhook as a program: its address, certificates that change, and the authority in its registration. Where it is to answer from
//! objects of the cluster, these are followed in `objects`, those of the Vertical Pod Autoscaler by the rules in `autoscalers`; what it did is told in `events`; a certificate of its own is kept by `pair`.
//!
//! Not owned: what a pod gets (`evenkeel-webhook`), and what is recommended, for which the recommender is asked.

mod autoscalers;
mod events;
mod objects;
mod pair;

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ApiServer, Pace};
use evenkeel_net::tls::Tls;
use evenkeel_proto::bearer;
use evenkeel_store::clock::WallClock;
use evenkeel_webhook::advice::Advisor;
use evenkeel_webhook::counts::Certificate;
use evenkeel_webhook::http::serve;
use evenkeel_webhook::serve::{Options, Webhook};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::config::{Config, WebhookMode, WebhookSection};
use crate::events::EventRecorder;
use crate::gates::lift_late;
use crate::serve::{stop_signal, tell_warnings, unblock_signals};
use events::AdmissionEvents;
use objects::ReplicaObjects;

/// Certificates are looked at so often, and the registration.
const LOOK: Duration = Duration::from_secs(10);
/// Who renewed its Lease within this time is at work: as long as that project's updater takes it to be.
const BESIDE: Duration = Duration::from_secs(60);
/// The recommender is asked so often whether the panic switch is on.
const ASK: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When the address or a file cannot be had.
pub fn run(config: &Config) -> anyhow::Result<()> {
    unblock_signals()?;
    tell_warnings(config);
    // Reviews have threads of their own; what is left waits, and takes turns.
    let runtime =
        tokio::runtime::Builder::new_current_thread().thread_name("webhook").enable_all().build()?;
    runtime.block_on(async {
        let stop = stop_signal()?;
        tokio::pin!(stop);
        let bound = tokio::select! {
            () = &mut stop => return Ok(()),
            bound = BoundWebhook::start(config) => bound?,
        };
        bound.serve(stop).await
    })
}

/// A webhook that can be reached, with what it rests on; nothing is done for it any more when this is dropped.
#[derive(Debug)]
pub struct BoundWebhook {
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    webhook: Arc<Webhook>,
    /// That answer reviews.
    threads: usize,
    _tasks: JoinSet<()>,
}

impl BoundWebhook {
    /// Gets address and certificate, and begins to follow what it answers from. Where the certificate is kept in a Secret, that is waited for.
    ///
    /// # Errors
    /// When the address or a file cannot be had.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        let section = &config.webhook;
        let mut keeper = RegistrationController::new(config);
        keeper.first().await;
        let listener = TcpListener::bind(section.address).await.with_context(|| {
            format!("cannot listen on {}; stop what holds it, or set webhook.address", section.address)
        })?;
        let tls = section.files().map(Tls::open).transpose().context("cannot serve TLS")?.map(Arc::new);
        let mut tasks = JoinSet::new();
        let webhook = parts(config, &mut tasks).await?;
        tasks.spawn(keeper.keep(tls.clone(), Arc::clone(&webhook)));
        Ok(Self { listener, tls, webhook, threads: config.serve.workers, _tasks: tasks })
    }

    /// The address that it is reached at.
    ///
    /// # Errors
    /// When the system does not say it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What answers.
    #[must_use]
    pub fn webhook(&self) -> &Arc<Webhook> {
        &self.webhook
    }

    /// Serves until `stop` ends.
    ///
    /// # Errors
    /// When the server fails.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        info!(address = %self.address()?, tls = self.tls.is_some(), "the webhook serves");
        Ok(serve(self.webhook, self.listener, self.tls, self.threads, stop).await?)
    }
}

/// The webhook, and the tasks that it rests on.
async fn parts(config: &Config, tasks: &mut JoinSet<()>) -> anyhow::Result<Arc<Webhook>> {
    let section = &config.webhook;
    let mut webhook = Webhook::new(options(section)?, Advisor::new(&section.recommender, section.trust()));
    if section.events {
        let api = ApiServer::at(&config.kubernetes.source()).await?;
        webhook = webhook.telling(Arc::new(AdmissionEvents(EventRecorder::start(api))));
    }
    if section.gates {
        let api = ApiServer::at(&config.kubernetes.source()).await?;
        tasks.spawn(lift_late(api, config.kubernetes.gate_deadline.get()));
    }
    if !section.objects {
        return Ok(Arc::new(webhook));
    }
    let objects = ReplicaObjects::start(config, Pace::default()).await?;
    let webhook = Arc::new(webhook.with_objects(Arc::<ReplicaObjects>::clone(&objects)));
    tasks.spawn(Arc::clone(&objects).follow());
    if let Some((namespace, name)) = section.vpa_lease().filter(|_| objects.has_autoscalers()) {
        tasks.spawn(look_beside(Arc::clone(&objects), namespace.to_owned(), name.to_owned()));
    }
    tasks.spawn(ask(objects, Arc::clone(&webhook)));
    Ok(webhook)
}

fn options(section: &WebhookSection) -> anyhow::Result<Options> {
    let token = section.metrics_token();
    let token = token
        .map(|path| bearer::read(&path).with_context(|| format!("webhook.metrics_token {}", path.display())));
    Ok(Options {
        applies: section.mode == WebhookMode::Apply,
        within: section.timeout.get(),
        gates: section.gates,
        boosts: section.startup_boost,
        exclude: section.exclude_namespaces.clone(),
        metrics_token: token.transpose()?,
    })
}

/// Looks whether the admission controller of the Vertical Pod Autoscaler is at work, by the Lease that it renews each ten seconds and that its own
/// updater goes by (`pkg/utils/status`).
async fn look_beside(objects: Arc<ReplicaObjects>, namespace: String, name: String) {
    let mut said = String::new();
    loop {
        let trouble = match objects.api().lease_renewed(&namespace, &name).await {
            Ok(renewed) => {
                let now = WallClock::system().now_usec() / 1_000_000;
                objects.vpa_admits(renewed.is_some_and(|at| is_recent(&at, now)));
                String::new()
            }
            Err(ApiError::Absent(_)) => {
                objects.vpa_admits(false);
                String::new()
            }
            Err(error) => error.to_string(),
        };
        if trouble != said && !trouble.is_empty() {
            warn!(
                trouble,
                lease = format!("{namespace}/{name}"),
                "it is not known whether the admission controller of the Vertical Pod Autoscaler is at work; pods tell it alone"
            );
        }
        said = trouble;
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether a Lease was renewed so lately that who renews it is at work; `now` is in seconds since 1970.
fn is_recent(renewed: &str, now: u64) -> bool {
    let renewed = renewed.parse::<Timestamp>().ok().and_then(|at| u64::try_from(at.as_second()).ok());
    renewed.is_some_and(|at| now.saturating_sub(at) < BESIDE.as_secs())
}

/// Asks the recommender for the panic switch, which goes over what objects say of it, and tells how it stands with the objects.
async fn ask(objects: Arc<ReplicaObjects>, webhook: Arc<Webhook>) {
    let mut said = None;
    loop {
        if let Some(is_panic) = webhook.advisor().is_panic(ASK).await {
            objects.told(is_panic);
        }
        let (count, trouble) = objects.status();
        if let Some(trouble) = trouble.as_ref().filter(|trouble| said.as_ref() != Some(*trouble)) {
            warn!(
                trouble,
                "objects of the cluster are not followed; what is known is given, else the recommender is asked"
            );
        }
        webhook.counts().objects(count, trouble.is_some());
        said = trouble;
        tokio::time::sleep(ASK).await;
    }
}

/// Keeps certificates and the registration right.
struct RegistrationController {
    config: Config,
    api: Option<ApiServer>,
    said: String,
}

impl RegistrationController {
    fn new(config: &Config) -> Self {
        Self { config: config.clone(), api: None, said: String::new() }
    }

    /// Waits until there is a pair to serve with, where this program makes its own.
    async fn first(&mut self) {
        while !self.config.webhook.secret.is_empty() {
            let kept = self.pair().await.and_then(|pair| {
                pair.write_authority(&self.config.webhook)?;
                pair.write_pair(&self.config.webhook)
            });
            self.tell(kept.as_ref().err(), "there is no certificate to serve with yet");
            if kept.is_ok() {
                return;
            }
            tokio::time::sleep(ASK).await;
        }
    }

    /// Reads certificates again where they changed, renews them where that is this program's work, and keeps the registration right.
    async fn keep(mut self, tls: Option<Arc<Tls>>, webhook: Arc<Webhook>) {
        loop {
            let kept = self.registered().await;
            self.tell(kept.as_ref().err(), "the registration's authority is not looked after");
            if let Some(tls) = tls.clone() {
                let looking = Arc::clone(&tls);
                // The disk may be slow.
                let _looked = tokio::task::spawn_blocking(move || looking.look()).await;
                let now = WallClock::system().now_usec() / 1_000_000;
                let ends = tls.expires();
                webhook.counts().certificate(Certificate {
                    ends,
                    has_ended: ends <= now,
                    trouble: tls.told(now),
                });
            }
            webhook.counts().registration(kept.is_err());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// First the authorities, then the certificate: API servers trust it when it is served.
    async fn registered(&mut self) -> anyhow::Result<()> {
        let pair = match self.config.webhook.secret.is_empty() {
            true => None,
            false => Some(self.pair().await?),
        };
        if let Some(pair) = &pair {
            pair.write_authority(&self.config.webhook)?;
        }
        if !self.config.webhook.registration.is_empty() {
            self.bundle().await?;
        }
        pair.map_or(Ok(()), |pair| pair.write_pair(&self.config.webhook))
    }

    async fn pair(&mut self) -> anyhow::Result<pair::CertificateSecret> {
        self.connect().await?;
        let api = self.api.as_ref().context("there is no API server")?;
        pair::kept(api, &self.config.webhook).await
    }

    async fn bundle(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        let section = &self.config.webhook;
        let authority = pem(&section.authority)?;
        let api = self.api.as_ref().context("there is no API server")?;
        match api.keep_bundle(&section.registration, &authority).await {
            Ok(true) => {
                info!(registration = section.registration, "the registration has the authority now in force");
            }
            // Another replica was first.
            Ok(false) | Err(ApiError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn connect(&mut self) -> anyhow::Result<()> {
        if self.api.is_none() {
            self.api = Some(ApiServer::at(&self.config.kubernetes.source()).await?);
        }
        Ok(())
    }

    /// Says once what is wrong.
    fn tell(&mut self, trouble: Option<&anyhow::Error>, what: &str) {
        let trouble = trouble.map(|error| format!("{error:#}")).unwrap_or_default();
        if trouble != self.said && !trouble.is_empty() {
            warn!(registration = self.config.webhook.registration, trouble, "{what}");
        }
        self.said = trouble;
    }
}

/// A bundle that holds a certificate: anything else would shut the webhook out.
fn pem(path: &Path) -> anyhow::Result<Vec<u8>> {
    evenkeel_net::tls::certificates(path).with_context(|| format!("webhook.authority {}", path.display()))?;
    fs::read(path).with_context(|| format!("webhook.authority {}", path.display()))
}
