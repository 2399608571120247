//! Selectors ready to be asked.

use std::sync::Arc;

use super::symbols::{Labels, Symbol, Symbols};
use crate::object;

/// Why a selector cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator nobody knows.
    #[error("\"{0}\" is not an operator: In, NotIn, Exists, DoesNotExist, for nodes also Gt and Lt")]
    Operator(String),
    /// Too many or too few values for the operator.
    #[error("operator {operator} of {key} takes {wanted}")]
    Values {
        /// The operator.
        operator: String,
        /// The label.
        key: String,
        /// What it takes.
        wanted: &'static str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Operator {
    In(Box<[Symbol]>),
    NotIn(Box<[Symbol]>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
    /// `Gt` or `Lt` of what is not a number: never holds.
    Never,
}

/// One requirement of labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Symbol,
    operator: Operator,
}

impl Requirement {
    /// Compiles one as written.
    ///
    /// # Errors
    /// [`SelectorError`] by operator or number of values.
    pub fn new(written: &object::Requirement, symbols: &mut Symbols) -> Result<Self, SelectorError> {
        let values =
            |symbols: &mut Symbols| written.values.iter().map(|value| symbols.intern(value)).collect();
        let wrong = |wanted| SelectorError::Values {
            operator: written.operator.clone(),
            key: written.key.clone(),
            wanted,
        };
        let operator = match (written.operator.as_str(), written.values.as_slice()) {
            ("In" | "NotIn", []) => return Err(wrong("at least one value")),
            ("In", _) => Operator::In(values(symbols)),
            ("NotIn", _) => Operator::NotIn(values(symbols)),
            ("Exists", []) => Operator::Exists,
            ("DoesNotExist", []) => Operator::DoesNotExist,
            ("Exists" | "DoesNotExist", _) => return Err(wrong("no value")),
            ("Gt", [value]) => value.parse().map_or(Operator::Never, Operator::Above),
            ("Lt", [value]) => value.parse().map_or(Operator::Never, Operator::Below),
            ("Gt" | "Lt", _) => return Err(wrong("one value")),
            (other, _) => return Err(SelectorError::Operator(other.to_owned())),
        };
        Ok(Self { key: symbols.intern(&written.key), operator })
    }

    /// The label must have this value.
    pub fn equal(key: Symbol, value: Symbol) -> Self {
        Self { key, operator: Operator::In([value].into()) }
    }

    /// The label must not have this value.
    pub fn unequal(key: Symbol, value: Symbol) -> Self {
        Self { key, operator: Operator::NotIn([value].into()) }
    }

    /// Whether a thing with this value of the label (`None` = without the label) fits.
    pub fn holds(&self, value: Option<Symbol>, symbols: &Symbols) -> bool {
        match (&self.operator, value) {
            (Operator::In(values), Some(value)) => values.contains(&value),
            (Operator::NotIn(values), Some(value)) => !values.contains(&value),
            (Operator::NotIn(_) | Operator::DoesNotExist, None) | (Operator::Exists, Some(_)) => true,
            (Operator::Above(bound), Some(value)) => number(value, symbols).is_some_and(|n| n > *bound),
            (Operator::Below(bound), Some(value)) => number(value, symbols).is_some_and(|n| n < *bound),
            _ => false,
        }
    }

    /// The label it asks.
    pub fn key(&self) -> Symbol {
        self.key
    }

    fn matches(&self, labels: &Labels, symbols: &Symbols) -> bool {
        self.holds(labels.get(self.key), symbols)
    }
}

fn number(value: Symbol, symbols: &Symbols) -> Option<i64> {
    symbols.word(value).parse().ok()
}

/// Selects by labels: every requirement must hold. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Selector {
    /// Nothing: no selector was given.
    Nothing,
    /// Everything for which all of these hold; none = everything.
    All(Arc<[Requirement]>),
}

impl Selector {
    /// Compiles a label selector; `None` selects nothing.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub fn new(
        written: Option<&object::LabelSelector>,
        symbols: &mut Symbols,
    ) -> Result<Self, SelectorError> {
        let Some(written) = written else { return Ok(Self::Nothing) };
        Ok(Self::All(requirements(written, symbols)?.into()))
    }

    /// The same with further requirements.
    #[must_use]
    pub fn and(self, more: Vec<Requirement>) -> Self {
        match self {
            Self::All(all) if !more.is_empty() => Self::All(all.iter().cloned().chain(more).collect()),
            other => other,
        }
    }

    /// True when it selects everything.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::All(all) if all.is_empty())
    }

    /// Whether it selects a thing with these labels.
    pub fn matches(&self, labels: &Labels, symbols: &Symbols) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(all) => all.iter().all(|requirement| requirement.matches(labels, symbols)),
        }
    }
}

/// All requirements of a label selector.
///
/// # Errors
/// [`SelectorError`].
pub fn requirements(
    written: &object::LabelSelector,
    symbols: &mut Symbols,
) -> Result<Vec<Requirement>, SelectorError> {
    let mut all = equalities(&written.match_labels, symbols);
    for requirement in &written.match_expressions {
        all.push(Requirement::new(requirement, symbols)?);
    }
    Ok(all)
}

/// Labels that must be equal.
pub fn equalities(labels: &object::StringMap, symbols: &mut Symbols) -> Vec<Requirement> {
    labels
        .iter()
        .map(|(key, value)| {
            let (key, value) = (symbols.intern(key), symbols.intern(value));
            Requirement::equal(key, value)
        })
        .collect()
}

/// One alternative of a node selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: Box<[Requirement]>,
    names: Box<[Requirement]>,
}

impl NodeTerm {
    /// Compiles a term.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub fn new(written: &object::NodeSelectorTerm, symbols: &mut Symbols) -> Result<Self, SelectorError> {
        let mut compile = |all: &[object::Requirement]| -> Result<Box<[Requirement]>, SelectorError> {
            all.iter().map(|requirement| Requirement::new(requirement, symbols)).collect()
        };
        Ok(Self { labels: compile(&written.match_expressions)?, names: compile(&written.match_fields)? })
    }

    /// Whether a node fits; a term without requirements fits none.
    pub fn matches(&self, name: Symbol, labels: &Labels, symbols: &Symbols) -> bool {
        let empty = self.labels.is_empty() && self.names.is_empty();
        !empty
            && self.names.iter().all(|requirement| requirement.holds(Some(name), symbols))
            && self.labels.iter().all(|requirement| requirement.matches(labels, symbols))
    }

    /// Names of nodes the term is restricted to: those that every `metadata.name In` of it lists; `None` = by no name.
    pub fn node_names(&self) -> Option<Vec<Symbol>> {
        let mut lists = self.names.iter().filter_map(|requirement| match &requirement.operator {
            Operator::In(names) => Some(names),
            _ => None,
        });
        let mut names = lists.next()?.to_vec();
        for list in lists {
            names.retain(|name| list.contains(name));
        }
        Some(names)
    }
}

/// A node selector: any of its terms.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeTerms(pub Box<[NodeTerm]>);

impl NodeTerms {
    /// Compiles a node selector.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub fn new(written: &object::NodeSelector, symbols: &mut Symbols) -> Result<Self, SelectorError> {
        written
            .node_selector_terms
            .iter()
            .map(|term| NodeTerm::new(term, symbols))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether any term fits the node.
    pub fn matches(&self, name: Symbol, labels: &Labels, symbols: &Symbols) -> bool {
        self.0.iter().any(|term| term.matches(name, labels, symbols))
    }
}
