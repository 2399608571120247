//! The one rule for addresses: what other machines can reach is encrypted, or it is said that it need not be.

use std::net::SocketAddr;

/// Which of the addresses (by key of the configuration) other machines can reach; none is in the clear otherwise. The text
/// is for people and lacks what helps.
#[must_use]
pub fn in_the_clear(addresses: &[(&str, Option<SocketAddr>)]) -> Option<String> {
    let open = addresses.iter().filter_map(|(key, at)| Some((key, (*at)?)));
    let open = open.filter(|(_, at)| !at.ip().is_loopback()).map(|(key, at)| format!("{key} = {at}"));
    let open: Vec<String> = open.collect();
    (!open.is_empty())
        .then(|| format!("{} can be reached from other machines without encryption", open.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_alone_is_out_of_reach() {
        for (text, open) in [
            ("127.0.0.1:1", false),
            ("[::1]:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("10.0.0.1:1", true),
            ("[::ffff:127.0.0.1]:1", true),
        ] {
            let said = in_the_clear(&[("serve.x", text.parse().ok()), ("serve.y", None)]);
            assert_eq!(said.is_some(), open, "{text}: {said:?}");
        }
    }
}
