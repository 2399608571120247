//! `ca kubernetes`: what a recommender in a cluster needs for TLS, as objects to apply.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use evenkeel_store::clock::WallClock;

use crate::authority::once::{Pair, pair};
use crate::config::Span;

/// The Service of the manifests.
const SERVICE: &str = "evenkeel-recommender";
/// And of the admission webhook, which serves with the same certificate.
const WEBHOOK: &str = "evenkeel-webhook";
/// Names of the objects, as the manifests mount them.
const AUTHORITY: &str = "evenkeel-ca";
const PAIR: &str = "evenkeel-recommender-tls";
/// How long a pair holds at most: longer ones are forgotten.
const MOST: Duration = Duration::from_secs(10 * 366 * 86_400);
/// Longest name of DNS (RFC 1035), and longest label.
const LONGEST: (usize, usize) = (253, 63);

/// For which recommender, and how long.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "It needs no cluster, no configuration and no running recommender. The output has a key: pipe it, and keep no copy. \
The authority signs this one certificate, and its own key is kept nowhere.\n\n\
To renew, run it again before the end: kubelets bring both to the pods within two minutes, and both programs read changed \
files. Agents that connect in between keep what they measure and try again.\n\n\
Examples:\n  \
evenkeel-recommender ca kubernetes | kubectl apply -f -\n  \
evenkeel-recommender ca kubernetes --namespace monitoring --name recommender.example --life 90d | kubectl apply -f -\n  \
docker run --rm evenkeel-recommender:0.1.0 ca kubernetes | kubectl apply -f -"
)]
pub struct KubernetesArgs {
    /// Namespace of the recommender
    #[arg(long, value_name = "NAMESPACE", default_value = "evenkeel")]
    namespace: String,
    /// A name by which it is reached beside those of its Service and localhost (kubectl port-forward); may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// How long certificate and authority hold
    #[arg(long, value_name = "DURATION", default_value = "365d")]
    life: Span,
}

/// Makes the objects; YAML.
///
/// # Errors
/// When a name is none, or the certificate cannot be made.
pub(super) fn objects(args: &KubernetesArgs) -> anyhow::Result<String> {
    let KubernetesArgs { namespace, names: more, life } = args;
    is_name(namespace)?;
    anyhow::ensure!(!namespace.contains('.'), "the namespace {namespace:?} is none: it has a dot");
    more.iter().try_for_each(|name| is_name(name))?;
    let (least, life) = (Duration::from_secs(3600), life.get());
    anyhow::ensure!((least..=MOST).contains(&life), "give --life of an hour to ten years, such as 365d");
    let of_service = ["", ".NS", ".NS.svc", ".NS.svc.cluster.local"];
    let of_service = of_service.map(|end| format!("{SERVICE}{}", end.replace("NS", namespace)));
    // What the Service's clients call it stands first.
    let mut names: Vec<String> = of_service.into_iter().rev().chain(["localhost".to_owned()]).collect();
    names.push(format!("{WEBHOOK}.{namespace}.svc"));
    names.extend(more.iter().cloned());
    let now = WallClock::system().now_usec() / 1_000_000;
    Ok(shown(namespace, &pair(&names, life, now)?, &names))
}

fn shown(namespace: &str, Pair { authority, certificate, key, ends }: &Pair, names: &[String]) -> String {
    let ends = i64::try_from(*ends).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
    let ends = ends.map_or_else(String::new, |at| at.to_string());
    let object = |kind: &str, name: &str, more: &str| {
        let labels = "{app.kubernetes.io/part-of: evenkeel}";
        format!(
            "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  labels: {labels}\n{more}"
        )
    };
    let block = |key: &str, pem: &str| {
        let lines: String = pem.lines().map(|line| format!("    {line}\n")).collect();
        format!("  {key}: |\n{lines}")
    };
    let trusted = object("ConfigMap", AUTHORITY, &format!("data:\n{}", block("ca.crt", authority)));
    let pair = format!(
        "type: kubernetes.io/tls\nstringData:\n{}{}",
        block("tls.crt", certificate),
        block("tls.key", key)
    );
    let pair = object("Secret", PAIR, &pair);
    let names = names.join(", ");
    format!("# Holds until {ends}, for {names}.\n{trusted}---\n{}", pair.trim_end())
}

/// Whether it is a name of DNS in lower case.
fn is_name(name: &str) -> anyhow::Result<()> {
    let of_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= LONGEST.1
            && label.chars().all(of_label)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    (name.len() <= LONGEST.0 && name.split('.').all(is_label))
        .then_some(())
        .with_context(|| format!("{name:?} is no name of DNS: give lower-case letters, digits, - and dots"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{CaAction, Cli, Command};
    use super::*;

    fn run(line: &str) -> anyhow::Result<String> {
        let words = format!("x ca kubernetes {line}");
        let cli = Cli::try_parse_from(words.split_whitespace())?;
        let Some(Command::Ca { action: CaAction::Kubernetes(args) }) = cli.command else { panic!("{line}") };
        objects(&args)
    }

    #[test]
    fn names_and_lives_that_make_no_sense_are_refused() {
        for wrong in [
            "--namespace a.b",
            "--namespace a\nb:",
            "--name A.example",
            "--name -a",
            "--name a..b",
            "--life 10s",
            "--life 20000d",
            "--life soon",
        ] {
            assert!(run(wrong).is_err(), "{wrong}");
        }
        let made = run("--namespace shop --name r.example").unwrap();
        assert!(made.contains("for evenkeel-recommender.shop.svc.cluster.local, "), "{made}");
        assert!(
            made.lines().next().unwrap().ends_with("localhost, evenkeel-webhook.shop.svc, r.example."),
            "{made}"
        );
        assert!(!made.contains("namespace: evenkeel"));
        assert_ne!(made, run("--namespace shop --name r.example").unwrap(), "each has keys of its own");
    }
}
