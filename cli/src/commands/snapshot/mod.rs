//! `evenkeel snapshot`: saves a cluster to a file the simulator reads.

mod keep;
mod kinds;
mod progress;
mod sink;

use std::fs::File;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};

use clap::Args;
use evenkeel_kubernetes::Choice;
use evenkeel_proto::v1::SnapshotRequest;
use serde::Serialize;

use crate::client::{self, Address, block_on};
use crate::cluster::{ApiConnection, ListError, unusable};
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, clean};
use kinds::{KINDS, SnapshotKind};
use progress::{Progress, tell_missing};
use sink::Sink;

/// Times a list is begun again because its pages have expired.
const RESTARTS: usize = 3;

/// Save a cluster to a file that "evenkeel capacity" reads.
///
/// Asks an API server for the kinds that decide where pods go, and never for secrets. What can hold a secret
/// is left out: environment, commands, probes, options of volumes, annotations nobody here reads. With --reported, the recommender is asked for what agents told it. Nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel snapshot cluster.json
  evenkeel snapshot --context production --strict cluster.json
  evenkeel snapshot | evenkeel capacity -f pod.yaml --snapshot -
  evenkeel snapshot --reported --recommender unix:///run/evenkeel/recommender.sock cluster.json")]
pub(crate) struct SnapshotArgs {
    /// File that is replaced when all is there; - is standard output.
    #[arg(default_value = "-", value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Save what agents reported to the recommender.
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "server", "namespace", "strict", "keep_all"])]
    reported: bool,
    /// With --reported, the cluster that is meant, where agents of several report.
    #[arg(long, requires = "reported", value_name = "NAME", default_value = "", hide_default_value = true)]
    cluster: String,
    /// Only objects of this namespace, where kinds have namespaces; pods of others are missing on their nodes then.
    #[arg(long, value_name = "NS")]
    namespace: Option<String>,
    /// Fail when a kind may not be seen, instead of going on without it.
    #[arg(long)]
    strict: bool,
    /// Keep everything the server gives, environment and commands of containers too.
    #[arg(long)]
    keep_all: bool,
}

/// Which API server is asked, and how.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "API server")]
pub(crate) struct ServerArgs {
    /// Configuration file, instead of those of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context, instead of the current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Server, instead of the context's.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Objects of one page.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5000))]
    page_size: u32,
}

impl ServerArgs {
    /// A connection to it.
    ///
    /// # Errors
    /// When no server is known, or what names it cannot be used.
    pub(crate) fn open(&self) -> Result<ApiConnection, Failure> {
        let choice = Choice {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            server: self.server.clone(),
        };
        let cluster = ApiConnection::open(&choice)?;
        if cluster.is_unchecked() {
            warn("the server's certificate is not checked (insecure-skip-tls-verify)");
        }
        Ok(cluster)
    }
}

/// What was saved.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Saved {
    /// Server or recommender.
    server: String,
    /// Destination.
    file: String,
    kinds: Vec<KindSaved>,
}

#[derive(Debug, Serialize)]
struct KindSaved {
    kind: String,
    objects: u64,
    /// Why it is missing.
    missing: Option<String>,
    /// What the snapshot gets wrong without it.
    cost: Option<&'static str>,
}

pub(crate) fn run(args: &SnapshotArgs, recommender: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let to_stdout = args.to == Path::new("-");
    let mut sink = if to_stdout { Sink::nameless()? } else { Sink::beside(&args.to)? };
    let mut saved = if args.reported {
        block_on(reported(recommender, &args.cluster, &mut sink))?
    } else {
        if args.namespace.is_some() {
            warn("only one namespace is saved: nodes look emptier than they are");
        }
        let wish = SnapshotScope {
            namespace: args.namespace.as_deref(),
            strict: args.strict,
            keep_all: args.keep_all,
        };
        save(&args.server, wish, &mut sink)?
    };
    let mut file = sink.finish()?;
    if to_stdout {
        std::io::copy(&mut file, &mut stdout().lock())?;
        tell_missing(&saved);
    } else {
        saved.file = args.to.display().to_string();
        output.answer(&saved, || table(&saved))?;
    }
    Ok(YesOrNo::Yes)
}

/// A cluster as it is now, in a nameless file: for commands that would read a saved one.
///
/// # Errors
/// As `evenkeel snapshot`.
pub(crate) fn live(server: &ServerArgs) -> Result<File, Failure> {
    let mut sink = Sink::nameless()?;
    let saved = save(server, SnapshotScope::default(), &mut sink)?;
    tell_missing(&saved);
    sink.finish()
}

/// What is wanted of the objects.
#[derive(Debug, Clone, Copy, Default)]
struct SnapshotScope<'a> {
    namespace: Option<&'a str>,
    strict: bool,
    keep_all: bool,
}

