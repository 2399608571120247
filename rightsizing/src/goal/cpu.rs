//! The CPU request: where a little more would cost more than the time that it covers.
//!
//! Of every height of use the expected time above it is known (`curve`). A request costs what of it stays unused, and
//! `price` times the time over. The cheapest height is taken, within two bounds: no more than `WORST` times the root of the
//! objective may be above it, and what lies beyond a third of the objective is not paid for. A calm container pays for its
//! few percent of doubt; a bursty one whose bursts are far up leaves them out while they stay rare, and one whose bursts
//! are near has them in.

use super::curve::Curve;
use super::profile::Profile;
use super::{ChangeFrequency, Estimate, GoalParams};
use crate::units::MICROS_A_CORE;

/// The objective at which the price of being over is `GoalParams::cpu_price` as it stands. Stricter objectives pay more for the
/// same share, because what breaks them is seen less often: by the fourth root, with which objectives of 0.1 to 5 % are all
/// met within a factor of 1.5 on the public traces.
const PRICED_AT: f64 = 0.01;
const PRICE_ROOT: f64 = 0.25;

/// The threshold at which it is that price: another one scales the request and moves no height.
const PRICED_FILL: f64 = 0.95;

/// At most this, times the root of the objective, may be expected above a request: 4 % for 1 %, 9 % for 5 %. From 2 to 5 %
/// the slack at equal risk is the same within a point.
const WORST: f64 = 0.4;

/// Time beyond this part of the objective is not worth paying for. On the public traces more than half of the time over
/// comes with levels that no past foretells, so that a container which is over for a third of the objective meets it; with a
/// tenth, objectives of 1 % are met one and a half times too well.
const ENOUGH: f64 = 0.3;

/// In the first week time over costs the double after a day, and less as days pass; and this part is added to the request,
/// divided by the days: the first days show the usual, not the extremes.
const YOUNG_PRICE: f64 = 1.0;
const YOUNG_MARGIN: f64 = 0.1;

/// Part of the price that is left when requests follow the hour: the hours they rest on are nearer to the one to come, so
/// that less is unforeseen.
const HOURLY_PRICE: f64 = 0.6;

/// Part by which the bounds lie from the request.
const BOUND: f64 = 0.15;

/// Use below a thousandth of a core has no height.
const LEAST: f64 = MICROS_A_CORE / 1_000.0;

/// What requests of one container cost.
pub(super) struct Costs<'a> {
    curve: &'a Curve,
    price: f64,
    over: f64,
    fill: f64,
}

impl<'a> Costs<'a> {
    pub(super) fn new(params: &GoalParams, curve: &'a Curve, young: f64) -> Self {
        let over = params.cpu_over;
        let price = params.cpu_price / over * (over / PRICED_AT).powf(-PRICE_ROOT);
        let hourly = if params.change == ChangeFrequency::Hourly { HOURLY_PRICE } else { 1.0 };
        Self { curve, price: price * hourly * (1.0 + YOUNG_PRICE * young), over, fill: params.cpu_fill }
    }

    /// The height of use whose request is cheapest; `None` where nothing was measured.
    pub(super) fn cheapest(&self) -> Option<f64> {
        let most = self.most();
        let mut best: Option<(f64, f64)> = None;
        for (height, above) in self.curve.heights() {
            if above <= most {
                let cost = self.cost(height, above);
                if best.is_none_or(|(_, least)| cost < least) {
                    best = Some((height, cost));
                }
            }
            if above <= ENOUGH * self.over {
                break;
            }
        }
        best.map(|(height, _)| height)
    }

    /// The part of the time that may be above a request at most.
    fn most(&self) -> f64 {
        WORST * self.over.sqrt()
    }

    /// What the request for a height costs, in requests: what is unused, but for a constant, and the time over.
    fn cost(&self, height: f64, above: f64) -> f64 {
        self.price * above.max(ENOUGH * self.over) - self.curve.mean() * PRICED_FILL / height.max(1.0)
    }

    /// How much more a request costs than another one; infinitely more where too much is expected above it.
    pub(super) fn worse_by(&self, request: f64, than: f64) -> f64 {
        if self.curve.above(request * self.fill) > self.most() {
            return f64::INFINITY;
        }
        let of = |request: f64| {
            let height = request * self.fill;
            self.cost(height, self.curve.above(height))
        };
        of(request) - of(than)
    }
}

pub(super) fn estimate(params: &GoalParams, profile: &Profile) -> Option<Estimate> {
    let days = profile.age_days().max(0.25);
    let young = params.young(profile.age_days());
    let costs = Costs::new(params, profile.curve(), young);
    let height = costs.cheapest()?.max(LEAST);
    // Less than the objective allows is a burst that a request need not cover.
    let is_starved = profile.starved_ms as f64 > params.cpu_over * profile.measured_ms() as f64;
    let starved =
        if is_starved { profile.starved_peak as f64 * params.starved_factor / params.cpu_fill } else { 0.0 };
    let request = (height * (1.0 + YOUNG_MARGIN * young) / params.cpu_fill).max(starved);
    let peak = profile.peak().unwrap_or(0) as f64;
    Some(Estimate {
        request,
        lower: request / (1.0 + BOUND),
        upper: request.max(peak) * (1.0 + BOUND + 1.0 / days),
    })
}

/// The answer in a sentence.
pub(super) fn explanation(params: &GoalParams, profile: &Profile, request: u64) -> Option<String> {
    let filled = request as f64 * params.cpu_fill;
    let usual = (1.0 - 3.0 * params.cpu_over).max(0.5);
    let extreme = 1.0 - params.cpu_over / 5.0;
    let cores = |micros: f64| format!("{:.3}", micros / MICROS_A_CORE);
    let (low, high) = (profile.quantile(usual)?, profile.quantile(extreme)?);
    let what = if filled >= high {
        "covered with a margin"
    } else if filled >= low {
        "covering the rest would cost more than it saves"
    } else {
        "capped below, because bursts are rare"
    };
    let percent = |part: f64| (1e5 * part).round() / 1e3;
    Some(format!(
        "{} % of the time below {} cores, {} % below {}: {what}",
        percent(usual),
        cores(low),
        percent(extreme),
        cores(high)
    ))
}
