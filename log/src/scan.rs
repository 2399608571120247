//! Reading a whole segment at opening: how far it is valid, and why not further.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::error::At;
use crate::format::{self, HeaderFault, RECORD_HEADER, SEGMENT_HEADER, Seed};
use crate::{DamageReason, LogError, Seq};

/// Read size, and so the memory a scan uses whatever the records' sizes.
const CHUNK: usize = 128 << 10;

/// How far a segment is valid.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The seed of its records; nothing when the header itself is damaged.
    pub(crate) seed: Option<Seed>,
    /// One past its last valid record.
    pub(crate) next: Seq,
    /// Bytes up to the end of the last valid record.
    pub(crate) valid: u64,
    /// Size of the file.
    pub(crate) len: u64,
    /// What is wrong with the bytes after `valid`, where there are any.
    pub(crate) damage: Option<DamageReason>,
}

/// Scans the segment in `file`, whose name says it begins with `first`.
pub(crate) fn scan(file: &File, path: &Path, first: Seq) -> Result<Scan, LogError> {
    let len = file.metadata().at("inspect", path)?.len();
    let mut scan = Scan { seed: None, next: first, valid: 0, len, damage: None };
    let mut reader = BufReader::with_capacity(CHUNK, file);
    let mut header = [0; SEGMENT_HEADER];
    if !fill(&mut reader, &mut header).at("read", path)? {
        scan.damage = Some(DamageReason::TornHeader);
        return Ok(scan);
    }
    let seed = match format::decode_header(&header, first) {
        Ok(seed) => seed,
        Err(HeaderFault::Damage(reason)) => {
            scan.damage = Some(reason);
            return Ok(scan);
        }
        Err(HeaderFault::Newer(found)) => {
            return Err(LogError::Version { path: path.to_owned(), found, supported: format::VERSION });
        }
    };
    (scan.seed, scan.valid) = (Some(seed), SEGMENT_HEADER as u64);
    let mut chunk = vec![0; CHUNK];
    while scan.valid < len {
        match record(&mut reader, &mut chunk, seed, scan.next, len - scan.valid).at("read", path)? {
            Ok(size) => {
                scan.valid += size;
                scan.next = scan.next.next();
            }
            Err(reason) => {
                scan.damage = Some(reason);
                break;
            }
        }
    }
    Ok(scan)
}

/// Checks the record at the reader's place, of which `left` bytes may be read; its size with the header.
fn record(
    reader: &mut impl Read,
    chunk: &mut [u8],
    seed: Seed,
    expected: Seq,
    left: u64,
) -> io::Result<Result<u64, DamageReason>> {
    let mut header = [0; RECORD_HEADER];
    let Some(left) = left.checked_sub(RECORD_HEADER as u64) else { return Ok(Err(DamageReason::TornRecord)) };
    if !fill(reader, &mut header)? {
        return Ok(Err(DamageReason::TornRecord));
    }
    let found = match format::decode_record(&header, seed, expected, left) {
        Ok(found) => found,
        Err(reason) => return Ok(Err(reason)),
    };
    let (mut crc, mut missing) = (found.partial, found.len as usize);
    while missing > 0 {
        let part = missing.min(chunk.len());
        if !fill(reader, &mut chunk[..part])? {
            return Ok(Err(DamageReason::TornRecord));
        }
        crc = crc32c::crc32c_append(crc, &chunk[..part]);
        missing -= part;
    }
    let whole = crc == found.crc;
    Ok(if whole { Ok(RECORD_HEADER as u64 + u64::from(found.len)) } else { Err(DamageReason::Checksum) })
}

/// Fills `into`; false when the file ends before.
fn fill(reader: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(into) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}
