//! Owns what rows mean: values of the history into rows and back, without loss.

use evenkeel_model::key::ContainerKey;
use evenkeel_model::rollup::Aggregate;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{Cause, Day, Event, Hour, Scope};

use super::row::{EngineRow, Labels, RowKind};
use crate::history::exchange::{Batch, DayOf, EventOf, HourOf, MinuteOf, PartOf};
use crate::key::Subject;

/// Labels that are read; others, which relays add, are passed over.
pub(crate) const LABELS: [&str; 10] =
    ["scope", "cluster", "namespace", "workload", "container", "image", "tag", "command", "replica", "cause"];

/// The rows of a batch, by time.
pub(crate) fn rows(batch: &Batch) -> Vec<EngineRow> {
    let mut rows: Vec<EngineRow> = batch.minutes.iter().map(of_minute).collect();
    rows.extend(batch.hours.iter().map(of_hour));
    rows.extend(batch.days.iter().map(of_day));
    rows.extend(batch.parts.iter().map(of_part));
    rows.extend(batch.events.iter().map(of_event));
    rows.sort_by_key(|row| row.begin_ms);
    rows
}

/// Puts the value of a row into a batch; false where the row is not one of ours.
pub(crate) fn take(row: &EngineRow, batch: &mut Batch) -> bool {
    match row.table {
        RowKind::Minute => minute(row).map(|value| batch.minutes.push(value)),
        RowKind::CpuHour => hour(row, Resource::Cpu).map(|value| batch.hours.push(value)),
        RowKind::MemoryHour => hour(row, Resource::Memory).map(|value| batch.hours.push(value)),
        RowKind::CpuDay => day(row, Resource::Cpu).map(|value| batch.days.push(value)),
        RowKind::MemoryDay => day(row, Resource::Memory).map(|value| batch.days.push(value)),
        RowKind::CpuPart => part(row, Resource::Cpu).map(|value| batch.parts.push(value)),
        RowKind::MemoryPart => part(row, Resource::Memory).map(|value| batch.parts.push(value)),
        RowKind::Event => event(row).map(|value| batch.events.push(value)),
    }
    .is_some()
}

fn of_minute(value: &MinuteOf) -> EngineRow {
    let mut labels = of_subject(&value.subject);
    put(&mut labels, "replica", &value.replica);
    put(&mut labels, "image", value.image.as_deref().unwrap_or_default());
    put(&mut labels, "tag", value.tag.as_deref().unwrap_or_default());
    let mut numbers = vec![Some(value.weight_ms)];
    numbers.extend(of_aggregate(&value.cpu_micro));
    numbers.extend(of_aggregate(&value.memory_bytes));
    numbers.extend([Some(value.starved_ms), Some(value.oom_kills)]);
    let begin_ms = u64::from(value.minute) * RowKind::Minute.period_ms();
    EngineRow { table: RowKind::Minute, labels, begin_ms, numbers, histograms: Vec::new() }
}

fn minute(row: &EngineRow) -> Option<MinuteOf> {
    let [weight_ms, cpu @ .., starved_ms, oom_kills] = row.numbers.as_slice() else { return None };
    let (cpu, memory) = cpu.split_at_checked(4)?;
    Some(MinuteOf {
        subject: own(&row.labels)?,
        replica: text(&row.labels, "replica"),
        image: row.labels.get("image").cloned(),
        tag: row.labels.get("tag").cloned(),
        minute: u32::try_from(row.begin_ms / RowKind::Minute.period_ms()).ok()?,
        weight_ms: (*weight_ms)?,
        cpu_micro: aggregate(cpu)?,
        memory_bytes: aggregate(memory)?,
        starved_ms: (*starved_ms)?,
        oom_kills: (*oom_kills)?,
    })
}

/// Count, sum, least and greatest; an empty aggregate has a count of zero and nothing else.
fn of_aggregate(value: &Aggregate) -> [Option<u64>; 4] {
    let known = |number| (value.count > 0).then_some(number);
    [Some(value.count), known(value.sum), known(value.min), known(value.max)]
}

