//! JSON cut into values while it arrives: where a value ends is found without understanding it.
//!
//! Owned here: the buffer, its bound, and lines and columns. Not owned: what a value means.

use std::io::{self, Read};

/// Most bytes of one object, and of what is beside the lists of one document. etcd takes requests of 1.5 MiB
/// (`--max-request-bytes`), so that no object of a cluster comes near.
const MOST_BYTES: usize = 16 << 20;
/// Bytes of the buffer before anything large came by.
const BUFFER_BYTES: usize = 256 << 10;
/// What some editors put before a text.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Why a text was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// It cannot be had.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is not what it should be.
    #[error("{why} at line {line} column {column}")]
    Broken {
        /// What is wrong, with the place in the snapshot.
        why: String,
        /// Line, from 1.
        line: usize,
        /// Bytes of the line before.
        column: usize,
    },
    /// One object, or what is beside the lists of a document, exceeds what is read.
    #[error(
        "the object at line {line} column {column} has more than the {MOST_BYTES} bytes that are read of one"
    )]
    TooLarge {
        /// Line, from 1.
        line: usize,
        /// Bytes of the line before.
        column: usize,
    },
}

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextPosition {
    /// From 1.
    pub line: usize,
    /// Bytes of the line before.
    pub column: usize,
}

impl TextPosition {
    /// The place after these bytes.
    pub(super) fn after(self, bytes: &[u8]) -> Self {
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            None => Self { column: self.column + bytes.len(), ..self },
            Some(last) => Self {
                line: self.line + bytes[..=last].iter().filter(|byte| **byte == b'\n').count(),
                column: bytes.len() - last - 1,
            },
        }
    }

    /// The same, having happened here.
    pub(super) fn broken(self, why: String) -> StreamError {
        StreamError::Broken { why, line: self.line, column: self.column }
    }

    /// An error of a text that begins here.
    pub(super) fn error(self, error: &serde_json::Error) -> StreamError {
        let (line, column) = (error.line(), error.column());
        let at = match line {
            0 => self,
            1 => Self { column: self.column + column, ..self },
            _ => Self { line: self.line + line - 1, column },
        };
        at.broken(why(error))
    }
}

/// An error without its place.
pub(super) fn why(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.rfind(&format!(" at line {} column {}", error.line(), error.column())) {
        text.truncate(end);
    }
    text
}

/// How far the search for the end of a value is.
#[derive(Debug, Default)]
struct Search {
    open: usize,
    in_string: bool,
    escaped: bool,
}

impl Search {
    /// Bytes up to the value's end, where these hold it.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            at += 1;
            if self.escaped {
                self.escaped = false;
            } else if self.in_string {
                let quoted = bytes[at - 1..].iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
                at += quoted;
                self.escaped = bytes[at - 1] == b'\\';
                self.in_string = self.escaped;
                if !self.in_string && self.open == 0 {
                    return Some(at);
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.open += 1,
                    b',' | b':' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' if self.open == 0 => {
                        return Some(at - 1);
                    }
                    b'}' | b']' => {
                        self.open -= 1;
                        if self.open == 0 {
                            return Some(at);
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }
}

/// A text that arrives.
#[derive(Debug)]
pub struct JsonStream<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    place: TextPosition,
}

impl<R: Read> JsonStream<R> {
    /// A text, without the byte order mark it may begin with.
    ///
    /// # Errors
    /// [`StreamError::Read`].
    pub fn new(reader: R) -> Result<Self, StreamError> {
        let place = TextPosition { line: 1, column: 0 };
        let mut stream = Self { reader, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, place };
        while stream.held().len() < BYTE_ORDER_MARK.len() && stream.fill()? {}
        if stream.held().starts_with(&BYTE_ORDER_MARK) {
            stream.start += BYTE_ORDER_MARK.len();
        }
        Ok(stream)
    }

    /// Whether the first byte that is not blank is one of these; nothing is taken.
    ///
    /// # Errors
    /// [`StreamError::Read`], or when it begins with more blanks than are read.
    pub fn begins_with(&mut self, any: &[u8]) -> Result<bool, StreamError> {
        let mut seen = 0;
        loop {
            let first = self.held()[seen..].iter().position(|byte| !byte.is_ascii_whitespace());
            if let Some(first) = first {
                return Ok(any.contains(&self.held()[seen + first]));
            }
            seen = self.held().len();
            if !self.fill()? {
                return Ok(false);
            }
        }
    }

    /// That nothing but blanks follows.
    ///
    /// # Errors
    /// [`StreamError`] with the place of what does.
    pub fn end(&mut self) -> Result<(), StreamError> {
        match self.peek_past_blanks()? {
            None => Ok(()),
            Some(_) => Err(self.place.broken("trailing characters".to_owned())),
        }
    }

    pub(super) fn place(&self) -> TextPosition {
        self.place
    }

    fn held(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads more; false at the end of the text.
    fn fill(&mut self) -> Result<bool, StreamError> {
        if self.end == self.buffer.len() {
            if self.start == 0 {
                if self.end >= MOST_BYTES {
                    return Err(self.too_large());
                }
                self.buffer.resize(self.end * 2, 0);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn too_large(&self) -> StreamError {
        StreamError::TooLarge { line: self.place.line, column: self.place.column }
    }

    /// Whether so many bytes are more than are read of one object.
    pub(super) fn is_too_large(bytes: usize) -> bool {
        bytes > MOST_BYTES
    }

    /// The next byte, which stays; nothing at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, StreamError> {
        if self.start == self.end && !self.fill()? {
            return Ok(None);
        }
        Ok(self.held().first().copied())
    }

    /// Takes so many bytes that were seen.
    pub(super) fn eat(&mut self, bytes: usize) -> &[u8] {
        let taken = self.start..self.start + bytes;
        self.start = taken.end;
        self.place = self.place.after(&self.buffer[taken.clone()]);
        &self.buffer[taken]
    }

    /// Number of blanks that come next, as far as they are here already; at least one where there is any.
    pub(super) fn blanks(&mut self) -> Result<usize, StreamError> {
        self.peek()?;
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        Ok(self.held().iter().take_while(blank).count())
    }

    /// The next byte that is not blank, which stays; nothing at the end.
    pub(super) fn peek_past_blanks(&mut self) -> Result<Option<u8>, StreamError> {
        loop {
            match self.blanks()? {
                0 => return self.peek(),
                blanks => drop(self.eat(blanks)),
            }
        }
    }

    /// Bytes of the value that begins here, of which so many lists and objects are open already; up to the end of the
    /// text where it ends within the value.
    pub(super) fn value(&mut self, open: usize) -> Result<usize, StreamError> {
        let mut search = Search { open, ..Search::default() };
        let mut seen = 0;
        loop {
            if let Some(end) = search.end(&self.held()[seen..]) {
                return Ok(seen + end);
            }
            seen = self.held().len();
            if !self.fill()? {
                return Ok(seen);
            }
        }
    }
}

impl<R: Read> Read for JsonStream<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            return self.reader.read(to);
        }
        let bytes = self.held().len().min(to.len());
        to[..bytes].copy_from_slice(self.eat(bytes));
        Ok(bytes)
    }
}
