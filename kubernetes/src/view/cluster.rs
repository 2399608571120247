//! The view as the simulator's cluster. It is made when somebody asks, and again when something changed since; what pods of one template
//! have in common is made ready once.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use evenkeel_capacity::cluster::{Alike, Cluster, One};
use evenkeel_capacity::load::{Loader, Report};
use evenkeel_capacity::object::{Object, Pod};

use super::{Inner, Of, View};
use crate::kinds::JOB;

/// A cluster that was made, and of which state of the view.
#[derive(Debug)]
pub(super) struct Built {
    changes: u64,
    live: Live,
}

/// The cluster as it is now.
#[derive(Debug, Clone)]
pub struct Live {
    /// The cluster.
    pub cluster: Cluster,
    /// What it has.
    pub report: Report,
    /// Objects that could not be used, and why.
    pub left_out: Vec<String>,
}

impl View {
    /// The cluster as it is now.
    #[must_use]
    pub fn live(&self) -> Live {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the view is: what changes meanwhile makes it old.
        let changes = self.changes.load(Ordering::Acquire);
        if let Some(built) = built.as_ref().filter(|built| built.changes == changes) {
            return built.live.clone();
        }
        let live = self.read().build(None);
        *built = Some(Built { changes, live: live.clone() });
        live
    }

    /// The cluster as it would be if each pod were changed.
    #[must_use]
    pub fn changed(&self, change: &dyn Fn(&mut Pod)) -> Live {
        self.read().build(Some(change))
    }
}

impl Inner {
    fn build(&self, change: Option<&dyn Fn(&mut Pod)>) -> Live {
        let mut loader = change.map_or_else(Loader::new, |change| Loader::new().changing(change));
        let mut left_out = Vec::new();
        for (name, kept) in self.kinds.iter().filter(|(name, _)| **name != JOB) {
            if kept.is_known {
                loader.lists(name);
            }
            for entry in kept.objects.values().flat_map(|names| names.values()) {
                let Of::Object(object) = &entry.of else { continue };
                left_out.extend(loader.add(object).err().map(|error| error.to_string()));
            }
        }
        // Pods are kept apart.
        match change {
            // Who changes a pod may look at its name.
            Some(change) => self.changed_pods(&mut loader, change, &mut left_out),
            None => self.pods(&mut loader, &mut left_out),
        }
        let (cluster, report) = loader.finish();
        Live { cluster, report, left_out }
    }

    fn pods(&self, loader: &mut Loader<'_>, left_out: &mut Vec<String>) {
        let mut ready: HashMap<*const Pod, Option<Alike>> = HashMap::new();
        let mut ended = 0;
        for (name, one) in self.pods.iter() {
            if one.has_ended {
                ended += 1;
                continue;
            }
            let alike = ready.entry(std::sync::Arc::as_ptr(&one.common)).or_insert_with(|| {
                loader.alike(&one.common).map_err(|error| left_out.push(error.to_string())).ok()
            });
            if let Some(alike) = alike {
                loader.add_one(alike, One { name, uid: &one.uid, node: &one.node, started: &one.started });
            }
        }
        loader.add_ended(ended);
    }

    fn changed_pods(&self, loader: &mut Loader<'_>, change: &dyn Fn(&mut Pod), left_out: &mut Vec<String>) {
        let mut ended = 0;
        for (name, one) in self.pods.iter() {
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
    }
}
