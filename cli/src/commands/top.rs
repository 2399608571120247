//! `evenkeel top`: what containers use, second by second.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use clap::{Args, ValueEnum};
use evenkeel_proto::tonic::Streaming;
use evenkeel_proto::v1::watch_usage_response::Event;
use evenkeel_proto::v1::{ContainerUsage, GetUsageRequest, Traffic, WatchUsageRequest, WatchUsageResponse};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Answer, Format, Output, print};
use crate::table::{Cell, Table};
use crate::terminal::{Keys, Screen};
use crate::{units, wire};

/// How long `--once` waits for a first tick.
const FIRST_TICK: Duration = Duration::from_secs(5);

/// Show what the containers of the agent use, once a second; q or Ctrl-C ends it.
///
/// Without a terminal every second is printed below the last, as JSON one object to a line.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel top
  evenkeel top --sort memory
  evenkeel top --at -5m
  evenkeel top --at 2026-01-31T12:00:00Z -o json
  evenkeel top --once -o json")]
pub(crate) struct TopArgs {
    /// Print one second and end.
    #[arg(long)]
    once: bool,
    /// Print the second at or before a moment (RFC 3339), or so long ago (-5m), from what the agent keeps on disk.
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    at: Option<Moment>,
    /// What to sort by.
    #[arg(long, value_enum, default_value_t = Sort::Cpu)]
    sort: Sort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// CPU, most first.
    Cpu,
    /// Working set, most first.
    Memory,
    /// Pod and container.
    Name,
}

/// A moment to look back at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    At(Timestamp),
    Ago(SignedDuration),
}

impl Moment {
    /// Microseconds since 1970.
    fn usec(self, now: Timestamp) -> u64 {
        let at = match self {
            Self::At(at) => Some(at),
            Self::Ago(ago) => now.checked_sub(ago).ok(),
        };
        at.and_then(|at| u64::try_from(at.as_microsecond()).ok()).unwrap_or(0)
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    let ago = text.strip_prefix('-').and_then(|ago| ago.parse::<SignedDuration>().ok());
    ago.filter(|ago| !ago.is_negative())
        .map(Moment::Ago)
        .or_else(|| text.parse().ok().map(Moment::At))
        .ok_or_else(|| "write a time such as 2026-01-31T12:00:00Z or how long ago, such as -5m".to_owned())
}

/// One second of all containers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Frame {
    time: Option<String>,
    containers: Vec<Row>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    pod: String,
    container: String,
    id: String,
    qos_class: Option<&'static str>,
    interval_usec: u32,
    cpu_milli: Option<u64>,
    cpu_request_milli: Option<u64>,
    memory_working_set_bytes: Option<u64>,
    memory_current_bytes: Option<u64>,
    memory_anon_bytes: Option<u64>,
    memory_request_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    throttled_usec: Option<u64>,
    cpu_pressure_usec: Option<u64>,
    memory_pressure_usec: Option<u64>,
    io_pressure_usec: Option<u64>,
    oom_kills: Option<u64>,
    processes: Option<u64>,
    traffic: Option<TrafficRow>,
}

/// Block I/O of a container and network of its pod, in the last look of the agent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TrafficRow {
    span_usec: u64,
    read_bytes: Option<u64>,
    written_bytes: Option<u64>,
    reads: Option<u64>,
    writes: Option<u64>,
    received_bytes: Option<u64>,
    sent_bytes: Option<u64>,
    received_packets: Option<u64>,
    sent_packets: Option<u64>,
    host_network: bool,
}

impl From<Traffic> for TrafficRow {
    fn from(t: Traffic) -> Self {
        Self {
            span_usec: t.span_usec,
            read_bytes: t.block.map(|io| io.read_bytes),
            written_bytes: t.block.map(|io| io.written_bytes),
            reads: t.block.map(|io| io.reads),
            writes: t.block.map(|io| io.writes),
            received_bytes: t.network.map(|io| io.received_bytes),
            sent_bytes: t.network.map(|io| io.sent_bytes),
            received_packets: t.network.map(|io| io.received_packets),
            sent_packets: t.network.map(|io| io.sent_packets),
            host_network: t.host_network,
        }
    }
}

impl TrafficRow {
    /// Bytes a second read, written, received and sent, as people read them.
    fn cells(&self) -> [Cell; 4] {
        let rate = |bytes: Option<u64>, none: &str| {
            let per_second = |bytes: u64| (bytes.saturating_mul(1_000_000)).checked_div(self.span_usec);
            Cell::from(bytes.and_then(per_second).map_or(none.to_owned(), units::bytes))
        };
        let none = if self.host_network { "host" } else { "-" };
        [
            rate(self.read_bytes, "-"),
            rate(self.written_bytes, "-"),
            rate(self.received_bytes, none),
            rate(self.sent_bytes, none),
        ]
    }
}

