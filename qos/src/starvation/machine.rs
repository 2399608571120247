//! Who starves since when, who is squeezed since when, one step at a time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use evenkeel_model::qos_class::QosClass;

use super::rule::{
    ContainerCpu, Evict, Squeeze, StarvationCase, StarvationConfig, Starving, squeeze, starves,
};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StarvationChange {
    /// It is said that this container starves.
    Report(Starving),
    /// This one is squeezed; the first key is the one that starves.
    Squeeze(Squeeze, StarvationCase, u32),
    /// The last step against this one is undone.
    Release(Squeeze),
    /// This one is offered to the eviction policy.
    Evict(Starving),
}

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StarvationAction {
    /// To which container.
    pub key: u32,
    /// What.
    pub deed: StarvationChange,
    /// For how long somebody has starved (or nobody has, for a release), microseconds.
    pub for_usec: u64,
}

/// What became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StarvationResult {
    /// Done.
    Done,
    /// Failed; this step is not tried again on this container.
    Failed,
}

/// The container that has starved for longest.
#[derive(Debug, Clone, Copy)]
struct Starved {
    for_usec: u64,
    key: u32,
    case: Starving,
}

#[derive(Debug, Clone, Default)]
struct StarvationState {
    starving_since: Option<u64>,
    reported: bool,
    /// Steps in force, in the order in which they were taken.
    steps: Vec<Squeeze>,
    failed_weight: bool,
    failed_idle: bool,
    failed_quota: bool,
}

/// The machine. Bounded by the containers of the last look.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    containers: BTreeMap<u32, StarvationState>,
    stepped_usec: Option<u64>,
    fed_since: Option<u64>,
    evicted_usec: Option<u64>,
}

impl Machine {
    /// True while somebody is squeezed.
    pub fn holds(&self) -> bool {
        self.containers.values().any(|memory| !memory.steps.is_empty())
    }

    /// True while this container is squeezed.
    pub fn holds_key(&self, key: u32) -> bool {
        self.containers.get(&key).is_some_and(|memory| !memory.steps.is_empty())
    }

    /// Containers that have starved long enough to count.
    pub fn starving(&self) -> usize {
        self.containers.values().filter(|memory| memory.reported).count()
    }

    /// Containers that are remembered.
    pub fn len(&self) -> usize {
        self.containers.len()
    }

    /// True when nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// Takes in one look and says what is to be done. `node_busy` is in hundredths of a percent.
    pub fn step(
        &mut self,
        now: u64,
        node_busy: u32,
        seen: &[ContainerCpu],
        rules: &StarvationConfig,
    ) -> Vec<StarvationAction> {
        let mut gone = std::mem::take(&mut self.containers);
        let mut actions = Vec::new();
        let mut worst: Option<Starved> = None;
        for facts in seen {
            let mut memory = gone.remove(&facts.key).unwrap_or_default();
            let case = Starving {
                request_milli: facts.request_milli,
                usage_milli: facts.usage_milli,
                waited: facts.waited,
                throttled: facts.throttled,
                node_busy,
                below: rules.below,
                pressure: rules.pressure,
                busy: rules.busy,
            };
            // Whoever we squeeze ourselves starves by our own hand.
            if !starves(&case) || !memory.steps.is_empty() {
                memory.starving_since = None;
                memory.reported = false;
            } else {
                let since = *memory.starving_since.get_or_insert(now);
                let long = now.saturating_sub(since);
                if long >= rules.after_usec {
                    if !std::mem::replace(&mut memory.reported, true) {
                        actions.push(StarvationAction {
                            key: facts.key,
                            deed: StarvationChange::Report(case),
                            for_usec: long,
                        });
                    }
                    let better = worst.is_none_or(|worst| long > worst.for_usec);
                    if better {
                        worst = Some(Starved { for_usec: long, key: facts.key, case });
                    }
                }
            }
            self.containers.insert(facts.key, memory);
        }
        match worst {
            Some(worst) => {
                self.fed_since = None;
                if rules.act {
                    self.press(now, worst, seen, rules, &mut actions);
                }
            }
            None => self.let_go(now, seen, rules, &mut actions),
        }
        actions
    }

    /// Takes in what became of an action.
    pub fn done(&mut self, action: &StarvationAction, verdict: StarvationResult) {
        let Some(memory) = self.containers.get_mut(&action.key) else { return };
        if verdict == StarvationResult::Done {
            return;
        }
        match action.deed {
            StarvationChange::Squeeze(step, ..) => {
                if matches!(step, Squeeze::Quota(_)) {
                    memory.failed_quota = true;
                } else if step == Squeeze::Idle {
                    memory.failed_idle = true;
                } else {
                    memory.failed_weight = true;
                }
                memory.steps.retain(|held| *held != step);
            }
            StarvationChange::Release(step) => memory.steps.push(step),
            StarvationChange::Report(_) | StarvationChange::Evict(_) => {}
        }
    }

