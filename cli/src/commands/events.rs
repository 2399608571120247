//! `evenkeel events`: what was decided, and why.

use std::io::Write;

use clap::Args;
use evenkeel_proto::convert::decision_kinds;
use evenkeel_proto::v1::watch_decisions_response::Event as Watched;
use evenkeel_proto::v1::{GetStatusRequest, ListEventsRequest, WatchDecisionsRequest};
use jiff::{SignedDuration, Timestamp};

use crate::client::{self, Address, Peers};
use crate::failure::Failure;
use crate::output::{Format, Output, YesOrNo, print};
use crate::table::{Cell, Table};
use crate::wire::{self, DecisionEvent};

/// Show the decisions of the agent, or of all nodes: what was changed, refused or found, and why.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel events
  evenkeel events --pod shop/web --kind set --since 10m
  evenkeel events --kind oom-kill,kill,evict,restart --limit 20
  evenkeel events --follow -o json
  evenkeel events --all-nodes")]
pub(crate) struct EventsArgs {
    /// Only of this pod: NAME or NAMESPACE/NAME.
    #[arg(long, value_name = "POD")]
    pod: Option<String>,
    /// Only of this container.
    #[arg(long, value_name = "NAME")]
    container: Option<String>,
    /// Only of these kinds: found, gone, classified, set, converged, denied, contended, ineffective, oom-kill, relieve,
    /// release, starved, thrash, kill, evict, restart, resize, node, source, agent.
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    kind: Vec<String>,
    /// Only since a moment (RFC 3339) or for a while (10m, 2h).
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Since>,
    /// Only the newest N; with --follow, of those that are there already.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Wait for new ones; JSON and YAML then come one object at a time.
    #[arg(long)]
    follow: bool,
    /// Ask the recommender for those of all nodes.
    #[arg(long, conflicts_with = "follow")]
    all_nodes: bool,
}

/// A moment, or a while before now.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Since {
    Moment(Timestamp),
    Ago(SignedDuration),
}

impl Since {
    /// Microseconds since 1970.
    pub(crate) fn usec(self, now: Timestamp) -> u64 {
        let from = match self {
            Self::Moment(moment) => Some(moment),
            Self::Ago(duration) => now.checked_sub(duration).ok(),
        };
        from.map_or(0, |t| u64::try_from(t.as_microsecond()).unwrap_or(0))
    }
}

fn kind(text: &str) -> Result<String, String> {
    let known: Vec<&str> = decision_kinds().collect();
    let found = known.contains(&text).then(|| text.to_owned());
    found.ok_or_else(|| format!("there are {}", known.join(", ")))
}

pub(crate) fn since(text: &str) -> Result<Since, String> {
    // A day is 24 hours here, whatever the calendar says.
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let duration = match days {
        Some(days) => Some(SignedDuration::from_hours(i64::from(days) * 24)),
        None => text.parse::<SignedDuration>().ok().filter(|d| !d.is_negative()),
    };
    duration
        .map(Since::Ago)
        .or_else(|| text.parse().ok().map(Since::Moment))
        .ok_or_else(|| "write a duration such as 10m or a time such as 2026-01-31T12:00:00Z".to_owned())
}

/// What the options let through.
struct EventFilter<'a> {
    args: &'a EventsArgs,
    from_usec: u64,
}

impl<'a> EventFilter<'a> {
    fn new(args: &'a EventsArgs, now: Timestamp) -> Self {
        Self { args, from_usec: args.since.map_or(0, |since| since.usec(now)) }
    }

    fn takes(&self, decision: &evenkeel_proto::v1::Decision) -> bool {
        let pod = |wanted: &str| {
            decision.pod.as_deref().is_some_and(|full| {
                full == wanted || full.split_once('/').is_some_and(|(_, name)| name == wanted)
            })
        };
        decision.time_usec >= self.from_usec
            && self.args.pod.as_deref().is_none_or(pod)
            && self.args.container.as_deref().is_none_or(|c| decision.container.as_deref() == Some(c))
            && (self.args.kind.is_empty() || self.args.kind.contains(&decision.kind))
    }
}

