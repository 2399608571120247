//! Amounts as people read them. CPU comes in thousandths of a core, memory in bytes.

use evenkeel_model::narrow::f64_to_u64;

/// Which resource an amount is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Thousandths of a core.
    Cpu,
    /// Bytes.
    Memory,
}

impl Resource {
    /// Both, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Memory];

    /// The resource's name in Kubernetes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }

    /// The same at the head of a column.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Memory => "Memory",
        }
    }

    /// An amount with its unit.
    #[must_use]
    pub fn text(self, amount: u64) -> String {
        match self {
            Self::Cpu => cores(amount),
            Self::Memory => bytes(amount),
        }
    }

    /// The same; a dash where there is none.
    #[must_use]
    pub fn or_dash(self, amount: Option<u64>) -> String {
        amount.map_or_else(|| "–".to_owned(), |amount| self.text(amount))
    }

    /// A difference with its sign.
    #[must_use]
    pub fn change(self, by: i64) -> String {
        let sign = if by < 0 { "−" } else { "+" };
        if by == 0 { "0".to_owned() } else { format!("{sign}{}", self.text(by.unsigned_abs())) }
    }
}

/// `250m` below a core, `1.5` above.
#[must_use]
pub fn cores(milli: u64) -> String {
    if milli < 1000 { format!("{milli}m") } else { rounded(milli as f64 / 1000.0) }
}

/// `64 Mi`, `1.5 Gi`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{} {}", rounded(value), UNITS[unit])
}

/// Three digits that count, without zeros behind the point.
fn rounded(value: f64) -> String {
    let text = match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A share as percent, with as many digits as a small one needs.
#[must_use]
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if !p.is_finite() => "–".to_owned(),
        p if p <= 0.0 => "0 %".to_owned(),
        p if p < 0.01 => "<0.01 %".to_owned(),
        p => format!("{} %", rounded(p)),
    }
}

/// One part of a whole as percent; nothing where there is no whole.
#[must_use]
pub fn part(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A whole number in groups of three digits.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Money, whole from a hundred on.
#[must_use]
pub fn money(amount: f64, currency: &str) -> String {
    let sign = if amount < 0.0 { "−" } else { "" };
    let amount = amount.abs();
    match amount {
        a if !a.is_finite() => "–".to_owned(),
        a if a >= 100.0 => format!("{sign}{} {currency}", count(f64_to_u64(a.round()))),
        a => format!("{sign}{a:.2} {currency}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits_that_count() {
        for (milli, want) in
            [(0, "0m"), (250, "250m"), (1000, "1"), (1250, "1.25"), (64_000, "64"), (123_456, "123")]
        {
            assert_eq!(cores(milli), want);
        }
        for (amount, want) in
            [(0, "0 B"), (1023, "1023 B"), (64 << 20, "64 Mi"), (3 << 29, "1.5 Gi"), (u64::MAX, "16384 Pi")]
        {
            assert_eq!(bytes(amount), want);
        }
        assert_eq!(Resource::Cpu.change(-1500), "−1.5");
        assert_eq!(Resource::Memory.change(1 << 30), "+1 Gi");
        assert_eq!(Resource::Memory.or_dash(None), "–");
    }

    #[test]
    fn shares_money_and_numbers_are_short() {
        for (share, want) in
            [(0.0, "0 %"), (0.00001, "<0.01 %"), (0.0125, "1.25 %"), (0.5, "50 %"), (f64::NAN, "–")]
        {
            assert_eq!(percent(share), want);
        }
        assert_eq!(count(50_000), "50\u{202f}000");
        assert_eq!(money(-12_345.6, "EUR"), "−12\u{202f}346 EUR");
        assert_eq!(money(1.5, "EUR"), "1.50 EUR");
        assert_eq!(part(1, 0), None);
    }
}
