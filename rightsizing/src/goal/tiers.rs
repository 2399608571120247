//! Whose history answers: the container's own, or while that is short what similar containers used.

use super::profile::Profile;
use super::{Estimate, GoalParams, WIDER};
use crate::evidence;
use crate::history::History;
use crate::rule::Question;

/// Days after which the container's own history answers alone. Two replicas of an image often differ more than two days
/// of one, so that the general is left as soon as the specific is known.
const OWN_DAYS: f64 = evidence::ENOUGH_SECONDS as f64 / 86_400.0;

/// How sure an answer from others can be at most.
const OTHERS_CONFIDENCE: f64 = 0.5;

/// Who answered.
pub(super) enum Tier {
    Own,
    /// Others, and the part that their history has in the answer, 0 to 1.
    Wider {
        name: &'static str,
        profile: Box<Profile>,
        part: f64,
    },
}

impl Tier {
    /// The history with the greater part in the answer.
    pub(super) fn profile<'a>(&'a self, own: &'a Profile) -> &'a Profile {
        match self {
            Self::Wider { profile, part, .. } if *part > 0.5 => profile,
            _ => own,
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Wider { name, part, .. } if *part > 0.5 => name,
            _ => "own",
        }
    }

    pub(super) fn confidence(&self, own: &Profile, params: &GoalParams) -> f64 {
        let of = |profile: &Profile| (profile.age_days() / params.mature_days).min(1.0);
        match self {
            Self::Wider { profile, part, .. } if *part > 0.5 => of(profile) * OTHERS_CONFIDENCE,
            _ => of(own),
        }
    }

    /// What is expected of a request by the histories that answer, each with its part; `of` is asked of each.
    pub(super) fn mixed(&self, own: &Profile, of: impl Fn(&Profile) -> Option<f64>) -> Option<f64> {
        let Self::Wider { profile, part, .. } = self else { return of(own) };
        match (of(own), of(profile)) {
            (Some(mine), Some(theirs)) => Some(mine + (theirs - mine) * part),
            (mine, theirs) => theirs.or(mine),
        }
    }
}