fn aggregate(numbers: &[Option<u64>]) -> Option<Aggregate> {
    match *numbers {
        [Some(0), None, None, None] => Some(Aggregate::default()),
        [Some(count), Some(sum), Some(min), Some(max)] if count > 0 && min <= max && max <= sum => {
            Some(Aggregate { count, sum, min, max })
        }
        _ => None,
    }
}

fn of_hour(value: &HourOf) -> EngineRow {
    let table = if value.resource == Resource::Cpu { RowKind::CpuHour } else { RowKind::MemoryHour };
    let Hour { hour, all, worst, peak, starved_ms } = &value.hour;
    EngineRow {
        table,
        labels: of_subject(&value.subject),
        begin_ms: hour * table.period_ms(),
        numbers: vec![Some(*peak), Some(*starved_ms)],
        histograms: vec![Some(all.clone()), worst.clone()],
    }
}

fn hour(row: &EngineRow, resource: Resource) -> Option<HourOf> {
    let ([peak, starved_ms], [all, worst]) = (row.numbers.as_slice(), row.histograms.as_slice()) else {
        return None;
    };
    let hour = Hour {
        hour: row.begin_ms / row.table.period_ms(),
        all: all.clone()?,
        worst: worst.clone(),
        peak: (*peak)?,
        starved_ms: (*starved_ms)?,
    };
    Some(HourOf { subject: own(&row.labels)?, resource, hour })
}

fn of_day(value: &DayOf) -> EngineRow {
    let table = if value.resource == Resource::Cpu { RowKind::CpuDay } else { RowKind::MemoryDay };
    let mut labels = of_subject(&value.subject);
    put(&mut labels, "scope", scope_name(value.subject.scope()));
    let Day { day, all, minutes, peak } = &value.day;
    EngineRow {
        table,
        labels,
        begin_ms: day * table.period_ms(),
        numbers: vec![Some(*peak)],
        histograms: vec![Some(all.clone()), Some(minutes.clone())],
    }
}

fn day(row: &EngineRow, resource: Resource) -> Option<DayOf> {
    let ([peak], [all, minutes]) = (row.numbers.as_slice(), row.histograms.as_slice()) else { return None };
    let day = Day {
        day: row.begin_ms / row.table.period_ms(),
        all: all.clone()?,
        minutes: minutes.clone()?,
        peak: (*peak)?,
    };
    Some(DayOf { subject: subject(&row.labels)?, resource, day })
}

/// In the last hour of what it has, so that those of a day lie beside each other.
fn of_part(value: &PartOf) -> EngineRow {
    let table = if value.of.resource == Resource::Cpu { RowKind::CpuPart } else { RowKind::MemoryPart };
    let day_ms = value.of.day.day * RowKind::CpuDay.period_ms();
    let last_ms = u64::from(value.until).saturating_sub(1) * RowKind::Minute.period_ms();
    let hour_ms =
        last_ms.clamp(day_ms, day_ms + 23 * table.period_ms()) / table.period_ms() * table.period_ms();
    let EngineRow { labels, mut numbers, histograms, .. } = of_day(&value.of);
    numbers.push(Some(u64::from(value.until)));
    EngineRow { table, labels, begin_ms: hour_ms, numbers, histograms }
}

fn part(row: &EngineRow, resource: Resource) -> Option<PartOf> {
    let [peak, until] = row.numbers.as_slice() else { return None };
    let [all, minutes] = row.histograms.as_slice() else { return None };
    let day = Day {
        day: row.begin_ms / RowKind::CpuDay.period_ms(),
        all: all.clone()?,
        minutes: minutes.clone()?,
        peak: (*peak)?,
    };
    let of = DayOf { subject: subject(&row.labels)?, resource, day };
    Some(PartOf { of, until: u32::try_from((*until)?).ok()? })
}

