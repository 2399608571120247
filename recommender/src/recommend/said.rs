//! Owns what each rule said of each workload's container the last time, so that it may keep to it while it serves.
//!
//! It is kept in memory only: after a start each rule says anew what it thinks, which is a step that its bounds allow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::advice::{Amounts, Asked, Raw};
use super::predefined;

/// Containers and rules remembered, about 200 B each; when there are more, all are forgotten and said anew.
const MOST: usize = 100_000;

/// What was said.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<HashMap<Place, Amounts>>);

/// Whose it was and by which rule. Image and command are left out: a roll-out goes on from where the one before was.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Place {
    cluster: Option<String>,
    namespace: String,
    workload: String,
    container: String,
    rule: Arc<str>,
}

impl Place {
    fn of(asked: &Asked, rule: &Arc<str>) -> Self {
        Self {
            cluster: asked.cluster.clone(),
            namespace: asked.namespace.clone(),
            workload: asked.workload.clone(),
            container: asked.container.clone(),
            rule: Arc::clone(rule),
        }
    }
}

impl Said {
    /// CPU, then memory, in the units of requests.
    pub(super) fn of(&self, asked: &Asked, rule: &Arc<str>) -> Amounts {
        self.lock().get(&Place::of(asked, rule)).copied().unwrap_or_default()
    }

    /// Remembers what a rule has said now; a value that stood in because it knew nothing is none of its own.
    pub(super) fn keep(&self, asked: &Asked, rule: &Arc<str>, raw: &Raw) {
        let amounts = raw.answers.each_ref().map(|a| a.request.filter(|_| a.tier != predefined::TIER));
        let mut said = self.lock();
        if said.len() >= MOST {
            said.clear();
        }
        said.insert(Place::of(asked, rule), amounts);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Amounts>> {
        // Whoever panicked left whole amounts behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_rightsizing::rule::Answer;

    #[test]
    fn each_rule_and_container_has_its_own_and_stand_ins_are_none() {
        let said = Said::default();
        let web = Asked { container: "web".into(), command: Some(1), ..Asked::default() };
        let rolled = Asked { command: Some(2), ..web.clone() };
        let other = Asked { container: "other".into(), ..web.clone() };
        let (goal, vpa): (Arc<str>, Arc<str>) = ("goal {}".into(), "vpa {}".into());
        let answer = |request, tier: &str| Answer { request, tier: tier.into(), ..Answer::none() };
        let answers = [answer(Some(250), "own"), answer(Some(1 << 20), predefined::TIER)];
        said.keep(&web, &goal, &Raw { rule: "goal", answers, made_usec: 0 });
        assert_eq!(said.of(&web, &goal), [Some(250), None]);
        assert_eq!(said.of(&rolled, &goal), [Some(250), None]);
        assert_eq!((said.of(&web, &vpa), said.of(&other, &goal)), ([None; 2], [None; 2]));
    }
}
