//! Starting the sources.

use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_enforce::kernel;
use evenkeel_enforce::shared::UpdateSender;

use crate::shared::{Context, Rescan};
use crate::sources::manifests::Parser;
use crate::sources::reach::Reach;
use crate::{panics, pods, sources};

/// What other processes do for the sources.
#[derive(Default)]
pub(crate) struct Others {
    /// One talks with runtimes and engines.
    pub(super) runtimes: bool,
    /// One reads manifests.
    pub(super) manifests: Option<Parser>,
    /// One lists systemd's units.
    pub(super) units: bool,
}

/// What every source is given.
#[derive(Clone)]
pub(crate) struct SourceOutlets {
    /// Where what it found goes.
    pub(crate) updates: UpdateSender,
    /// Rung when it should list again.
    pub(crate) rescan: Rescan,
    /// Where containers are found by the names of their cgroups.
    pub(crate) cgroup_roots: Vec<PathBuf>,
}

/// Starts every enabled source on the present runtime that is not another process's. One that panics is started again.
pub(crate) fn start_sources(context: &Context, found: &SourceOutlets, others: Others) {
    let config = &context.config;
    if let Some(dir) = config.sources.manifests.clone() {
        let parser = others.manifests.unwrap_or_else(|| Parser::Here(Arc::clone(&config.types)));
        let found = found.clone();
        tokio::spawn(panics::restarted("manifests", move || {
            let SourceOutlets { updates, rescan, cgroup_roots } = found.clone();
            sources::manifests::run(dir.clone(), cgroup_roots, parser.clone(), updates, rescan)
        }));
    }
    let capacity = context.enforce.facts.memory_bytes;
    let terms = sources::Terms { capacity, trusted: config.enforce.manage.trust_annotations.clone() };
    for socket in config.sources.cri.clone().into_iter().filter(|_| !others.runtimes) {
        let pods = Arc::clone(&context.pods);
        let setup = sources::cri::Setup { socket, terms: terms.clone(), pods, reach: Reach::Here };
        let (updates, rescan) = (found.updates.clone(), found.rescan.clone());
        tokio::spawn(panics::restarted("cri", move || {
            sources::cri::run(setup.clone(), updates.clone(), rescan.clone())
        }));
    }
    if let Some(mut kubelet) = config.sources.kubelet.clone() {
        if kubelet.asked.name.is_empty() {
            kubelet.asked.name.clone_from(&context.node.node);
        }
        let (pods, outward) = (Arc::clone(&context.pods), context.outward.clone());
        tokio::spawn(panics::restarted("kubelet", move || {
            pods::follow_kubelet(kubelet.clone(), outward.clone(), Arc::clone(&pods))
        }));
    }
    let (updates, rescan) = (found.updates.clone(), found.rescan.clone());
    if !others.units {
        // Without the tree units are listed all the same; only what they lack is not told.
        let tree = kernel::open_tree(&config.enforce).ok().map(|(_, tree)| tree);
        let (units, sender) = (config.sources.systemd.clone(), updates.clone());
        tokio::spawn(panics::restarted("systemd", move || {
            sources::systemd::run(units.clone(), tree.clone(), Reach::Here, sender.clone())
        }));
    }
    if others.runtimes {
        return;
    }
    let setup = sources::engines::Setup {
        sockets: config.sources.engines.clone(),
        terms,
        roots: found.cgroup_roots.clone(),
        reach: Reach::Here,
    };
    tokio::spawn(panics::restarted("names", move || {
        sources::engines::run(setup.clone(), updates.clone(), rescan.clone())
    }));
}
