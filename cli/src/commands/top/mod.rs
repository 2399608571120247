//! `evenkeel top`: what containers use, second by second.
//!
//! Owned here: options, and the forms for scripts. The second itself is in `frame`, where seconds come from in `ticks`, the screen in
//! `live`.

mod frame;
mod live;
mod ticks;

use std::io::{IsTerminal, stdin, stdout};
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};

use crate::client::Peers;
use crate::failure::Failure;
use crate::output::{Format, Output, YesOrNo, print};
use frame::{Frame, table};
use ticks::{TickSource, Ticks};

/// How long `--once` waits for a first tick.
const FIRST_TICK: Duration = Duration::from_secs(5);

/// Show what the containers of the agent, or of all nodes, use, once a second; ? shows the keys, q ends it.
///
/// Without a terminal, or on one that cannot place text (TERM=dumb), every second is printed below the last, as JSON one object to a line.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel top
  evenkeel top --sort memory
  evenkeel top --view pressure --filter shop/
  evenkeel top --cluster
  evenkeel top --at -5m
  evenkeel top --at 2026-01-31T12:00:00Z --once -o json
  evenkeel top --once -o json")]
pub(crate) struct TopArgs {
    /// Print one second and end.
    #[arg(long)]
    once: bool,
    /// Begin with the second at or before a moment (RFC 3339), or so long ago (-5m), from what the agent keeps on disk; without a
    /// terminal it is printed.
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true, conflicts_with = "cluster")]
    at: Option<Moment>,
    /// What to sort by.
    #[arg(long, value_enum, default_value_t = Sort::Cpu)]
    sort: Sort,
    /// What to begin with on a terminal.
    #[arg(long, value_enum, default_value_t = TopView::Containers)]
    view: TopView,
    /// Only containers whose node, pod, container or class has this in it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Ask the recommender for the containers of all nodes.
    #[arg(long)]
    cluster: bool,
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// CPU, most first.
    Cpu,
    /// Working set, most first.
    Memory,
    /// Use over request, of the resource that is nearer to its request or further above it.
    Over,
    /// Time throttled.
    Throttling,
    /// Time stalled for memory.
    Stall,
    /// Bytes read and written a second.
    Io,
    /// OOM kills.
    Oom,
    /// Pod and container.
    Name,
}

impl Sort {
    /// The next one of the list.
    fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|sort| *sort == self).map_or(0, |at| at + 1);
        all.get(at).or(all.first()).copied().unwrap_or(self)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Over => "over request",
            Self::Throttling => "throttling",
            Self::Stall => "stall",
            Self::Io => "i/o",
            Self::Oom => "oom kills",
            Self::Name => "name",
        }
    }
}

/// What is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TopView {
    /// Use and requests of each container.
    Containers,
    /// Sums by QoS class.
    Classes,
    /// Stalls, throttling and I/O of each container.
    Pressure,
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

pub(crate) async fn run(args: &TopArgs, peers: &Peers<'_>, output: &Output) -> Result<YesOrNo, Failure> {
    let source =
        if args.cluster { TickSource::Cluster(peers.recommender) } else { TickSource::Node(peers.agent) };
    let is_live = !args.once && is_screen() && matches!(output.format(), Format::Table | Format::Wide);
    if is_live {
        return live::run(args, source, output).await;
    }
    if let Some(moment) = args.at {
        let mut frame = ticks::past(peers.agent, moment.usec(Timestamp::now())).await?;
        frame.arrange(args.sort, &args.filter);
        return past(&frame, output);
    }
    let mut ticks = Ticks::open(source).await?;
    if args.once { once(&mut ticks, args, output).await } else { lines(&mut ticks, args, output).await }
}

/// Whether text can be placed, and keys read.
fn is_screen() -> bool {
    let can_place = std::env::var_os("TERM").is_some_and(|term| term != "dumb" && !term.is_empty());
    stdout().is_terminal() && stdin().is_terminal() && can_place
}

/// A second that was kept, with its own time.
fn past(frame: &Frame, output: &Output) -> Result<YesOrNo, Failure> {
    if matches!(output.format(), Format::Table | Format::Wide) {
        let rendered = output.rendered(&table(frame, output.is_wide()));
        print(&format!("{}\n{rendered}", frame.time.as_deref().unwrap_or("-")))?;
    } else {
        output.answer(frame, || table(frame, output.is_wide()))?;
    }
    Ok(YesOrNo::Yes)
}

async fn once(ticks: &mut Ticks<'_>, args: &TopArgs, output: &Output) -> Result<YesOrNo, Failure> {
    let first = tokio::time::timeout(FIRST_TICK, ticks.next()).await;
    match first {
        Ok(Ok(Some(mut frame))) => {
            frame.arrange(args.sort, &args.filter);
            output.answer(&frame, || table(&frame, output.is_wide()))?;
            Ok(YesOrNo::Yes)
        }
        Ok(Err(failure)) => Err(failure),
        Ok(Ok(None)) => Err(ticks.ended()),
        Err(_) => Err(ticks.address().silent("no second was sampled within five seconds")),
    }
}

/// Frame below frame, until the stream ends or nobody reads on.
async fn lines(ticks: &mut Ticks<'_>, args: &TopArgs, output: &Output) -> Result<YesOrNo, Failure> {
    while let Some(mut frame) = ticks.next().await? {
        frame.arrange(args.sort, &args.filter);
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
    Ok(YesOrNo::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn every_sort_is_reached_and_the_last_leads_to_the_first() {
        let mut seen = vec![Sort::Cpu];
        while seen.last().copied().map(Sort::next) != Some(Sort::Cpu) {
            seen.push(seen.last().copied().unwrap().next());
        }
        assert_eq!(seen.len(), Sort::value_variants().len());
    }
}
