//! Owns arithmetic on quantities. Nothing here wraps or panics: an operation is either checked or saturates at
//! [`Quantity::MIN`] and [`Quantity::MAX`].
//!
//! The result keeps the format of the left side, or takes that of the right side when the left is zero, as in
//! Kubernetes.

use super::{Format, MAX_NANO, NANO, Quantity};

impl Quantity {
    /// The sum, or `None` beyond the range of a quantity.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.within(self.nano.checked_add(other.nano)?, other)
    }

    /// The difference, or `None` beyond the range of a quantity.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.within(self.nano.checked_sub(other.nano)?, other)
    }

    /// The product with an integer, or `None` beyond the range of a quantity.
    #[must_use]
    pub fn checked_mul(self, factor: i64) -> Option<Self> {
        self.within(self.nano.checked_mul(i128::from(factor))?, self)
    }

    /// The sum, capped.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self::from_nano(self.nano.saturating_add(other.nano), self.joint_format(other))
    }

    /// The difference, capped. May be negative.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self::from_nano(self.nano.saturating_sub(other.nano), self.joint_format(other))
    }

    /// The product with an integer, capped.
    #[must_use]
    pub fn saturating_mul(self, factor: i64) -> Self {
        Self::from_nano(self.nano.saturating_mul(i128::from(factor)), self.format)
    }

    /// The amount with its sign turned.
    #[must_use]
    pub fn negated(self) -> Self {
        Self { nano: -self.nano, ..self }
    }

    /// The next multiple of `step` away from zero; unchanged when `step` is not above zero. Capped.
    #[must_use]
    pub fn rounded_up_to(self, step: Self) -> Self {
        if step.nano <= 0 {
            return self;
        }
        let steps = super::div_away(self.nano, step.nano);
        Self::from_nano(steps.saturating_mul(step.nano), self.format)
    }

    /// The product with another quantity taken as a plain factor, rounded away from zero; `None` beyond the range.
    #[must_use]
    pub fn checked_scale(self, factor: Self) -> Option<Self> {
        self.within(super::div_away(self.nano.checked_mul(factor.nano)?, NANO), self)
    }

    /// The quotient by another quantity taken as a plain divisor, rounded away from zero; `None` when the divisor is
    /// not above zero or the result is beyond the range.
    #[must_use]
    pub fn checked_unscale(self, divisor: Self) -> Option<Self> {
        if divisor.nano <= 0 {
            return None;
        }
        self.within(super::div_away(self.nano.checked_mul(NANO)?, divisor.nano), self)
    }

    fn within(self, nano: i128, other: Self) -> Option<Self> {
        let format = self.joint_format(other);
        (-MAX_NANO..=MAX_NANO).contains(&nano).then_some(Self { nano, format })
    }

    fn joint_format(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}
