//! Percentiles and risk of a set of whole numbers.

/// The `per_mille`-th percentile by nearest rank: the least value that at least that part of the values does not
/// exceed. `values` must be sorted upward; `None` when empty. 900 is the document's 90th percentile.
pub fn nearest_rank(values: &[u64], per_mille: u32) -> Option<u64> {
    let n = values.len() as u128;
    let rank = (n * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
    values.get(usize::try_from(rank - 1).ok()?).copied()
}

/// Part of the values that lie above `request`, 0 to 1; `None` when there are no values.
pub fn risk_above(values: &[u64], request: u64) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let above = values.iter().filter(|v| **v > request).count();
    Some(above as f64 / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_table() {
        let ten: Vec<u64> = (1..=10).collect();
        for (per_mille, want) in [(0, 1), (500, 5), (900, 9), (901, 10), (999, 10), (1000, 10), (5000, 10)] {
            assert_eq!(nearest_rank(&ten, per_mille), Some(want), "p{per_mille}");
        }
        assert_eq!(nearest_rank(&[7], 900), Some(7));
        assert_eq!(nearest_rank(&[], 900), None);
    }

    #[test]
    fn risk_is_the_part_above() {
        assert_eq!(risk_above(&[1, 2, 3, 4], 3), Some(0.25));
        assert_eq!(risk_above(&[1, 2, 3, 4], 4), Some(0.0));
        assert_eq!(risk_above(&[], 4), None);
    }
}