    fn press(
        &mut self,
        now: u64,
        worst: Starved,
        seen: &[ContainerCpu],
        rules: &StarvationConfig,
        actions: &mut Vec<StarvationAction>,
    ) {
        let Starved { for_usec, key: starving, case } = worst;
        if self.stepped_usec.is_some_and(|at| now.saturating_sub(at) < rules.dwell_usec) {
            return;
        }
        let mut ranked: Vec<&ContainerCpu> = seen.iter().filter(|facts| facts.key != starving).collect();
        ranked
            .sort_unstable_by_key(|facts| (facts.class, Reverse(self.case(facts, rules).over()), facts.key));
        for facts in &ranked {
            let offender = self.case(facts, rules);
            let Some(step) = squeeze(&offender) else { continue };
            let Some(memory) = self.containers.get_mut(&facts.key) else { continue };
            memory.steps.retain(|held| !matches!((held, step), (Squeeze::Quota(_), Squeeze::Quota(_))));
            memory.steps.push(step);
            self.stepped_usec = Some(now);
            actions.push(StarvationAction {
                key: facts.key,
                deed: StarvationChange::Squeeze(step, offender, starving),
                for_usec,
            });
            return;
        }
        let long_enough = for_usec >= rules.after_usec.saturating_add(rules.evict_after_usec);
        let lately = self.evicted_usec.is_some_and(|at| now.saturating_sub(at) < rules.evict_after_usec);
        if !long_enough || lately {
            return;
        }
        let whom = match rules.evict {
            Evict::Off => None,
            Evict::Starving => Some(starving),
            Evict::Offender => ranked.iter().find(|f| self.case(f, rules).over() > 0).map(|f| f.key),
        };
        if let Some(key) = whom {
            self.evicted_usec = Some(now);
            actions.push(StarvationAction { key, deed: StarvationChange::Evict(case), for_usec });
        }
    }

    /// Undoes the last step of one container, once nobody has starved for a while; at once for whoever may not be
    /// touched any more.
    fn let_go(
        &mut self,
        now: u64,
        seen: &[ContainerCpu],
        rules: &StarvationConfig,
        actions: &mut Vec<StarvationAction>,
    ) {
        let since = *self.fed_since.get_or_insert(now);
        let fed = now.saturating_sub(since);
        let rested = self.stepped_usec.is_none_or(|at| now.saturating_sub(at) >= rules.dwell_usec);
        let mut held: Vec<&ContainerCpu> = seen.iter().collect();
        held.sort_unstable_by_key(|facts| (Reverse(facts.class), facts.usage_milli, facts.key));
        for facts in held {
            let protected = !facts.managed || facts.class == QosClass::Guaranteed;
            if !protected && (fed < rules.dwell_usec || !rested) {
                continue;
            }
            let Some(step) = self.containers.get_mut(&facts.key).and_then(|memory| memory.steps.pop()) else {
                continue;
            };
            actions.push(StarvationAction {
                key: facts.key,
                deed: StarvationChange::Release(step),
                for_usec: fed,
            });
            if !protected {
                self.stepped_usec = Some(now);
                return;
            }
        }
    }

    fn case(&self, facts: &ContainerCpu, rules: &StarvationConfig) -> StarvationCase {
        let memory = self.containers.get(&facts.key);
        let has = |step: Squeeze| memory.is_some_and(|memory| memory.steps.contains(&step));
        let quota = memory.and_then(|memory| {
            memory.steps.iter().find_map(|step| match step {
                Squeeze::Quota(milli) => Some(*milli),
                Squeeze::Weight | Squeeze::Idle => None,
            })
        });
        StarvationCase {
            managed: facts.managed,
            class: facts.class,
            request_milli: facts.request_milli,
            usage_milli: facts.usage_milli,
            least_weight: facts.least_weight
                || has(Squeeze::Weight)
                || memory.is_some_and(|memory| memory.failed_weight),
            can_idle: facts.can_idle
                && !has(Squeeze::Idle)
                && !memory.is_some_and(|memory| memory.failed_idle),
            quota_milli: quota,
            floor_milli: rules.floor_milli,
            can_quota: !memory.is_some_and(|memory| memory.failed_quota),
        }
    }
}
