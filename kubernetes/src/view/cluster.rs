//! The view as the simulator's cluster. It is kept from one question to the next: a question takes in the pods and nodes that changed since,
//! and only other changes make it anew. What pods of one template have in common is made ready once.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

use evenkeel_capacity::cluster::{Alike, Cluster, ClusterCache, Now, PodIdentity};
use evenkeel_capacity::load::{LoadReport, Loader};
use evenkeel_capacity::object::{Object, Pod};

use super::{ClusterObjects, ClusterView, ObjectContent, pods};
use crate::kinds::JOB;

/// A cluster that was made, and of which state of the view.
#[derive(Debug)]
pub(super) struct Built {
    keeper: ClusterCache,
    /// As [`ClusterObjects::others`] was.
    others: u64,
    /// Objects beside pods that could not be used, and why.
    left_out: Vec<String>,
    ready: Ready,
}

/// The cluster as it is now.
#[derive(Debug, Clone)]
pub struct Live {
    /// The cluster.
    pub cluster: Cluster,
    /// What it has.
    pub report: LoadReport,
    /// Objects that could not be used, and why.
    pub left_out: Vec<String>,
}

impl ClusterView {
    /// The cluster as it is now.
    #[must_use]
    pub fn live(&self) -> Live {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        self.renew(&mut built).live()
    }

    /// Takes in what changed, so that the next question need not: it waits for as long as a question would.
    pub fn keep_ready(&self) {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        self.renew(&mut built).keeper.prepare();
    }

    fn renew<'a>(&self, built: &'a mut Option<Built>) -> &'a mut Built {
        let inner = self.read();
        let (pods, nodes) = (inner.pods.changed(), inner.changed_nodes());
        let kept = built.take().filter(|built| built.others == inner.others && !built.keeper.is_worn());
        let kept = kept.zip(pods).and_then(|(built, pods)| inner.renewed(built, &nodes, &pods));
        built.insert(kept.unwrap_or_else(|| inner.built()))
    }

    /// The cluster as it would be if each pod were changed.
    #[must_use]
    pub fn changed(&self, change: &dyn Fn(&mut Pod)) -> Live {
        self.read().changed(change)
    }
}

impl Built {
    fn live(&mut self) -> Live {
        let (counts, oddities) = self.keeper.report();
        let mut left_out = self.left_out.clone();
        left_out.extend(self.keeper.unusable());
        let report = LoadReport { counts, oddities, ..LoadReport::default() };
        Live { cluster: self.keeper.cluster(), report, left_out }
    }
}

/// What pods have in common, made ready once: by address, which stays theirs as long as they are kept here.
#[derive(Debug, Default)]
struct Ready {
    all: HashMap<usize, (Arc<Pod>, Result<Alike, String>)>,
    /// How many there may be until those that no pod has any more are dropped.
    most: usize,
}

impl Ready {
    fn drop_unused(&mut self) {
        const FEW: usize = 4096;
        if self.all.len() > self.most.max(FEW) {
            self.all.retain(|_, (common, _)| Arc::strong_count(common) > 1);
            self.most = 2 * self.all.len();
        }
    }

    fn now<'a>(&mut self, keeper: &mut ClusterCache, name: &'a str, one: &'a pods::PodRecord) -> Now<'a> {
        if one.has_ended {
            return Now::Ended;
        }
        let ready = self.all.entry(Arc::as_ptr(&one.common).addr());
        let (_, alike) = ready.or_insert_with(|| {
            (Arc::clone(&one.common), keeper.alike(&one.common).map_err(|error| error.to_string()))
        });
        match alike {
            Ok(alike) => {
                let one = PodIdentity { name, uid: &one.uid, node: &one.node, started: &one.started };
                Now::Runs(alike.clone(), one)
            }
            Err(why) => Now::Unusable(why.clone()),
        }
    }
}

impl ClusterObjects {
    /// All of it.
    fn built(&self) -> Built {
        let (loader, left_out) = self.others(Loader::new());
        let mut keeper = loader.keep();
        let mut ready = Ready::default();
        let mut pods = self.pods.iter();
        keeper.set_with(&mut |keeper| {
            let (space, name, one) = pods.next()?;
            Some((space, name, ready.now(keeper, name, one)))
        });
        Built { keeper, others: self.others, left_out, ready }
    }

    /// As if nothing had been kept.
    #[cfg(test)]
    pub(super) fn whole(&self) -> Live {
        self.built().live()
    }

    /// The same with what changed; nothing where it has to be made anew.
    fn renewed(
        &self,
        mut built: Built,
        nodes: &BTreeSet<Box<str>>,
        pods: &[(Box<str>, Box<str>)],
    ) -> Option<Built> {
        for name in nodes {
            let ObjectContent::Object(Object::Node(node)) =
                &self.kinds.get("Node")?.objects.get("")?.get(name)?.of
            else {
                return None;
            };
            if !built.keeper.set_node(node) {
                return None;
            }
        }
        let Built { keeper, ready, .. } = &mut built;
        ready.drop_unused();
        let mut pods = pods.iter();
        keeper.set_with(&mut |keeper| {
            let (space, name) = pods.next()?;
            let one = self.pods.get(space, name);
            Some((space, name, one.map_or(Now::Gone, |one| ready.now(keeper, name, one))))
        });
        Some(built)
    }

    fn changed_nodes(&self) -> BTreeSet<Box<str>> {
        std::mem::take(&mut *self.changed_nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is no pod, taken in, and what of it cannot be used.
    fn others<'a>(&self, mut loader: Loader<'a>) -> (Loader<'a>, Vec<String>) {
        let mut left_out = Vec::new();
        for (name, kept) in self.kinds.iter().filter(|(name, _)| **name != JOB) {
            if kept.is_known {
                loader.lists(name);
            }
            for entry in kept.objects.values().flat_map(|names| names.values()) {
                let ObjectContent::Object(object) = &entry.of else { continue };
                left_out.extend(loader.add(object).err().map(|error| error.to_string()));
            }
        }
        (loader, left_out)
    }

    /// All of it, each pod changed: whoever does so may look at its name.
    fn changed(&self, change: &dyn Fn(&mut Pod)) -> Live {
        let (mut loader, mut left_out) = self.others(Loader::new().changing(change));
        let mut ended = 0;
        for (_, name, one) in self.pods.iter() {
            if one.has_ended {
                ended += 1;
                continue;
            }
            let mut pod = (*one.common).clone();
            name.clone_into(&mut pod.metadata.name);
            one.uid.as_ref().clone_into(&mut pod.metadata.uid);
            one.node.as_ref().clone_into(&mut pod.spec.node_name);
            pod.status.start_time = Some(one.started.as_ref().to_owned());
            change(&mut pod);
            left_out.extend(loader.add(&Object::Pod(Box::new(pod))).err().map(|error| error.to_string()));
        }
        loader.add_ended(ended);
        let (cluster, report) = loader.finish();
        Live { cluster, report, left_out }
    }
}
