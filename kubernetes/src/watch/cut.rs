//! Bytes of an answer cut into objects as they arrive: a list is never in memory as a whole.
//!
//! Where a value ends is found by strings and brackets alone; what a value means is for whoever reads it.

/// Most bytes of one object. etcd takes requests of 1.5 MiB (`--max-request-bytes`), so that no object comes near.
pub(crate) const MOST_OBJECT: usize = 16 << 20;
/// Most bytes of what a list has beside its items: a kind and a few words of metadata.
const MOST_REST: usize = 1 << 20;
/// A buffer that was larger is given back after the object.
const KEPT_BUFFER: usize = 256 << 10;

/// More bytes than are taken of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("one object has more than {0} bytes")]
pub(crate) struct TooLarge(usize);

/// Within which brackets and strings the next byte is.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// Moves past a byte; whether it ended a string.
    fn past(&mut self, byte: u8) -> bool {
        if self.escaped {
            self.escaped = false;
        } else if self.in_string {
            match byte {
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return true;
                }
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        false
    }
}

/// Depth within a list's document, and within its `items`.
const DOCUMENT: usize = 1;
const ITEMS: usize = 2;
/// The member of a list that holds them.
const ITEMS_KEY: &[u8] = b"items";

/// The items of a list, one by one.
#[derive(Debug, Default)]
pub(crate) struct Items {
    nesting: Nesting,
    /// The last string of the document itself.
    word: Vec<u8>,
    in_items: bool,
    item: Vec<u8>,
    rest: Vec<u8>,
}

impl Items {
    /// Takes in what arrived, and calls `take` with each item that is whole.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub(crate) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), TooLarge> {
        for &byte in bytes {
            let (before, was_in_string) = (self.nesting.depth, self.nesting.in_string);
            self.nesting.past(byte);
            if self.in_items {
                self.item(byte, before, &mut take)?;
            } else {
                self.rest(byte, before, was_in_string)?;
            }
        }
        Ok(())
    }

    fn item(&mut self, byte: u8, before: usize, take: &mut impl FnMut(&[u8])) -> Result<(), TooLarge> {
        let after = self.nesting.depth;
        if after < ITEMS {
            self.in_items = false;
            self.rest.push(byte);
        } else if before > ITEMS || after > ITEMS {
            if self.item.len() >= MOST_OBJECT {
                return Err(TooLarge(MOST_OBJECT));
            }
            self.item.push(byte);
            if after == ITEMS {
                take(&self.item);
                self.item.clear();
                self.item.shrink_to(KEPT_BUFFER);
            }
        }
        Ok(())
    }

    fn rest(&mut self, byte: u8, before: usize, was_in_string: bool) -> Result<(), TooLarge> {
        if self.rest.len() >= MOST_REST {
            return Err(TooLarge(MOST_REST));
        }
        self.rest.push(byte);
        let Nesting { depth, in_string, .. } = self.nesting;
        if before != DOCUMENT {
            return Ok(());
        }
        match (was_in_string, in_string) {
            (false, true) => self.word.clear(),
            (true, true) if self.word.len() <= ITEMS_KEY.len() => self.word.push(byte),
            (false, false) if byte == b',' => self.word.clear(),
            (false, false) if depth == ITEMS => self.in_items = byte == b'[' && self.word == ITEMS_KEY,
            _ => {}
        }
        Ok(())
    }

    /// The document without its items, once all of it was pushed.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        self.rest
    }
}

/// Lines, one by one: a watch sends an event in each.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
}

impl Lines {
    /// Takes in what arrived, and calls `take` with each whole line until it says no.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), TooLarge> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = bytes.split_at(end);
            bytes = tail.get(1..).unwrap_or_default();
            let goes_on = if self.line.is_empty() {
                head.is_empty() || take(head)
            } else {
                self.line.extend_from_slice(head);
                let goes_on = take(&self.line);
                self.line.clear();
                self.line.shrink_to(KEPT_BUFFER);
                goes_on
            };
            if !goes_on {
                return Ok(());
            }
        }
        if self.line.len() + bytes.len() > MOST_OBJECT {
            return Err(TooLarge(MOST_OBJECT));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }
}

