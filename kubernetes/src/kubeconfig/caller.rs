//! Who kubectl would be: the token that it would send, for a server that asks the API server whose it is, or the certificate that it would
//! show, for one that knows the cluster's authority.

use kube::Config;

use super::user::{Fields, Settled, settled};
use super::{Choice, KubeconfigEntry, Use, entry, nowhere};
use crate::connect::ConnectError;

/// What names a user of a cluster.
#[derive(Debug)]
pub enum Caller {
    /// A bearer token.
    Token(String),
    /// A certificate and its key, PEM.
    Certificate {
        /// The certificate, and those that vouch for it.
        cert: Vec<u8>,
        /// Its key.
        key: Vec<u8>,
    },
    /// Something that the API server alone can check; what.
    Other(&'static str),
}

/// What names the user of a context: the bearer token, else the certificate.
///
/// # Errors
/// When the kubeconfig cannot be used.
pub fn caller(choice: &Choice) -> Result<Caller, ConnectError> {
    let entry = match entry(choice)? {
        Some(entry) => entry,
        None => {
            let config = Config::incluster().map_err(|pod| nowhere(choice, &pod))?;
            KubeconfigEntry { user: config.auth_info, ..KubeconfigEntry::default() }
        }
    };
    let Settled { user, .. } = settled(entry.user, &entry.cluster, Use::Once)?;
    let fields = Fields::of(&user)?;
    if fields.impersonates()? {
        return Ok(Caller::Other("it acts as somebody else, which the API server alone can be asked for"));
    }
    if let Some(token) = fields.text("token") {
        return Ok(Caller::Token(token.to_owned()));
    }
    Ok(match fields.pair()? {
        Some((cert, key)) => Caller::Certificate { cert, key },
        None => Caller::Other("the user has neither a bearer token nor a client certificate"),
    })
}
