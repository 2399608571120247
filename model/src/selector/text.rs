//! Owns label selectors as people type them on a command line.

use super::{LabelSelector, SelectorRequirement};

impl LabelSelector {
    /// Reads a text such as `pool=a,zone in (x,y),!gpu`: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`,
    /// joined by commas.
    ///
    /// # Errors
    /// With the part that is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let requirements = parts(text).into_iter().map(|part| requirement(part.trim()));
        Ok(Self { match_expressions: requirements.collect::<Result<_, _>>()?, ..Self::default() })
    }
}

/// What is between commas, those inside of brackets left alone.
fn parts(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(|at| {
        inside = at == '(' || (inside && at != ')');
        at == ',' && !inside
    })
    .collect()
}

fn requirement(part: &str) -> Result<SelectorRequirement, String> {
    let (key, operator, values) = split(part)?;
    let (key, values) = (key.trim(), values.into_iter().map(str::trim).collect::<Vec<_>>());
    let is_label = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    if key.is_empty() || !is_label(key) || !values.iter().copied().all(is_label) {
        return Err(format!("{part:?} selects no label"));
    }
    let values = values.into_iter().map(str::to_owned).collect();
    Ok(SelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values })
}

/// Key, operator and values as written.
fn split(part: &str) -> Result<(&str, &'static str, Vec<&str>), String> {
    if let Some((head, list)) = part.split_once('(') {
        let values = list.strip_suffix(')').ok_or_else(|| format!("{part:?} has no closing bracket"))?;
        let values = values.split(',').collect();
        return match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => Ok((key, "In", values)),
            [key, "notin"] => Ok((key, "NotIn", values)),
            _ => Err(format!("{part:?} has neither in nor notin before its bracket")),
        };
    }
    Ok(if let Some((key, value)) = part.split_once("!=") {
        (key, "NotIn", vec![value])
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (key, "In", vec![value])
    } else if let Some(key) = part.strip_prefix('!') {
        (key, "DoesNotExist", Vec::new())
    } else {
        (part, "Exists", Vec::new())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_kubectl_reads_them() {
        for (text, want) in [
            ("pool=a", "pool In a"),
            ("pool == a, !gpu", "pool In a; gpu DoesNotExist "),
            ("pool!=a,gpu", "pool NotIn a; gpu Exists "),
            ("zone in (x, y),pool=a", "zone In x y; pool In a"),
            ("zone notin (x)", "zone NotIn x"),
            ("example.com/pool=", "example.com/pool In "),
        ] {
            let got = LabelSelector::parse(text).unwrap().match_expressions;
            let got: Vec<String> =
                got.iter().map(|r| format!("{} {} {}", r.key, r.operator, r.values.join(" "))).collect();
            assert_eq!(got.join("; "), want, "{text}");
        }
        for text in ["", "a,,b", "zone in x", "zone in (x", "zone of (x)", "a b", "=a", "a=b=c"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }
}
