//! The inputs of a decision, read back into the types they were written from.

use std::collections::BTreeMap;
use std::str::FromStr;

use evenkeel_model::decision::{Decision, DecisionKind};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit, MilliCpu};

use crate::cpu::WeightConversion;
use crate::rules::RuleSet;

/// Why a decision cannot be made again.
#[derive(Debug)]
pub(super) struct Unreplayable(pub(super) String);

/// A decision's inputs and what they led to.
pub(super) struct Case<'a>(&'a Decision);

impl<'a> Case<'a> {
    pub(super) const fn of(decision: &'a Decision) -> Self {
        Self(decision)
    }

    pub(super) const fn kind(&self) -> DecisionKind {
        self.0.kind
    }

    /// The knob's kernel name; empty for none.
    pub(super) fn knob(&self) -> &'a str {
        self.0.knob.as_deref().unwrap_or("")
    }

    /// The value that was decided.
    pub(super) fn recorded(&self) -> Result<&'a str, Unreplayable> {
        self.0.new.as_deref().ok_or_else(|| Unreplayable("records no value that was decided".to_owned()))
    }

    /// An input that must be there.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, Unreplayable> {
        let found = self.0.inputs.get(name).map(String::as_str);
        found.ok_or_else(|| Unreplayable(format!("its inputs lack {name}")))
    }

    /// An input that must be there and of this type.
    pub(super) fn get<T: FromStr>(&self, name: &str) -> Result<T, Unreplayable> {
        let text = self.text(name)?;
        text.parse().map_err(|_| Unreplayable(format!("its input {name} cannot be read: {text}")))
    }

    /// An input that need not be there.
    pub(super) fn known<T: FromStr>(&self, name: &str) -> Result<Option<T>, Unreplayable> {
        if self.0.inputs.contains_key(name) { self.get(name).map(Some) } else { Ok(None) }
    }

    pub(super) fn bytes(&self, name: &str) -> Result<Bytes, Unreplayable> {
        self.get(name).map(Bytes::new)
    }

    pub(super) fn known_bytes(&self, name: &str) -> Result<Option<Bytes>, Unreplayable> {
        Ok(self.known(name)?.map(Bytes::new))
    }

    pub(super) fn milli(&self, name: &str) -> Result<MilliCpu, Unreplayable> {
        self.get(name).map(MilliCpu::new)
    }

    pub(super) fn known_milli(&self, name: &str) -> Result<Option<MilliCpu>, Unreplayable> {
        Ok(self.known(name)?.map(MilliCpu::new))
    }

    pub(super) fn known_class(&self, name: &str) -> Result<Option<QosClass>, Unreplayable> {
        let Some(text) = self.0.inputs.get(name) else { return Ok(None) };
        one_of(
            &[QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed],
            QosClass::as_str,
            name,
            text,
        )
        .map(Some)
    }

    pub(super) fn class(&self) -> Result<QosClass, Unreplayable> {
        self.text("class")?;
        self.known_class("class")?.ok_or_else(|| Unreplayable("its inputs lack class".to_owned()))
    }

    pub(super) fn rules(&self) -> Result<RuleSet, Unreplayable> {
        one_of(&[RuleSet::Proposal, RuleSet::Kubelet], RuleSet::as_str, "rules", self.text("rules")?)
    }

    pub(super) fn conversion(&self) -> Result<WeightConversion, Unreplayable> {
        let all = [WeightConversion::Linear, WeightConversion::Quadratic, WeightConversion::Systemd];
        one_of(&all, WeightConversion::as_str, "conversion", self.text("conversion")?)
    }

    /// A rule that reads the inputs itself.
    pub(super) fn by(
        &self,
        rule: impl Fn(&BTreeMap<String, String>) -> Option<String>,
    ) -> Result<String, Unreplayable> {
        rule(&self.0.inputs).ok_or_else(|| Unreplayable("its inputs are not those of its rule".to_owned()))
    }

    /// A limit as the knob's file has it: v1 writes -1 where v2 writes max.
    pub(super) fn limit_text(&self, limit: Limit<Bytes>) -> String {
        match limit {
            Limit::Value(bytes) => bytes.get().to_string(),
            Limit::Max if self.knob().ends_with("_in_bytes") => "-1".to_owned(),
            Limit::Max => "max".to_owned(),
        }
    }
}

fn one_of<T: Copy>(
    all: &[T],
    name_of: fn(T) -> &'static str,
    input: &str,
    text: &str,
) -> Result<T, Unreplayable> {
    let found = all.iter().copied().find(|one| name_of(*one) == text);
    found.ok_or_else(|| Unreplayable(format!("its input {input} cannot be read: {text}")))
}
