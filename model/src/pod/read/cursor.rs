//! Owns walking the tree: each cursor knows its value and how to spell the path to it, so that every error can name
//! the field and the line.

use std::fmt;

use super::error::{ReadError, ReadReason};
use super::tree::{Placed, TreeValue};
use crate::quantity::Quantity;

/// The source that is read, for errors and for the text of scalars.
pub(super) struct ManifestSource<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    pub(super) document: usize,
}

/// A value, and the way to it.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    source: &'a ManifestSource<'a>,
    placed: &'a Placed,
    parent: Option<&'a Cursor<'a>>,
    step: PathStep<'a>,
}

#[derive(Clone, Copy)]
enum PathStep<'a> {
    Root,
    Field(&'a str),
    Index(usize),
}

impl<'a> Cursor<'a> {
    pub(super) fn root(source: &'a ManifestSource<'a>, placed: &'a Placed) -> Self {
        Self { source, placed, parent: None, step: PathStep::Root }
    }

    fn child(&'a self, step: PathStep<'a>, placed: &'a Placed) -> Self {
        Self { source: self.source, placed, parent: Some(self), step }
    }

    /// The field of this name; absent and null are the same.
    pub(super) fn field(&'a self, name: &'a str) -> Result<Option<Self>, ReadError> {
        let Some(entries) = self.entries()? else { return Ok(None) };
        let mut named = entries.iter().filter(|(key, _)| key == name);
        let Some((key, placed)) = named.next() else { return Ok(None) };
        if named.next().is_some() {
            // Only JSON gets here: the YAML reader refuses a second key itself.
            let field = self.child(PathStep::Field(key), placed);
            return Err(field.error(ReadReason::DuplicateKey { key: key.clone() }));
        }
        if matches!(placed.value, TreeValue::Null) {
            return Ok(None);
        }
        Ok(Some(self.child(PathStep::Field(key), placed)))
    }

    /// The field of this name, which must be there.
    pub(super) fn required(&'a self, name: &'a str, remedy: &'static str) -> Result<Self, ReadError> {
        self.field(name)?.ok_or_else(|| {
            let path = format!("{self}{}{name}", if self.parent.is_some() { "." } else { "" });
            ReadError { path: Some(path), ..self.error(ReadReason::Missing { remedy }) }
        })
    }

    /// All fields of a map in their order, none twice.
    pub(super) fn fields(&'a self) -> Result<Vec<(&'a str, Self)>, ReadError> {
        let mut fields: Vec<(&str, Self)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (key, placed) in self.entries()?.unwrap_or_default() {
            let field = self.child(PathStep::Field(key), placed);
            if !seen.insert(key.as_str()) {
                return Err(field.error(ReadReason::DuplicateKey { key: key.clone() }));
            }
            fields.push((key, field));
        }
        Ok(fields)
    }

    fn entries(&self) -> Result<Option<&'a [(String, Placed)]>, ReadError> {
        match &self.placed.value {
            TreeValue::Map(entries) => Ok(Some(entries)),
            TreeValue::Null => Ok(None),
            other => Err(self.wrong_type("a map", other)),
        }
    }

    /// The elements of a list; nothing is an empty list.
    pub(super) fn elements(&'a self) -> Result<Vec<Self>, ReadError> {
        match &self.placed.value {
            TreeValue::List(list) => {
                Ok(list.iter().enumerate().map(|(i, e)| self.child(PathStep::Index(i), e)).collect())
            }
            TreeValue::Null => Ok(Vec::new()),
            other => Err(self.wrong_type("a list", other)),
        }
    }

    /// A string. A number or boolean that should have been quoted is taken as it is written.
    pub(super) fn text(&self) -> Result<String, ReadError> {
        match &self.placed.value {
            TreeValue::Text(text) => Ok(text.clone()),
            TreeValue::Bool(value) => Ok(self.written().map_or_else(|| value.to_string(), str::to_owned)),
            TreeValue::Integer(value) => Ok(self.written().map_or_else(|| value.to_string(), str::to_owned)),
            TreeValue::Float(value) => Ok(self.written().map_or_else(|| value.to_string(), str::to_owned)),
            other => Err(self.wrong_type("a string", other)),
        }
    }

    /// True or false.
    pub(super) fn boolean(&self) -> Result<bool, ReadError> {
        match &self.placed.value {
            TreeValue::Bool(value) => Ok(*value),
            other => Err(self.wrong_type("true or false", other)),
        }
    }

    /// An integer of 32 bits.
    pub(super) fn integer(&self) -> Result<i32, ReadError> {
        match &self.placed.value {
            TreeValue::Integer(value) => i32::try_from(*value).map_err(|_| {
                self.invalid(format!("{value} is not an integer of 32 bits; write a smaller one"))
            }),
            other => Err(self.wrong_type("an integer", other)),
        }
    }

    /// A quantity: a string or a number, exactly as written.
    pub(super) fn quantity(&self) -> Result<Quantity, ReadError> {
        let parsed = match &self.placed.value {
            TreeValue::Text(text) => Quantity::parse(text.trim()),
            TreeValue::Integer(value) => Quantity::parse(&value.to_string()),
            TreeValue::Float(value) => match self.written().map(Quantity::parse) {
                Some(Ok(quantity)) => Ok(quantity),
                _ => crate::quantity::from_float(*value),
            },
            other => return Err(self.wrong_type("a quantity such as 2, 0.5, 300m or 64Mi", other)),
        };
        parsed.map_err(|error| self.invalid(error.to_string()))
    }

    /// The text of a plain scalar as it stands in the source.
    fn written(&self) -> Option<&'a str> {
        let (start, end) = self.placed.range?;
        self.source.text.get(start as usize..end as usize).map(str::trim).filter(|text| !text.is_empty())
    }

    fn wrong_type(&self, expected: &'static str, found: &TreeValue) -> ReadError {
        self.error(ReadReason::WrongType { expected, found: found.type_name() })
    }

    /// An error about the value here.
    pub(super) fn invalid(&self, text: String) -> ReadError {
        self.error(ReadReason::Invalid(text))
    }

    /// An error here.
    pub(super) fn error(&self, reason: ReadReason) -> ReadError {
        ReadError {
            source_name: self.source.name.to_owned(),
            document: Some(self.source.document),
            path: Some(self.to_string()),
            line: self.placed.line.map(|line| line.get().into()),
            reason,
        }
    }
}

/// The path, such as `spec.containers[0].name`.
impl fmt::Display for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        write!(f, "{parent}")?;
        match self.step {
            PathStep::Root => Ok(()),
            PathStep::Field(name) if parent.parent.is_none() => f.write_str(name),
            PathStep::Field(name) => write!(f, ".{name}"),
            PathStep::Index(index) => write!(f, "[{index}]"),
        }
    }
}
