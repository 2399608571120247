//! Selectors of fields and labels, as far as the recordings use them.

use serde_json::Value;

/// Which objects are asked for.
#[derive(Debug, Default, Clone)]
pub(crate) struct Select {
    fields: Vec<(String, String, bool)>,
    labels: Vec<(String, Vec<String>)>,
}

/// Fields that every kind, or pods, can be selected by.
const FIELDS: [&str; 4] = ["metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"];

impl Select {
    /// Of the two parameters.
    ///
    /// # Errors
    /// The API server's words.
    pub(crate) fn parse(fields: &str, labels: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for part in fields.split(',').filter(|part| !part.is_empty()) {
            let (field, value) = part.split_once('=').ok_or("invalid selector")?;
            let (field, wanted) = field.strip_suffix('!').map_or((field, true), |field| (field, false));
            if !FIELDS.contains(&field) {
                return Err(format!("field label not supported: {field}"));
            }
            found.fields.push((field.to_owned(), value.to_owned(), wanted));
        }
        if let Some((key, values)) = labels.split_once(" in (") {
            let values = values.trim_end_matches(')').split(',').map(str::to_owned).collect();
            found.labels.push((key.to_owned(), values));
        } else {
            for part in labels.split(',').filter(|part| !part.is_empty()) {
                let (key, value) = part.split_once('=').ok_or("invalid selector")?;
                if value.trim_start_matches('=').contains('=') || value.starts_with("==") {
                    return Err("unable to parse requirement: found '=', expected: identifier".to_owned());
                }
                found.labels.push((key.to_owned(), vec![value.trim_start_matches('=').to_owned()]));
            }
        }
        Ok(found)
    }

    /// Whether an object is one of them.
    pub(crate) fn takes(&self, text: &str) -> bool {
        if self.fields.is_empty() && self.labels.is_empty() {
            return true;
        }
        let object: Value = serde_json::from_str(text).unwrap();
        let field =
            |path: &str| path.split('.').fold(&object, |value, key| &value[key]).as_str().unwrap_or("");
        self.fields.iter().all(|(path, value, wanted)| (field(path) == value) == *wanted)
            && self.labels.iter().all(|(key, values)| {
                object["metadata"]["labels"][key]
                    .as_str()
                    .is_some_and(|label| values.iter().any(|v| v == label))
            })
    }
}
