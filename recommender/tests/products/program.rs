//! The recommender as it is shipped, beside engines.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_recommender::config::{EngineKind, EngineSection};

use super::PATIENCE;

/// The program as it is shipped, with engines in its configuration; killed when it goes out of sight.
pub(crate) struct Program {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Program {
    /// `read` gives back, `write` takes.
    pub(crate) fn start(dir: &Path, read: &[EngineSection], write: &[EngineSection]) -> Self {
        let (socket, log) = (dir.join("r.sock"), dir.join("log.txt"));
        let mut config = format!("policies = []\n[serve]\nsocket = {socket:?}\n");
        for (section, reads) in read.iter().map(|s| (s, true)).chain(write.iter().map(|s| (s, false))) {
            let kind = match section.kind {
                EngineKind::Prometheus => "prometheus",
                EngineKind::Influxdb => "influxdb",
            };
            let url = &section.url;
            config += &format!(
                "[[history.engines]]\nkind = \"{kind}\"\nurl = \"{url}\"\nread = {reads}\nwrite = {}\n",
                !reads
            );
        }
        std::fs::write(dir.join("config.toml"), config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_evenkeel-recommender"))
            .arg("--config")
            .arg(dir.join("config.toml"))
            .arg("--state-dir")
            .arg(dir.join("state"))
            .stderr(std::fs::File::create(&log).unwrap())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, socket, log }
    }

    /// Body of an answer; empty while nobody answers.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut text = String::new();
        let asked = UnixStream::connect(&self.socket).and_then(|mut stream| {
            write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
            stream.read_to_string(&mut text)
        });
        text.split_once("\r\n\r\n")
            .filter(|_| asked.is_ok())
            .map_or(String::new(), |(_, body)| body.to_owned())
    }

    /// The log lines with this message.
    pub(crate) fn told(&self, message: &str) -> Vec<serde_json::Value> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    pub(crate) fn wait(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is(self) {
            let log = std::fs::read_to_string(&self.log).unwrap();
            assert!(self.child.try_wait().unwrap().is_none() && Instant::now() < deadline, "{what}: {log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops it in order: everything is in its files, and in the engines, when it has ended.
    pub(crate) fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Samples of memory that `usage` tells of each workload.
    pub(crate) fn usage(&self) -> BTreeMap<String, u64> {
        let all: serde_json::Value = serde_json::from_str(&self.get("/api/v1/usage")).unwrap();
        let of = |record: &serde_json::Value| {
            let count = record["usage"]["memory"]["count"].as_u64()?;
            Some((record["workload"].as_str()?.to_owned(), count))
        };
        all.as_array().unwrap().iter().filter_map(of).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
