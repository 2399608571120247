//! `--once`: find containers, bring them to their wish once, print what was done.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_enforce::config::Mode;
use evenkeel_enforce::converge::board::{Board, ContainerView};
use evenkeel_enforce::converge::{Converger, Parts};
use evenkeel_enforce::node::{self, NodeLoop};
use evenkeel_enforce::shared::{SOURCE_UPDATES_CAP, UpdateSender, Waker};
use evenkeel_model::decision::Decision;
use evenkeel_model::shown;
use serde_json::{Value, json};

use crate::cli::Output;
use crate::config::Config;
use crate::run::{self, Keeps, Opened};
use crate::shared::{Context, Rescan};
use crate::tasks::{self, SourceOutlets};
use crate::{allocator, changes, machine, program};

/// Time for the sources to say what they see.
const DISCOVERY: Duration = Duration::from_secs(5);
/// Time to converge what was found.
const CONVERGING: Duration = Duration::from_secs(30);

/// Does it and prints it. True when nothing is left undone that could be done.
///
/// # Errors
/// When it cannot start.
pub(crate) fn run(config: Config, written: Value, output: Output) -> anyhow::Result<bool> {
    let keeps = if config.enforce.mode == Mode::DryRun { Keeps::Nothing } else { Keeps::State };
    let _lock = machine::only_agent(&config)?;
    let Opened { context, kernel, journal, decisions, board, .. } = run::open(config, written, keeps, None)?;
    let from = decisions.next_seq();
    let waker = Waker::new().context("no descriptor for a bell")?;
    let (sender, updates) = sync_channel(SOURCE_UPDATES_CAP);
    let rescan = Rescan::default();
    let expected = context.config.enforce.sources.count();
    let cgroup_roots = run::hierarchies(&kernel.reader);
    let view = Arc::new(node::View::default());
    let mut node =
        NodeLoop::open(&context.enforce, &kernel, &board, &decisions.log(), &view, allocator::give_back)?;
    let mut converger = Converger::new(Parts {
        context: Arc::clone(&context.enforce),
        reader: kernel.reader,
        writer: kernel.writer,
        journal,
        decisions: decisions.log(),
        board: Arc::clone(&board),
        updates,
        waker: waker.clone(),
        changes: None,
        rescan: rescan.bell(),
        connector: None,
        holds: None,
        usage: None,
        scores_possible: kernel.scores_possible,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let found = SourceOutlets { updates: UpdateSender { sender, waker }, rescan, cgroup_roots };
    let _guard = runtime.enter();
    tasks::start_sources(&context, &found, tasks::Others::default());
    converger.gather(expected, Instant::now() + DISCOVERY);
    converger.once(Instant::now() + CONVERGING);
    node.once();
    runtime.shutdown_timeout(Duration::from_millis(200));
    let mut history = decisions.history(from);
    let mut done = Vec::new();
    loop {
        let chunk = history.next_chunk(256);
        if chunk.is_empty() {
            break;
        }
        done.extend(chunk);
    }
    print(&context, &board, &view, &done, output)?;
    let undone = |view: &Arc<ContainerView>| {
        view.unmanaged.is_none() && view.state > evenkeel_enforce::converge::State::Ineffective
    };
    Ok(context.config.enforce.mode == Mode::DryRun || !board.containers().iter().any(undone))
}

fn print(
    context: &Context,
    board: &Board,
    view: &node::View,
    decisions: &[Arc<Decision>],
    output: Output,
) -> anyhow::Result<()> {
    if output == Output::Json {
        let containers: Vec<Value> = board.containers().iter().map(|view| container(view)).collect();
        let decisions: Vec<&Decision> = decisions.iter().map(|decision| &**decision).collect();
        let whole = json!({
            "cluster": context.node.cluster,
            "node": context.node.node,
            "mode": context.config.enforce.mode.as_str(),
            "rules": context.config.enforce.plan.rules.as_str(),
            "nodeState": changes::node_json(board, view),
            "containers": containers,
            "waiting": board.waiting(),
            "decisions": decisions,
        });
        return program::write(&format!("{}\n", shown::json(serde_json::to_string_pretty(&whole)?)));
    }
    program::write(&changes::table(context.config.enforce.mode, board, view))
}

fn container(view: &ContainerView) -> Value {
    let workload = &view.tracked.workload;
    let class = |class: Option<evenkeel_model::qos_class::QosClass>| class.map(|class| class.as_str());
    let knobs: Vec<Value> = view
        .knobs
        .iter()
        .map(|knob| {
            json!({
                "name": knob.name(), "wanted": knob.wanted.to_string(),
                "actual": knob.actual.map(|actual| actual.to_string()),
                "state": knob.state.as_str(), "reason": knob.reason.to_string(),
            })
        })
        .collect();
    let verified = view.verified_at_usec.and_then(|usec| i64::try_from(usec).ok());
    let verified = verified.and_then(|usec| jiff::Timestamp::from_microsecond(usec).ok());
    json!({
        "pod": format!("{}/{}", workload.pod.namespace, workload.pod.name),
        "container": workload.container,
        "id": workload.id,
        "inode": view.tracked.inode,
        "cgroup": &*view.tracked.cgroup,
        "classes": {"memory": class(view.tracked.classes.memory), "cpu": class(view.tracked.classes.cpu)},
        "managed": view.unmanaged.is_none(),
        "why": view.unmanaged,
        "state": view.state.as_str(),
        "generation": view.generation,
        "verifiedAt": verified.map(|time| time.to_string()),
        "processes": view.processes,
        "knobs": knobs,
    })
}
