//! `evenkeel support-bundle`: what somebody who helps needs to know of this node, in one file that may be shown to others.
//!
//! Owned here: which questions are asked, and the order of things. What is taken out of the answers is in `redact`, the file's form in
//! `archive`. Each answer is one of a command that people can run themselves, or a file of the kernel: nothing is told that these do not tell.

mod archive;
mod items;
mod redact;

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use crate::args::Global;
use crate::client::Address;
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::Table;
use archive::Archive;
use items::Item;
use redact::Redactor;

/// Write what somebody who helps needs to know into one file, without secrets.
///
/// Nothing is sent anywhere. Tokens, keys, passwords, headers, annotations and values of environment variables are taken out;
/// names of pods, namespaces, images and nodes stay. Look at it before you give it away.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel support-bundle --dry-run              what would be in it, and where from
  sudo evenkeel support-bundle
  sudo evenkeel support-bundle --since 24h --to /tmp/bundle.tar.gz")]
pub(crate) struct SupportArgs {
    /// The file to write [default: evenkeel-support-TIME.tar.gz]; one that is there is not replaced.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Print what would be in it, and ask nothing.
    #[arg(long)]
    dry_run: bool,
    /// How far decisions and log lines go back, such as 30m or 24h.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    since: String,
    /// Configuration of the agent [default: its own].
    #[arg(long, value_name = "FILE")]
    agent_config: Option<PathBuf>,
    /// Configuration of the recommender [default: its own].
    #[arg(long, value_name = "FILE")]
    recommender_config: Option<PathBuf>,
    /// Where the agent's metrics are.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9523/metrics")]
    agent_metrics: String,
    /// Where the node's procfs is mounted.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,
}

fn duration(text: &str) -> Result<String, String> {
    let is_one = text.parse::<jiff::SignedDuration>().is_ok_and(|span| span.is_positive());
    is_one.then(|| text.to_owned()).ok_or_else(|| "write a duration such as 30m or 24h".to_owned())
}

/// One file of the bundle, as it is told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BundleFile {
    file: String,
    /// The command or file it comes from.
    from: String,
    what: &'static str,
    /// Bytes in the bundle; absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Places where something was taken out.
    #[serde(skip_serializing_if = "Option::is_none")]
    redacted: Option<u64>,
    /// Why it is missing or not whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

/// What the bundle says of itself.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    made: String,
    version: &'static str,
    since: &'a str,
    files: &'a [BundleFile],
}

pub(crate) fn run(
    args: &SupportArgs,
    global: &Global,
    recommender: &Address,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    let items = items::all(args, global, recommender);
    if args.dry_run {
        let listed: Vec<BundleFile> = items.iter().map(|item| listed(item, None, None, None)).collect();
        output.answer(&listed, || table(&listed))?;
        return Ok(YesOrNo::Yes);
    }
    let now = Timestamp::now();
    let path = args.to.clone().unwrap_or_else(|| {
        PathBuf::from(format!("evenkeel-support-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")))
    });
    let mut redactor = Redactor::new();
    items::secrets(args, global).into_iter().for_each(|secret| redactor.know(&secret));
    let mut archive = Archive::create(&path, now)?;
    let mut files = Vec::new();
    for item in &items {
        let taken = item.take();
        let (text, redacted) = redactor.clean(&taken.text);
        if !text.is_empty() {
            archive.add(&item.file, text.as_bytes())?;
        }
        let bytes = Some(text.len() as u64);
        let trouble = taken.trouble.map(|why| redactor.clean(&why).0);
        files.push(listed(item, bytes, Some(redacted), trouble));
    }
    let index = Index {
        made: now.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        since: &args.since,
        files: &files,
    };
    let text = serde_json::to_string_pretty(&index).map_err(|e| archive::failed(&path, &e.to_string()))?;
    archive.add("index.json", redactor.clean(&text).0.as_bytes())?;
    archive.finish()?;
    output.answer(&files, || table(&files))?;
    let taken = files.iter().filter(|file| file.trouble.is_none()).count();
    eprintln_plain(&format!(
        "{}: {taken} of {} answers, {} places redacted; look at it before you give it away",
        path.display(),
        files.len(),
        files.iter().filter_map(|file| file.redacted).sum::<u64>()
    ));
    Ok(YesOrNo::Yes)
}

/// A line for people beside the answer.
fn eprintln_plain(text: &str) {
    use std::io::Write as _;
    // Nobody is left to tell when standard error is closed.
    let _told = writeln!(std::io::stderr(), "{}", evenkeel_model::shown::plain(text));
}

fn listed(item: &Item, bytes: Option<u64>, redacted: Option<u64>, trouble: Option<String>) -> BundleFile {
    BundleFile {
        file: item.file.clone(),
        from: item.from.to_string(),
        what: item.what,
        bytes,
        redacted,
        trouble,
    }
}

fn table(files: &[BundleFile]) -> Table {
    let mut table = Table::new(&["FILE", "FROM", "WHAT", "BYTES", "REDACTED", "TROUBLE"]);
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    for file in files {
        table.row(vec![
            file.file.as_str().into(),
            file.from.as_str().into(),
            file.what.into(),
            number(file.bytes).into(),
            number(file.redacted).into(),
            file.trouble.as_deref().unwrap_or("").into(),
        ]);
    }
    table
}
