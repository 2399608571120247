//! A certificate for a recommender elsewhere, by an authority that signs this one certificate: its key is kept nowhere, so
//! nobody can be that recommender by it later.

use std::time::Duration;

use rcgen::{Issuer, KeyPair};

use super::{AuthorityError, from, own, served};

/// What was made, PEM.
pub(crate) struct Pair {
    /// What clients trust.
    pub(crate) authority: String,
    /// What is served.
    pub(crate) certificate: String,
    /// Its key.
    pub(crate) key: String,
    /// Until when all of it holds, seconds since 1970.
    pub(crate) ends: u64,
}

/// Makes it for names of DNS.
///
/// # Errors
/// When a name is none, or there is no chance to be had.
pub(crate) fn pair(names: &[String], life: Duration, now: u64) -> Result<Pair, AuthorityError> {
    let validity = from(now, life);
    let of = names.first().map_or("one certificate", String::as_str);
    let (root, key) = (KeyPair::generate()?, KeyPair::generate()?);
    let params = own(of, validity)?;
    let authority = params.self_signed(&root)?.pem();
    let signed = served(names, validity)?.signed_by(&key, &Issuer::new(params, root))?;
    Ok(Pair { authority, certificate: signed.pem(), key: key.serialize_pem(), ends: validity.not_after })
}
