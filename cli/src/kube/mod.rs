//! A lean client of the Kubernetes API: as much of it as saving a cluster needs.
//!
//! Owned here: finding the server and the right to ask it ([`config`], [`credentials`], of which [`caller`] is what others understand), asking page by page
//! ([`client`]). Not owned: which kinds are asked for and what is kept of them (the commands).

pub(crate) mod caller;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod credentials;
mod impersonation;
mod server_name;

/// Text with every byte escaped (RFC 3986, section 2.1) but letters, digits and `kept`.
fn percent_encoded(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
