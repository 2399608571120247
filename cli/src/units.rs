//! Amounts as people read them.

/// Bytes with a binary suffix and at most one decimal: `512`, `1.5Ki`, `64Mi`.
pub(crate) fn bytes(value: u64) -> String {
    const SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if value < 1024 {
        return value.to_string();
    }
    // In tenths of the unit, so that no float is needed.
    let mut tenths = u128::from(value) * 10;
    let mut suffix = "";
    for next in SUFFIXES {
        if tenths < 10 * 1024 {
            break;
        }
        tenths = (tenths + 512) / 1024;
        suffix = next;
    }
    with_tenths(tenths) + suffix
}

/// CPU in cores from thousandths: `2`, `250m`, `1.5`.
pub(crate) fn cpu(milli: u64) -> String {
    if milli.is_multiple_of(100) && milli >= 1000 {
        with_tenths(u128::from(milli) / 100)
    } else {
        format!("{milli}m")
    }
}

/// Seconds with one decimal from microseconds: `12.3s`.
pub(crate) fn seconds(usec: u64) -> String {
    with_tenths(u128::from(usec) / 100_000) + "s"
}

fn with_tenths(tenths: u128) -> String {
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_get_a_suffix_and_one_decimal() {
        let table = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1Ki"),
            (1536, "1.5Ki"),
            (64 << 20, "64Mi"),
            (1_000_000_000, "953.7Mi"),
            (u64::MAX, "16Ei"),
        ];
        for (value, expected) in table {
            assert_eq!(bytes(value), expected);
        }
    }

    #[test]
    fn cpu_is_in_cores_where_that_is_short() {
        for (milli, expected) in [(0, "0m"), (250, "250m"), (1000, "1"), (1500, "1.5"), (1234, "1234m")] {
            assert_eq!(cpu(milli), expected);
        }
    }
}
