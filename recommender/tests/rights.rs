//! The program as it is shipped: what it may do, where it keeps its state, how it takes a changed configuration, and
//! pipes that close.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Patience with a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_evenkeel-recommender"))
}

/// The program, killed when it goes out of sight.
struct Running {
    child: Child,
    config: PathBuf,
    log: PathBuf,
    base: String,
}

impl Running {
    fn start(dir: &Path) -> Self {
        let base = format!("[serve]\nsocket = {:?}\n", dir.join("r.sock"));
        let (config, log) = (dir.join("config.toml"), dir.join("log"));
        fs::write(&config, format!("policies = []\n{base}")).unwrap();
        let child = program()
            .arg("--config")
            .arg(&config)
            .arg("--state-dir")
            .arg(dir.join("state"))
            .stderr(File::create(&log).unwrap())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut running = Self { child, config, log, base };
        running.await_log("\"ready\"", 0);
        running
    }

    fn told(&self, what: &str) -> usize {
        fs::read_to_string(&self.log).unwrap().matches(what).count()
    }

    fn await_log(&mut self, what: &str, before: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.told(what) <= before {
            let log = fs::read_to_string(&self.log).unwrap();
            let alive = self.child.try_wait().unwrap().is_none();
            assert!(alive && Instant::now() < deadline, "waiting for {what}: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn reload(&mut self, text: &str, said: &str) {
        let before = self.told(said);
        fs::write(&self.config, text).unwrap();
        kill(self.pid(), Signal::SIGHUP).unwrap();
        self.await_log(said, before);
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn sighup_reloads_what_it_can_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path());
    let base = running.base.clone();
    running.reload(&format!("panic = true\npolicies = []\n{base}"), "the new configuration is in force");
    running.await_log("the panic switch is set", 0);
    let more = format!("policies = []\n{base}workers = 3\n");
    running.reload(&more, "\"restart\":\"serve.workers\"");
    running.reload(&format!("policies = []\n{base}workres = 3\n"), "the configuration is wrong");
    assert!(running.told("workres") > 0);
    kill(running.pid(), Signal::SIGTERM).unwrap();
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn it_gains_no_rights_and_keeps_its_state_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path());
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let mut left = vec![dir.path().join("state")];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        assert_eq!(meta.mode() & 0o077, 0, "others may use {}: {:o}", path.display(), meta.mode());
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    drop(running);
    fs::set_permissions(dir.path().join("state"), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = program()
        .arg("--state-dir")
        .arg(dir.path().join("state"))
        .args(["--config", "/dev/null", "--socket"])
        .arg(dir.path().join("r.sock"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("chmod"), "{said}");
}

#[test]
fn a_pipe_that_closes_is_no_fault() {
    for arguments in [&["config", "default"][..], &["config", "schema"], &["--help"]] {
        let mut child =
            program().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() && said.is_empty(), "{arguments:?}: {status}: {said}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("tokens.toml");
    let asked = |words: &[&str], out: Stdio| {
        let ended = program().args(words).stdout(out).stderr(Stdio::piped()).output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let place = file.to_str().unwrap();
    for (name, out) in [("a", full()), ("b", closed())] {
        let (code, told) = asked(&["token", "add", name, "--role", "view", "--file", place], out);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains(&format!("token remove {name} --file {place}")), "{told}");
        assert!(fs::read_to_string(&file).unwrap().contains(&format!("name = \"{name}\"")));
    }
    let list = ["token", "list", "--file", place];
    assert_eq!(asked(&list, full()).0, Some(1));
    // Whoever closes a pipe has read what it wanted.
    assert_eq!(asked(&list, closed()).0, Some(0));
    assert_eq!(asked(&["token", "remove", "a", "--file", place], Stdio::null()).0, Some(0));
}