fn of_event(value: &EventOf) -> EngineRow {
    let mut labels = of_subject(&value.subject);
    let Event { time_ms, cause, usage, request, limit, age_ms } = value.event;
    put(&mut labels, "cause", cause_name(cause));
    let known = [usage, request, limit, age_ms];
    let count = known.iter().flatten().count() as u64;
    let numbers = [Some(count)].into_iter().chain(known).collect();
    EngineRow { table: RowKind::Event, labels, begin_ms: time_ms, numbers, histograms: Vec::new() }
}

fn event(row: &EngineRow) -> Option<EventOf> {
    let [count, known @ ..] = row.numbers.as_slice() else { return None };
    let [usage, request, limit, age_ms] = *known else { return None };
    if *count != Some(known.iter().flatten().count() as u64) {
        return None;
    }
    let cause = [Cause::OomKill, Cause::Eviction]
        .into_iter()
        .find(|cause| row.labels.get("cause").is_some_and(|label| label == cause_name(*cause)))?;
    let event = Event { time_ms: row.begin_ms, cause, usage, request, limit, age_ms };
    Some(EventOf { subject: own(&row.labels)?, event })
}

fn put(labels: &mut Labels, name: &str, value: &str) {
    if !value.is_empty() {
        labels.insert(name.to_owned(), value.to_owned());
    }
}

fn text(labels: &Labels, name: &str) -> String {
    labels.get(name).cloned().unwrap_or_default()
}

fn of_subject(subject: &Subject) -> Labels {
    let mut labels = Labels::new();
    let mut set = |pairs: &[(&str, &String)]| pairs.iter().for_each(|(n, v)| put(&mut labels, n, v));
    match subject {
        Subject::Own(ContainerKey { cluster, namespace, workload, container }) => {
            set(&[
                ("cluster", cluster),
                ("namespace", namespace),
                ("workload", workload),
                ("container", container),
            ]);
        }
        Subject::Command { container, image, tag, hash } => {
            let command = format!("{hash:016x}");
            set(&[("container", container), ("image", image), ("tag", tag), ("command", &command)]);
        }
        Subject::NamespaceImageTag { cluster, namespace, image, tag } => {
            set(&[("cluster", cluster), ("namespace", namespace), ("image", image), ("tag", tag)]);
        }
        Subject::ImageTag { image, tag } => set(&[("image", image), ("tag", tag)]),
        Subject::Image { image } => set(&[("image", image)]),
    }
    labels
}

/// A container of a workload; nothing without a container's name, which every one has.
fn own(labels: &Labels) -> Option<Subject> {
    Some(Subject::Own(ContainerKey {
        cluster: text(labels, "cluster"),
        namespace: text(labels, "namespace"),
        workload: text(labels, "workload"),
        container: labels.get("container").cloned()?,
    }))
}

fn subject(labels: &Labels) -> Option<Subject> {
    let scopes = [Scope::Own, Scope::Command, Scope::NamespaceImageTag, Scope::ImageTag, Scope::Image];
    let scope = labels.get("scope")?;
    let scope = scopes.into_iter().find(|known| scope_name(*known) == scope)?;
    let image = || labels.get("image").cloned();
    let tag = || text(labels, "tag");
    Some(match scope {
        Scope::Own => own(labels)?,
        Scope::Command => Subject::Command {
            container: labels.get("container").cloned()?,
            image: image()?,
            tag: tag(),
            hash: u64::from_str_radix(labels.get("command")?, 16).ok()?,
        },
        Scope::NamespaceImageTag => Subject::NamespaceImageTag {
            cluster: text(labels, "cluster"),
            namespace: text(labels, "namespace"),
            image: image()?,
            tag: tag(),
        },
        Scope::ImageTag => Subject::ImageTag { image: image()?, tag: tag() },
        Scope::Image => Subject::Image { image: image()? },
    })
}

const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Own => "own",
        Scope::Command => "command",
        Scope::NamespaceImageTag => "namespace-image-tag",
        Scope::ImageTag => "image-tag",
        Scope::Image => "image",
    }
}

const fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::OomKill => "oom-kill",
        Cause::Eviction => "eviction",
    }
}
