//! A list of prices: what a core and a GiB cost an hour.

use std::path::Path;

use crate::failure::Failure;
use crate::input;

/// Hours of a month: a twelfth of 365 days.
const HOURS: f64 = 730.0;

/// What resources cost an hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prices {
    core: f64,
    gib: f64,
}

impl Prices {
    /// Reads a list in CSV with a head: `resource,price`, then `cpu` (a core and hour) and `memory` (a GiB and hour).
    ///
    /// # Errors
    /// With the file and line, and what is wrong there.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        parse(&input::text(path)?).map_err(|why| {
            let remedy = "write the lines \"resource,price\", \"cpu,0.03\" (a core and hour) and \"memory,0.004\" (a GiB and hour)";
            Failure::new("cannot use the prices", input::name(path), why, remedy)
        })
    }

    /// What so much less of a resource saves a month; cores in thousandths, memory in bytes.
    pub(super) fn per_month(&self, resource: &str, saving: i64) -> Option<f64> {
        let hourly = match resource {
            "cpu" => saving as f64 / 1e3 * self.core,
            "memory" => saving as f64 / f64::from(1 << 30) * self.gib,
            _ => return None,
        };
        Some(hourly * HOURS)
    }
}

fn parse(text: &str) -> Result<Prices, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let is_head = |line: &str| line.split(',').map(str::trim).eq(["resource", "price"]);
    if !lines.next().is_some_and(|(_, line)| is_head(line)) {
        return Err("the first line is not resource,price".to_owned());
    }
    let (mut core, mut gib) = (None, None);
    for (at, line) in lines {
        let at = at + 1;
        let (resource, price) = line.split_once(',').ok_or_else(|| format!("line {at}: it has no comma"))?;
        let price: f64 = (price.trim().parse().ok())
            .filter(|price: &f64| price.is_finite() && *price >= 0.0)
            .ok_or_else(|| format!("line {at}: {:?} is no price of 0 or more", price.trim()))?;
        let slot = match resource.trim() {
            "cpu" => &mut core,
            "memory" => &mut gib,
            other => return Err(format!("line {at}: {other:?} is neither cpu nor memory")),
        };
        if slot.replace(price).is_some() {
            return Err(format!("line {at}: {} has a price already", resource.trim()));
        }
    }
    let missing = |resource: &str| format!("{resource} has no price");
    Ok(Prices { core: core.ok_or_else(|| missing("cpu"))?, gib: gib.ok_or_else(|| missing("memory"))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_of_cores_and_gibibytes_and_wrong_ones_are_refused_with_their_line() {
        let prices = parse("resource, price\n\nmemory, 0.004\ncpu,0.03\n").unwrap();
        assert_eq!(prices.per_month("cpu", 2000), Some(2.0 * 0.03 * 730.0));
        assert_eq!(prices.per_month("memory", -(1 << 30)), Some(-0.004 * 730.0));
        assert_eq!(prices.per_month("gpu", 1), None);
        for (text, why) in [
            ("", "the first line is not resource,price"),
            ("cpu,1\n", "the first line is not resource,price"),
            ("resource,price\ncpu 1\n", "line 2: it has no comma"),
            ("resource,price\ncpu,-1\n", "line 2: \"-1\" is no price of 0 or more"),
            ("resource,price\ncpu,NaN\n", "line 2: \"NaN\" is no price of 0 or more"),
            ("resource,price\ngpu,1\n", "line 2: \"gpu\" is neither cpu nor memory"),
            ("resource,price\ncpu,1\ncpu,2\n", "line 3: cpu has a price already"),
            ("resource,price\ncpu,1\n", "memory has no price"),
        ] {
            assert_eq!(parse(text).unwrap_err(), why, "{text}");
        }
    }
}
