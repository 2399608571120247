//! `evenkeel audit`: who changed what, from where, and what came of it.

use clap::{Args, ValueEnum};
use evenkeel_proto::v1::{AuditEntry, AuditText, ListChangesRequest};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::{self, Address};
use crate::commands::events::{Since, since};
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table};
use crate::wire;

/// Show who changed what, from where, before and after; and who was refused.
///
/// Policies, limit ranges, quotas, the panic switch, join tokens, revoked nodes, tokens. It asks for the role view, with --namespace
/// where that holds in some namespaces only.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel audit
  evenkeel audit --since 1d --who anna
  evenkeel audit -n shop --kind policy -o wide
  evenkeel audit --outcome refused --limit 20
  evenkeel audit --since 2026-01-31T12:00:00Z --until 2026-02-01T00:00:00Z -o json")]
pub(crate) struct AuditArgs {
    /// Only of objects of this namespace.
    #[arg(short, long, value_name = "NS", default_value = "", hide_default_value = true)]
    namespace: String,
    /// Only of objects of this kind.
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<AuditedKind>,
    /// Only of objects of this name.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    name: String,
    /// Only by whom: a user, its number, a token's name, or as the column WHO has it.
    #[arg(long, value_name = "WHO", default_value = "", hide_default_value = true)]
    who: String,
    /// Only what ended so.
    #[arg(long, value_enum, value_name = "OUTCOME")]
    outcome: Option<AuditOutcome>,
    /// Only since a moment (RFC 3339) or for a while (10m, 1d).
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Since>,
    /// Only before a moment, or a while ago.
    #[arg(long, value_name = "WHEN", value_parser = since)]
    until: Option<Since>,
    /// The newest N.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// What is changed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum AuditedKind {
    #[value(alias = "Policy")]
    Policy,
    #[value(name = "limitrange", alias = "LimitRange")]
    LimitRange,
    #[value(name = "resourcequota", alias = "ResourceQuota")]
    ResourceQuota,
    #[value(name = "panicswitch", alias = "PanicSwitch", alias = "panic")]
    PanicSwitch,
    #[value(name = "jointoken", alias = "JoinToken")]
    JoinToken,
    #[value(alias = "Certificate")]
    Certificate,
    #[value(alias = "Node")]
    Node,
    #[value(alias = "Token")]
    Token,
    #[value(alias = "Authority")]
    Authority,
    #[value(alias = "File")]
    File,
}

impl AuditedKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Policy => "Policy",
            Self::LimitRange => "LimitRange",
            Self::ResourceQuota => "ResourceQuota",
            Self::PanicSwitch => "PanicSwitch",
            Self::JoinToken => "JoinToken",
            Self::Certificate => "Certificate",
            Self::Node => "Node",
            Self::Token => "Token",
            Self::Authority => "Authority",
            Self::File => "File",
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum AuditOutcome {
    /// It was made.
    Done,
    /// The caller may not.
    Refused,
    /// It was not made for another reason.
    Failed,
    /// It was begun; the recommender ended before it could say more.
    Unknown,
}

impl AuditOutcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// An entry in its pinned form.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditRow {
    number: u64,
    time: Option<String>,
    who: String,
    from: String,
    method: String,
    kind: String,
    namespace: String,
    name: String,
    before: Value,
    after: Value,
    outcome: String,
    reason: String,
    left_out: u64,
}

impl From<AuditEntry> for AuditRow {
    fn from(entry: AuditEntry) -> Self {
        Self {
            number: entry.number,
            time: wire::time(entry.time_usec),
            who: entry.who,
            from: entry.from,
            method: entry.method,
            kind: entry.kind,
            namespace: entry.namespace,
            name: entry.name,
            before: object(entry.before),
            after: object(entry.after),
            outcome: entry.outcome,
            reason: entry.reason,
            left_out: entry.left_out,
        }
    }
}

/// An object, or as much of its text as was kept.
fn object(text: Option<AuditText>) -> Value {
    let Some(AuditText { text, bytes }) = text else { return Value::Null };
    serde_json::from_str(&text).unwrap_or_else(|_| json!({ "cut": text, "bytes": bytes }))
}

pub(crate) async fn run(args: &AuditArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let now = Timestamp::now();
    let usec = |when: Option<Since>| when.map_or(0, |when| when.usec(now));
    let mut asked = ListChangesRequest {
        namespace: args.namespace.clone(),
        kind: args.kind.map(AuditedKind::name).unwrap_or_default().to_owned(),
        name: args.name.clone(),
        who: args.who.clone(),
        outcome: args.outcome.map(AuditOutcome::word).unwrap_or_default().to_owned(),
        since_usec: usec(args.since),
        until_usec: usec(args.until),
        ..ListChangesRequest::default()
    };
    let mut audit = client::audit(address).await?;
    let (mut rows, mut trouble) = (Vec::<AuditRow>::new(), String::new());
    loop {
        asked.limit = (args.limit - u32::try_from(rows.len()).unwrap_or(args.limit)).min(1000);
        let answer = audit.list_changes(asked.clone()).await.map_err(|e| address.failed(&e))?.into_inner();
        rows.extend(answer.entries.into_iter().map(AuditRow::from));
        trouble = if trouble.is_empty() { answer.trouble } else { trouble };
        if answer.next_page_token.is_empty() || rows.len() >= args.limit as usize {
            break;
        }
        asked.page_token = answer.next_page_token;
    }
    output.answer(&rows, || table(&rows, output))?;
    if !trouble.is_empty() {
        let remedy = "what is shown is all that can be read; its log says more";
        return Err(Failure::new(
            "not all of the audit record can be read",
            address.to_string(),
            trouble,
            remedy,
        ));
    }
    Ok(YesOrNo::Yes)
}

fn table(rows: &[AuditRow], output: &Output) -> Table {
    let mut titles = vec!["TIME", "WHO", "FROM", "METHOD", "OBJECT", "OUTCOME", "REASON"];
    if output.is_wide() {
        titles.extend(["NUMBER", "LEFT-OUT", "BEFORE", "AFTER"]);
    }
    let mut table = Table::new(&titles);
    for row in rows {
        let object: Vec<&str> = [&row.namespace, &row.name].into_iter().map(String::as_str).collect();
        let object: Vec<&str> = object.into_iter().filter(|part| !part.is_empty()).collect();
        let object = format!("{} {}", row.kind, object.join("/"));
        let or_none =
            |text: &str| if text.trim().is_empty() { "-".to_owned() } else { text.trim().to_owned() };
        let mut cells = vec![
            or_none(row.time.as_deref().unwrap_or_default()).into(),
            row.who.as_str().into(),
            row.from.as_str().into(),
            row.method.as_str().into(),
            or_none(&object).into(),
            wire::toned(&row.outcome),
            or_none(&row.reason).into(),
        ];
        if output.is_wide() {
            let text = |object: &Value| if object.is_null() { "-".to_owned() } else { object.to_string() };
            cells.extend([
                Cell::from(row.number.to_string()),
                row.left_out.to_string().into(),
                text(&row.before).into(),
                text(&row.after).into(),
            ]);
        }
        table.row(cells);
    }
    table
}
