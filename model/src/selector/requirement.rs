//! Owns whether labels fulfil a selector: its requirements, checked once and ready to be asked.
//!
//! Words are kept as the caller keeps them: as text, or as the small numbers of a snapshot of thousands of nodes.

use std::collections::BTreeMap;

use super::{LabelSelector, SelectorRequirement};

/// Why a selector cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that Kubernetes does not define.
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

/// What a requirement asks of the value of its label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LabelCondition<W> {
    /// The label is there, with one of these values.
    In(Box<[W]>),
    /// The label is not there, or with none of these values.
    NotIn(Box<[W]>),
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The label is there, with an integer above this.
    Gt(i64),
    /// The label is there, with an integer below this.
    Lt(i64),
    /// `Gt` or `Lt` of what is not an integer: never holds.
    Never,
}

impl<W> LabelCondition<W> {
    /// Whether a label of this value, or its absence, meets the condition; `number` reads a value as an integer.
    pub fn holds<V: Copy>(&self, value: Option<V>, number: impl FnOnce(V) -> Option<i64>) -> bool
    where
        W: PartialEq<V>,
    {
        let listed = |values: &[W], value| values.iter().any(|known| *known == value);
        match (self, value) {
            (Self::In(values), Some(value)) => listed(values, value),
            (Self::NotIn(values), Some(value)) => !listed(values, value),
            (Self::NotIn(_) | Self::DoesNotExist, None) | (Self::Exists, Some(_)) => true,
            (Self::Gt(bound), Some(value)) => number(value).is_some_and(|n| n > *bound),
            (Self::Lt(bound), Some(value)) => number(value).is_some_and(|n| n < *bound),
            _ => false,
        }
    }
}

/// One requirement of one label, ready to be asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement<W> {
    key: W,
    condition: LabelCondition<W>,
}

impl<W> Requirement<W> {
    /// Of a label selector; `word` makes a word of text.
    ///
    /// # Errors
    /// [`SelectorError`] by operator or number of values.
    pub fn of_labels(
        written: &SelectorRequirement,
        mut word: impl FnMut(&str) -> W,
    ) -> Result<Self, SelectorError> {
        let SelectorRequirement { key, operator, values } = written;
        let wrong = |wanted| {
            let (operator, key) = (operator.clone(), key.clone());
            Err(SelectorError::Values { operator, key, wanted })
        };
        let listed = |word: &mut dyn FnMut(&str) -> W| values.iter().map(|value| word(value)).collect();
        let condition = match (operator.as_str(), values.as_slice()) {
            ("In" | "NotIn", []) => return wrong("at least one value"),
            ("In", _) => LabelCondition::In(listed(&mut word)),
            ("NotIn", _) => LabelCondition::NotIn(listed(&mut word)),
            ("Exists", []) => LabelCondition::Exists,
            ("DoesNotExist", []) => LabelCondition::DoesNotExist,
            ("Exists" | "DoesNotExist", _) => return wrong("no value"),
            (other, _) => return Err(SelectorError::Operator(other.to_owned())),
        };
        Ok(Self { key: word(key), condition })
    }

    /// Of a node selector, which knows `Gt` and `Lt` as well.
    ///
    /// # Errors
    /// [`SelectorError`] by operator or number of values.
    pub fn of_nodes(
        written: &SelectorRequirement,
        mut word: impl FnMut(&str) -> W,
    ) -> Result<Self, SelectorError> {
        let SelectorRequirement { key, operator, values } = written;
        let compared = |condition: fn(i64) -> LabelCondition<W>| match values.as_slice() {
            [value] => Ok(value.parse().map_or(LabelCondition::Never, condition)),
            _ => {
                let (operator, key) = (operator.clone(), key.clone());
                Err(SelectorError::Values { operator, key, wanted: "one value" })
            }
        };
        let condition = match operator.as_str() {
            "Gt" => compared(LabelCondition::Gt)?,
            "Lt" => compared(LabelCondition::Lt)?,
            _ => return Self::of_labels(written, word),
        };
        Ok(Self { key: word(key), condition })
    }

    /// The label must have this value.
    pub fn equal(key: W, value: W) -> Self {
        Self { key, condition: LabelCondition::In([value].into()) }
    }

    /// The label must not have this value.
    pub fn unequal(key: W, value: W) -> Self {
        Self { key, condition: LabelCondition::NotIn([value].into()) }
    }

    /// Key of the label.
    pub fn key(&self) -> &W {
        &self.key
    }

    /// What is asked of its value.
    pub fn condition(&self) -> &LabelCondition<W> {
        &self.condition
    }
}

/// A label selector ready to be asked by text: every requirement must hold. Without any it selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    requirements: Vec<Requirement<String>>,
}

impl Selector {
    /// Of a label selector as written.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub fn new(written: &LabelSelector) -> Result<Self, SelectorError> {
        written.requirements(str::to_owned).map(|requirements| Self { requirements })
    }

    /// Whether nothing is required, so that it selects everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements; those of `matchLabels` first.
    pub fn requirements(&self) -> &[Requirement<String>] {
        &self.requirements
    }

    /// Whether it selects what has these labels.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let number = |value: &str| value.parse().ok();
        self.requirements.iter().all(|r| r.condition.holds(label(&r.key), number))
    }

    /// A label that all it selects has with this one value, where there is one: what an index may look by.
    pub fn one_label(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|r| match &r.condition {
            LabelCondition::In(values) => match &**values {
                [value] => Some((r.key.as_str(), value.as_str())),
                _ => None,
            },
            _ => None,
        })
    }

    /// The key about which requirements contradict each other, so that nothing at all can be selected.
    pub fn contradiction(&self) -> Option<&str> {
        let mut by_key: BTreeMap<&str, Vec<&LabelCondition<String>>> = BTreeMap::new();
        for Requirement { key, condition } in &self.requirements {
            by_key.entry(key).or_default().push(condition);
        }
        by_key.into_iter().find(|(_, all)| is_impossible(all)).map(|(key, _)| key)
    }
}

/// Whether no label, and no absence of it, fulfils all conditions.
fn is_impossible(all: &[&LabelCondition<String>]) -> bool {
    let holds = |value: Option<&str>| all.iter().all(|c| c.holds(value, |value| value.parse().ok()));
    let lists =
        || all.iter().filter_map(|c| if let LabelCondition::In(values) = c { Some(values) } else { None });
    let present = match lists().next() {
        Some(values) => values.iter().any(|value| holds(Some(value))),
        // Without a list of values there is always a further value that nothing excludes.
        None => !all.iter().any(|c| matches!(c, LabelCondition::DoesNotExist)),
    };
    !present && !holds(None)
}

impl LabelSelector {
    /// All requirements; `word` makes a word of text.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub fn requirements<W>(
        &self,
        mut word: impl FnMut(&str) -> W,
    ) -> Result<Vec<Requirement<W>>, SelectorError> {
        let mut all = equalities(&self.match_labels, &mut word);
        for requirement in &self.match_expressions {
            all.push(Requirement::of_labels(requirement, &mut word)?);
        }
        Ok(all)
    }
}

/// Labels that must be equal; `word` makes a word of text.
pub fn equalities<W>(
    labels: &BTreeMap<String, String>,
    mut word: impl FnMut(&str) -> W,
) -> Vec<Requirement<W>> {
    let equal = |(key, value): (&String, &String)| {
        let key = word(key);
        Requirement::equal(key, word(value))
    };
    labels.iter().map(equal).collect()
}