fn save(args: &ServerArgs, wish: SnapshotScope<'_>, sink: &mut Sink) -> Result<Saved, Failure> {
    let mut cluster = args.open()?;
    let mut saved = Saved { server: cluster.server().to_owned(), ..Saved::default() };
    let progress = Progress { on: stderr().is_terminal() };
    for kind in &KINDS {
        let listed = list(&mut cluster, kind, args.page_size, wish, sink, &progress);
        let (objects, missing) = match listed {
            Ok(objects) => {
                sink.listed(kind.kind);
                (objects, None)
            }
            Err(ListError::Forbidden(why)) if !wish.strict && kind.kind != "Node" => (0, Some(why)),
            // Servers without a feature do not know its kinds.
            Err(ListError::Unknown) if kind.kind != "Node" && kind.kind != "Pod" => {
                (0, Some("the server does not know it".to_owned()))
            }
            Err(error) => {
                progress.end();
                return Err(failed(&cluster, kind, wish.strict, error));
            }
        };
        let cost = missing.is_some().then_some(kind.cost);
        saved.kinds.push(KindSaved { kind: kind.kind.to_owned(), objects, missing, cost });
    }
    progress.end();
    Ok(saved)
}

/// Saves the objects of one kind; how many there were.
fn list(
    cluster: &mut ApiConnection,
    kind: &SnapshotKind,
    page_size: u32,
    wish: SnapshotScope<'_>,
    sink: &mut Sink,
    progress: &Progress,
) -> Result<u64, ListError> {
    let begin = sink.mark()?;
    let path = kind.path(wish.namespace);
    let mut restarts = 0;
    loop {
        let mut objects = 0;
        let listed = cluster.list(&path, page_size, &mut |page| {
            objects += page.len() as u64;
            progress.tell(kind.kind, objects);
            page.into_iter().try_for_each(|object| sink.add(&kind.saved(object, wish.keep_all)))
        });
        match listed {
            Err(ListError::Expired) if restarts < RESTARTS => {
                restarts += 1;
                sink.back(begin)?;
            }
            Err(error) => {
                sink.back(begin)?;
                return Err(error);
            }
            Ok(()) => return Ok(objects),
        }
    }
}

fn failed(cluster: &ApiConnection, kind: &SnapshotKind, strict: bool, error: ListError) -> Failure {
    let what = format!("cannot save the cluster's {} objects", kind.kind);
    let place = format!("{}{}", cluster.server(), kind.path(None));
    match error {
        ListError::Failed(error) => unusable(error),
        ListError::Taken(failure) => failure,
        ListError::Forbidden(why) => {
            let remedy = match strict && kind.kind != "Node" {
                true => "have list allowed on it, or leave out --strict",
                // Without nodes there is nothing that a snapshot could say.
                false => "have list allowed on it; packaging/kubernetes/snapshot.yaml has the role",
            };
            Failure::new(what, place, why, remedy)
        }
        ListError::Unknown => {
            Failure::new(what, place, "nothing is there", "see whether this is the address of an API server")
        }
        ListError::Expired => {
            let why = format!("its pages expired {RESTARTS} times before all were there");
            Failure::new(what, place, why, "ask for larger pages with --page-size")
        }
    }
}

/// Saves what agents told the recommender.
async fn reported(address: &Address, cluster: &str, sink: &mut Sink) -> Result<Saved, Failure> {
    let mut recommender = client::capacity(address).await?;
    let request = SnapshotRequest { cluster: cluster.to_owned() };
    let mut answers = recommender.snapshot(request).await.map_err(|e| address.failed(&e))?.into_inner();
    let (mut nodes, mut pods) = (0, 0);
    while let Some(answer) = answers.message().await.map_err(|e| address.failed(&e))? {
        for object in answer.objects {
            let is_node = object.starts_with(r#"{"apiVersion":"v1","kind":"Node""#);
            *(if is_node { &mut nodes } else { &mut pods }) += 1;
            sink.add_text(object)?;
        }
    }
    let kind = |kind: &str, objects| KindSaved { kind: kind.to_owned(), objects, missing: None, cost: None };
    let kinds = vec![kind("Node", nodes), kind("Pod", pods)];
    Ok(Saved { server: address.to_string(), kinds, ..Saved::default() })
}

fn table(saved: &Saved) -> Table {
    let mut table = Table::new(&["KIND", "OBJECTS", "MISSING"]);
    for kind in &saved.kinds {
        let missing = kind
            .missing
            .as_ref()
            .map_or(String::new(), |why| format!("{why}: {}", kind.cost.unwrap_or_default()));
        let cells = [kind.kind.clone(), kind.objects.to_string(), missing];
        table.row(cells.iter().map(|cell| Cell::from(cell.as_str())).collect());
    }
    table
}

fn warn(text: &str) {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(stderr(), "warning: {}", clean(text));
}
