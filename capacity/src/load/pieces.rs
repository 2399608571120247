//! A snapshot in pieces of bounded size, cut from a JSON text as it arrives: each can be read apart from the others, on
//! another thread too, and is taken in in the order of the text.
//!
//! The pieces of a list are its objects. What is beside the lists of a document is one piece, which is read as any
//! document is ([`super::document`]), so that one place alone says what a document may be.

mod list;

use std::io::Read;

use serde::de::{DeserializeSeed, IgnoredAny};
use serde_json::Value;

use super::document::items_kind;
use super::element::{Element, ElementSeed, Named, Spot, Unnamed, again, as_text};
use super::list_of_kind;
use super::members::{Members, Rest};
use super::stream::{JsonStream, StreamError, TextPosition, why};
use list::{ListItems, OpenList};

/// A piece is handed out when it has so many bytes.
/// Small, so that what is parsed of it is soon given back to the allocator, which is quickest so.
const PIECE_BYTES: usize = 32 << 10;

/// Some objects of one list, or what is beside the lists of a document.
#[derive(Debug)]
pub struct Piece(Content);

#[derive(Debug)]
enum Content {
    Objects(ListItems),
    Rest(Rest),
}

/// A piece that was read.
#[derive(Debug)]
pub struct Parsed(pub(super) Readings);

#[derive(Debug)]
pub(super) enum Readings {
    /// Objects of a list from this index on, up to the first that is broken.
    Objects {
        list: String,
        first: usize,
        all: Vec<(TextPosition, Element)>,
        failed: Option<StreamError>,
    },
    Rest(Rest),
}

impl Piece {
    /// Reads the piece; what is broken is told when it is taken in.
    pub fn parse(self) -> Parsed {
        let objects = match self.0 {
            Content::Rest(rest) => return Parsed(Readings::Rest(rest)),
            Content::Objects(objects) => objects,
        };
        let ListItems { list, kind, first, text, each } = objects;
        let (mut begin, mut all, mut failed) = (0, Vec::with_capacity(each.len()), None);
        for (index, (place, end)) in each.into_iter().enumerate() {
            match element(Spot::In(&list, first + index), kind.as_deref(), &text[begin..end]) {
                Ok(element) => all.push((place, element)),
                Err(error) => {
                    failed = Some(place.error(&error));
                    break;
                }
            }
            begin = end;
        }
        Parsed(Readings::Objects { list, first, all, failed })
    }
}

/// Reads one object quickly, and again for the field where it is broken.
fn element(spot: Spot<'_>, kind: Option<&str>, slice: &[u8]) -> Result<Element, serde_json::Error> {
    let checked = as_text(spot, slice)?;
    let text = || serde_json::Deserializer::from_str(checked);
    let read = ElementSeed { spot, kind, fields: Unnamed }.deserialize(&mut text());
    let named = || ElementSeed { spot, kind, fields: Named }.deserialize(&mut text());
    read.or_else(|first| again(spot, slice, &first, named))
}

/// Cuts a text into pieces; ends with the first error.
#[derive(Debug)]
pub struct Pieces<'a, R> {
    stream: &'a mut JsonStream<R>,
    document: Option<Document>,
    /// One document only, whatever follows.
    single: bool,
    /// Found after objects that had to be handed out first.
    failed: Option<StreamError>,
    ended: bool,
}

/// A document that is being cut.
#[derive(Debug)]
struct Document {
    members: Members,
    kind: Option<String>,
    /// Something came before the kind.
    before: bool,
    list: Option<OpenList>,
}

/// What a member makes of its document.
enum MemberKind {
    /// Another one may follow.
    Member,
    /// The document is one object.
    Object,
    /// It cannot be what it is.
    Broken,
}

impl<R: Read> Iterator for Pieces<'_, R> {
    type Item = Result<Piece, StreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let piece = self.cut().transpose();
        self.ended |= !matches!(piece, Some(Ok(_)));
        piece
    }
}

impl<'a, R: Read> Pieces<'a, R> {
    /// All documents of a text.
    pub fn new(stream: &'a mut JsonStream<R>) -> Self {
        Self { stream, document: None, single: false, failed: None, ended: false }
    }

    /// The document that is next alone.
    pub(super) fn of_one_document(stream: &'a mut JsonStream<R>) -> Self {
        Self { single: true, ..Self::new(stream) }
    }

