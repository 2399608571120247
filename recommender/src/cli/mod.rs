//! Owns the command line: flags into [`Sources`], `config default|schema|validate|show`, `token add|list|remove`,
//! `ca init|token|revoke|list|kubernetes`, `store check|backup|restore`, `man` and `completion`.

mod ca;
mod kubernetes;
mod store;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use evenkeel_manual::{CompletionArgs, ManArgs, Section};

use crate::config::{Config, Sources, load};
use evenkeel_settings as settings;

pub use ca::{CaAction, ca};
pub use kubernetes::KubernetesArgs;
pub use store::{StoreAction, store};
pub use tokens::{AddArgs, FileArgs, TokenAction, token};

/// The central service of Evenkeel: keeps what agents measure and says what containers should request.
#[derive(Debug, Parser)]
#[command(name = "evenkeel-recommender", version)]
#[command(after_help = "Examples:
  evenkeel-recommender
  evenkeel-recommender --config /etc/evenkeel/recommender.toml --http 127.0.0.1:9521
  evenkeel-recommender --set recommend.watch_interval=1m

Exit status: 0 done, 1 something failed, 2 wrong usage, 78 the configuration is wrong.")]
pub struct Cli {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub flags: Flags,
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags, which go over the environment, which goes over the files.
#[derive(Debug, Args)]
pub struct Flags {
    /// Configuration file [default: /etc/evenkeel/recommender.toml, where it exists]; recommender.d/*.toml beside it are read too
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Directory of everything kept
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
    /// The panic switch: recommendations change nothing, running containers keep the requests in force
    #[arg(long, global = true)]
    panic: bool,
    /// Unix socket of gRPC and HTTP
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// gRPC address; callers are named by tokens
    #[arg(long, value_name = "ADDRESS", global = true)]
    grpc: Option<SocketAddr>,
    /// HTTP address; callers are named by tokens
    #[arg(long, value_name = "ADDRESS", global = true)]
    http: Option<SocketAddr>,
    /// Any other key, such as ingest.credits=10; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value, global = true)]
    set: Vec<(String, String)>,
    /// Which log lines are shown: error, warn, info, debug, trace, or levels by target such as "info,evenkeel_store=debug"
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG", default_value = "info", global = true)]
    pub log_level: String,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The configuration
    #[command(after_help = "Examples:
  evenkeel-recommender config validate
  evenkeel-recommender config default | less")]
    Config {
        /// What about it.
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// The own certificate authority (tls.authority), which names nodes
    #[command(after_help = "Examples:
  evenkeel-recommender ca token default/n1
  evenkeel-recommender ca list")]
    Ca {
        /// What about it.
        #[command(subcommand)]
        action: CaAction,
    },
    /// Tokens, which name people and nodes at addresses
    #[command(after_help = "Examples:
  evenkeel-recommender token add anna --role view --role simulate
  evenkeel-recommender token list")]
    Token {
        /// What about them.
        #[command(subcommand)]
        action: TokenAction,
    },
    /// Serve the admission webhook: pods that are made get requests; needs no state of its own, and may run several times
    #[command(after_help = "Examples:
  evenkeel-recommender webhook --config /etc/evenkeel/recommender.toml
  evenkeel-recommender webhook --set webhook.address=0.0.0.0:9443 --set webhook.mode=apply")]
    Webhook,
    /// The state directory: checks, backups, restores
    #[command(after_help = "Examples:
  evenkeel-recommender store check
  evenkeel-recommender store backup /backup/$(date +%F)")]
    Store {
        /// What about it.
        #[command(subcommand)]
        action: StoreAction,
    },
    /// Print the manual page, or write the pages of all commands to a directory
    #[command(after_help = "Examples:
  evenkeel-recommender man | man -l -
  evenkeel-recommender man --dir /usr/local/share/man/man8")]
    Man(ManArgs),
    /// Print the completion script of a shell
    #[command(after_help = "Examples:
  evenkeel-recommender completion bash > /etc/bash_completion.d/evenkeel-recommender")]
    Completion(CompletionArgs),
}

/// What about the configuration.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ConfigAction {
    /// Print every key with its default
    #[command(after_help = "Examples:
  evenkeel-recommender config default > recommender.toml")]
    Default,
    /// Print the JSON schema
    #[command(after_help = "Examples:
  evenkeel-recommender config schema > recommender.schema.json")]
    Schema,
    /// Read the configuration and say whether it is valid
    #[command(
        alias = "check",
        after_help = "Examples:
  evenkeel-recommender config validate --config recommender.toml"
    )]
    Validate,
    /// Print the configuration in force
    #[command(after_help = "Examples:
  EVENKEEL_RETENTION__DAYS=60d evenkeel-recommender config show")]
    Show,
}

