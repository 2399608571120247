//! Who may ask.

use std::collections::BTreeSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identity::{Grant, Role};

/// Who may ask. Root and the recommender's own user may everything over the Unix socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSection {
    /// Group of this machine whose users may see and simulate over the socket; empty = none. A group that does not exist has
    /// no users.
    pub read_group: String,
    /// Group of this machine whose users may also apply policies and set the panic switch over the socket; empty = none.
    pub change_group: String,
    /// File of tokens, by their hashes (`evenkeel-recommender token add`); read again when it changes. What is not there is
    /// no error.
    pub tokens: PathBuf,
    /// People whom a certificate names that an authority of `tls.client_ca` signed; the first that fits counts.
    pub certificates: Vec<CertificateSection>,
    /// Requests one caller may make a second, in bursts of ten seconds' worth; 64 KiB of a request count as one more. Who
    /// makes more is answered 429 or RESOURCE_EXHAUSTED with Retry-After. Not limited are health, agents' streams, root
    /// and the recommender's own user.
    pub requests_per_second: u32,
}

/// What a certificate allows people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateSection {
    /// A URI or e-mail address among the certificate's names, such as `spiffe://example/people/anna` or `*@example.org`; `*`
    /// stands for any characters but `/` and `@`.
    pub name: String,
    /// What it allows: view, simulate, apply, panic, enroll.
    #[schemars(with = "Vec<String>")]
    pub roles: Vec<Role>,
    /// The namespaces in which; everywhere without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<String>>,
}

impl CertificateSection {
    /// Whether a name of a certificate has the pattern.
    pub(crate) fn fits(&self, name: &str) -> bool {
        fits(self.name.as_bytes(), name.as_bytes())
    }

    pub(crate) fn grant(&self) -> Grant {
        Grant { namespaces: self.namespaces.clone(), ..Grant::roles(&self.roles) }
    }
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => {
            let within = name.iter().take_while(|byte| !matches!(byte, b'/' | b'@')).count();
            (0..=within).any(|taken| fits(rest, &name[taken..]))
        }
        Some((byte, rest)) => {
            name.split_first().is_some_and(|(first, name)| first == byte && fits(rest, name))
        }
    }
}

impl AccessSection {
    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for people in &self.certificates {
            let name = &people.name;
            let mut wrong = |what: &str| found.push(("access.certificates", format!("{name:?}: {what}")));
            // More would be slow to look for, and says no more.
            if name.is_empty() || name.len() > 512 || name.matches('*').count() > 4 {
                wrong("must have 1 to 512 characters, and at most four *");
            }
            if people.roles.is_empty() {
                wrong("must be given roles (view, simulate, apply, panic, enroll)");
            }
            if people.namespaces.as_ref().is_some_and(BTreeSet::is_empty) {
                wrong("must name a namespace, or leave namespaces out");
            }
            let everywhere = [Role::Panic, Role::Enroll];
            if people.namespaces.is_some() && people.roles.iter().any(|role| everywhere.contains(role)) {
                wrong("has the role panic or enroll, which is one for all namespaces");
            }
        }
        found
    }
}

impl Default for AccessSection {
    fn default() -> Self {
        Self {
            read_group: "evenkeel".to_owned(),
            change_group: "evenkeel-admin".to_owned(),
            tokens: PathBuf::from("/etc/evenkeel/tokens.toml"),
            certificates: Vec::new(),
            // A dashboard of ten panels that is reloaded every second, with room for four more.
            requests_per_second: 50,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stays_within_a_segment() {
        for (pattern, name, want) in [
            ("spiffe://td/people/anna", "spiffe://td/people/anna", true),
            ("spiffe://td/people/anna", "spiffe://td/people/anna2", false),
            ("spiffe://td/people/*", "spiffe://td/people/anna", true),
            ("spiffe://td/people/*", "spiffe://td/people/anna/x", false),
            ("spiffe://*/people/anna", "spiffe://td/people/anna", true),
            ("spiffe://*/people/anna", "spiffe://td/x/people/anna", false),
            ("*@example.org", "anna@example.org", true),
            ("*@example.org", "anna@evil@example.org", false),
            ("*@example.org", "anna@example.org.evil", false),
            ("*", "anna", true),
            ("*", "spiffe://td/evenkeel/c/n", false),
            ("", "", true),
        ] {
            let people =
                CertificateSection { name: pattern.to_owned(), roles: vec![Role::View], namespaces: None };
            assert_eq!(people.fits(name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn what_gives_nothing_or_too_much_is_named() {
        let good = CertificateSection { name: "a".into(), roles: vec![Role::View], namespaces: None };
        let told = |change: &dyn Fn(&mut CertificateSection)| {
            let mut one = good.clone();
            change(&mut one);
            AccessSection { certificates: vec![one], ..AccessSection::default() }.problems()
        };
        assert_eq!(told(&|_| {}), []);
        let shop = || Some(BTreeSet::from(["shop".to_owned()]));
        for wrong in [
            told(&|one| one.name.clear()),
            told(&|one| one.name = "*****".into()),
            told(&|one| one.roles.clear()),
            told(&|one| one.namespaces = Some(BTreeSet::new())),
            told(&|one| (one.roles, one.namespaces) = (vec![Role::Enroll], shop())),
        ] {
            assert_eq!(wrong.len(), 1, "{wrong:?}");
        }
    }
}
