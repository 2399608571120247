//! The format: fields one after the other, numbers in little endian, texts and lists after their length.
//!
//! Owned here: reading and writing of values, and what is refused. Not owned: which messages there are.
//!
//! Reading gives a value or an error, whatever the bytes; it makes nothing that is larger than the message times a constant, since each
//! entry of a list takes bytes of it, and there are at most [`MOST_PARTS`] of them.

use std::collections::BTreeMap;

/// Version of the format; both sides are the same program, so that there is no other to speak with.
pub const VERSION: u8 = 1;

/// Entries of all lists of a message together: as many as a message of a recommender may have.
pub const MOST_PARTS: usize = evenkeel_proto::bounded::MOST_PARTS;

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end in the middle of a value.
    #[error("the message ends in the middle of a value")]
    Short,
    /// Bytes follow the last value.
    #[error("{0} bytes follow the message")]
    Long(usize),
    /// A value that its type does not have.
    #[error("{0} is no value of its type")]
    Value(u64),
    /// A text that is none, or names nothing.
    #[error("a text is not UTF-8, or not of its kind")]
    Text,
    /// More entries than a message may have.
    #[error("the message has more than {MOST_PARTS} entries")]
    Parts,
}

/// A message that is read.
#[derive(Debug)]
pub struct MessageReader<'a> {
    rest: &'a [u8],
    parts: usize,
}

impl<'a> MessageReader<'a> {
    /// Of a message's bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, parts: MOST_PARTS }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Short)
    }

    /// A length, of which each entry takes at least one byte.
    fn length(&mut self) -> Result<usize, Malformed> {
        let length = u32::read(self)? as usize;
        if length > self.rest.len() { Err(Malformed::Short) } else { Ok(length) }
    }

    /// The length of a list.
    fn entries(&mut self) -> Result<usize, Malformed> {
        let length = self.length()?;
        self.parts = self.parts.checked_sub(length).ok_or(Malformed::Parts)?;
        Ok(length)
    }
}

/// What crosses the border.
pub trait Coded: Sized {
    /// Appends it.
    fn write(&self, to: &mut Vec<u8>);

    /// Reads it.
    ///
    /// # Errors
    /// When there is no such value.
    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed>;

    /// The whole message.
    fn message(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes
    }

    /// The value that a whole message is.
    ///
    /// # Errors
    /// When it is none.
    fn of(message: &[u8]) -> Result<Self, Malformed> {
        let mut reader = MessageReader::new(message);
        let value = Self::read(&mut reader)?;
        if reader.rest.is_empty() { Ok(value) } else { Err(Malformed::Long(reader.rest.len())) }
    }
}

/// Implements [`Coded`] for structs field by field; those of tuples are `0`, `1`.
macro_rules! coded {
    ($($type:path { $($field:tt),* $(,)? })+) => {$(
        impl $crate::coded::Coded for $type {
            #[allow(unused_variables)]
            fn write(&self, to: &mut Vec<u8>) {
                $($crate::coded::Coded::write(&self.$field, to);)*
            }
            #[allow(unused_variables)]
            fn read(from: &mut $crate::coded::MessageReader<'_>) -> Result<Self, $crate::coded::Malformed> {
                Ok(Self { $($field: $crate::coded::Coded::read(from)?),* })
            }
        }
    )+};
}
/// Implements [`Coded`] for enums whose variants hold nothing or one value, each after its number.
macro_rules! coded_enum {
    ($type:path { $($number:literal = $variant:ident $(($held:ident))?),+ $(,)? }) => {
        impl $crate::coded::Coded for $type {
            fn write(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($held))? => {
                        to.push($number);
                        $($crate::coded::Coded::write($held, to);)?
                    })+
                }
            }
            fn read(from: &mut $crate::coded::MessageReader<'_>) -> Result<Self, $crate::coded::Malformed> {
                match u8::read(from)? {
                    $($number => Ok(Self::$variant $(({
                        let $held = $crate::coded::Coded::read(from)?;
                        $held
                    }))?),)+
                    other => Err($crate::coded::Malformed::Value(other.into())),
                }
            }
        }
    };
}
pub(crate) use {coded, coded_enum};

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Coded for $type {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
            fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
                Ok(Self::from_le_bytes(from.array()?))
            }
        }
    )+};
}
numbers!(u8, u16, u32, u64, i32, i128);

impl Coded for bool {
    fn write(&self, to: &mut Vec<u8>) {
        to.push((*self).into());
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::Value(other.into())),
        }
    }
}

/// What is longer than a length can say is cut there, which no message that is sent comes near.
fn write_length(length: usize, to: &mut Vec<u8>) -> usize {
    let told = u32::try_from(length).unwrap_or(u32::MAX);
    told.write(to);
    told as usize
}

/// Bytes that are passed on as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Coded for Bytes {
    fn write(&self, to: &mut Vec<u8>) {
        let length = write_length(self.0.len(), to);
        to.extend_from_slice(&self.0[..length]);
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let length = from.length()?;
        Ok(Self(from.take(length)?.to_vec()))
    }
}

impl Coded for String {
    fn write(&self, to: &mut Vec<u8>) {
        let length = write_length(self.len(), to);
        to.extend_from_slice(&self.as_bytes()[..length]);
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let length = from.length()?;
        let text = std::str::from_utf8(from.take(length)?).map_err(|_| Malformed::Text)?;
        Ok(text.to_owned())
    }
}

impl<T: Coded> Coded for Option<T> {
    fn write(&self, to: &mut Vec<u8>) {
        self.is_some().write(to);
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        Ok(if bool::read(from)? { Some(T::read(from)?) } else { None })
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn write(&self, to: &mut Vec<u8>) {
        let length = write_length(self.len(), to);
        self.iter().take(length).for_each(|entry| entry.write(to));
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let entries = from.entries()?;
        let mut list = Self::new();
        for _ in 0..entries {
            list.push(T::read(from)?);
        }
        Ok(list)
    }
}

impl<V: Coded> Coded for BTreeMap<String, V> {
    fn write(&self, to: &mut Vec<u8>) {
        let length = write_length(self.len(), to);
        for (key, value) in self.iter().take(length) {
            key.write(to);
            value.write(to);
        }
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let entries = from.entries()?;
        let mut map = Self::new();
        for _ in 0..entries {
            map.insert(String::read(from)?, V::read(from)?);
        }
        Ok(map)
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        Ok((A::read(from)?, B::read(from)?))
    }
}
