//! Memory that is taken and touched: at once, bit by bit, or as pages of a file. Owns sizes as people write them.

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Outcome, announce, number, until_told};

/// How often memory that grows is added to.
const STEP: Duration = Duration::from_millis(20);
/// How much of a file is read at a time.
const BLOCK: usize = 1 << 16;
/// Smallest page there is.
const PAGE: usize = 4096;

/// A size in bytes: with a suffix Ki, Mi or Gi, or a part of the machine's memory as in `80%`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let size = if let Some(percent) = text.strip_suffix('%') {
        total()? / 100 * number(percent)?
    } else {
        let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
        let scaled = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
        let (digits, shift) = scaled.unwrap_or((text, 0));
        number(digits)?.checked_mul(1 << shift).ok_or_else(|| format!("too large: {text}"))?
    };
    usize::try_from(size).map_err(|_| format!("too large: {text}"))
}

/// Memory of the machine in bytes.
fn total() -> Result<u64, String> {
    let text =
        std::fs::read_to_string("/proc/meminfo").map_err(|error| format!("no /proc/meminfo: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no MemTotal in /proc/meminfo")?;
    number(kib.trim()).map(|kib| kib * 1024)
}

/// Takes memory and writes to each page, so that the kernel has to give it.
pub(crate) fn hold(size: usize) -> Result<Vec<u8>, String> {
    let held = take(size)?;
    announce(&format!("holding {size} bytes"))?;
    Ok(black_box(held))
}

fn take(size: usize) -> Result<Vec<u8>, String> {
    let mut held = Vec::new();
    held.try_reserve_exact(size).map_err(|error| format!("cannot hold {size} bytes: {error}"))?;
    // By the block: byte by byte, a build without optimisation takes a minute in an emulated guest.
    let block = [0x5a; BLOCK];
    while held.len() < size {
        held.extend_from_slice(&block[..BLOCK.min(size - held.len())]);
    }
    Ok(black_box(held))
}

/// Bytes per second: a plain number is percent of the machine's memory.
pub(crate) fn pace(text: &str) -> Result<usize, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { bytes(&format!("{text}%")) } else { bytes(text) }
}

/// Takes `pace` bytes per second up to `most` bytes. What it could not take while it was stopped or
/// slowed is not made up for: it never grows faster than told.
pub(crate) fn grow(pace: usize, most: usize) -> Outcome {
    let step = pace / (1000 / STEP.as_millis() as usize);
    announce(&format!("growing by {step} bytes every {} ms", STEP.as_millis()))?;
    thread::spawn(move || keep_growing(step, most));
    until_told()
}

fn keep_growing(step: usize, most: usize) -> Outcome {
    let (mut held, mut next) = (Vec::new(), Instant::now());
    while held.len() * step < most {
        held.push(take(step)?);
        next += STEP;
        match next.checked_duration_since(Instant::now()) {
            Some(rest) => thread::sleep(rest),
            None => next = Instant::now(),
        }
    }
    announce("grown")?;
    loop {
        black_box(&held);
        thread::park();
    }
}

/// A part of a file.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    offset: u64,
    size: usize,
}

impl Part {
    pub(crate) fn new(offset: &str, size: &str) -> Result<Part, String> {
        Ok(Part { offset: bytes(offset)? as u64, size: bytes(size)? })
    }
}

/// Reads a part of a file, block by block: once, or for ever with a rest after each block.
pub(crate) fn read(path: &str, part: Part, again: Option<Duration>) -> Outcome {
    let mut file = File::open(path).map_err(|error| format!("cannot open {path}: {error}"))?;
    read_through(&mut file, part, Duration::ZERO).map_err(|error| format!("cannot read {path}: {error}"))?;
    announce(&format!("read {} bytes of {path}", part.size))?;
    if let Some(rest) = again {
        thread::spawn(move || while read_through(&mut file, part, rest).is_ok() {});
    }
    until_told()
}

/// Reads a part, or what there is of it, with a rest after each block.
fn read_through(file: &mut File, part: Part, rest: Duration) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(part.offset))?;
    let (mut block, mut left) = (vec![0; BLOCK], part.size);
    while left > 0 {
        let wanted = left.min(BLOCK);
        match file.read(&mut block[..wanted])? {
            0 => break,
            got => left -= got,
        }
        if !rest.is_zero() {
            thread::sleep(rest);
        }
    }
    Ok(())
}

/// Reads pages of a part at random on so many threads, for ever: whoever has less memory than the part thrashes.
pub(crate) fn read_random(path: &str, part: Part, threads: u64) -> Outcome {
    for thread in 0..threads {
        let file = File::open(path).map_err(|error| format!("cannot open {path}: {error}"))?;
        thread::spawn(move || {
            let mut page = [0; PAGE];
            for number in pages(thread + 1, part.size) {
                if file.read_at(&mut page, part.offset + (number * PAGE) as u64).is_err() {
                    return;
                }
                black_box(&page);
            }
        });
    }
    announce(&format!("reading {} bytes of {path} at random", part.size))?;
    until_told()
}

/// Takes memory and writes to pages of it at random, for ever.
pub(crate) fn touch(size: usize) -> Outcome {
    announce(&format!("touching {size} bytes"))?;
    thread::spawn(move || {
        let mut held = take(size)?;
        let _ = announce("taken");
        for number in pages(1, size) {
            if let Some(byte) = held.get_mut(number * PAGE) {
                *byte = byte.wrapping_add(1);
            }
        }
        Ok::<(), String>(())
    });
    until_told()
}

/// Numbers of pages of `size` bytes without end, in an order that nothing foresees (a linear congruential generator with
/// Knuth's constants; its upper bits).
fn pages(seed: u64, size: usize) -> impl Iterator<Item = usize> {
    let count = (size / PAGE).max(1) as u64;
    std::iter::successors(Some(seed), |n| {
        Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(move |n| ((n >> 33) % count) as usize)
}
