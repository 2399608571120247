//! A helper process of one thread that forks the processes the measurements need: thousands that hold a place in a
//! cgroup, and single ones that set a wrong score and then do what wakes the kernel's listeners.
//!
//! It is this program started again with [`MODE`] as its argument, because only a process of one thread may fork
//! and go on freely. It is told what to do line by line on standard input and answers on standard output; when its
//! input ends, everything it forked is killed with it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::unistd::{ForkResult, Pid, execvp, fork, getpid, pause, write};

use crate::usage::monotonic;

/// The argument that makes this program the helper.
pub(crate) const MODE: &str = "nursery";

/// What a process that holds a place does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Habit {
    /// Nothing.
    Asleep,
    /// Once a second it uses some CPU time and some memory, so that every file of its cgroup changes.
    Active,
}

/// What a process does after it has set a wrong score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Becomes another program; its own score is judged.
    Exec,
    /// Forks; the child's score is judged.
    Fork,
    /// Nothing at all: the kernel tells nobody.
    Rest,
    /// It has the score already when it is moved into the cgroup.
    Move,
}

/// The helper, seen from the bench.
pub(crate) struct Nursery {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Nursery {
    /// Starts it.
    pub(crate) fn start() -> Result<Nursery> {
        let program = std::env::current_exe().context("cannot read the path of this program")?;
        let mut command = Command::new(program);
        let mut child = command
            .arg(MODE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the helper that forks")?;
        let orders = child.stdin.take().context("the helper has no input")?;
        let answers = BufReader::new(child.stdout.take().context("the helper has no output")?);
        Ok(Nursery { child, orders, answers })
    }

    /// Its process id: to be moved, so that what it forks is born where it is.
    pub(crate) fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id()).context("a process id out of range")?))
    }

    /// Forks processes that stay.
    pub(crate) fn hold(&mut self, count: u32, habit: Habit) -> Result<()> {
        let habit = match habit {
            Habit::Asleep => "asleep",
            Habit::Active => "active",
        };
        self.order(&format!("hold {habit} {count}"))?;
        self.answer("held").map(|_| ())
    }

    /// Forks a process that waits to be let go; one that is only moved has its score already.
    pub(crate) fn prepare(&mut self, deed: Deed, score: i32) -> Result<Pid> {
        let deed = match deed {
            Deed::Exec => "exec",
            Deed::Fork => "fork",
            Deed::Rest => "rest",
            Deed::Move => "move",
        };
        self.order(&format!("prepare {deed} {score}"))?;
        self.answer("ready").map(|(pid, _)| pid)
    }

    /// Lets a prepared process do its deed. Returns whose score is to be judged, and the moment before the deed.
    pub(crate) fn go(&mut self, prepared: Pid) -> Result<(Pid, Duration)> {
        kill(prepared, Signal::SIGUSR1).context("the prepared process is gone")?;
        self.answer("wrong")
    }

    fn order(&mut self, text: &str) -> Result<()> {
        writeln!(self.orders, "{text}").context("the helper that forks is gone")
    }

    /// A line `word pid nanoseconds`.
    fn answer(&mut self, word: &str) -> Result<(Pid, Duration)> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("the helper that forks does not answer")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [first, pid, time] if *first == word => {
                let time = time.parse().context("not a time")?;
                Ok((Pid::from_raw(pid.parse().context("not a process id")?), Duration::from_nanos(time)))
            }
            _ => bail!("the helper that forks failed: {}", line.trim()),
        }
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("the helper that forks is left behind: {error}");
        }
    }
}

/// The helper itself.
pub(crate) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The bench reads this line as the answer it did not expect.
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<()> {
    // Grandchildren whose parent ended come here, and the kernel reaps all of them (wait(2), "SIGCHLD").
    prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
    #[allow(unsafe_code)]
    // SAFETY: ignoring a signal installs no handler, so nothing of ours runs in signal context.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }.context("cannot ignore SIGCHLD")?;
    let go: SigSet = [Signal::SIGUSR1].into_iter().collect();
    go.thread_block().context("cannot block SIGUSR1")?;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read orders")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["hold", habit, count] => {
                for _ in 0..count.parse::<u32>().context("not a count")? {
                    begin(|| hold(*habit == "active"))?;
                }
                say("held", getpid())?;
            }
            ["prepare", deed, score] => {
                let (deed, score) = (deed.to_string(), score.to_string());
                begin(|| wait_and_do(&deed, &score, &go))?;
            }
            _ => bail!("not an order: {line}"),
        }
    }
    Ok(())
}

/// Forks a child that does something, and ends if it ever comes back.
fn begin(mut what: impl FnMut() -> Result<()>) -> Result<Pid> {
    #[allow(unsafe_code)]
    // SAFETY: this process has one thread, so the child may call whatever the parent may.
    let forked = unsafe { fork() }.context("cannot fork")?;
    let ForkResult::Parent { child } = forked else {
        let done = prctl::set_pdeathsig(Signal::SIGKILL).map_err(anyhow::Error::from).and_then(|()| what());
        if let Err(error) = done {
            println!("error: {error:#}");
        }
        std::process::exit(1);
    };
    Ok(child)
}

/// Stays for ever.
fn hold(active: bool) -> Result<()> {
    if !active {
        loop {
            pause();
        }
    }
    // Spread over the second, so that the fleet does not move in step.
    let offset = Duration::from_micros(u64::from(getpid().as_raw().unsigned_abs()) * 7919 % 1_000_000);
    std::thread::sleep(offset);
    let mut held = vec![0_u8; 0];
    let mut grow = true;
    loop {
        // More than 256 KiB, since memory is charged to a cgroup in batches of 64 pages.
        held = if grow { vec![1_u8; 320 << 10] } else { Vec::new() };
        grow = !grow;
        std::hint::black_box(&held);
        let until = Instant::now() + Duration::from_micros(30);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The life of a prepared process.
fn wait_and_do(deed: &str, score: &str, go: &SigSet) -> Result<()> {
    if deed == "move" {
        set_score(score)?;
    }
    say("ready", getpid())?;
    go.wait().context("cannot wait")?;
    set_score(score)?;
    match deed {
        "exec" => {
            say("wrong", getpid())?;
            execvp(c"sleep", &[c"sleep", c"100000"]).context("cannot run sleep")?;
        }
        "fork" => {
            let before = monotonic()?;
            begin(|| {
                say_at("wrong", getpid(), before)?;
                hold(false)
            })?;
            hold(false)?;
        }
        _ => {
            say("wrong", getpid())?;
            hold(false)?;
        }
    }
    Ok(())
}

fn set_score(score: &str) -> Result<()> {
    std::fs::write("/proc/self/oom_score_adj", score)
        .with_context(|| format!("cannot set the own oom_score_adj to {score}"))
}

fn say(word: &str, pid: Pid) -> Result<()> {
    say_at(word, pid, monotonic()?)
}

/// One write, which a pipe takes whole (pipe(7), PIPE_BUF), past the buffers a fork would copy.
fn say_at(word: &str, pid: Pid, at: Duration) -> Result<()> {
    let line = format!("{word} {pid} {}\n", at.as_nanos());
    write(std::io::stdout(), line.as_bytes()).context("cannot answer")?;
    Ok(())
}
