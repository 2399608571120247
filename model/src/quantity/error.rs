//! Owns what can be wrong with the text of a quantity: where, why, and what to write instead.

use super::parse::MAX_INPUT_BYTES;

/// Characters of the offending text that an error repeats; the rest is cut.
const SHOWN_CHARS: usize = 64;

/// The text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity {input:?} at byte {position}: {kind}; {}", .kind.remedy())]
pub struct QuantityError {
    input: String,
    position: usize,
    kind: QuantityErrorKind,
}

impl QuantityError {
    pub(crate) fn new(input: &str, position: usize, kind: QuantityErrorKind) -> Self {
        let mut shown: String = input.chars().take(SHOWN_CHARS).collect();
        if shown.len() < input.len() {
            shown.push('…');
        }
        Self { input: shown, position, kind }
    }

    /// The text as given, cut after 64 characters.
    #[must_use]
    pub fn input(&self) -> &str {
        &self.input
    }

    /// Byte offset in the text at which it stopped being a quantity.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &QuantityErrorKind {
        &self.kind
    }

    /// What to write instead.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        self.kind.remedy()
    }
}

/// What is wrong with the text of a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityErrorKind {
    /// No text at all.
    #[error("the text is empty")]
    Empty,
    /// More text than is read.
    #[error("{bytes} bytes are more than the {MAX_INPUT_BYTES} that are read")]
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// White space before, inside or after.
    #[error("white space is not part of a quantity")]
    WhiteSpace,
    /// A sign, point or suffix without a digit.
    #[error("there is no digit")]
    NoDigits,
    /// A second decimal point.
    #[error("there is a second decimal point")]
    SecondPoint,
    /// `e` or `E` with a sign, or `e` alone, and no number after it.
    #[error("the exponent has no digits")]
    NoExponent,
    /// Something after the digits that is no suffix.
    #[error("{suffix:?} is not a suffix")]
    UnknownSuffix {
        /// The text after the number, cut after 16 characters.
        suffix: String,
    },
    /// A number in JSON or YAML which is not finite or has lost digits.
    #[error("a floating point number of this size is not exact")]
    InexactFloat,
}

impl QuantityErrorKind {
    /// What to write instead.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Empty | Self::NoDigits => "write a number such as 2, 0.5, 300m or 64Mi",
            Self::TooLong { .. } => "write the number with a suffix or an exponent",
            Self::WhiteSpace => "remove the white space",
            Self::SecondPoint => "write a single decimal point and no thousands separators",
            Self::NoExponent => "write an exponent such as 1e3, or E alone for exa",
            Self::UnknownSuffix { suffix } => suffix_remedy(suffix),
            Self::InexactFloat => "write it as a string in quotes",
        }
    }
}

/// The likely meaning of a wrong suffix.
fn suffix_remedy(suffix: &str) -> &'static str {
    match suffix {
        "mi" | "gi" | "ki" | "ti" | "pi" | "ei" => {
            "binary suffixes are Ki, Mi, Gi, Ti, Pi, Ei: case is significant"
        }
        "g" | "t" | "p" => "decimal suffixes are n, u, m, k, M, G, T, P, E: case is significant",
        s if s.ends_with(['B', 'b']) => "the unit is implied by the resource: leave the B away (64Mi, 64M)",
        _ => "use one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or an exponent such as e3",
    }
}
