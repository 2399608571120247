//! `ca init|token|revoke|list|kubernetes`: the authority without a running recommender, or beside one.

use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use evenkeel_log::private;
use evenkeel_store::clock::WallClock;

use super::kubernetes::{KubernetesArgs, objects};
use crate::audit::{Object, offline};
use crate::authority::service::AuthorityChange;
use crate::authority::{Authority, Name};
use crate::config::{Config, Sources, load};

/// What about the authority. Each but the last is done in the state directory, as the recommender's user.
#[derive(Debug, Clone, Subcommand)]
pub enum CaAction {
    /// Make the authority's key and certificate where there are none, and print the certificate's file and fingerprint
    #[command(after_help = "Examples:
  evenkeel-recommender ca init --set tls.authority=true")]
    Init,
    /// Make a join token for a node and print it: for one use, ten minutes
    #[command(after_help = "Examples:
  evenkeel-recommender ca token default/n1")]
    Token {
        /// The node it names, CLUSTER/NODE
        name: String,
    },
    /// Refuse a node's certificates and join tokens, and end its streams, until it joins anew
    #[command(after_help = "Examples:
  evenkeel-recommender ca revoke default/n1")]
    Revoke {
        /// The node, CLUSTER/NODE
        name: String,
    },
    /// List nodes with certificates, join tokens that wait, and revoked nodes
    #[command(after_help = "Examples:
  evenkeel-recommender ca list")]
    List,
    /// Print a certificate for the recommender of a cluster, and its authority, as Secret and ConfigMap
    #[command(after_help = "Examples:
  evenkeel-recommender ca kubernetes | kubectl apply -f -")]
    Kubernetes(KubernetesArgs),
}

impl CaAction {
    /// What to do where nobody read a join token that was made: it is told once.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        let Self::Token { name } = self else { return None };
        Some(format!("the join token of {name} is told once: make another one, which takes its place"))
    }
}

/// Does what `ca` was asked for; what it prints.
///
/// # Errors
/// When the configuration has no authority, or its files cannot be used.
pub fn ca(action: &CaAction, sources: &Sources) -> anyhow::Result<String> {
    if let CaAction::Kubernetes(args) = action {
        return objects(args);
    }
    let config = load(sources)?;
    let now = WallClock::system().now_usec() / 1_000_000;
    let authority = open(&config, now)?;
    let name = |text: &str| -> anyhow::Result<Name> {
        let name = Name::read(text).with_context(|| format!("{text:?} is no node: write CLUSTER/NODE"))?;
        name.check()?;
        Ok(name)
    };
    Ok(match action {
        CaAction::Init => {
            let file = config.authority_dir().join(crate::authority::CERTIFICATE_FILE);
            format!("{}\nsha256:{}", file.display(), authority.fingerprint())
        }
        CaAction::Token { name: text } => {
            let (name, command) = (name(text)?, "evenkeel-recommender ca token");
            let make = || Ok(authority.token(&name, now)?.0);
            recorded(&config, command, AuthorityChange::JoinToken, &authority, &name, now, make)?
        }
        CaAction::Revoke { name: text } => {
            let (name, command) = (name(text)?, "evenkeel-recommender ca revoke");
            let revoke = || Ok(authority.register().revoke(&name, now)?);
            recorded(&config, command, AuthorityChange::Revocation, &authority, &name, now, revoke)?;
            format!("node {name} is refused until it joins anew: evenkeel-recommender ca token {name}")
        }
        CaAction::List => listed(&authority, now),
        CaAction::Kubernetes(args) => objects(args)?,
    })
}

fn open(config: &Config, now: u64) -> anyhow::Result<Authority> {
    anyhow::ensure!(
        config.tls.authority,
        "this recommender keeps no authority: set tls.authority = true (--set tls.authority=true), or use the certificates of another"
    );
    let by_whom = "run it as the recommender's user (sudo -u USER), or ask it by evenkeel ca";
    private::directory(&config.state_dir).context(by_whom)?;
    let made = || Authority::open(&config.authority_dir(), config.tls.domain(), now).context(by_whom);
    if Authority::is_there(&config.authority_dir()).context(by_whom)? {
        return made();
    }
    let after = |authority: &Authority| Some(authority.summary());
    let object = Object::of_all("Authority", config.tls.domain());
    offline(&config.state_dir, "evenkeel-recommender ca init", object, None, made, after)
}

/// Makes a change of a node's name, with an entry in the audit record.
fn recorded<T>(
    config: &Config,
    command: &str,
    change: AuthorityChange,
    authority: &Authority,
    name: &Name,
    now: u64,
    make: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (object, before) = (change.of(name), authority.shown(name, now));
    let after = |_: &T| authority.shown(name, now);
    offline(&config.state_dir, command, object, before.as_ref(), make, after)
}

fn listed(authority: &Authority, now: u64) -> String {
    let at = |seconds: u64| {
        let at = i64::try_from(seconds).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
        at.map_or_else(String::new, |at| at.to_string())
    };
    let mut lines =
        vec![format!("authority  sha256:{} until {}", authority.fingerprint(), at(authority.expires()))];
    for (name, named) in authority.register().listed(now) {
        let told = [
            (named.certificate_expires > now)
                .then(|| format!("certificate until {}", at(named.certificate_expires))),
            (named.token_expires > now).then(|| {
                let left = Duration::from_secs(named.token_expires - now);
                format!("join token for {} s", left.as_secs())
            }),
            (named.revoked > 0).then(|| {
                let state = if named.refused { "refused" } else { "admitted again" };
                format!("revoked at {}, {state}", at(named.revoked))
            }),
        ];
        lines.push(format!("{name}  {}", told.into_iter().flatten().collect::<Vec<_>>().join(", ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Command};
    use super::*;

    fn run(line: &str, dir: &std::path::Path) -> anyhow::Result<String> {
        let words =
            format!("x --config /dev/null --set tls.authority=true --state-dir {} ca {line}", dir.display());
        let cli = Cli::try_parse_from(words.split(' '))?;
        let Some(Command::Ca { action }) = cli.command else { panic!("{line}") };
        ca(&action, &cli.flags.sources())
    }

    #[test]
    fn nodes_are_given_tokens_listed_and_refused() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let init = run("init", &state).unwrap();
        assert!(init.contains("authority/ca.crt\nsha256:"), "{init}");
        assert_eq!(run("init", &state).unwrap(), init, "it is made once");
        let token = run("token prod/n1", &state).unwrap();
        assert!(token.starts_with("evk_join_") && token.len() == 73, "{token}");
        let list = run("list", &state).unwrap();
        assert!(list.contains("prod/n1  join token for") && !list.contains(&token), "{list}");
        run("revoke prod/n1", &state).unwrap();
        assert!(run("list", &state).unwrap().contains("refused"));
        for wrong in ["token n1", "token prod/..", "revoke prod/"] {
            assert!(run(wrong, &state).is_err(), "{wrong}");
        }
        let none = Cli::try_parse_from(["x", "--config", "/dev/null", "ca", "list"]).unwrap();
        assert!(
            ca(&CaAction::List, &none.flags.sources()).unwrap_err().to_string().contains("tls.authority")
        );
    }
}