/// The estimate, and whose it is. `None` when nobody was ever measured.
///
/// Of the others those answer who know enough, the most specific first, or else who know most. Beside a young container
/// they count by how much it lacks, and only as far as they know more than it does.
pub(super) fn estimate(
    params: &GoalParams,
    question: &Question,
    own: &Profile,
    history: &dyn History,
    notes: &mut Vec<String>,
) -> Option<(Estimate, Tier)> {
    let mine = (!own.is_empty()).then(|| params.estimate(question.resource, own)).flatten();
    if own.starved_ms > 0 && !own.is_empty() {
        let part = own.starved_ms as f64 / own.measured_ms().max(1) as f64;
        notes.push(format!("starved: {:.1} % of the time", 100.0 * part));
    }
    let age = own.evidence().days();
    if let Some(mine) = mine
        && age >= OWN_DAYS
    {
        return Some((mine, Tier::Own));
    }
    let wider = WIDER.iter().filter_map(|(scope, name)| {
        let profile = Profile::of_days(params, question, *scope, history);
        let estimate = params.estimate(question.resource, &profile)?;
        Some((profile.evidence(), (estimate, *name, Box::new(profile))))
    });
    match (mine, evidence::best(wider)) {
        (Some(mine), Some((theirs, name, profile))) => {
            let more = (profile.evidence().days() / age.max(f64::MIN_POSITIVE) - 1.0).clamp(0.0, 1.0);
            let part = (1.0 - age / OWN_DAYS) * more;
            if part <= 0.0 {
                return Some((mine, Tier::Own));
            }
            notes.push(format!("{:.0} % from {name}", 100.0 * part));
            let mix = |mine: f64, theirs: f64| mine + (theirs - mine) * part;
            let estimate = Estimate {
                request: mix(mine.request, theirs.request),
                lower: mix(mine.lower, theirs.lower),
                upper: mix(mine.upper, theirs.upper),
            };
            Some((estimate, Tier::Wider { name, profile, part }))
        }
        (Some(mine), None) => Some((mine, Tier::Own)),
        (None, Some((theirs, name, profile))) => Some((theirs, Tier::Wider { name, profile, part: 1.0 })),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;
    use crate::histogram::Histogram;
    use crate::history::{Day, Event, Hour, Minute, Scope};
    use crate::rule::{Answer, Rule};
    use crate::units::{DAY_MS, HOUR_MS};

    const NOW_MS: u64 = 20_000 * DAY_MS + 20 * HOUR_MS;
    const MINUTE: u64 = 60_000;

    /// Containers of a scope: for how long before now each of so many ran, and at which use.
    #[derive(Clone, Copy)]
    struct Ran {
        scope: Scope,
        ms: u64,
        containers: u64,
        value: u64,
    }

    struct Made(Vec<Ran>);

    impl Made {
        /// Hours or days of a scope: number, time measured, use.
        fn parts(&self, scope: Scope, length: u64) -> Vec<(u64, u64, u64)> {
            let Some(ran) = self.0.iter().find(|ran| ran.scope == scope) else { return Vec::new() };
            let first = NOW_MS - ran.ms;
            let part = |at: u64| {
                let ms = ((at + 1) * length).min(NOW_MS) - (at * length).max(first);
                (at, ms * ran.containers, ran.value)
            };
            (first / length..=(NOW_MS - 1) / length).map(part).collect()
        }
    }

    impl History for Made {
        fn minutes(&self, _: Scope, _: u64) -> Vec<Minute> {
            Vec::new()
        }
        fn hours(&self, scope: Scope, from: u64) -> Vec<Hour> {
            let hour = |(hour, ms, peak)| {
                let mut all = Histogram::new();
                all.add(peak, ms);
                Hour { hour, all, peak, ..Hour::default() }
            };
            let parts = if scope == Scope::Own { self.parts(scope, HOUR_MS) } else { Vec::new() };
            parts.into_iter().map(hour).filter(|hour| hour.hour >= from).collect()
        }
        fn days(&self, scope: Scope, from: u64) -> Vec<Day> {
            let day = |(day, ms, peak)| {
                let mut all = Histogram::new();
                all.add(peak, ms);
                Day { day, all, peak, ..Day::default() }
            };
            self.parts(scope, DAY_MS).into_iter().map(day).filter(|day| day.day >= from).collect()
        }
        fn events(&self, _: u64) -> Vec<Event> {
            Vec::new()
        }
        fn since_ms(&self, scope: Scope) -> Option<u64> {
            self.0.iter().find(|ran| ran.scope == scope).map(|ran| NOW_MS - ran.ms)
        }
    }

    fn ask(ran: &[(Scope, u64, u64)], current: Option<u64>) -> Answer {
        let ran =
            ran.iter().map(|(scope, ms, value)| Ran { scope: *scope, ms: *ms, containers: 1, value: *value });
        let question = Question { resource: Resource::Cpu, now_ms: NOW_MS, current, previous: None };
        GoalParams::default().recommend(&question, &Made(ran.collect()))
    }

    #[test]
    fn minutes_never_answer_where_somebody_knows_days() {
        let (busy, idle) = (1_000_000, 20_000);
        let own = (Scope::Own, MINUTE, idle);
        let command = |ms| (Scope::Command, ms, idle);
        let tag = |ms, value| (Scope::ImageTag, ms, value);
        let image = |ms, value| (Scope::Image, ms, value);
        for (name, ran, tier, is_busy) in [
            (
                "the last minute of the command",
                vec![command(MINUTE), tag(5 * DAY_MS, busy)],
                "image:tag",
                true,
            ),
            (
                "an hour of the tag",
                vec![command(MINUTE), tag(HOUR_MS, idle), image(5 * DAY_MS, busy)],
                "image",
                true,
            ),
            ("two days of the tag", vec![tag(2 * DAY_MS, busy), image(20 * DAY_MS, idle)], "image:tag", true),
            ("its own minute", vec![own, tag(5 * DAY_MS, busy)], "image:tag", true),
            ("its own 20 hours", vec![(Scope::Own, 20 * HOUR_MS, busy), tag(3 * MINUTE, idle)], "own", true),
            (
                "as long as all others",
                vec![(Scope::Own, 3 * HOUR_MS, busy), tag(3 * HOUR_MS, idle)],
                "own",
                true,
            ),
            ("nobody knows more than minutes", vec![own, tag(30 * MINUTE, busy)], "image:tag", true),
        ] {
            let answer = ask(&ran, None);
            assert_eq!(
                (answer.tier.as_str(), answer.request > Some(busy)),
                (tier, is_busy),
                "{name}: {answer:?}"
            );
        }
    }

    /// A day of a scope is the time of all its containers together; 200 of them fill one within eight minutes.
    #[test]
    fn many_containers_of_minutes_are_minutes() {
        let crowd = Ran { scope: Scope::ImageTag, ms: 10 * MINUTE, containers: 200, value: 50_000 };
        let question = Question { resource: Resource::Cpu, now_ms: NOW_MS, current: None, previous: None };
        let answer = GoalParams::default().recommend(&question, &Made(vec![crowd]));
        assert_eq!((answer.tier.as_str(), answer.span_seconds), ("image:tag", 600));
        assert!(!answer.evidence().is_enough());
        let days = Ran { scope: Scope::Image, ms: 3 * DAY_MS, containers: 1, value: 900_000 };
        let answer = GoalParams::default().recommend(&question, &Made(vec![crowd, days]));
        assert_eq!((answer.tier.as_str(), answer.request > Some(900_000)), ("image", true));
    }

    /// A quarter of an hour is not much to go by, but it is not nothing.
    #[test]
    fn the_risk_of_a_young_container_is_what_was_seen() {
        let young = [(Scope::Own, 15 * MINUTE, 200_000)];
        for (current, least, most) in [(50_000, 0.9, 1.0), (190_000, 0.9, 1.0), (2_000_000, 0.0, 0.005)] {
            let risk = ask(&young, Some(current)).risk_now.unwrap();
            assert!((least..=most).contains(&risk), "{current}: {risk}");
        }
        // Half of the answer is from others, and so is half of the risk.
        let both = [(Scope::Own, DAY_MS, 200_000), (Scope::ImageTag, 5 * DAY_MS, 800_000)];
        let risk = ask(&both, Some(400_000)).risk_now.unwrap();
        assert!((0.4..0.6).contains(&risk), "{risk}");
    }
}