/// The text of a member that is an object, in an object.
pub(crate) fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (mut nesting, mut string, mut key) = (Nesting::default(), 0, &object[..0]);
    let mut begin = None;
    for (at, &byte) in object.iter().enumerate() {
        let (before, was_in_string) = (nesting.depth, nesting.in_string);
        let ended = nesting.past(byte);
        if before == DOCUMENT && nesting.in_string && !was_in_string {
            string = at + 1;
        } else if before == DOCUMENT && ended {
            key = &object[string..at];
        } else if before == DOCUMENT && nesting.depth == DOCUMENT + 1 {
            begin = (key == name.as_bytes()).then_some(at);
        } else if before == DOCUMENT + 1
            && nesting.depth == DOCUMENT
            && let Some(begin) = begin.take()
        {
            return Some(&object[begin..=at]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items and the rest of a text that arrives in pieces of this many bytes.
    fn cut(text: &str, bytes: usize) -> (Vec<String>, String) {
        let (mut items, mut found) = (Items::default(), Vec::new());
        for piece in text.as_bytes().chunks(bytes) {
            items.push(piece, |item| found.push(String::from_utf8(item.to_vec()).unwrap())).unwrap();
        }
        (found, String::from_utf8(items.into_rest()).unwrap())
    }

    #[test]
    fn a_list_is_cut_wherever_it_breaks() {
        for (text, items, rest) in [
            (
                r#"{"kind":"PodList","metadata":{"items":[1],"resourceVersion":"7"},"items":[{"a":1},{"b":[{"c":"]}"}]}]}"#,
                &[r#"{"a":1}"#, r#"{"b":[{"c":"]}"}]}"#][..],
                r#"{"kind":"PodList","metadata":{"items":[1],"resourceVersion":"7"},"items":[]}"#,
            ),
            (
                "{ \"items\" : [ {\"a\": \"\\\"}\\\\\"} , {} ] , \"kind\" : \"items\" }",
                &["{\"a\": \"\\\"}\\\\\"}", "{}"],
                "{ \"items\" : [] , \"kind\" : \"items\" }",
            ),
            (r#"{"items":null}"#, &[], r#"{"items":null}"#),
            (r#"{"x":["items",{"items":[{}]}]}"#, &[], r#"{"x":["items",{"items":[{}]}]}"#),
            (r#"{"a":"items","b":[{}]}"#, &[], r#"{"a":"items","b":[{}]}"#),
            (r#"{"xitems":[{}],"itemsx":[{}]}"#, &[], r#"{"xitems":[{}],"itemsx":[{}]}"#),
        ] {
            for bytes in [1, 2, 3, 7, 1000] {
                let (found, left) = cut(text, bytes);
                assert_eq!(
                    (found.as_slice(), left.as_str()),
                    (&items.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..], rest),
                    "{text} by {bytes}"
                );
            }
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let mut items = Items::default();
        items.push(br#"{"items":[{"a":""#, |_| ()).unwrap();
        let more = vec![b'x'; MOST_OBJECT];
        assert_eq!(items.push(&more, |_| ()), Err(TooLarge(MOST_OBJECT)));
        assert_eq!(Items::default().push(&vec![b' '; MOST_REST + 1], |_| ()), Err(TooLarge(MOST_REST)));
        assert_eq!(Lines::default().push(&vec![b'x'; MOST_OBJECT + 1], |_| true), Err(TooLarge(MOST_OBJECT)));
    }

    #[test]
    fn lines_come_whole_and_stop_when_told_to() {
        for bytes in [1, 2, 5, 100] {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in b"one\n\ntwo\nthree".chunks(bytes) {
                lines
                    .push(piece, |line| {
                        found.push(String::from_utf8(line.to_vec()).unwrap());
                        true
                    })
                    .unwrap();
            }
            assert_eq!(found, ["one", "two"], "by {bytes}");
        }
        let mut seen = 0;
        Lines::default()
            .push(b"a\nb\n", |_| {
                seen += 1;
                false
            })
            .unwrap();
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_member_is_found_where_it_is() {
        for (text, want) in [
            (r#"{"type":"ADDED","object":{"a":{"object":{}}}}"#, Some(r#"{"a":{"object":{}}}"#)),
            (r#"{ "object" : {"s":"}"} , "type" : "x"}"#, Some(r#"{"s":"}"}"#)),
            (r#"{"x":{"object":{}}}"#, None),
            (r#"{"object":"text"}"#, None),
            ("", None),
            ("{\"object\":{", None),
        ] {
            assert_eq!(member(text.as_bytes(), "object"), want.map(str::as_bytes), "{text}");
        }
    }
}