impl From<ContainerUsage> for Row {
    fn from(usage: ContainerUsage) -> Self {
        let identity = usage.identity.unwrap_or_default();
        let sample = usage.sample.unwrap_or_default();
        Self {
            pod: wire::pod(&identity),
            qos_class: wire::class(identity.memory_class),
            cpu_request_milli: identity.requested.and_then(|r| r.cpu_request_milli),
            memory_request_bytes: identity.requested.and_then(|r| r.memory_request_bytes),
            container: identity.container,
            id: identity.id,
            interval_usec: sample.interval_usec,
            cpu_milli: usage.cpu_milli,
            memory_working_set_bytes: sample.memory_working_set_bytes,
            memory_current_bytes: sample.memory_current_bytes,
            memory_anon_bytes: sample.memory_anon_bytes,
            swap_bytes: sample.swap_bytes,
            throttled_usec: sample.cpu_throttled_usec,
            cpu_pressure_usec: sample.cpu_pressure_usec,
            memory_pressure_usec: sample.memory_pressure_usec,
            io_pressure_usec: sample.io_pressure_usec,
            oom_kills: sample.oom_kills,
            processes: sample.pids,
            traffic: usage.traffic.map(TrafficRow::from),
        }
    }
}

impl Frame {
    fn new(containers: Vec<ContainerUsage>, sort: Sort) -> Self {
        let time = containers.iter().map(|c| c.time_usec).max().and_then(wire::time);
        let mut containers: Vec<Row> = containers.into_iter().map(Row::from).collect();
        containers.sort_by(|a, b| (&a.pod, &a.container, &a.id).cmp(&(&b.pod, &b.container, &b.id)));
        // The sort is stable, so that equal rows keep the order of their names.
        match sort {
            Sort::Name => {}
            Sort::Cpu => containers.sort_by_key(|r| std::cmp::Reverse(r.cpu_milli)),
            Sort::Memory => containers.sort_by_key(|r| std::cmp::Reverse(memory(r))),
        }
        Self { time, containers }
    }
}

fn memory(row: &Row) -> Option<u64> {
    row.memory_working_set_bytes.or(row.memory_current_bytes)
}

pub(crate) async fn run(args: &TopArgs, address: &Address, output: &Output) -> Result<Answer, Failure> {
    let mut agent = client::agent(address).await?;
    if let Some(moment) = args.at {
        let request = GetUsageRequest { at_usec: moment.usec(Timestamp::now()) };
        let answer = agent.get_usage(request).await.map_err(|e| address.failed(&e))?;
        let frame = Frame::new(answer.into_inner().tick.unwrap_or_default().containers, args.sort);
        return past(&frame, output);
    }
    let stream = agent.watch_usage(WatchUsageRequest {}).await.map_err(|e| address.failed(&e))?;
    let mut ticks = Ticks { stream: stream.into_inner(), address, sort: args.sort };
    let is_live = stdout().is_terminal() && matches!(output.format(), Format::Table | Format::Wide);
    if args.once {
        once(&mut ticks, output).await
    } else if is_live {
        live(&mut ticks, output).await
    } else {
        lines(&mut ticks, output).await
    }
}

/// A second that was kept, with its own time.
fn past(frame: &Frame, output: &Output) -> Result<Answer, Failure> {
    if matches!(output.format(), Format::Table | Format::Wide) {
        let rendered = output.rendered(&table(frame, output.is_wide()));
        print(&format!("{}\n{rendered}", frame.time.as_deref().unwrap_or("-")))?;
    } else {
        output.answer(frame, || table(frame, output.is_wide()))?;
    }
    Ok(Answer::Yes)
}

/// The seconds of a stream, as frames.
struct Ticks<'a> {
    stream: Streaming<WatchUsageResponse>,
    address: &'a Address,
    sort: Sort,
}

impl Ticks<'_> {
    /// The next second that has containers or comes after the present state; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<Frame>, Failure> {
        while let Some(message) = self.stream.message().await.map_err(|e| self.address.failed(&e))? {
            match message.event {
                Some(Event::Tick(tick)) => return Ok(Some(Frame::new(tick.containers, self.sort))),
                // What a slow reader missed is gone; the next tick is whole.
                Some(Event::MissedTicks(_) | Event::Bookmark(_)) | None => {}
            }
        }
        Ok(None)
    }
}

async fn once(ticks: &mut Ticks<'_>, output: &Output) -> Result<Answer, Failure> {
    let place = ticks.address.clone();
    let first = tokio::time::timeout(FIRST_TICK, ticks.next());
    match first.await {
        Ok(Ok(Some(frame))) => {
            output.answer(&frame, || table(&frame, output.is_wide()))?;
            Ok(Answer::Yes)
        }
        Ok(Err(failure)) => Err(failure),
        Ok(Ok(None)) => Err(place.silent("it ended the stream")),
        Err(_) => Err(place.silent("no second was sampled within five seconds")),
    }
}

/// Frame below frame, until the stream ends or nobody reads on.
async fn lines(ticks: &mut Ticks<'_>, output: &Output) -> Result<Answer, Failure> {
    while let Some(frame) = ticks.next().await? {
        match output.format() {
            Format::Json => output.line(&frame)?,
            Format::Yaml => output.document(&frame)?,
            Format::Table | Format::Wide | Format::Csv | Format::Patch => {
                let rendered = output.rendered(&table(&frame, output.is_wide()));
                let time = frame.time.as_deref().unwrap_or("-");
                match output.format() {
                    Format::Csv => print(&rendered)?,
                    _ => print(&format!("{time}\n{rendered}\n"))?,
                }
            }
        }
    }
    Ok(Answer::Yes)
}

