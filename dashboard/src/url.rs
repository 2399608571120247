//! Addresses of pages, with every value of a query encoded.

/// Where the pages are.
pub const ROOT: &str = "/ui/";

/// The address of a page below [`ROOT`], with the parameters that say something.
#[must_use]
pub fn to(page: &str, parameters: &[(&str, &str)]) -> String {
    let mut address = format!("{ROOT}{page}");
    let mut mark = '?';
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        address.push(mark);
        address.push_str(name);
        address.push('=');
        encode(&mut address, value);
        mark = '&';
    }
    address
}

/// Percent-encodes all but the unreserved characters (RFC 3986, 2.3).
fn encode(into: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                into.push(char::from(byte));
            }
            _ => into.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_within_their_parameter() {
        let address =
            to("workload", &[("namespace", "a&b=c"), ("empty", ""), ("workload", "deployment/x\" onload=")]);
        assert_eq!(address, "/ui/workload?namespace=a%26b%3Dc&workload=deployment%2Fx%22%20onload%3D");
    }
}