/// The manual page, or nothing where the pages were written.
///
/// # Errors
/// When they cannot be written.
pub fn man(asked: &ManArgs) -> anyhow::Result<String> {
    evenkeel_manual::man(Cli::command(), Section::Administrators, asked)
        .map_err(|(path, error)| anyhow::anyhow!("cannot write the manual page {}: {error}", path.display()))
}

/// The completion script of a shell.
#[must_use]
pub fn completion(asked: &CompletionArgs) -> String {
    evenkeel_manual::completion(Cli::command(), asked)
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as ingest.credits=10")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Flags {
    /// The configuration these flags lead to.
    pub fn sources(&self) -> Sources {
        let mut flags = self.set.clone();
        let mut add = |key: &str, value: Option<String>| {
            flags.extend(value.map(|value| (key.to_owned(), value)));
        };
        add("state_dir", self.state_dir.as_ref().map(|dir| dir.display().to_string()));
        add("panic", self.panic.then(|| "true".to_owned()));
        add("serve.socket", self.socket.as_ref().map(|path| path.display().to_string()));
        add("serve.grpc", self.grpc.map(|address| address.to_string()));
        add("serve.http", self.http.map(|address| address.to_string()));
        Sources { file: self.config.clone(), flags }
    }
}

/// Does what `config` was asked for; what it prints.
///
/// # Errors
/// When the configuration is not valid.
pub fn config(action: ConfigAction, sources: &Sources) -> anyhow::Result<String> {
    Ok(match action {
        ConfigAction::Default => settings::toml(&Config::default()),
        ConfigAction::Schema => serde_json::to_string_pretty(&settings::schema::<Config>())?,
        ConfigAction::Validate => {
            let config = load(sources)?;
            let files: Vec<String> = config.files.iter().map(|file| file.display().to_string()).collect();
            let read = if files.is_empty() {
                "no file was read".to_owned()
            } else {
                format!("read {}", files.join(", "))
            };
            let warnings = config.warnings.iter().map(|warning| format!("\nwarning: {warning}"));
            format!("the configuration is valid; {read}{}", warnings.collect::<String>())
        }
        ConfigAction::Show => settings::toml(&load(sources)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_shown_reads_back_as_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shown.toml");
        std::fs::write(&file, settings::toml(&Config::default())).unwrap();
        let sources = Sources { file: Some(file.clone()), flags: Vec::new() };
        assert_eq!(load(&sources).unwrap(), Config { files: vec![file], ..Config::default() });
    }

    /// They are what the manual pages show.
    #[test]
    fn every_command_has_an_example() {
        fn walk(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(command.is_hide_set() || help.contains("Examples:"), "{}", command.get_name());
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }

    #[test]
    fn flags_become_keys() {
        let args = ["x", "--grpc", "127.0.0.1:1", "--set", "ingest.credits=7", "config", "show"];
        let cli = Cli::try_parse_from(args).unwrap();
        let config = load(&cli.flags.sources()).unwrap();
        assert_eq!((config.serve.grpc.unwrap().port(), config.ingest.credits), (1, 7));
        assert!(Cli::try_parse_from(["x", "--set", "nothing"]).is_err());
        // The word that the commands of `evenkeel` have for it.
        assert!(Cli::try_parse_from(["x", "config", "check"]).is_ok());
    }

    #[test]
    fn the_schema_names_every_key_of_the_default() {
        let schema: serde_json::Value =
            serde_json::from_str(&config(ConfigAction::Schema, &Sources::default()).unwrap()).unwrap();
        let default = serde_json::to_value(Config::default()).unwrap();
        for key in default.as_object().unwrap().keys() {
            assert!(schema["properties"].get(key).is_some(), "{key}");
        }
    }
}
