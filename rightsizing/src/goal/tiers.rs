//! Whose history answers: the container's own, or while that is short what similar containers used.

use super::profile::Profile;
use super::{Estimate, Params, WIDER};
use crate::history::History;
use crate::rule::Question;

/// Days after which the container's own history answers alone. Two replicas of an image often differ more than two days
/// of one, so that the general is left as soon as the specific is known.
const OWN_DAYS: f64 = 2.0;

/// How sure an answer from others can be at most.
const OTHERS_CONFIDENCE: f64 = 0.5;

/// Who answered.
pub(super) enum Tier {
    Own,
    Wider { name: &'static str, profile: Box<Profile> },
}

impl Tier {
    pub(super) fn profile<'a>(&'a self, own: &'a Profile) -> &'a Profile {
        match self {
            Self::Own => own,
            Self::Wider { profile, .. } => profile,
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Wider { name, .. } => name,
        }
    }

    pub(super) fn confidence(&self, own: &Profile, params: &Params) -> f64 {
        let of = |profile: &Profile| (profile.age_days() / params.mature_days).min(1.0);
        match self {
            Self::Own => of(own),
            Self::Wider { profile, .. } => of(profile) * OTHERS_CONFIDENCE,
        }
    }
}

/// The estimate, and who has the greater part in it. `None` when nobody was ever measured.
pub(super) fn estimate(
    params: &Params,
    question: &Question,
    own: &Profile,
    history: &dyn History,
    notes: &mut Vec<String>,
) -> Option<(Estimate, Tier)> {
    let mine = (!own.is_empty()).then(|| params.estimate(question.resource, own)).flatten();
    if own.starved_ms > 0 && !own.is_empty() {
        let part = own.starved_ms as f64 / own.time_above(0).1.max(1) as f64;
        notes.push(format!("starved: {:.1} % of the time", 100.0 * part));
    }
    let part = (own.age_days() / OWN_DAYS).min(1.0);
    if let Some(mine) = mine
        && part >= 1.0
    {
        return Some((mine, Tier::Own));
    }
    let wider = WIDER.iter().find_map(|(scope, name)| {
        let profile = Profile::of_days(params, question, *scope, history);
        let estimate = params.estimate(question.resource, &profile)?;
        Some((estimate, Tier::Wider { name, profile: Box::new(profile) }))
    });
    match (mine, wider) {
        (Some(mine), Some((theirs, tier))) => {
            notes.push(format!("{:.0} % from {}", 100.0 * (1.0 - part), tier.name()));
            let mix = |mine: f64, theirs: f64| theirs + (mine - theirs) * part;
            let estimate = Estimate {
                request: mix(mine.request, theirs.request),
                needed: mix(mine.needed, theirs.needed),
                lower: mix(mine.lower, theirs.lower),
                upper: mix(mine.upper, theirs.upper),
            };
            Some((estimate, if part >= 0.5 { Tier::Own } else { tier }))
        }
        (Some(mine), None) => Some((mine, Tier::Own)),
        (None, wider) => wider,
    }
}
