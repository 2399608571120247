//! The bytes of a segment: header and records, encoded and decoded. Pure; no file is touched here.
//!
//! The layout is written down in the crate's documentation. Every version keeps magic, version and the header's CRC
//! where they are, so that an older program can tell "newer" from "damaged".

use crate::{DamageReason, MAX_RECORD_BYTES, Seq};

/// Size of a segment's header in bytes.
pub(crate) const SEGMENT_HEADER: usize = 32;
/// Size of a record's header in bytes.
pub(crate) const RECORD_HEADER: usize = 16;
/// The format this program writes, and the newest it reads.
pub(crate) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"EVKEELOG";
const CRC_AT: usize = SEGMENT_HEADER - 4;

/// What every record's CRC of one segment starts from: the CRC of that segment's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seed(u32);

/// Why a segment's header was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Damage(DamageReason),
    Newer(u32),
}

/// Reads `N` bytes at `at`; the callers index constant places of arrays of constant size.
fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&from[at..at + N]);
    out
}

pub(crate) fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

pub(crate) fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}

/// The header of a segment beginning with `first`, and the seed of its records.
pub(crate) fn encode_header(first: Seq, salt: u32) -> ([u8; SEGMENT_HEADER], Seed) {
    let mut h = [0; SEGMENT_HEADER];
    h[..8].copy_from_slice(&MAGIC);
    h[8..12].copy_from_slice(&VERSION.to_le_bytes());
    h[16..24].copy_from_slice(&first.get().to_le_bytes());
    h[24..28].copy_from_slice(&salt.to_le_bytes());
    let crc = crc32c::crc32c(&h[..CRC_AT]);
    h[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    (h, Seed(crc))
}

/// Checks a header found in the file named after `named`.
pub(crate) fn decode_header(h: &[u8; SEGMENT_HEADER], named: Seq) -> Result<Seed, HeaderFault> {
    let crc = crc32c::crc32c(&h[..CRC_AT]);
    if h[..8] != MAGIC || u32_at(h, CRC_AT) != crc {
        return Err(HeaderFault::Damage(DamageReason::Header));
    }
    match u32_at(h, 8) {
        VERSION => {}
        newer => return Err(HeaderFault::Newer(newer)),
    }
    match Seq::new(u64_at(h, 16)) {
        Some(first) if first == named => Ok(Seed(crc)),
        Some(first) => Err(HeaderFault::Damage(DamageReason::Misnamed { header: first })),
        None => Err(HeaderFault::Damage(DamageReason::Header)),
    }
}

/// A record's header as found in a file; `crc` is still to be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub(crate) len: u32,
    pub(crate) crc: u32,
    /// The CRC over length and sequence, to be continued over the payload.
    pub(crate) partial: u32,
}

/// Appends one record, whose payload is the concatenation of `parts`, to `out`. `len` is the payload's size.
pub(crate) fn encode_record(out: &mut Vec<u8>, seed: Seed, seq: Seq, len: u32, parts: &[&[u8]]) {
    let start = out.len();
    out.reserve(RECORD_HEADER + len as usize);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&seq.get().to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    let crc = crc32c::crc32c_append(seed.0, &out[start..start + 4]);
    let crc = crc32c::crc32c_append(crc, &out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// Checks the fields of a record's header that can be checked without the payload. `left` is how many bytes of the file
/// follow the header.
pub(crate) fn decode_record(
    h: &[u8; RECORD_HEADER],
    seed: Seed,
    expected: Seq,
    left: u64,
) -> Result<RecordHeader, DamageReason> {
    if *h == [0; RECORD_HEADER] {
        return Err(DamageReason::Zeros);
    }
    let (len, crc, found) = (u32_at(h, 0), u32_at(h, 4), u64_at(h, 8));
    if found != expected.get() {
        return Err(DamageReason::Sequence { expected, found });
    }
    if len > MAX_RECORD_BYTES {
        return Err(DamageReason::Length { bytes: len });
    }
    if u64::from(len) > left {
        return Err(DamageReason::TornRecord);
    }
    let partial = crc32c::crc32c_append(crc32c::crc32c_append(seed.0, &h[..4]), &h[8..]);
    Ok(RecordHeader { len, crc, partial })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_reads_back_and_names_its_faults() {
        let first = Seq::new(7).unwrap();
        let (h, seed) = encode_header(first, 99);
        assert_eq!(decode_header(&h, first), Ok(seed));
        assert_eq!(
            decode_header(&h, Seq::FIRST),
            Err(HeaderFault::Damage(DamageReason::Misnamed { header: first }))
        );
        for i in 0..h.len() {
            let mut bad = h;
            bad[i] ^= 1;
            assert_eq!(
                decode_header(&bad, first),
                Err(HeaderFault::Damage(DamageReason::Header)),
                "byte {i}"
            );
        }
        let mut newer = h;
        newer[8] = 2;
        let crc = crc32c::crc32c(&newer[..CRC_AT]);
        newer[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_header(&newer, first), Err(HeaderFault::Newer(2)));
    }

    #[test]
    fn a_record_is_bound_to_its_segment_and_place() {
        let (_, here) = encode_header(Seq::FIRST, 1);
        let (_, there) = encode_header(Seq::FIRST, 2);
        let mut out = Vec::new();
        encode_record(&mut out, here, Seq::FIRST, 5, &[b"ab", b"", b"cde"]);
        assert_eq!(&out[RECORD_HEADER..], b"abcde");
        let h = bytes(&out, 0);
        let whole = |r: RecordHeader| crc32c::crc32c_append(r.partial, b"abcde") == r.crc;
        assert!(whole(decode_record(&h, here, Seq::FIRST, 5).unwrap()));
        assert!(!whole(decode_record(&h, there, Seq::FIRST, 5).unwrap()));
        assert_eq!(decode_record(&h, here, Seq::FIRST, 4), Err(DamageReason::TornRecord));
        let second = Seq::FIRST.next();
        assert_eq!(
            decode_record(&h, here, second, 5),
            Err(DamageReason::Sequence { expected: second, found: 1 })
        );
    }
}
