//! Two programs as they are shipped that share a Lease, and the stream of one agent to each of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evenkeel_proto::v1;
use evenkeel_proto::v1::stream_response::Message as Said;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::apiserver::ApiServer;
use crate::common::{Agent, At, Link, http, until};

pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

/// One of the pair, killed when it goes out of sight.
pub(crate) struct Program {
    child: Child,
    config: PathBuf,
    pub(crate) at: At,
}

impl Program {
    /// Starts it in a directory of its own, and waits until it is ready.
    pub(crate) async fn start(dir: &Path, api: &ApiServer) -> Self {
        fs::create_dir_all(dir).unwrap();
        let at = At::in_directory(dir);
        let text = format!(
            "state_dir = {:?}\npolicies = []\nobjects = []\npanic_file = \"\"\n\
             [serve]\nsocket = {:?}\nlinger = \"1s\"\n[log]\nsync_interval = \"5ms\"\n[ingest]\ncount_within = \"60s\"\n\
             [recommend]\nrule = \"initial\"\nwatch_interval = \"50ms\"\n\
             [kubernetes]\nview = true\nrecommend = true\ncluster = \"test\"\nkubeconfig = {:?}\nlease = \"evenkeel/evenkeel-recommender\"\n",
            dir.join("state"),
            at.path(),
            api.kubeconfig(dir),
        );
        let config = dir.join("recommender.toml");
        fs::write(&config, text).unwrap();
        let program = Self { child: spawn(&config), config, at };
        program.ready().await;
        program
    }

    pub(crate) async fn ready(&self) {
        until(|| async { (http(self.at, "GET", "/readyz", "").await.0 == 200).then_some(()) }).await;
    }

    /// Starts it again where it was.
    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(&self.config);
        self.ready().await;
    }

    /// SIGKILL, and its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; its end is waited for apart.
    pub(crate) fn terminate(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
    }

    /// Waits for its end, which has to be a good one.
    pub(crate) async fn ended(&mut self) {
        let status = until(|| {
            let status = self.child.try_wait().unwrap();
            async move { status }
        })
        .await;
        assert!(status.success(), "{status}");
    }

    pub(crate) async fn metric(&self, name: &str) -> Option<u64> {
        let (_, text) = http(self.at, "GET", "/metrics", "").await;
        let name = format!("evenkeel_recommender_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
    }

    /// Waits until it leads, or until it follows somebody.
    pub(crate) async fn leads(&self, yes: bool) {
        until(|| async { self.metric("leads").await.filter(|leads| (*leads == 1) == yes) }).await;
        if !yes {
            until(|| async { self.metric("lease_term").await.filter(|term| *term > 0) }).await;
        }
    }

    /// What it recommends, but how old that is.
    pub(crate) async fn recommends(&self) -> Vec<Value> {
        let (status, text) = http(self.at, "GET", "/api/v1/recommendations", "").await;
        assert_eq!(status, 200, "{text}");
        let mut all: Vec<Value> = serde_json::from_str(&text).unwrap();
        for one in &mut all {
            one.as_object_mut().unwrap().retain(|key, _| !key.to_lowercase().contains("age"));
        }
        all
    }
}

fn spawn(config: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_evenkeel-recommender"))
        .arg("--config")
        .arg(config)
        .args(["--log-level", "warn"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended before.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The stream of an agent to one of them: everything it has measured, from where that one is.
pub(crate) struct Stream {
    link: Option<Link>,
    sent: u64,
    acknowledged: u64,
    /// What it was told last of who leads.
    pub(crate) leading: Option<v1::Leading>,
}

impl Stream {
    pub(crate) const fn new() -> Self {
        Self { link: None, sent: 0, acknowledged: 0, leading: None }
    }

    /// Sends what there is, and takes in what is said until it is acknowledged; connects where there is no connection.
    pub(crate) async fn go_on(&mut self, agent: &Agent, spool: &[v1::Frame], to: At) {
        if self.link.is_none() {
            self.link = agent.try_connect(to).await;
            let Some(link) = &self.link else { return };
            (self.sent, self.acknowledged) = (link.resume.last_seq, link.resume.last_seq);
            self.leading.clone_from(&link.resume.leading);
        }
        let Some(link) = &mut self.link else { return };
        let behind = usize::try_from(self.sent).unwrap();
        let frames: Vec<v1::Frame> = spool.iter().skip(behind).take(100).cloned().collect();
        if let Some(last) = frames.last().map(|frame| frame.sequence) {
            self.sent = last;
            if !link.try_send(frames).await {
                self.link = None;
                return;
            }
        }
        loop {
            // With everything acknowledged there may be something to hear all the same.
            let said = match self.acknowledged < self.sent {
                true => link.message().await,
                false => match tokio::time::timeout(Duration::from_millis(5), link.message()).await {
                    Ok(said) => said,
                    Err(_) => return,
                },
            };
            match said {
                Ok(Some(v1::StreamResponse { message: Some(Said::Ack(ack)) })) => {
                    self.acknowledged = ack.last_seq;
                }
                Ok(Some(v1::StreamResponse { message: Some(Said::Leading(leading)) })) => {
                    self.leading = Some(leading);
                }
                Ok(Some(v1::StreamResponse { message: Some(Said::Refused(refused)) })) => {
                    panic!("{refused:?}")
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    self.link = None;
                    return;
                }
            }
        }
    }

    /// Whether everything there is was acknowledged.
    pub(crate) fn has(&self, spool: &[v1::Frame]) -> bool {
        self.link.is_some() && self.acknowledged >= spool.last().map_or(0, |frame| frame.sequence)
    }
}
