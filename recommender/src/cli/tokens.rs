//! `token add|list|remove`: the file of tokens.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use evenkeel_store::clock::WallClock;
use serde_json::{Value, json};

use crate::audit::{Object, offline};
use crate::config::{Sources, Span, load};
use crate::identity::Role;
use crate::identity::tokens::{TokenEntry, TokenFile};

/// What about tokens.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenAction {
    /// Make a token and print it; the file keeps its hash alone
    #[command(after_help = "Examples:
  evenkeel-recommender token add prometheus --role view > prometheus.token
  evenkeel-recommender token add n1 --node default/n1 --expires 90d > n1.token")]
    Add(AddArgs),
    /// List tokens: name, what for, until when
    #[command(after_help = "Examples:
  evenkeel-recommender token list")]
    List(FileArgs),
    /// Take a token back; running recommenders notice within a second
    #[command(after_help = "Examples:
  evenkeel-recommender token remove anna")]
    Remove {
        /// The token's name
        name: String,
        /// The file.
        #[command(flatten)]
        file: FileArgs,
    },
}

impl TokenAction {
    /// What to do where nobody read a token that was made: it is told once.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        let Self::Add(AddArgs { name, file, .. }) = self else { return None };
        let file = file.file.as_ref().map_or_else(String::new, |file| format!(" --file {}", file.display()));
        Some(format!(
            "token {name} was made all the same and is told once: remove it by evenkeel-recommender token remove {name}{file}, then add it again"
        ))
    }
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
    /// Make join tokens of nodes and revoke nodes
    Enroll,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::View => Self::View,
            RoleName::Simulate => Self::Simulate,
            RoleName::Apply => Self::Apply,
            RoleName::Panic => Self::Panic,
            RoleName::Enroll => Self::Enroll,
        }
    }
}

impl FileArgs {
    /// The file, and the state directory of the recommender that reads it; another file is nobody's yet.
    fn places(&self, sources: &Sources) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
        match &self.file {
            Some(file) => {
                let of = load(sources).ok().filter(|config| config.access.tokens == *file);
                Ok((file.clone(), of.map(|config| config.state_dir)))
            }
            None => {
                let config = load(sources)?;
                Ok((config.access.tokens, Some(config.state_dir)))
            }
        }
    }
}

/// A token as the audit record has it: what it allows, and nothing it could be found by.
fn shown(entry: &TokenEntry) -> Value {
    json!({ "roles": entry.roles, "namespaces": entry.namespaces, "node": entry.node, "expires": entry.expires })
}

/// Makes a change of a token, with an entry in the audit record where its file is in force.
fn recorded<T>(
    state_dir: Option<&Path>,
    command: &str,
    name: &str,
    before: Option<&Value>,
    after: Option<Value>,
    change: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match state_dir {
        None => change(),
        Some(dir) => {
            let object = Object::of_all("Token", name);
            offline(dir, command, object, before, change, move |_| after)
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
        TokenAction::List(file) => Ok(listed(&TokenFile::read(&file.places(sources)?.0)?)),
        TokenAction::Remove { name, file } => {
            let (path, state_dir) = file.places(sources)?;
            let (_lock, mut tokens) = TokenFile::locked(&path)?;
            let at = tokens.token.iter().position(|entry| entry.name == *name);
            let at = at.with_context(|| format!("{} has no token {name}", path.display()))?;
            let removed = shown(&tokens.token.remove(at));
            let command = "evenkeel-recommender token remove";
            recorded(state_dir.as_deref(), command, name, Some(&removed), None, || Ok(tokens.write(&path)?))?;
            Ok(format!("token {name} holds no more"))
        }
    }
}

fn add(args: &AddArgs, sources: &Sources) -> anyhow::Result<String> {
    let (path, state_dir) = args.file.places(sources)?;
    // Held until the audit record has the entry, too.
    let (_lock, mut tokens) = TokenFile::locked(&path)?;
    let namespaces: BTreeSet<String> = args.namespaces.iter().cloned().collect();
    let token = tokens.add(TokenEntry {
        name: args.name.clone(),
        sha256: String::new(),
        roles: args.roles.iter().copied().map(Role::from).collect(),
        namespaces: Some(namespaces).filter(|names| !names.is_empty()),
        node: args.node.clone(),
        expires: args.expires.map(|span| until(span.get())).transpose()?,
    })?;
    let added = tokens.token.last().map(shown);
    let command = "evenkeel-recommender token add";
    recorded(state_dir.as_deref(), command, &args.name, None, added, || Ok(tokens.write(&path)?))?;
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

    fn run(line: &str, dir: &Path) -> anyhow::Result<String> {
        let file = dir.join("tokens.toml");
        let words = format!("x token {line} --file {}", file.display());
        let cli = Cli::try_parse_from(words.split(' '))?;
        let Some(Command::Token { action }) = cli.command else { panic!("{line}") };
        token(&action, &cli.flags.sources())
    }

    #[test]
    fn whoever_is_told_that_it_is_done_at_the_same_time_as_others_is_told_the_truth() {
        let dir = tempfile::tempdir().unwrap();
        for one in 0..8 {
            run(&format!("add old{one} --role view"), dir.path()).unwrap();
        }
        std::thread::scope(|scope| {
            for one in 0..8 {
                let dir = dir.path();
                scope.spawn(move || {
                    for turn in 0..4 {
                        run(&format!("add new{one}.{turn} --role view"), dir).unwrap();
                    }
                    run(&format!("remove old{one}"), dir).unwrap();
                });
            }
        });
        let list = run("list", dir.path()).unwrap();
        let new = (0..8).flat_map(|one| (0..4).map(move |turn| format!("new{one}.{turn}  view")));
        for name in new {
            assert!(list.lines().any(|line| line == name), "{name} is not in\n{list}");
        }
        assert!(!list.contains("old"), "{list}");
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name != "tokens.toml" && name != "tokens.lock").collect();
        assert!(left.is_empty(), "{left:?}");
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
