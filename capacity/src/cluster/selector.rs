//! Selectors as numbers, ready to be asked.

use std::sync::Arc;

pub use evenkeel_model::selector::SelectorError;
use evenkeel_model::selector::{self, LabelCondition};

use super::symbols::{Labels, Symbol, Symbols};
use crate::object;

/// One requirement of labels.
pub type Requirement = selector::Requirement<Symbol>;

fn holds(requirement: &Requirement, value: Option<Symbol>, symbols: &Symbols) -> bool {
    requirement.condition().holds(value, |value| symbols.word(value).parse().ok())
}

/// Whether a thing with these labels fulfils a requirement.
pub fn matches(requirement: &Requirement, labels: &Labels, symbols: &Symbols) -> bool {
    holds(requirement, labels.get(*requirement.key()), symbols)
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
        Ok(Self::All(written.requirements(|word| symbols.intern(word))?.into()))
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
            Self::All(all) => all.iter().all(|requirement| matches(requirement, labels, symbols)),
        }
    }
}

/// Labels that must be equal.
pub fn equalities(labels: &object::StringMap, symbols: &mut Symbols) -> Vec<Requirement> {
    selector::equalities(labels, |word| symbols.intern(word))
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
        let mut compile = |all: &[object::SelectorRequirement]| -> Result<Box<[Requirement]>, SelectorError> {
            all.iter().map(|written| Requirement::of_nodes(written, |word| symbols.intern(word))).collect()
        };
        Ok(Self { labels: compile(&written.match_expressions)?, names: compile(&written.match_fields)? })
    }

    /// Whether a node fits; a term without requirements fits none.
    pub fn matches(&self, name: Symbol, labels: &Labels, symbols: &Symbols) -> bool {
        let empty = self.labels.is_empty() && self.names.is_empty();
        !empty
            && self.names.iter().all(|requirement| holds(requirement, Some(name), symbols))
            && self.labels.iter().all(|requirement| matches(requirement, labels, symbols))
    }

    /// Names of nodes the term is restricted to: those that every `metadata.name In` of it lists; `None` = by no name.
    pub fn node_names(&self) -> Option<Vec<Symbol>> {
        let mut lists = self.names.iter().filter_map(|requirement| match requirement.condition() {
            LabelCondition::In(names) => Some(names),
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
