//! Values of the history as tests need them: of every kind and scope, odd names and numbers among them.

use evenkeel_model::key::ContainerKey;
use evenkeel_model::rollup::Aggregate;

use crate::history::exchange::{Batch, DayOf, EventOf, HourOf, MinuteOf, PartOf};
use crate::key::Subject;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::Histogram;
use evenkeel_rightsizing::history::{Cause, Day, Event, Hour};
use proptest::prelude::*;

/// Numbers that survive a double.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(1 << 53), 0..=1u64 << 53, 0..100_000u64]
}

/// Names; an empty one and none are the same to an engine, so what may be absent is never empty.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "[ -~]{1,8}", "[a-z/é,=\\\\ \"{}%\n]{1,10}"]
}

fn own() -> impl Strategy<Value = Subject> {
    (prop_oneof![Just(String::new()), name()], name(), name(), name()).prop_map(
        |(cluster, namespace, workload, container)| {
            Subject::Own(ContainerKey { cluster, namespace, workload, container })
        },
    )
}

fn subject() -> impl Strategy<Value = Subject> {
    let command = (name(), name(), name(), any::<u64>());
    prop_oneof![
        own(),
        command.prop_map(|(container, image, tag, hash)| Subject::Command { container, image, tag, hash }),
        (name(), name(), name(), name()).prop_map(|(cluster, namespace, image, tag)| {
            Subject::NamespaceImageTag { cluster, namespace, image, tag }
        }),
        (name(), name()).prop_map(|(image, tag)| Subject::ImageTag { image, tag }),
        name().prop_map(|image| Subject::Image { image }),
    ]
}

fn aggregate() -> impl Strategy<Value = Aggregate> {
    prop::collection::vec(0..1u64 << 46, 0..60).prop_map(|values| {
        values.into_iter().fold(Aggregate::default(), |mut all, value| {
            all.add(value);
            all
        })
    })
}

fn histogram() -> impl Strategy<Value = Histogram> {
    let weight = prop_oneof![1..10_000_000u64, Just((1 << 41) - 1), Just(1 << 41), Just(5 << 41)];
    prop::collection::vec((any::<u64>(), weight), 0..50).prop_map(|values| {
        values.into_iter().fold(Histogram::new(), |mut all, (value, weight)| {
            all.add(value, weight);
            all
        })
    })
}

fn minute() -> impl Strategy<Value = MinuteOf> {
    let image = prop::option::of((name(), prop::option::of(name())));
    (own(), name(), image, 29_000_000..29_000_100u32, number(), aggregate(), aggregate(), number()).prop_map(
        |(subject, replica, image, minute, weight_ms, cpu_micro, memory_bytes, starved_ms)| {
            let (image, tag) = image.map_or((None, None), |(image, tag)| (Some(image), tag));
            let oom_kills = starved_ms % 3;
            MinuteOf {
                subject,
                replica,
                image,
                tag,
                minute,
                weight_ms,
                cpu_micro,
                memory_bytes,
                starved_ms,
                oom_kills,
            }
        },
    )
}

fn resource() -> impl Strategy<Value = Resource> {
    prop_oneof![Just(Resource::Cpu), Just(Resource::Memory)]
}

fn event() -> impl Strategy<Value = Event> {
    let known = || prop::option::of(number());
    let cause = prop_oneof![Just(Cause::OomKill), Just(Cause::Eviction)];
    (29_000_000 * 60_000..29_000_100 * 60_000u64, cause, known(), known(), known(), known()).prop_map(
        |(time_ms, cause, usage, request, limit, age_ms)| Event {
            time_ms,
            cause,
            usage,
            request,
            limit,
            age_ms,
        },
    )
}

/// Batches of some values of each kind.
pub(super) fn batch() -> impl Strategy<Value = Batch> {
    let hour = (483_333..483_336u64, histogram(), prop::option::of(histogram()), number(), number())
        .prop_map(|(hour, all, worst, peak, starved_ms)| Hour { hour, all, worst, peak, starved_ms });
    let hour =
        (own(), resource(), hour).prop_map(|(subject, resource, hour)| HourOf { subject, resource, hour });
    let day = (20_138..20_141u64, histogram(), histogram(), number())
        .prop_map(|(day, all, minutes, peak)| Day { day, all, minutes, peak });
    let day = (subject(), resource(), day)
        .prop_map(|(subject, resource, day)| DayOf { subject, resource, day })
        .boxed();
    let part = (day.clone(), 0..1440u32).prop_map(|(of, minute)| {
        let until = u32::try_from(of.day.day).unwrap() * 1440 + minute;
        PartOf { of, until }
    });
    let event = (own(), event()).prop_map(|(subject, event)| EventOf { subject, event });
    let some = 0..6;
    (
        prop::collection::vec(minute(), some.clone()),
        prop::collection::vec(hour, some.clone()),
        prop::collection::vec(day, some.clone()),
        prop::collection::vec(part, some.clone()),
        prop::collection::vec(event, some),
    )
        .prop_map(|(minutes, hours, days, parts, events)| Batch { minutes, hours, days, parts, events })
}

/// A batch as text that does not depend on the order of its values.
pub(super) fn sorted(batch: &Batch) -> Vec<String> {
    let mut all: Vec<String> = batch.minutes.iter().map(|v| format!("{v:?}")).collect();
    all.extend(batch.hours.iter().map(|v| format!("{v:?}")));
    all.extend(batch.days.iter().map(|v| format!("{v:?}")));
    all.extend(batch.parts.iter().map(|v| format!("{v:?}")));
    all.extend(batch.events.iter().map(|v| format!("{v:?}")));
    all.sort();
    all
}
