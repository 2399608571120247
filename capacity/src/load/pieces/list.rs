//! A list in a document, item by item.

use std::io::Read;

use super::super::stream::{JsonStream, StreamError, TextPosition};
use super::broken;

/// Objects of one list, as text.
#[derive(Debug)]
pub(super) struct ListItems {
    pub(super) list: String,
    pub(super) kind: Option<String>,
    /// Index of the first.
    pub(super) first: usize,
    pub(super) text: Vec<u8>,
    /// Where each begins in the whole, and ends in the text.
    pub(super) each: Vec<(TextPosition, usize)>,
}

/// A list that is being cut.
#[derive(Debug)]
pub(super) struct OpenList {
    pub(super) name: String,
    pub(super) kind: Option<String>,
    pub(super) index: usize,
}

impl OpenList {
    /// Bytes of the next object; nothing where the list ends.
    pub(super) fn next<R: Read>(&mut self, stream: &mut JsonStream<R>) -> Result<Option<usize>, StreamError> {
        let mut before = if self.index == 0 { "[" } else { "[0 " }.to_owned();
        let mut next = stream.peek_past_blanks()?;
        if next == Some(b']') {
            stream.eat(1);
            return Ok(None);
        }
        if self.index > 0 {
            if next != Some(b',') {
                return Err(broken(&before, next, stream));
            }
            stream.eat(1);
            before.push(',');
            next = stream.peek_past_blanks()?;
        }
        let bytes = stream.value(0)?;
        if bytes == 0 {
            return Err(broken(&before, next, stream));
        }
        self.index += 1;
        Ok(Some(bytes))
    }
}
