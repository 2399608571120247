//! Running a program whose output is an item.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{PATIENCE, Taken, read};

/// Runs a command to its end, or ends it.
pub(super) fn command(program: &Path, args: &[String]) -> Taken {
    let started = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(why) => return Taken::none(format!("cannot run {}: {why}", program.display())),
    };
    // Both are read at once, so that neither pipe is full; beyond the bound the rest is passed over.
    let out = child.stdout.take().map(|out| thread::spawn(move || drained(out)));
    let err = child.stderr.take().map(|err| thread::spawn(move || drained(err)));
    let status = ended(&mut child);
    let text =
        |reader: Option<thread::JoinHandle<String>>| reader.and_then(|r| r.join().ok()).unwrap_or_default();
    let (out, err) = (text(out), text(err));
    let trouble = match status {
        Err(why) => Some(why),
        Ok(status) if !status.success() => Some(format!("{status}: {}", err.trim())),
        Ok(_) => None,
    };
    Taken { text: out, trouble }
}

pub(super) fn drained(mut from: impl Read) -> String {
    let text = read(&mut from).unwrap_or_default();
    // A pipe that nobody reads would stop the program behind it.
    let _rest = std::io::copy(&mut from, &mut std::io::sink());
    text
}

pub(super) fn ended(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begun.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                // It may have ended just now.
                let _ended = child.kill();
                let _reaped = child.wait();
                return Err(format!("no answer within {} s", PATIENCE.as_secs()));
            }
            Err(why) => return Err(why.to_string()),
        }
    }
}