pub(crate) async fn run(args: &EventsArgs, peers: &Peers<'_>, output: &Output) -> Result<YesOrNo, Failure> {
    let filter = EventFilter::new(args, Timestamp::now());
    if args.all_nodes {
        let mut recommender = client::recommender(peers.recommender).await?;
        let request = ListEventsRequest::default();
        let answer = recommender.list_events(request).await.map_err(|e| peers.recommender.failed(&e))?;
        let decisions = answer.into_inner().events.into_iter().filter(|d| filter.takes(d));
        let mut events: Vec<DecisionEvent> = decisions.map(|d| DecisionEvent::of(d, "")).collect();
        newest(&mut events, args.limit);
        output.answer(&events, || table(&events, output.is_wide(), true))?;
        return Ok(YesOrNo::Yes);
    }
    watch(args, &filter, peers.agent, output).await
}

/// Decisions of the agent's log, and with `--follow` those to come.
async fn watch(
    args: &EventsArgs,
    filter: &EventFilter<'_>,
    address: &Address,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    let mut agent = client::agent(address).await?;
    let status = agent.get_status(GetStatusRequest {}).await.map_err(|e| address.failed(&e))?;
    let node = status.into_inner().node;
    // The agent filters, so that little comes over; what an older one leaves in is left out here.
    let request = WatchDecisionsRequest {
        from_seq: 0,
        no_follow: !args.follow,
        kinds: args.kind.clone(),
        pod: args.pod.clone().unwrap_or_default(),
        since_usec: filter.from_usec,
        limit: if args.container.is_none() { args.limit.unwrap_or(0) } else { 0 },
    };
    let mut stream = agent.watch_decisions(request).await.map_err(|e| address.failed(&e))?.into_inner();
    let mut kept = Vec::new();
    let mut is_live = false;
    while let Some(message) = stream.message().await.map_err(|e| address.failed(&e))? {
        match message.event {
            Some(Watched::Decision(d)) if filter.takes(&d) => kept.push(DecisionEvent::of(d, &node)),
            Some(Watched::Bookmark(_)) if args.follow => {
                is_live = true;
                newest(&mut kept, args.limit);
                show(&kept, output, true)?;
                kept.clear();
                continue;
            }
            Some(Watched::Bookmark(_)) => {
                newest(&mut kept, args.limit);
                break;
            }
            Some(Watched::Missed(n)) => missed(n),
            Some(Watched::Decision(_)) | None => {}
        }
        if is_live {
            show(&kept, output, false)?;
            kept.clear();
        }
    }
    if !args.follow {
        output.answer(&kept, || table(&kept, output.is_wide(), true))?;
    }
    Ok(YesOrNo::Yes)
}

/// Leaves the newest.
fn newest(events: &mut Vec<DecisionEvent>, limit: Option<u32>) {
    events.drain(..limit.map_or(0, |limit| events.len().saturating_sub(limit as usize)));
}

/// Tells of a gap where it does not disturb the answer.
fn missed(count: u64) {
    // Nobody is left to tell when standard error is closed.
    let _ =
        writeln!(std::io::stderr(), "{count} decisions were left out: they came faster than they were read");
}

/// Events as they come: one row or one object each.
fn show(events: &[DecisionEvent], output: &Output, titled: bool) -> Result<(), Failure> {
    match output.format() {
        Format::Json => events.iter().try_for_each(|e| output.line(e)),
        Format::Yaml => events.iter().try_for_each(|e| output.document(e)),
        Format::Table | Format::Wide | Format::Csv | Format::Patch => {
            print(&output.rendered(&table(events, output.is_wide(), titled)))
        }
    }
}

fn table(events: &[DecisionEvent], wide: bool, titled: bool) -> Table {
    let mut titles =
        vec!["TIME", "NODE", "POD", "CONTAINER", "KIND", "KNOB", "OLD", "NEW", "RESULT", "REASON"];
    if wide {
        titles.extend(["SEQ", "INPUTS"]);
    }
    let mut table = if titled { Table::new(&titles) } else { Table::default() };
    for event in events {
        let text = |t: &Option<String>| Cell::from(t.as_deref().unwrap_or("-"));
        let mut row = vec![
            text(&event.time),
            text(&event.node),
            text(&event.pod),
            text(&event.container),
            event.kind.as_str().into(),
            text(&event.knob),
            text(&event.old),
            text(&event.new),
            wire::toned(&event.result),
            event.reason.as_str().into(),
        ];
        if wide {
            let inputs: Vec<_> = event.inputs.iter().map(|(k, v)| format!("{k}={v}")).collect();
            row.extend([Cell::from(event.seq.to_string()), inputs.join(" ").into()]);
        }
        table.row(row);
    }
    table
}
