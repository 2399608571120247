//! `token add|list|remove`: the file of tokens.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};

use crate::clock::WallClock;
use crate::config::{Sources, Span, load};
use crate::identity::Role;
use crate::identity::tokens::{TokenEntry, TokenFile};

/// What about tokens.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenAction {
    /// Make a token and print it; the file keeps its hash alone
    Add(AddArgs),
    /// List tokens: name, what for, until when
    List(FileArgs),
    /// Take a token back; running recommenders notice within a second
    Remove {
        /// The token's name
        name: String,
        /// The file.
        #[command(flatten)]
        file: FileArgs,
    },
}

/// Which file.
#[derive(Debug, Clone, Args)]
pub struct FileArgs {
    /// File of tokens [default: access.tokens of the configuration]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The token to be made.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Name of whoever holds it
    name: String,
    /// What it allows; may be repeated
    #[arg(long = "role", value_name = "ROLE", value_enum)]
    roles: Vec<RoleName>,
    /// A namespace in which; everywhere without; may be repeated
    #[arg(long = "namespace", value_name = "NAMESPACE", requires = "roles")]
    namespaces: Vec<String>,
    /// The node it names; CLUSTER/* for every node of a cluster, each of which can then speak as any other
    #[arg(long, value_name = "CLUSTER/NODE", conflicts_with = "roles")]
    node: Option<String>,
    /// How long it holds, such as 90d; for ever without
    #[arg(long, value_name = "DURATION")]
    expires: Option<Span>,
    /// The file.
    #[command(flatten)]
    file: FileArgs,
}

/// A role on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    /// See usage, recommendations, nodes, policies, metrics
    View,
    /// Ask what would fit
    Simulate,
    /// Apply and delete policies
    Apply,
    /// Set the panic switch
    Panic,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::View => Self::View,
            RoleName::Simulate => Self::Simulate,
            RoleName::Apply => Self::Apply,
            RoleName::Panic => Self::Panic,
        }
    }
}

impl FileArgs {
    fn path(&self, sources: &Sources) -> anyhow::Result<PathBuf> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => Ok(load(sources)?.access.tokens),
        }
    }
}

/// Does what `token` was asked for; what it prints.
///
/// # Errors
/// When the file cannot be read or written, or the token cannot be.
pub fn token(action: &TokenAction, sources: &Sources) -> anyhow::Result<String> {
    match action {
        TokenAction::Add(args) => add(args, sources),
        TokenAction::List(file) => Ok(listed(&TokenFile::read(&file.path(sources)?)?)),
        TokenAction::Remove { name, file } => {
            let path = file.path(sources)?;
            let mut tokens = TokenFile::read(&path)?;
            let before = tokens.token.len();
            tokens.token.retain(|entry| entry.name != *name);
            anyhow::ensure!(tokens.token.len() < before, "{} has no token {name}", path.display());
            tokens.write(&path)?;
            Ok(format!("token {name} holds no more"))
        }
    }
}

fn add(args: &AddArgs, sources: &Sources) -> anyhow::Result<String> {
    let path = args.file.path(sources)?;
    let mut tokens = TokenFile::read(&path)?;
    let namespaces: BTreeSet<String> = args.namespaces.iter().cloned().collect();
    let token = tokens.add(TokenEntry {
        name: args.name.clone(),
        sha256: String::new(),
        roles: args.roles.iter().copied().map(Role::from).collect(),
        namespaces: Some(namespaces).filter(|names| !names.is_empty()),
        node: args.node.clone(),
        expires: args.expires.map(|span| until(span.get())).transpose()?,
    })?;
    tokens.write(&path)?;
    Ok(token)
}

/// So long from now, in seconds since 1970.
fn until(span: Duration) -> anyhow::Result<u64> {
    let now = WallClock::system().now_usec() / 1_000_000;
    now.checked_add(span.as_secs()).context("the time is too long")
}

fn listed(tokens: &TokenFile) -> String {
    let line = |entry: &TokenEntry| {
        let roles: Vec<&str> = entry.roles.iter().map(|role| role.as_str()).collect();
        let what = entry.node.as_ref().map_or_else(|| roles.join(","), |node| format!("node {node}"));
        let within = entry.namespaces.iter().flatten().cloned().collect::<Vec<_>>().join(",");
        let within = if within.is_empty() { String::new() } else { format!(" in {within}") };
        let ends = entry.expires.and_then(|at| jiff::Timestamp::from_second(i64::try_from(at).ok()?).ok());
        let ends = ends.map_or_else(String::new, |at| format!(" until {at}"));
        format!("{}  {what}{within}{ends}", entry.name)
    };
    if tokens.token.is_empty() {
        return "no tokens".to_owned();
    }
    tokens.token.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Command};
    use super::*;

    fn run(line: &str, dir: &std::path::Path) -> anyhow::Result<String> {
        let file = dir.join("tokens.toml");
        let words = format!("x token {line} --file {}", file.display());
        let cli = Cli::try_parse_from(words.split(' '))?;
        let Some(Command::Token { action }) = cli.command else { panic!("{line}") };
        token(&action, &cli.flags.sources())
    }

    #[test]
    fn tokens_are_made_listed_and_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(run("list", dir.path()).unwrap(), "no tokens");
        let secret =
            run("add anna --role view --role apply --namespace shop --expires 90d", dir.path()).unwrap();
        assert!(secret.starts_with("evk_") && secret.len() == 68, "{secret}");
        run("add n1 --node prod/n1", dir.path()).unwrap();
        let list = run("list", dir.path()).unwrap();
        assert!(
            list.contains("anna  view,apply in shop until 2") && list.contains("n1  node prod/n1"),
            "{list}"
        );
        assert!(!list.contains(&secret));
        for wrong in [
            "add anna --role view",
            "add b",
            "add b --node n",
            "add b --role root",
            "add b --role view --node c/n",
            "remove b",
        ] {
            assert!(run(wrong, dir.path()).is_err(), "{wrong}");
        }
        run("remove anna", dir.path()).unwrap();
        assert!(!run("list", dir.path()).unwrap().contains("anna"));
    }
}
