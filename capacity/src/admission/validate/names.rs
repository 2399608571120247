//! Names and labels as the API server takes them (`apimachinery/pkg/util/validation/validation.go`): what is wrong with one,
//! in its words.

const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const SLASHES: &str =
    "a valid label key must consist of an optional DNS subdomain prefix and a name part, separated by '/'";

/// Bytes of a subdomain, at most.
pub(super) const LONGEST_SUBDOMAIN: usize = 253;

/// Letters, digits and, not at the ends, `-`, `_` and `.`.
fn is_word(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric())) && text.bytes().all(inner)
}

fn is_subdomain(text: &str) -> bool {
    let lower = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.split('.').all(|label| {
        let ends = [label.bytes().next(), label.bytes().last()];
        ends.iter().all(|end| end.is_some_and(lower)) && label.bytes().all(|c| lower(c) || c == b'-')
    })
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} bytes"))
}

/// A name with an optional prefix: keys of labels and taints, names of resources.
pub(super) fn qualified(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (prefix, name) = match text.split_once('/') {
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!("{SLASHES} (e.g. 'example.com/MyName')")];
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => wrong.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}"))),
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(too_long(name, 63).map(|why| format!("name part {why}")));
    if !is_word(name) {
        wrong.push(QUALIFIED.to_owned());
    }
    wrong
}

/// The value of a label.
pub(super) fn label_value(text: &str) -> Vec<String> {
    let format = (!text.is_empty() && !is_word(text)).then(|| LABEL_VALUE.to_owned());
    too_long(text, 63).into_iter().chain(format).collect()
}

/// The name of an object.
pub(super) fn subdomain(text: &str) -> Vec<String> {
    let format = (!is_subdomain(text)).then(|| SUBDOMAIN.to_owned());
    too_long(text, LONGEST_SUBDOMAIN).into_iter().chain(format).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_of_the_api_server() {
        for good in ["a", "A_b.c", "example.com/My-Name", "node-role.kubernetes.io/control-plane"] {
            assert_eq!(qualified(good), Vec::<String>::new(), "{good}");
        }
        for bad in ["", "-a", "a/b/c", "/a", "Example.com/a", "a/", &"x".repeat(64)] {
            assert!(!qualified(bad).is_empty(), "{bad}");
        }
        assert!(label_value("").is_empty() && label_value("1").is_empty());
        assert!(label_value("a b")[0].starts_with("a valid label must be an empty string"));
        assert!(subdomain("web-1.x").is_empty() && !subdomain("Bad_Name").is_empty());
    }
}
