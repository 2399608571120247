//! Messages of D-Bus, as far as calls to systemd's manager need them (D-Bus Specification 0.43, "Message Protocol").
//!
//! Owned here: writing calls, and reading what answers them. Pure. Not a reader of D-Bus: of a message its head is read, and of a body one
//! text, plain or in a variant. Everything else is refused, whatever the bytes, and a message has a bound.

mod writer;

use crate::systemd::property::Property;
use writer::{BusWriter, length};

/// Largest message that is taken: answers to these calls have some hundred bytes, refusals a sentence.
pub const MOST_BYTES: usize = 64 << 10;
/// Bytes before the fields of a head.
pub const FIXED: usize = 16;
/// Fields of a head at most; there are nine.
const MOST_FIELDS: usize = 32;

/// A method that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// Who has it.
    pub destination: &'a str,
    /// Of which object.
    pub path: &'a str,
    /// Of which interface.
    pub interface: &'a str,
    /// Its name.
    pub member: &'a str,
    /// What it is given.
    pub body: &'a [Argument<'a>],
}

/// What a method is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument<'a> {
    /// A text.
    Text(&'a str),
    /// A truth value.
    Bool(bool),
    /// Properties with their values.
    Properties(&'a [Property]),
}

impl Argument<'_> {
    const fn signature(&self) -> &'static str {
        match self {
            Self::Text(_) => "s",
            Self::Bool(_) => "b",
            Self::Properties(_) => "a(sv)",
        }
    }
}

impl Call<'_> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self, serial: u32) -> Vec<u8> {
        let mut body = BusWriter::default();
        self.body.iter().for_each(|argument| body.argument(argument));
        let signature: String = self.body.iter().map(Argument::signature).collect();
        let mut message = BusWriter::default();
        // Little endian, a call, no flags, version 1.
        message.0.extend_from_slice(b"l\x01\x00\x01");
        message.number(length(body.0.len()));
        message.number(serial);
        message.array(|fields| {
            fields.field(1, "o", self.path);
            fields.field(2, "s", self.interface);
            fields.field(3, "s", self.member);
            fields.field(6, "s", self.destination);
            if !signature.is_empty() {
                fields.align(8);
                fields.0.push(8);
                fields.signature("g");
                fields.signature(&signature);
            }
        });
        message.align(8);
        message.0.extend_from_slice(&body.0);
        message.0
    }
}

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end too early.
    #[error("a message ends in the middle of a value")]
    Short,
    /// It is larger than what answers a call.
    #[error("a message is larger than 64 KiB")]
    Long,
    /// It is none, or none that is understood here.
    #[error("what came is no message")]
    Other,
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageKind {
    /// It answers the call with this serial.
    Answer(u32),
    /// It refuses the call with this serial, by this name.
    Refusal(u32, String),
    /// It is for somebody who listens.
    Other,
}

/// A message that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: MessageKind,
    /// The text that its body is or begins with, plain or in a variant.
    pub text: Option<String>,
}

/// Bytes of the whole message, from its first [`FIXED`] ones.
///
/// # Errors
/// When it is none, or too large.
pub fn size(fixed: &[u8; FIXED]) -> Result<usize, Malformed> {
    let mut reader = BusReader::new(fixed)?;
    reader.at = 4;
    let body = reader.length()?;
    reader.at = 12;
    let fields = reader.length()?;
    let head = FIXED.checked_add(fields).and_then(|head| head.checked_next_multiple_of(8));
    let whole = head.and_then(|head| head.checked_add(body));
    whole.filter(|whole| *whole <= MOST_BYTES).ok_or(Malformed::Long)
}

/// Reads a whole message.
///
/// # Errors
/// When it is none.
pub fn read(bytes: &[u8]) -> Result<Message, Malformed> {
    let fixed = bytes.first_chunk().ok_or(Malformed::Short)?;
    if size(fixed)? != bytes.len() {
        return Err(Malformed::Short);
    }
    let mut reader = BusReader::new(bytes)?;
    let kind = *bytes.get(1).ok_or(Malformed::Short)?;
    reader.at = 12;
    let end = reader.length()?.checked_add(FIXED).ok_or(Malformed::Long)?;
    let (mut reply_to, mut error, mut signature) = (None, None, String::new());
    for _ in 0..MOST_FIELDS {
        if reader.at >= end {
            break;
        }
        reader.align(8)?;
        let code = reader.byte()?;
        match (code, reader.signature()?.as_str()) {
            (5, "u") => reply_to = Some(reader.number()?),
            (4, "s") => error = Some(reader.text()?),
            (8, "g") => signature = reader.signature()?,
            (_, "s" | "o") => drop(reader.text()?),
            (_, "g") => drop(reader.signature()?),
            (_, "u") => drop(reader.number()?),
            _ => return Err(Malformed::Other),
        }
    }
    if reader.at != end {
        return Err(Malformed::Other);
    }
    reader.align(8)?;
    let kind = match (kind, reply_to, error) {
        (2, Some(serial), None) => MessageKind::Answer(serial),
        (3, Some(serial), Some(name)) => MessageKind::Refusal(serial, name),
        (1 | 4, ..) => MessageKind::Other,
        _ => return Err(Malformed::Other),
    };
    let text = match signature.as_bytes() {
        [b's' | b'o', ..] => Some(reader.text()?),
        [b'v', ..] => match reader.signature()?.as_str() {
            "s" | "o" => Some(reader.text()?),
            _ => None,
        },
        _ => None,
    };
    Ok(Message { kind, text })
}

struct BusReader<'a> {
    bytes: &'a [u8],
    at: usize,
    big: bool,
}

impl<'a> BusReader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let big = match bytes.first() {
            Some(b'l') => false,
            Some(b'B') => true,
            _ => return Err(Malformed::Other),
        };
        Ok(Self { bytes, at: 0, big })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed::Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed::Short)?;
        self.at = end;
        Ok(taken)
    }

    fn align(&mut self, to: usize) -> Result<(), Malformed> {
        self.take(self.at.next_multiple_of(to) - self.at).map(drop)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1)?.first().copied().ok_or(Malformed::Short)
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        self.align(4)?;
        let bytes = *self.take(4)?.first_chunk().ok_or(Malformed::Short)?;
        Ok(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed::Long)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let length = self.length()?;
        self.ended(length)
    }

    fn signature(&mut self) -> Result<String, Malformed> {
        let length = self.byte()?;
        self.ended(length.into())
    }

    /// A text with a zero behind it.
    fn ended(&mut self, length: usize) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| Malformed::Other)?.to_owned();
        if self.byte()? == 0 { Ok(text) } else { Err(Malformed::Other) }
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
pub(super) mod tests;
