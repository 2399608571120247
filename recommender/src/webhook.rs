//! The admission webhook as a program: its address, certificates that change, and the authority in its registration.
//!
//! Not owned: what a pod gets (`evenkeel-webhook`), and what is recommended, for which the recommender is asked.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_kubernetes::ApiServer;
use evenkeel_kubernetes::objects::Refused;
use evenkeel_net::tls::Tls;
use evenkeel_proto::bearer;
use evenkeel_webhook::advice::Advisor;
use evenkeel_webhook::serve::{Options, Webhook, serve};
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::config::{Config, WebhookMode, WebhookSection};
use crate::serve::{stop_signal, tell_warnings, unblock_signals};

/// Certificates are looked at so often, and the registration.
const LOOK: Duration = Duration::from_secs(10);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When the address or a file cannot be had.
pub fn run(config: &Config) -> anyhow::Result<()> {
    unblock_signals()?;
    tell_warnings(config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.serve.workers)
        .thread_name("webhook")
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stop = stop_signal()?;
        let section = &config.webhook;
        let listener = TcpListener::bind(section.address).await.with_context(|| {
            format!("cannot listen on {}; stop what holds it, or set webhook.address", section.address)
        })?;
        let tls = section.files().map(Tls::open).transpose().context("cannot serve TLS")?.map(Arc::new);
        let webhook = Webhook::new(options(section)?, Advisor::new(&section.recommender, section.trust()));
        let (address, applies) = (listener.local_addr()?, section.mode == WebhookMode::Apply);
        info!(%address, tls = tls.is_some(), applies, recommender = section.recommender, "the webhook serves");
        let looking = tokio::spawn(look(config.clone(), tls.clone()));
        let served = serve(webhook, listener, tls, stop).await;
        looking.abort();
        Ok(served?)
    })
}

fn options(section: &WebhookSection) -> anyhow::Result<Options> {
    let token = section.metrics_token();
    let token = token
        .map(|path| bearer::read(&path).with_context(|| format!("webhook.metrics_token {}", path.display())));
    Ok(Options {
        applies: section.mode == WebhookMode::Apply,
        within: section.timeout.get(),
        exclude: section.exclude_namespaces.clone(),
        metrics_token: token.transpose()?,
    })
}

/// Reads certificates again where they changed, and keeps the registration right.
async fn look(config: Config, tls: Option<Arc<Tls>>) {
    let section = &config.webhook;
    let mut api = None;
    let mut said = String::new();
    loop {
        if let Some(tls) = tls.clone() {
            // The disk may be slow.
            let _looked = tokio::task::spawn_blocking(move || tls.look()).await;
        }
        if !section.registration.is_empty() {
            let trouble =
                keep(&config, &mut api).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
            if trouble != said && !trouble.is_empty() {
                warn!(
                    registration = section.registration,
                    trouble, "the registration's authority is not looked after"
                );
            }
            said = trouble;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn keep(config: &Config, api: &mut Option<ApiServer>) -> anyhow::Result<()> {
    let section = &config.webhook;
    let authority = pem(&section.authority)?;
    let server = match api {
        Some(server) => server,
        None => api.insert(ApiServer::at(&config.kubernetes.source()).await?),
    };
    match server.keep_bundle(&section.registration, &authority).await {
        Ok(true) => {
            info!(registration = section.registration, "the registration has the authority now in force");
        }
        // Another replica was first.
        Ok(false) | Err(Refused::Conflict(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A bundle that holds a certificate: anything else would shut the webhook out.
fn pem(path: &Path) -> anyhow::Result<Vec<u8>> {
    evenkeel_net::tls::certificates(path).with_context(|| format!("webhook.authority {}", path.display()))?;
    fs::read(path).with_context(|| format!("webhook.authority {}", path.display()))
}