/// The newest frame on the screen, until a key ends it.
async fn live(ticks: &mut Ticks<'_>, output: &Output) -> Result<Answer, Failure> {
    let screen = Screen::enter()?;
    let mut keys = Keys::listen();
    loop {
        tokio::select! {
            frame = ticks.next() => match frame? {
                Some(frame) => screen.show(&screen_text(&frame, output))?,
                None => return Err(ticks.address.silent("it ended the stream")),
            },
            () = keys.quit() => return Ok(Answer::Yes),
        }
    }
}

fn screen_text(frame: &Frame, output: &Output) -> String {
    let cpu: u64 = frame.containers.iter().filter_map(|c| c.cpu_milli).sum();
    let used: u64 = frame.containers.iter().filter_map(memory).sum();
    format!(
        "{}   {} containers   cpu {}   memory {}   q quits\n\n{}",
        frame.time.as_deref().unwrap_or("-"),
        frame.containers.len(),
        units::cpu(cpu),
        units::bytes(used),
        table(frame, output.is_wide()).render(output.has_colour()),
    )
}

fn table(frame: &Frame, wide: bool) -> Table {
    let mut titles = vec!["POD", "CONTAINER", "CLASS", "CPU", "CPU-REQUEST", "MEMORY", "MEM-REQUEST", "PIDS"];
    if wide {
        titles.extend(["ANON", "SWAP", "THROTTLED", "CPU-STALL", "MEM-STALL", "IO-STALL", "OOM-KILLS"]);
        titles.extend(["READ/S", "WRITTEN/S", "RECEIVED/S", "SENT/S"]);
    }
    let mut table = Table::new(&titles);
    for r in &frame.containers {
        let or_dash = |value: Option<u64>, f: fn(u64) -> String| Cell::from(value.map_or("-".to_owned(), f));
        let mut row: Vec<Cell> = vec![
            r.pod.as_str().into(),
            r.container.as_str().into(),
            r.qos_class.unwrap_or("-").into(),
            or_dash(r.cpu_milli, units::cpu),
            or_dash(r.cpu_request_milli, units::cpu),
            or_dash(memory(r), units::bytes),
            or_dash(r.memory_request_bytes, units::bytes),
            or_dash(r.processes, |n| n.to_string()),
        ];
        if wide {
            row.extend([
                or_dash(r.memory_anon_bytes, units::bytes),
                or_dash(r.swap_bytes, units::bytes),
                or_dash(r.throttled_usec, units::seconds),
                or_dash(r.cpu_pressure_usec, units::seconds),
                or_dash(r.memory_pressure_usec, units::seconds),
                or_dash(r.io_pressure_usec, units::seconds),
                or_dash(r.oom_kills, |n| n.to_string()),
            ]);
            let unknown = || ["-"; 4].map(Cell::from);
            row.extend(r.traffic.as_ref().map_or_else(unknown, TrafficRow::cells));
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_proto::v1::{ContainerIdentity, Sample};

    fn usage(pod: &str, cpu: Option<u64>, memory: u64) -> ContainerUsage {
        ContainerUsage {
            identity: Some(ContainerIdentity {
                pod: pod.into(),
                namespace: "n".into(),
                ..Default::default()
            }),
            sample: Some(Sample { memory_current_bytes: Some(memory), ..Default::default() }),
            cpu_milli: cpu,
            time_usec: 1_000_000,
            ..Default::default()
        }
    }

    #[test]
    fn a_moment_is_a_time_or_a_while_ago() {
        let now = Timestamp::from_second(1_000).unwrap();
        for (text, usec) in
            [("-5m", Some(700_000_000)), ("1970-01-01T00:01:00Z", Some(60_000_000)), ("-1h", Some(0))]
        {
            assert_eq!(moment(text).ok().map(|m| m.usec(now)), usec, "{text}");
        }
        for text in ["", "5m", "--5m", "yesterday", "-x"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rows_are_sorted_with_the_unknown_last() {
        let all = || {
            vec![usage("c", None, 9), usage("b", Some(5), 1), usage("a", Some(5), 2), usage("d", Some(7), 0)]
        };
        let order = |sort| {
            let frame = Frame::new(all(), sort);
            frame.containers.iter().map(|r| r.pod.clone()).collect::<Vec<_>>()
        };
        assert_eq!(order(Sort::Cpu), ["n/d", "n/a", "n/b", "n/c"]);
        assert_eq!(order(Sort::Memory), ["n/c", "n/a", "n/b", "n/d"]);
        assert_eq!(order(Sort::Name), ["n/a", "n/b", "n/c", "n/d"]);
        assert_eq!(Frame::new(all(), Sort::Cpu).time.unwrap(), "1970-01-01T00:00:01Z");
        assert!(Frame::new(Vec::new(), Sort::Cpu).time.is_none());
    }
}
