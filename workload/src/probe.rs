//! A service in small: woken every few milliseconds, it touches its memory, takes some fresh memory and gives it back,
//! and reads a piece of its file that is in nobody's memory. Owns the measure of how late each of these is done.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;

use crate::{Outcome, announce, block, memory};

const PAGE: usize = 4096;
/// Fresh memory taken in each period: a request's worth.
const FRESH: usize = 1 << 16;
/// How much of its file is read in each period: a row or two.
const READ: usize = 2 * PAGE;
/// Pieces of the file that are read in turn.
const PIECES: u64 = 512;
/// More latenesses than a probe ever measures between two questions, so that it takes no memory while it measures.
const KEPT: usize = 1 << 18;

/// Lateness of each period since the last question, in microseconds.
type Measured = Arc<Mutex<Vec<u32>>>;

/// Probes until SIGTERM; SIGUSR1 prints what was measured since the last one.
pub(crate) fn run(period: Duration, size: usize, path: Option<&str>) -> Outcome {
    let wanted = block(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1])?;
    let held = memory::hold(size)?;
    let file = path.map(|path| cold(path).map_err(|error| format!("cannot open {path}: {error}")));
    let fresh =
        memfd_create(c"fresh", MFdFlags::empty()).map_err(|errno| format!("no memory file: {errno}"))?;
    let measured: Measured = Arc::new(Mutex::new(Vec::with_capacity(KEPT)));
    let mut probe = Probe { held, fresh, file: file.transpose()?, piece: 0, part: vec![1; FRESH] };
    let into = Arc::clone(&measured);
    thread::spawn(move || probe.measure(period, &into));
    loop {
        match wanted.wait() {
            Ok(Signal::SIGUSR1) => announce(&summary(&measured))?,
            Ok(_) => return Ok(()),
            Err(errno) => return Err(format!("cannot wait for a signal: {errno}")),
        }
    }
}

/// Opens a file of which nothing is read ahead.
fn cold(path: &str) -> std::io::Result<File> {
    let file = File::open(path)?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)?;
    Ok(file)
}

struct Probe {
    held: Vec<u8>,
    fresh: OwnedFd,
    file: Option<File>,
    piece: u64,
    part: Vec<u8>,
}

impl Probe {
    /// Every period has a moment. One that is passed while the probe is late counts with its own lateness, so that a
    /// long stall weighs as many periods as it lasted; the probe then goes on with the next to come.
    fn measure(&mut self, period: Duration, into: &Measured) -> Outcome {
        let mut due = Instant::now() + period;
        loop {
            if let Some(rest) = due.checked_duration_since(Instant::now()) {
                thread::sleep(rest);
            }
            self.work().map_err(|error| format!("cannot probe: {error}"))?;
            let now = Instant::now();
            let mut all = into.lock().unwrap_or_else(PoisonError::into_inner);
            while due <= now {
                if all.len() < KEPT {
                    all.push(u32::try_from((now - due).as_micros()).unwrap_or(u32::MAX));
                }
                due += period;
            }
        }
    }

    fn work(&mut self) -> std::io::Result<()> {
        for byte in self.held.iter_mut().step_by(PAGE) {
            *byte = byte.wrapping_add(1);
        }
        let mut fresh = File::from(self.fresh.try_clone()?);
        fresh.write_all(&self.part)?;
        fresh.set_len(0)?;
        std::io::Seek::rewind(&mut fresh)?;
        self.look_up()
    }

    /// Reads the next piece of the file and forgets it, so that the disk is asked every time.
    fn look_up(&mut self) -> std::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut row = [0; READ];
        let at = self.piece * READ as u64;
        self.piece = (self.piece + 1) % PIECES;
        file.read_exact_at(&mut row, at)?;
        posix_fadvise(file, at as i64, READ as i64, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        Ok(())
    }
}

/// Percentiles of what was measured, by nearest rank, which is then forgotten.
fn summary(measured: &Measured) -> String {
    let mut all = {
        let mut shared = measured.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *shared, Vec::with_capacity(KEPT))
    };
    all.sort_unstable();
    let at = |per_mille: usize| all.get((all.len() * per_mille).div_ceil(1000).saturating_sub(1)).copied();
    let [p50, p90, p99, most] = [500, 900, 990, 1000].map(|rank| at(rank).unwrap_or_default());
    format!("late n={} p50={p50} p90={p90} p99={p99} max={most}", all.len())
}
