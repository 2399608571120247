//! One JSON object walked member by member: some values are read by whoever walks, the rest is kept as a text.

use std::io::Read;

use super::stream::{JsonStream, StreamError, TextPosition, why};

/// The text of an object without the values that were read on the way. A value that was left out is an empty list or
/// `null` there.
#[derive(Debug)]
pub struct Rest {
    text: Vec<u8>,
    /// Bytes of the text before, and where it goes on.
    parts: Vec<(usize, TextPosition)>,
}

impl Rest {
    /// The text: JSON where the object was.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// An error of reading the text, told of the place in the whole.
    pub fn error(&self, error: &serde_json::Error) -> StreamError {
        let mut lines = self.text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len);
        let before: usize = lines.by_ref().take(error.line().saturating_sub(1)).sum();
        let at = before + error.column();
        // The end of one part is told as such, not as the beginning of the next.
        let part = self.parts.iter().rev().find(|(begin, _)| *begin < at).or(self.parts.first());
        let (begin, place) = part.copied().unwrap_or((0, TextPosition { line: 1, column: 0 }));
        place.after(&self.text[begin.min(at)..at.min(self.text.len())]).broken(why(error))
    }

    fn push<R: Read>(&mut self, stream: &mut JsonStream<R>, bytes: usize) -> Result<(), StreamError> {
        if JsonStream::<R>::is_too_large(self.text.len() + bytes) {
            return Err(stream.too_large());
        }
        self.text.extend_from_slice(stream.eat(bytes));
        Ok(())
    }
}

/// A walk over the members of one object.
#[derive(Debug)]
pub struct Members {
    rest: Rest,
    first: bool,
}

impl Members {
    /// Begins with what comes next; what is no object has no members.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn begin<R: Read>(stream: &mut JsonStream<R>) -> Result<Self, StreamError> {
        let next = stream.peek_past_blanks()?;
        let parts = vec![(0, stream.place())];
        let mut members = Self { rest: Rest { text: Vec::new(), parts }, first: true };
        match next {
            Some(b'{') => members.rest.push(stream, 1)?,
            Some(_) => {
                let bytes = stream.value(0)?.max(1);
                members.rest.push(stream, bytes)?;
            }
            None => {}
        }
        Ok(members)
    }

    /// The key of the next member, its value being next in the stream. Nothing where the object ends, or is broken:
    /// whoever reads the rest is told how.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn next<R: Read>(&mut self, stream: &mut JsonStream<R>) -> Result<Option<String>, StreamError> {
        if self.rest.text.first() != Some(&b'{') {
            return Ok(None);
        }
        let mut next = self.blanks(stream)?;
        if !self.first && next == Some(b',') {
            self.rest.push(stream, 1)?;
            next = self.blanks(stream)?;
        } else if !self.first {
            self.one(stream, next)?;
            return Ok(None);
        }
        self.first = false;
        if next != Some(b'"') {
            self.one(stream, next)?;
            return Ok(None);
        }
        let key = serde_json::from_slice::<String>(self.keep(stream)?).ok();
        let next = self.blanks(stream)?;
        self.one(stream, next)?;
        if next != Some(b':') || self.blanks(stream)?.is_none() {
            return Ok(None);
        }
        Ok(key)
    }

    /// Keeps the value that is next.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn keep<R: Read>(&mut self, stream: &mut JsonStream<R>) -> Result<&[u8], StreamError> {
        let (before, bytes) = (self.rest.text.len(), stream.value(0)?);
        self.rest.push(stream, bytes)?;
        Ok(&self.rest.text[before..])
    }

    /// Keeps everything to the end of the object.
    pub(super) fn keep_all<R: Read>(&mut self, stream: &mut JsonStream<R>) -> Result<(), StreamError> {
        let bytes = stream.value(1)?;
        self.rest.push(stream, bytes)
    }

    /// Puts this in the place of a value that somebody else is about to read.
    pub fn stand_in(&mut self, text: &[u8]) {
        self.rest.text.extend_from_slice(text);
    }

    /// Goes on after a value that somebody else has read.
    pub fn go_on<R: Read>(&mut self, stream: &JsonStream<R>) {
        self.rest.parts.push((self.rest.text.len(), stream.place()));
    }

    /// What was kept.
    pub fn rest(self) -> Rest {
        self.rest
    }

    fn blanks<R: Read>(&mut self, stream: &mut JsonStream<R>) -> Result<Option<u8>, StreamError> {
        loop {
            match stream.blanks()? {
                0 => return stream.peek(),
                blanks => self.rest.push(stream, blanks)?,
            }
        }
    }

    /// Keeps the byte that was seen, if there was one.
    fn one<R: Read>(&mut self, stream: &mut JsonStream<R>, seen: Option<u8>) -> Result<(), StreamError> {
        if seen.is_some() { self.rest.push(stream, 1) } else { Ok(()) }
    }
}
