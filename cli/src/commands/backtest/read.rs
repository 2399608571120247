//! Reads a trace from a file, gzipped or not, and says on a terminal how far it is.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::trace::{TraceReader, TraceSeries};
use flate2::read::MultiGzDecoder;

use crate::failure::Failure;
use crate::input;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// A gzip member begins with these (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// All series of a trace.
///
/// # Errors
/// When it cannot be read, or a line is no sample; the line is named.
pub(super) fn trace(
    path: &Path,
    resource: Resource,
    progress: &mut Progress,
) -> Result<Vec<TraceSeries>, Failure> {
    let name = input::name(path);
    let failed = |error: &io::Error| {
        Failure::new(
            "cannot read the trace",
            &name,
            error.to_string(),
            "give a readable CSV file, gzipped or not",
        )
    };
    let mut file: Box<dyn Read> = if name == "standard input" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|error| failed(&error))?)
    };
    let mut head = [0; 2];
    let mut length = 0;
    while length < head.len() {
        match file.read(&mut head[length..]).map_err(|error| failed(&error))? {
            0 => break,
            count => length += count,
        }
    }
    let whole = head[..length].chain(file);
    if head[..length] == GZIP {
        feed(MultiGzDecoder::new(whole), &name, resource, progress)
    } else {
        feed(whole, &name, resource, progress)
    }
}

fn feed(
    mut from: impl Read,
    name: &str,
    resource: Resource,
    progress: &mut Progress,
) -> Result<Vec<TraceSeries>, Failure> {
    let mut reader = TraceReader::new(resource);
    let mut chunk = vec![0; CHUNK];
    let mut total = 0;
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let remedy = "give a readable CSV file, gzipped or not";
                return Err(Failure::new("cannot read the trace", name, error.to_string(), remedy));
            }
        };
        reader.feed(&chunk[..count]).map_err(|bad| wrong(name, bad))?;
        total += count;
        progress.tell(|| format!("{} MB read", total / 1_000_000));
    }
    reader.finish().map_err(|bad| wrong(name, bad))
}

fn wrong(name: &str, bad: evenkeel_rightsizing::backtest::trace::BadTrace) -> Failure {
    Failure::new("cannot read the trace", format!("{name}, line {}", bad.line), bad.why, bad.remedy)
}

/// Work that is done sooner needs no word.
const QUIET: Duration = Duration::from_secs(1);
/// Between two words.
const PACE: Duration = Duration::from_millis(200);

/// Says on a terminal how far long work is.
pub(super) struct Progress {
    on: bool,
    begun: Instant,
    told: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { on: stderr().is_terminal(), begun: Instant::now(), told: None }
    }

    pub(super) fn tell(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        let due = self.told.is_none_or(|told| now.duration_since(told) >= PACE);
        if self.on && due && now.duration_since(self.begun) >= QUIET {
            self.told = Some(now);
            // Nobody needs a word about progress that cannot be shown.
            let _ = write!(stderr(), "\r{}\u{1b}[K", text());
        }
    }

    pub(super) fn end(&mut self) {
        if self.told.take().is_some() {
            let _ = write!(stderr(), "\r\u{1b}[K");
        }
    }
}
