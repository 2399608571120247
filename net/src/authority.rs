//! Clients of a Unix socket that name the socket's path as authority.
//!
//! gRPC's C core (Python, C++, Ruby, PHP, C#) sends the path, percent-encoded, as `:authority`, and Go's sends it
//! is where the program dials by itself; a path is no authority
//! (RFC 3986, section 3.2), so that the HTTP/2 library resets the stream before anybody is asked. Who may speak is
//! decided by the socket's mode and the peer's credentials, nobody looks at the name: here the octets that are not allowed are replaced, one for
//! one, so that lengths, frames and the table of compressed headers (RFC 7541) stay as the client made them.
//!
//! Owned here: following a client's bytes as far as that needs. Not owned: judging them, that is left to the library.

use crate::huffman::Code;

/// Bytes a client sends before its first frame (RFC 9113, section 3.4).
const PREFACE: u64 = 24;
/// Bytes of a frame's head (section 4.1).
const HEAD: usize = 9;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Bytes of a priority within HEADERS (section 6.2).
const PRIORITY_BYTES: u64 = 5;
const NAME: &[u8] = b":authority";
/// Index of `:authority` in the static table (RFC 7541, appendix A).
const STATIC_INDEX: u64 = 1;

/// Where in a client's frames we are.
#[derive(Debug)]
pub(crate) struct Frames {
    part: FramePart,
    fields: Fields,
}

#[derive(Debug)]
enum FramePart {
    /// Bytes that are none of ours.
    Skip(u64),
    /// A frame's head, as far as it came.
    Head([u8; HEAD], usize),
    /// The length of the padding is next; then bytes to skip, then fields.
    Padding { skip: u64, left: u64 },
    /// Bytes to skip before fields, then padding.
    Priority { skip: u64, fields: u64, padding: u64 },
    /// Bytes of fields that are left, then padding.
    Fields { left: u64, padding: u64 },
}

impl Default for Frames {
    fn default() -> Self {
        Self { part: FramePart::Skip(PREFACE), fields: Fields::Start }
    }
}

impl Frames {
    /// Follows bytes in the order they came, and replaces what may not be in an authority.
    pub(crate) fn follow(&mut self, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.step(rest);
            rest = &mut rest[taken..];
        }
    }

    /// Takes as many bytes as belong together; at least one of those given.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        let (taken, next) = match &mut self.part {
            FramePart::Skip(left) => {
                let (taken, left) = most(bytes, *left);
                (taken, after(FramePart::Skip(left), left))
            }
            FramePart::Head(head, have) => {
                head[*have] = bytes[0];
                *have += 1;
                (1, if *have == HEAD { Some(body(*head, &mut self.fields)) } else { None })
            }
            FramePart::Padding { skip, left } => {
                let padding = u64::from(bytes[0]);
                let fields = left.saturating_sub(padding);
                (1, Some(priority(*skip, fields, padding.min(*left))))
            }
            FramePart::Priority { skip, fields, padding } => {
                let (taken, left) = most(bytes, *skip);
                (taken, Some(priority(left, *fields, *padding)))
            }
            FramePart::Fields { left, padding } => {
                let (taken, left) = most(bytes, *left);
                for at in 0..taken {
                    let (before, rest) = bytes.split_at_mut(at);
                    self.fields.take(&mut rest[0], before.last_mut());
                }
                (taken, Some(fields(left, *padding)))
            }
        };
        if let Some(next) = next {
            self.part = next;
        }
        taken
    }
}

/// How many of the bytes at hand belong to `left`, and how many are then left.
fn most(bytes: &[u8], left: u64) -> (usize, u64) {
    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (taken, left - taken as u64)
}

/// The next head where nothing is left of a part.
fn after(part: FramePart, left: u64) -> Option<FramePart> {
    Some(if left == 0 { FramePart::Head([0; HEAD], 0) } else { part })
}

fn priority(skip: u64, left: u64, padding: u64) -> FramePart {
    if skip == 0 { fields(left, padding) } else { FramePart::Priority { skip, fields: left, padding } }
}

fn fields(left: u64, padding: u64) -> FramePart {
    match (left, padding) {
        (0, 0) => FramePart::Head([0; HEAD], 0),
        (0, padding) => FramePart::Skip(padding),
        (left, padding) => FramePart::Fields { left, padding },
    }
}

