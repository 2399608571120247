//! A configuration that is read anew while a program runs: which keys changed, and which of these take effect at once.
//!
//! Owned here: comparing two configurations as JSON. Not owned: which keys change at run time (each program has its
//! own list), and putting them in force.

use serde_json::Value;

/// What a reload did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Dotted keys whose new value is in force.
    pub applied: Vec<String>,
    /// Dotted keys whose new value needs a restart.
    pub restart: Vec<String>,
}

impl Reloaded {
    /// Compares what is in force with what was read, and takes the values of those keys over that are in `at_run_time`
    /// or below one of its tables. A key that needs a restart is named each time, for as long as it differs.
    pub fn take(running: &mut Value, new: &Value, at_run_time: &[&str]) -> Self {
        let below =
            |key: &str, table: &str| key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
        let at_once = |key: &String| at_run_time.iter().any(|known| key == known || below(key, known));
        let (applied, restart) = differing(running, new).into_iter().partition(at_once);
        let reloaded = Self { applied, restart };
        take_over(running, new, "", &reloaded.applied);
        reloaded
    }
}

/// Dotted keys whose values differ.
fn differing(a: &Value, b: &Value) -> Vec<String> {
    fn walk(a: &Value, b: &Value, path: &str, found: &mut Vec<String>) {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                let gone = a.keys().filter(|key| !b.contains_key(*key));
                for key in b.keys().chain(gone) {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                    walk(a, b, &path, found);
                }
            }
            (a, b) if a != b => found.push(path.to_owned()),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(a, b, "", &mut found);
    found
}

/// Takes the values of these dotted keys over.
fn take_over(into: &mut Value, from: &Value, path: &str, keys: &[String]) {
    if let (Value::Object(into), Value::Object(from)) = (&mut *into, from) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        into.retain(|key, _| from.contains_key(key) || !keys.contains(&below(key)));
        for (key, value) in from {
            take_over(into.entry(key).or_insert(Value::Null), value, &below(key), keys);
        }
    } else if keys.iter().any(|key| key == path) {
        *into = from.clone();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_told_apart_and_taken_over() {
        let mut running = json!({"a": {"b": 1, "c": 2}, "ab": 3, "free": {"x.y/z": 1}, "list": [1, 2]});
        let new = json!({"a": {"b": 5, "c": 6}, "ab": 7, "free": {"new": 2}, "list": [2]});
        let reloaded = Reloaded::take(&mut running, &new, &["a", "free", "nothing"]);
        assert_eq!(reloaded.applied, ["a.b", "a.c", "free.new", "free.x.y/z"]);
        assert_eq!(reloaded.restart, ["ab", "list"]);
        assert_eq!(running, json!({"a": {"b": 5, "c": 6}, "ab": 3, "free": {"new": 2}, "list": [1, 2]}));
        let again = Reloaded::take(&mut running, &new, &["a", "free", "nothing"]);
        assert_eq!((again.applied.len(), again.restart), (0, vec!["ab".to_owned(), "list".to_owned()]));
    }
}