    fn cut(&mut self) -> Result<Option<Piece>, StreamError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut document = match self.document.take() {
            Some(document) => document,
            None if self.stream.peek_past_blanks()?.is_none() => return Ok(None),
            None => Document::begin(self.stream)?,
        };
        loop {
            if let Some(list) = document.list.take() {
                let objects = self.objects(&mut document, list)?;
                if !objects.each.is_empty() {
                    self.document = Some(document);
                    return Ok(Some(Piece(Content::Objects(objects))));
                }
            }
            if document.next_list(self.stream)? {
                continue;
            }
            self.ended |= self.single;
            return Ok(Some(Piece(Content::Rest(document.members.rest()))));
        }
    }

    /// Cuts objects off a list, which goes on in the document where they are enough for now.
    fn objects(&mut self, document: &mut Document, mut list: OpenList) -> Result<ListItems, StreamError> {
        let (name, kind, first) = (list.name.clone(), list.kind.clone(), list.index);
        let text = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8);
        let mut objects = ListItems { list: name, kind, first, text, each: Vec::new() };
        while objects.text.len() < PIECE_BYTES {
            match list.next(self.stream) {
                Ok(Some(bytes)) => {
                    let place = self.stream.place();
                    objects.text.extend_from_slice(self.stream.eat(bytes));
                    objects.each.push((place, objects.text.len()));
                }
                Ok(None) => {
                    document.members.go_on(self.stream);
                    return Ok(objects);
                }
                Err(error) if objects.each.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    return Ok(objects);
                }
            }
        }
        document.list = Some(list);
        Ok(objects)
    }
}

impl Document {
    fn begin<R: Read>(stream: &mut JsonStream<R>) -> Result<Self, StreamError> {
        Ok(Self { members: Members::begin(stream)?, kind: None, before: false, list: None })
    }

    /// Goes on to the next list of objects; false where the document has no further one.
    fn next_list<R: Read>(&mut self, stream: &mut JsonStream<R>) -> Result<bool, StreamError> {
        while let Some(key) = self.members.next(stream)? {
            let of_kind = list_of_kind(&key);
            if (key == "items" || of_kind.is_some()) && stream.peek()? == Some(b'[') {
                let kind = of_kind.or_else(|| items_kind(self.kind.as_deref())).map(str::to_owned);
                stream.eat(1);
                self.members.stand_in(b"[]");
                self.list = Some(OpenList { name: key, kind, index: 0 });
                self.kind.get_or_insert_with(String::new);
                return Ok(true);
            }
            match self.member(&key, stream)? {
                MemberKind::Member => {}
                MemberKind::Object => {
                    self.members.keep_all(stream)?;
                    return Ok(false);
                }
                MemberKind::Broken => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Keeps a member, and looks at it as closely as whoever reads the rest will: errors are told in the order of the
    /// text.
    fn member<R: Read>(&mut self, key: &str, stream: &mut JsonStream<R>) -> Result<MemberKind, StreamError> {
        let value = self.members.keep(stream)?;
        let fine = match key {
            "kind" => {
                let Ok(kind) = serde_json::from_slice::<String>(value) else { return Ok(MemberKind::Broken) };
                let list = kind.ends_with("List");
                self.kind = Some(kind);
                return Ok(if list || self.before { MemberKind::Member } else { MemberKind::Object });
            }
            "apiVersion" => serde_json::from_slice::<IgnoredAny>(value).is_ok(),
            "items" => value == b"null",
            _ if list_of_kind(key).is_some() => value == b"null",
            _ if self.kind.is_some() && !self.before => serde_json::from_slice::<IgnoredAny>(value).is_ok(),
            _ => {
                self.before = true;
                serde_json::from_slice::<Value>(value).is_ok()
            }
        };
        if fine && (key == "items" || list_of_kind(key).is_some()) {
            self.kind.get_or_insert_with(String::new);
        }
        Ok(if fine { MemberKind::Member } else { MemberKind::Broken })
    }
}

/// What is wrong with a list that goes on like this, in the words of whoever reads lists.
fn broken<R: Read>(before: &str, next: Option<u8>, stream: &JsonStream<R>) -> StreamError {
    let text: Vec<u8> = before.bytes().chain(next).collect();
    let place = stream.place();
    match serde_json::from_slice::<Vec<IgnoredAny>>(&text) {
        Err(error) => {
            let past = error.column().saturating_sub(before.len());
            TextPosition { column: place.column + past, ..place }.broken(why(&error))
        }
        // Not reached: every text that is given here is broken.
        Ok(_) => place.broken("a list that is broken".to_owned()),
    }
}