/// What follows a head.
fn body(head: [u8; HEAD], state: &mut Fields) -> FramePart {
    let length = u64::from(u32::from_be_bytes([0, head[0], head[1], head[2]]));
    match head[3] {
        HEADERS => {
            *state = Fields::Start;
            let skip = if head[4] & PRIORITY == 0 { 0 } else { PRIORITY_BYTES };
            if head[4] & PADDED == 0 {
                priority(skip.min(length), length.saturating_sub(skip), 0)
            } else if length == 0 {
                FramePart::Head([0; HEAD], 0)
            } else {
                FramePart::Padding { skip: skip.min(length - 1), left: (length - 1).saturating_sub(skip) }
            }
        }
        CONTINUATION => fields(length, 0),
        _ if length == 0 => FramePart::Head([0; HEAD], 0),
        _ => FramePart::Skip(length),
    }
}

/// Where in the compressed fields we are (RFC 7541, section 6).
#[derive(Debug)]
enum Fields {
    /// A field is next.
    Start,
    /// The rest of an index, and whether a literal follows.
    Index { index: Number, literal: bool },
    /// A string's first byte is next.
    String(HeaderText),
    /// The rest of a string's length.
    Length { text: HeaderText, huffman: bool, length: Number },
    /// A string's bytes; the code is that of an octet in Huffman's code, as far as it came.
    Bytes { text: HeaderText, huffman: bool, left: u64, code: Code },
}

/// Which string of a field.
#[derive(Debug, Clone, Copy)]
enum HeaderText {
    /// A name, and how much of `:authority` it has been so far.
    Name(Option<usize>),
    /// The value of an authority; true once it is known to be a path.
    Authority(bool),
    /// Any other value.
    Value,
}

/// A number of several bytes (section 5.1).
#[derive(Debug, Clone, Copy)]
struct Number {
    value: u64,
    shift: u32,
}

impl Number {
    /// The number of a prefix; the second says whether it is whole.
    fn start(byte: u8, mask: u8) -> (Self, bool) {
        let value = u64::from(byte & mask);
        (Self { value, shift: 0 }, byte & mask != mask)
    }

    /// True when it is whole. Absurd numbers stay wrong; the library ends such a connection.
    fn more(&mut self, byte: u8) -> bool {
        let part = u64::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(u64::MAX);
        self.value = self.value.saturating_add(part);
        self.shift = self.shift.saturating_add(7);
        byte & 0x80 == 0
    }
}

impl Fields {
    /// Takes in the next byte; the one before is given where it can still be changed.
    fn take(&mut self, byte: &mut u8, before: Option<&mut u8>) {
        let next = match self {
            Self::Start => {
                let (mask, literal) = match *byte {
                    0x80.. => (0x7f, false),
                    0x40.. => (0x3f, true),
                    0x20.. => (0x1f, false),
                    _ => (0x0f, true),
                };
                let (index, whole) = Number::start(*byte, mask);
                if whole { indexed(index.value, literal) } else { Self::Index { index, literal } }
            }
            Self::Index { index, literal } => {
                if !index.more(*byte) {
                    return;
                }
                indexed(index.value, *literal)
            }
            Self::String(text) => {
                let (length, whole) = Number::start(*byte, 0x7f);
                let (text, huffman) = (*text, *byte & 0x80 != 0);
                if whole {
                    string(text, huffman, length.value)
                } else {
                    Self::Length { text, huffman, length }
                }
            }
            Self::Length { text, huffman, length } => {
                if !length.more(*byte) {
                    return;
                }
                string(*text, *huffman, length.value)
            }
            Self::Bytes { text, huffman, left, code } => {
                match (&mut *text, *huffman) {
                    (text, false) => octet(text, byte),
                    // C core does not use Huffman's code, Go does.
                    (HeaderText::Authority(path), true) => code.take(path, byte, before),
                    (_, true) => {}
                }
                *left -= 1;
                if *left > 0 {
                    return;
                }
                ended(*text, *huffman)
            }
        };
        *self = next;
    }
}

/// What follows an index.
fn indexed(index: u64, literal: bool) -> Fields {
    match (literal, index) {
        (false, _) => Fields::Start,
        (true, 0) => Fields::String(HeaderText::Name(Some(0))),
        (true, STATIC_INDEX) => Fields::String(HeaderText::Authority(false)),
        (true, _) => Fields::String(HeaderText::Value),
    }
}

/// What follows a string's length.
fn string(text: HeaderText, huffman: bool, length: u64) -> Fields {
    if length == 0 {
        ended(text, huffman)
    } else {
        Fields::Bytes { text, huffman, left: length, code: Code::default() }
    }
}

/// What follows a string.
fn ended(text: HeaderText, huffman: bool) -> Fields {
    match text {
        HeaderText::Name(Some(same)) if same == NAME.len() && !huffman => {
            Fields::String(HeaderText::Authority(false))
        }
        HeaderText::Name(_) => Fields::String(HeaderText::Value),
        HeaderText::Authority(_) | HeaderText::Value => Fields::Start,
    }
}

