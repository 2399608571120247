//! Metrics as a scraper reads them: OpenMetrics, strictly.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// Values by name and labels of one exposition.
#[derive(Debug, Clone, Default)]
pub struct Series {
    values: BTreeMap<(String, BTreeMap<String, String>), f64>,
    types: BTreeMap<String, String>,
}

impl Series {
    /// Sum over all series of a name; none without a series.
    pub fn sum(&self, name: &str) -> Option<f64> {
        let found: Vec<f64> =
            self.values.iter().filter(|((n, _), _)| n == name).map(|(_, value)| *value).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    /// Label sets of a name.
    pub fn labels(&self, name: &str) -> Vec<&BTreeMap<String, String>> {
        self.values.keys().filter(|(n, _)| n == name).map(|(_, labels)| labels).collect()
    }

    /// Declared type of a family.
    pub fn kind(&self, family: &str) -> Option<&str> {
        self.types.get(family).map(String::as_str)
    }
}

/// Reads an exposition; every line must follow the format and every series belong to a declared family.
///
/// # Errors
///
/// Fails at the first line that does not.
pub fn parse_metrics(text: &str) -> Result<Series> {
    let mut series = Series::default();
    let text = text.strip_suffix("# EOF\n").context("a page without its end")?;
    for line in text.lines() {
        read_line(line, &mut series).with_context(|| format!("metrics line {line:?}"))?;
    }
    for (name, _) in series.values.keys() {
        let declared = ["", "_bucket", "_sum", "_count", "_total"]
            .iter()
            .any(|end| name.strip_suffix(end).is_some_and(|family| series.types.contains_key(family)));
        ensure!(declared, "{name} has no # TYPE");
    }
    Ok(series)
}

fn read_line(line: &str, series: &mut Series) -> Result<()> {
    if let Some(rest) = line.strip_prefix("# TYPE ") {
        let (name, kind) = rest.split_once(' ').context("no type")?;
        ensure!(is_name(name), "not a name: {name}");
        let again = series.types.insert(name.to_string(), kind.to_string());
        ensure!(again.is_none(), "{name} is declared twice");
        return Ok(());
    }
    if line.starts_with('#') {
        return Ok(());
    }
    let (name, rest) = line.split_at(line.find(['{', ' ']).context("no value")?);
    ensure!(is_name(name), "not a name: {name}");
    let (labels, value) = labels(rest)?;
    let value = value.split_whitespace().next().context("no value")?;
    let value: f64 = if value == "+Inf" { f64::INFINITY } else { value.parse().context("not a number")? };
    let again = series.values.insert((name.to_string(), labels), value);
    ensure!(again.is_none(), "a series appears twice");
    Ok(())
}

/// Labels in braces, if any, and what follows.
fn labels(rest: &str) -> Result<(BTreeMap<String, String>, &str)> {
    let mut found = BTreeMap::new();
    let Some(mut rest) = rest.strip_prefix('{') else { return Ok((found, rest)) };
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((found, after));
        }
        let (name, value) = rest.split_once("=\"").context("a label without value")?;
        ensure!(is_name(name), "not a label: {name}");
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next() {
                Some((at, '"')) => break at,
                Some((_, '\\')) => text.push(chars.next().context("a label that does not end")?.1),
                Some((_, other)) => text.push(other),
                None => bail!("a label that does not end"),
            }
        };
        ensure!(found.insert(name.to_string(), text).is_none(), "label {name} twice");
        rest = &value[end + 1..];
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposition_is_read_and_a_broken_one_refused() {
        let text =
            "# HELP a things\n# TYPE a counter\na_total{x=\"1\",y=\"a\\\"b\"} 2\na_total 3 1700\n# EOF\n";
        let series = parse_metrics(text).unwrap();
        assert_eq!(series.sum("a_total"), Some(5.0));
        assert!(series.labels("a_total").iter().any(|labels| labels.get("y").is_some_and(|y| y == "a\"b")));
        for bad in [
            "# TYPE a counter\na_total 1\n",
            "a_total 1\n# EOF\n",
            "# TYPE a counter\na x\n# EOF\n",
            "# TYPE a counter\na 1\na 1\n# EOF\n",
            "# TYPE a g\na{x=\"1 1\n# EOF\n",
        ] {
            assert!(parse_metrics(bad).is_err(), "{bad:?}");
        }
    }
}
