//! Whether a size has room: asked of the simulator before anything is done.

use evenkeel_capacity::answer::Shape;
use evenkeel_capacity::cluster::Cluster;
use evenkeel_capacity::cluster::resources::{CPU, MEMORY};
use evenkeel_capacity::object;
use evenkeel_capacity::question::{CapacityQuestion, QuestionOptions, Snapshot};
use evenkeel_capacity::state::ClusterState;
use evenkeel_kubernetes::{ClusterView, Live};
use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::Resource;
use evenkeel_updater::{Room, RunningPod, Size, Sizes, Two, Workload};

/// The simulator over what is followed. Nodes and what is on them are counted once a pass, and each step that is planned is counted, too.
pub(super) struct Simulator<'a> {
    view: &'a ClusterView,
    counted: Option<(Cluster, ClusterState)>,
    /// What steps of this pass add to quotas, by namespace: requests and limits of each resource.
    added: Vec<(String, Two<Two<i128>>)>,
}

impl<'a> Simulator<'a> {
    pub(super) const fn of(view: &'a ClusterView) -> Self {
        Self { view, counted: None, added: Vec::new() }
    }

    fn counted(&mut self) -> &mut (Cluster, ClusterState) {
        let view = self.view;
        self.counted.get_or_insert_with(|| {
            let Live { cluster, .. } = view.live();
            let state = ClusterState::new(&cluster);
            (cluster, state)
        })
    }
}

/// Sum of requests and limits over containers, by resource: thousandths of a core, bytes.
fn sums(sizes: &Sizes) -> Two<Two<i128>> {
    let of = |at: usize| {
        let sum = |pick: fn(&Size) -> Option<u64>| {
            sizes.values().map(|two| i128::from(pick(&two[at]).unwrap_or(0))).sum::<i128>()
        };
        [sum(|size| size.request), sum(|size| size.limit)]
    };
    [of(0), of(1)]
}

fn with(before: &Sizes, change: &Sizes) -> Sizes {
    let mut after = before.clone();
    after.extend(change.iter().map(|(name, two)| (name.clone(), *two)));
    after
}

impl Room for Simulator<'_> {
    fn in_place(&mut self, workload: &Workload, pod: &RunningPod, sizes: &Sizes) -> Result<(), String> {
        let (old, new) = (sums(&pod.sizes), sums(&with(&pod.sizes, sizes)));
        let delta = [0, 1].map(|at| [0, 1].map(|of| new[at][of] - old[at][of]));
        self.quotas(&workload.namespace, &delta)?;
        let (cluster, state) = self.counted();
        let Some(node) = cluster.node(&pod.node) else {
            return Err(format!("node {} is not known", pod.node));
        };
        for (at, resource, name) in [(0, CPU, "cpu"), (1, MEMORY, "memory")] {
            let free =
                i128::from(state.allocatable[resource][node]) - i128::from(state.requested[resource][node]);
            if delta[at][0] > free.max(0) {
                let (node, more) = (&pod.node, delta[at][0]);
                return Err(format!(
                    "node {node} has {free} of {name} left, and {more} more would be asked for"
                ));
            }
        }
        for (at, resource) in [(0, CPU), (1, MEMORY)] {
            let more = i64::try_from(delta[at][0]).unwrap_or(i64::MAX);
            state.requested[resource][node] = state.requested[resource][node].saturating_add(more);
        }
        self.added.push((workload.namespace.clone(), delta));
        Ok(())
    }

    fn anywhere(&mut self, workload: &Workload, pod: &RunningPod, sizes: &Sizes) -> Result<(), String> {
        let manifest = self.view.manifest(&workload.namespace, &pod.name);
        let Some(mut asked) = manifest else {
            return Err("the pod is not known to the simulator".to_owned());
        };
        asked.spec.init_containers.iter_mut().chain(&mut asked.spec.containers).for_each(|container| {
            if let Some(two) = sizes.get(&container.name) {
                set(&mut container.resources, two);
            }
        });
        let gone = |other: &mut object::Pod| {
            if other.metadata.uid == pod.uid {
                other.status.phase = "Succeeded".to_owned();
            }
        };
        let Live { cluster, report, .. } = self.view.changed(&gone);
        let options = QuestionOptions { max: Some(1), ..QuestionOptions::default() };
        let question = CapacityQuestion {
            options,
            shapes: vec![Shape { pod: asked, wanted: 1 }],
            ..CapacityQuestion::default()
        };
        let answered = question.answer(Snapshot { cluster, report }, None, &mut |_| true);
        match answered {
            Ok((whole, _)) if whole.answer.count > 0 => Ok(()),
            Ok((whole, _)) => Err(whole.answer.message),
            Err(error) => Err(format!("{}: {}", error.option, error.why)),
        }
    }
}

fn set(resources: &mut object::Requirements, two: &Two<Size>) {
    for resource in Resource::ALL {
        let (name, size) = (resource.as_str(), two[usize::from(resource == Resource::Memory)]);
        let quantity = |amount: u64| match resource {
            Resource::Cpu => Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX)),
            Resource::Memory => Quantity::from_bytes(amount),
        };
        if let Some(request) = size.request {
            resources.requests.insert(name.to_owned(), quantity(request));
        }
        if let Some(limit) = size.limit {
            resources.limits.insert(name.to_owned(), quantity(limit));
        }
    }
}

impl Simulator<'_> {
    /// Whether the quotas of a namespace let its pods ask for so much more.
    fn quotas(&mut self, namespace: &str, delta: &Two<Two<i128>>) -> Result<(), String> {
        let added =
            self.added.iter().filter(|(of, _)| of == namespace).fold([[0; 2]; 2], |mut sum, (_, one)| {
                (0..2).for_each(|at| (0..2).for_each(|of| sum[at][of] += one[at][of]));
                sum
            });
        let (cluster, _) = self.counted();
        // What a quota's scopes leave out of it is not looked at here: the API server says so then.
        let own = |quota: &&object::ResourceQuota| {
            quota.metadata.namespace == namespace
                && quota.spec.scopes.is_empty()
                && quota.spec.scope_selector.match_expressions.is_empty()
        };
        let names: [(&str, usize, usize); 6] = [
            ("cpu", 0, 0),
            ("requests.cpu", 0, 0),
            ("limits.cpu", 0, 1),
            ("memory", 1, 0),
            ("requests.memory", 1, 0),
            ("limits.memory", 1, 1),
        ];
        for quota in cluster.quotas.iter().filter(own) {
            for (name, at, of) in names.iter().filter(|(_, at, of)| delta[*at][*of] > 0) {
                let unit = |quantity: &Quantity| if *at == 0 { quantity.milli() } else { quantity.value() };
                let Some(hard) = quota.spec.hard.get(*name).map(unit) else { continue };
                let used = quota.status.used.get(*name).map_or(0, unit);
                if used + added[*at][*of] + delta[*at][*of] > hard {
                    let quota = &quota.metadata.name;
                    return Err(format!("quota {quota} has {} of {name} left", (hard - used).max(0)));
                }
            }
        }
        Ok(())
    }
}
