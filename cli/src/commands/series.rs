//! Use over time out of a recommender or an agent: as the CSV that `backtest` reads, or to be replayed at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_model::shown;
use evenkeel_proto::v1::{
    ContainerUsage, QuerySeriesRequest, QuerySeriesResponse, WatchUsageRequest, watch_usage_response,
};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::trace::{TraceSample, TraceSeries};

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::print;

/// The header of a trace.
const HEADER: &str = "series,t,value\n";
/// Gaps told one by one; there may be one for each restart of each container.
const GAPS: usize = 20;
/// Values held in memory at most, about 16 bytes each.
const MOST: usize = 50_000_000;
/// Seconds further apart than this have a gap between them.
const APART_SECONDS: u64 = 2;

/// Gaps of all series, told on standard error.
#[derive(Default)]
pub(crate) struct Gaps {
    told: Vec<String>,
    more: usize,
}

impl Gaps {
    fn take(&mut self, piece: &QuerySeriesResponse) {
        for gap in &piece.gaps {
            if self.told.len() == GAPS {
                self.more += 1;
                continue;
            }
            let time = |seconds: u64| {
                let at = i64::try_from(seconds).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
                at.map_or_else(|| seconds.to_string(), |at| at.to_string())
            };
            let (from, to) = (time(gap.from_seconds), time(gap.to_seconds));
            self.told.push(format!(
                "gap: {}: nothing was measured from {from} to {to}",
                shown::plain(&piece.series)
            ));
        }
    }

    pub(crate) fn tell(self) {
        self.told.iter().for_each(|line| eprintln!("{line}"));
        if self.more > 0 {
            eprintln!("gap: {} more", self.more);
        }
    }
}

/// Shows every piece of the series asked for; how many series there were.
async fn each(
    address: &Address,
    request: QuerySeriesRequest,
    mut take: impl FnMut(QuerySeriesResponse) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let mut recommender = client::recommender(address).await?;
    let answer = recommender.query_series(request).await.map_err(|e| address.failed(&e))?;
    let (mut pieces, mut last, mut count) = (answer.into_inner(), String::new(), 0);
    while let Some(piece) = pieces.message().await.map_err(|e| address.failed(&e))? {
        if piece.series != last && !piece.times.is_empty() {
            last.clone_from(&piece.series);
            count += 1;
        }
        take(piece)?;
    }
    Ok(count)
}

/// Prints what a recommender has kept, as it comes; how many series.
///
/// # Errors
/// When the recommender does not answer, or standard output cannot be written.
pub(crate) async fn print_stored(address: &Address, request: QuerySeriesRequest) -> Result<usize, Failure> {
    let (is_cpu, mut gaps) = (request.resource == Resource::Cpu.as_str(), Gaps::default());
    print(HEADER)?;
    let count = each(address, request, |piece| {
        gaps.take(&piece);
        let name = shown::csv(&piece.series);
        let row = |(time, value): (&u64, &u64)| format!("{name},{time},{}\n", in_units(*value, is_cpu));
        print(&piece.times.iter().zip(&piece.values).map(row).collect::<String>())
    });
    let count = count.await?;
    gaps.tell();
    Ok(count)
}

/// Cores or bytes.
fn in_units(value: u64, is_cpu: bool) -> String {
    if is_cpu { (value as f64 / 1e6).to_string() } else { value.to_string() }
}

/// What a recommender has kept, to be replayed.
///
/// # Errors
/// When the recommender does not answer.
pub(crate) async fn stored(
    address: &Address,
    request: QuerySeriesRequest,
) -> Result<(Vec<TraceSeries>, Gaps), Failure> {
    let (mut all, mut gaps): (Vec<TraceSeries>, Gaps) = Default::default();
    let mut count = 0;
    each(address, request, |piece| {
        gaps.take(&piece);
        count += piece.times.len();
        if count > MOST {
            let why = format!("there are more than {MOST} minutes");
            let remedy = "name workloads, or a namespace with --namespace";
            return Err(Failure::new("cannot replay everything at once", "stored history", why, remedy));
        }
        if all.last().is_none_or(|last| last.name != piece.series) {
            all.push(TraceSeries { name: piece.series, samples: Vec::new() });
        }
        let samples = piece.times.iter().zip(&piece.values);
        let samples =
            samples.map(|(time, value)| TraceSample { time_ms: time.saturating_mul(1_000), value: *value });
        if let Some(series) = all.last_mut() {
            series.samples.extend(samples);
        }
        Ok(())
    })
    .await?;
    all.retain(|series| !series.samples.is_empty());
    Ok((all, gaps))
}

/// Whether a container of this namespace, workload and name is wanted.
pub(crate) type Wants<'a> = dyn Fn(&str, &str, &str) -> bool + 'a;

/// Prints seconds of the containers of a node as its agent samples them, until the time is over or nobody reads on.
///
/// # Errors
/// When the agent does not answer, or standard output cannot be written.
pub(crate) async fn print_live(
    address: &Address,
    resource: Resource,
    length: Option<u64>,
    wants: &Wants<'_>,
) -> Result<usize, Failure> {
    let mut agent = client::agent(address).await?;
    let stream = agent.watch_usage(WatchUsageRequest {}).await.map_err(|e| address.failed(&e))?;
    let (mut stream, began) = (stream.into_inner(), Instant::now());
    let end = length.map(|seconds| began + Duration::from_secs(seconds));
    // Time of the last second of each container: a second is told once, and never one behind another.
    let mut last = BTreeMap::new();
    print(HEADER)?;
    loop {
        let next = match end {
            Some(end) => tokio::time::timeout_at(end.into(), stream.message()).await,
            None => Ok(stream.message().await),
        };
        let Ok(message) = next else { return Ok(last.len()) };
        let Some(message) = message.map_err(|e| address.failed(&e))? else { return Ok(last.len()) };
        match message.event {
            Some(watch_usage_response::Event::Tick(tick)) => {
                let rows =
                    tick.containers.into_iter().filter_map(|usage| row(usage, resource, wants, &mut last));
                print(&rows.collect::<String>())?;
            }
            Some(watch_usage_response::Event::MissedTicks(missed)) => {
                eprintln!("gap: {missed} seconds were missed, because they were not read in time");
            }
            _ => {}
        }
    }
}

/// The row of one container's second, if it is wanted and new.
fn row(
    usage: ContainerUsage,
    resource: Resource,
    wants: &Wants<'_>,
    last: &mut BTreeMap<String, u64>,
) -> Option<String> {
    let (identity, sample) = (usage.identity?, usage.sample?);
    if !wants(&identity.namespace, &identity.workload, &identity.container) {
        return None;
    }
    let value = match resource {
        Resource::Cpu => usage.cpu_milli.map(|milli| milli * 1_000),
        Resource::Memory => sample.memory_working_set_bytes.or(sample.memory_current_bytes),
    }?;
    let name = format!("{}/{}/{}", identity.namespace, identity.pod, identity.container);
    let time = usage.time_usec / 1_000_000;
    let before = last.get(&name).copied();
    if before.is_some_and(|before| before >= time) {
        return None;
    }
    if let Some(before) = before.filter(|before| time - before > APART_SECONDS) {
        eprintln!("gap: {}: {} seconds were not measured", shown::plain(&name), time - before - 1);
    }
    let row = format!("{},{time},{}\n", shown::csv(&name), in_units(value, resource == Resource::Cpu));
    last.insert(name, time);
    Some(row)
}