/// Takes in one octet of a string, and replaces it where it may not be in an authority.
fn octet(text: &mut HeaderText, byte: &mut u8) {
    match text {
        HeaderText::Name(same) => *same = same.filter(|at| NAME.get(*at) == Some(byte)).map(|at| at + 1),
        HeaderText::Authority(path) => {
            *path |= matches!(*byte, b'/' | b'%');
            let plain = byte.is_ascii_alphanumeric() || matches!(*byte, b'-' | b'.' | b'_');
            if *path && !plain {
                *byte = b'-';
            }
        }
        HeaderText::Value => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.extend(body);
        bytes
    }

    fn literal(head: &[u8], value: &str) -> Vec<u8> {
        let mut bytes = head.to_vec();
        bytes.push(u8::try_from(value.len()).unwrap());
        bytes.extend(value.as_bytes());
        bytes
    }

    /// What a server reads of what a client sends, however it is cut into pieces.
    fn read(sent: &[u8]) -> Vec<u8> {
        let mut whole = sent.to_vec();
        Frames::default().follow(&mut whole);
        for size in 1..40 {
            let (mut pieces, mut frames) = (sent.to_vec(), Frames::default());
            pieces.chunks_mut(size).for_each(|piece| frames.follow(piece));
            assert_eq!(pieces, whole, "in pieces of {size}");
        }
        whole
    }

    fn session(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frames.iter().for_each(|frame| bytes.extend(frame));
        bytes
    }

    #[test]
    fn a_path_becomes_a_name_of_the_same_length_and_nothing_else_changes() {
        let path = |value: &str| {
            let mut block = vec![0x3f, 0xe1, 0x1f, 0x83, 0x86];
            block.extend(literal(&[0x41], value));
            block.extend(literal(&literal(&[0x40], "x-path"), "/a%2Fb"));
            block.extend(literal(&[0x44], "/evenkeel.v1.AgentService/GetStatus"));
            block
        };
        for (sent, want) in [
            ("%2Frun%2Fevenkeel%2Fagent.sock", "-2Frun-2Fevenkeel-2Fagent.sock"),
            ("/run/a:b@c.sock", "-run-a-b-c.sock"),
            ("localhost", "localhost"),
            ("[::1]:9520", "[::1]:9520"),
            ("user@host:1", "user@host:1"),
        ] {
            let (data, block) = (frame(0, 0, b"A/%41/B"), path(sent));
            let mut padded = vec![3];
            padded.extend([0, 0, 0, 0, 16]);
            padded.extend(&block);
            padded.extend([b'/'; 3]);
            let (first, second) = block.split_at(11);
            let bytes = |block: &[u8], padded: &[u8], halves: (&[u8], &[u8])| {
                session(&[
                    frame(4, 0, &[]),
                    frame(HEADERS, 4, block),
                    data.clone(),
                    frame(HEADERS, 4 | PADDED | PRIORITY, padded),
                    frame(HEADERS, 0, halves.0),
                    frame(CONTINUATION, 4, halves.1),
                    data.clone(),
                ])
            };
            let wanted = path(want);
            let mut wanted_padded = padded.clone();
            wanted_padded[6..6 + wanted.len()].copy_from_slice(&wanted);
            let got = read(&bytes(&block, &padded, (first, second)));
            assert_eq!(got, bytes(&wanted, &wanted_padded, wanted.split_at(11)), "{sent}");
        }
    }

    #[test]
    fn a_name_that_is_spelled_out_counts_and_long_lengths_do_too() {
        let long = format!("/{}", "a/".repeat(80));
        let mut block = vec![0x00, 10];
        block.extend(b":authority");
        block.extend([0x7f, u8::try_from(long.len() - 127).unwrap()]);
        block.extend(long.as_bytes());
        let got = read(&session(&[frame(HEADERS, 4, &block)]));
        assert!(!got[24 + 9..].contains(&b'/'), "{}", String::from_utf8_lossy(&got));
        assert_eq!(got.len(), 24 + 9 + block.len());
    }

    #[test]
    fn nonsense_is_passed_on() {
        let mut seed = 1_u64;
        for _ in 0..2000 {
            let mut bytes = session(&[]);
            for _ in 0..64 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                bytes.push((seed >> 56) as u8);
            }
            // A length that ends soon, so that bytes are looked at.
            bytes[24] = 0;
            bytes[25] = 0;
            bytes[27] = HEADERS;
            // Pieces may differ from the whole: a Huffman code that began in a piece passed on stays.
            for size in [1, 7, bytes.len()] {
                let mut frames = Frames::default();
                bytes.clone().chunks_mut(size).for_each(|piece| frames.follow(piece));
            }
        }
    }
}
