//! `evenkeel ca`: who is a node, by the recommender's own certificate authority.

use std::io::Write as _;

use clap::{Args, Subcommand};
use evenkeel_proto::v1::{CreateTokenRequest, EnrolledNode, ListEnrolledRequest, RevokeRequest};
use serde::Serialize;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Format, Output, YesOrNo};
use crate::table::{Table, clean};
use crate::wire;

/// Let nodes join the recommender's own certificate authority, list and revoke them.
#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    Token(TokenArgs),
    Revoke(RevokeArgs),
    List(ListArgs),
}

/// Make a join token: for one use, ten minutes, one node.
///
/// Write it to the file that stream.join_token of the node's agent names. The agent gets a certificate for it, and renews that by
/// itself. It asks for the role enroll.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel ca token n1
  evenkeel ca token prod/n1 -o json
  evenkeel ca token n1 | ssh n1 sudo tee /etc/evenkeel/join.token")]
pub(crate) struct TokenArgs {
    /// The node as its agent calls it (node.name), or CLUSTER/NODE; the cluster is default otherwise.
    #[arg(value_name = "NODE")]
    name: String,
}

/// Refuse a node: its streams end, its certificates and join tokens are refused until it joins with a new token.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel ca revoke n1
  evenkeel ca revoke prod/n1")]
pub(crate) struct RevokeArgs {
    /// The node, or CLUSTER/NODE; the cluster is default otherwise.
    #[arg(value_name = "NODE")]
    name: String,
}

/// List nodes with certificates, join tokens that wait, and revoked nodes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel ca list
  evenkeel ca list -o json")]
pub(crate) struct ListArgs {}

/// Does what `ca` was asked for.
///
/// # Errors
/// When the recommender refuses, or keeps no authority.
pub(crate) async fn run(command: &CaCommand, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    match command {
        CaCommand::Token(args) => token(args, address, output).await,
        CaCommand::Revoke(args) => revoke(args, address, output).await,
        CaCommand::List(_) => list(address, output).await,
    }
}

/// Cluster and node of `NODE` or `CLUSTER/NODE`.
fn named(text: &str) -> (String, String) {
    let (cluster, node) = text.split_once('/').unwrap_or(("default", text));
    (cluster.to_owned(), node.to_owned())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    cluster: String,
    node: String,
    token: String,
    expires: Option<String>,
    authority: String,
}

async fn token(args: &TokenArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let (cluster, node) = named(&args.name);
    let asked = CreateTokenRequest { cluster: cluster.clone(), node: node.clone() };
    let mut authority = client::enrollment(address).await?;
    let made = authority.create_token(asked).await.map_err(|e| address.failed(&e))?.into_inner();
    let made = Made {
        cluster,
        node,
        token: made.token,
        expires: at(made.expires),
        authority: format!("sha256:{}", made.authority_sha256),
    };
    output.answer_text(&made, || format!("{}\n", made.token))?;
    if !matches!(output.format(), Format::Json | Format::Yaml) {
        // Standard output is the token alone: it goes to a file. Nobody is left to tell when standard error is closed.
        let _ignored = writeln!(std::io::stderr(), "stream.ca_sha256 = \"{}\"", clean(&made.authority));
    }
    Ok(YesOrNo::Yes)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    cluster: String,
    node: String,
    revoked: bool,
}

async fn revoke(args: &RevokeArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let (cluster, node) = named(&args.name);
    let asked = RevokeRequest { cluster: cluster.clone(), node: node.clone() };
    client::enrollment(address).await?.revoke(asked).await.map_err(|e| address.failed(&e))?;
    let revoked = Revoked { cluster, node, revoked: true };
    output.answer_text(&revoked, || {
        let Revoked { cluster, node, .. } = &revoked;
        format!("node {cluster}/{node} is refused until it joins anew: evenkeel ca token {cluster}/{node}\n")
    })?;
    Ok(YesOrNo::Yes)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuthorityList {
    authority: String,
    authority_expires: Option<String>,
    nodes: Vec<AuthorityNode>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuthorityNode {
    cluster: String,
    node: String,
    certificate_expires: Option<String>,
    token_expires: Option<String>,
    revoked: Option<String>,
    refused: bool,
}

impl From<EnrolledNode> for AuthorityNode {
    fn from(node: EnrolledNode) -> Self {
        Self {
            cluster: node.cluster,
            node: node.node,
            certificate_expires: at(node.certificate_expires),
            token_expires: at(node.token_expires),
            revoked: at(node.revoked),
            refused: node.refused,
        }
    }
}

impl AuthorityNode {
    fn state(&self) -> &'static str {
        match (self.refused, &self.certificate_expires) {
            (true, _) => "revoked",
            (false, None) => "waiting",
            (false, Some(_)) => "ok",
        }
    }
}

async fn list(address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let mut authority = client::enrollment(address).await?;
    let answer = authority.list_enrolled(ListEnrolledRequest {}).await.map_err(|e| address.failed(&e))?;
    let answer = answer.into_inner();
    let listed = AuthorityList {
        authority: format!("sha256:{}", answer.authority_sha256),
        authority_expires: at(answer.authority_expires),
        nodes: answer.nodes.into_iter().map(AuthorityNode::from).collect(),
    };
    output.answer_text(&listed, || {
        if output.format() == Format::Csv {
            return output.rendered(&table(&listed.nodes));
        }
        let until = listed.authority_expires.as_deref().unwrap_or("-");
        format!("authority {} until {until}\n\n{}", listed.authority, output.rendered(&table(&listed.nodes)))
    })?;
    Ok(YesOrNo::Yes)
}

fn table(nodes: &[AuthorityNode]) -> Table {
    let mut table = Table::new(&["CLUSTER", "NODE", "STATE", "CERTIFICATE-UNTIL", "TOKEN-UNTIL", "REVOKED"]);
    for row in nodes {
        let or_none = |at: &Option<String>| at.as_deref().unwrap_or("-").to_owned();
        table.row(vec![
            row.cluster.as_str().into(),
            row.node.as_str().into(),
            wire::toned(row.state()),
            or_none(&row.certificate_expires).into(),
            or_none(&row.token_expires).into(),
            or_none(&row.revoked).into(),
        ]);
    }
    table
}

/// A time in seconds since 1970; 0 is none.
fn at(seconds: u64) -> Option<String> {
    wire::time(seconds.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_be_named_with_its_cluster() {
        for (text, cluster, node) in
            [("n1", "default", "n1"), ("prod/n1", "prod", "n1"), ("prod/a/b", "prod", "a/b")]
        {
            assert_eq!(named(text), (cluster.to_owned(), node.to_owned()), "{text}");
        }
    }
}
