//! The wire only grows: what a released program sends or expects means the same for ever.
//!
//! `first_release.txt` lists the descriptors of the first release, a line for each service call, message field and
//! enum value. Each line must still be true. Lines may only be added, in a release of their own.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

const FIRST_RELEASE: &str = include_str!("first_release.txt");

/// Every promise of a descriptor set, as lines: what it is about, and the promise.
fn promises(set: &FileDescriptorSet) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in &set.file {
        let package = file.package();
        for message in &file.message_type {
            of_message(&format!(".{package}"), message, &mut lines);
        }
        for enumeration in &file.enum_type {
            of_enum(&format!(".{package}"), enumeration, &mut lines);
        }
        for service in &file.service {
            for call in &service.method {
                lines.insert(format!(
                    "call .{package}.{}/{}: {}{} -> {}{}",
                    service.name(),
                    call.name(),
                    stream(call.client_streaming()),
                    call.input_type(),
                    stream(call.server_streaming()),
                    call.output_type()
                ));
            }
        }
    }
    lines
}

fn stream(streams: bool) -> &'static str {
    if streams { "stream " } else { "" }
}

fn of_message(prefix: &str, message: &DescriptorProto, lines: &mut BTreeSet<String>) {
    let name = format!("{prefix}.{}", message.name());
    for field in &message.field {
        let oneof = field
            .oneof_index
            .and_then(|at| message.oneof_decl.get(usize::try_from(at).ok()?))
            .filter(|_| !field.proto3_optional());
        let oneof = oneof.map(|of| format!(" in {}", of.name())).unwrap_or_default();
        lines.insert(format!("field {name} {} = {}: {}{oneof}", field.name(), field.number(), kind(field)));
    }
    for inner in &message.nested_type {
        of_message(&name, inner, lines);
    }
    for inner in &message.enum_type {
        of_enum(&name, inner, lines);
    }
}

fn of_enum(prefix: &str, enumeration: &EnumDescriptorProto, lines: &mut BTreeSet<String>) {
    for value in &enumeration.value {
        lines.insert(format!("value {prefix}.{} {} = {}", enumeration.name(), value.name(), value.number()));
    }
}

fn kind(field: &FieldDescriptorProto) -> String {
    let label = match field.label() {
        Label::Repeated => "repeated ",
        _ if field.proto3_optional() => "optional ",
        _ => "",
    };
    let of = match field.r#type() {
        Type::Message | Type::Enum | Type::Group => field.type_name().to_owned(),
        plain => format!("{plain:?}").to_lowercase(),
    };
    format!("{label}{of}")
}

fn present() -> BTreeSet<String> {
    promises(&FileDescriptorSet::decode(evenkeel_proto::DESCRIPTORS).unwrap())
}

/// What each number of a message or enum, and each call, meant and means.
fn by_number(lines: &BTreeSet<String>) -> BTreeMap<String, String> {
    let key = |line: &str| {
        let (what, kind) = line.split_once(": ").unwrap_or((line, ""));
        match what.split_once(" = ") {
            Some((owner_and_name, number)) => {
                let (owner, name) = owner_and_name.rsplit_once(' ').unwrap();
                (format!("{owner} {number}"), format!("{name}: {kind}"))
            }
            None => (what.to_owned(), kind.to_owned()),
        }
    };
    lines.iter().map(|line| key(line)).collect()
}

#[test]
fn everything_of_the_first_release_means_the_same() {
    let first: BTreeSet<String> = FIRST_RELEASE.lines().map(str::to_owned).collect();
    assert!(first.len() > 250, "the listing is not whole: {} lines", first.len());
    let present = present();
    let now = by_number(&present);
    let broken: Vec<String> = by_number(&first)
        .into_iter()
        .filter_map(|(key, meant)| match now.get(&key) {
            Some(means) if *means == meant => None,
            Some(means) => Some(format!("{key}: was {meant}, is {means}")),
            None => Some(format!("{key}: was {meant}, is gone")),
        })
        .collect();
    assert!(broken.is_empty(), "numbers are never changed, reused or dropped:\n{}", broken.join("\n"));
    assert!(first.is_subset(&present));
}

#[test]
fn every_enum_begins_with_unspecified() {
    let zero = present().into_iter().filter(|line| line.starts_with("value ") && line.ends_with(" = 0"));
    for line in zero {
        assert!(line.contains("_UNSPECIFIED = 0"), "{line}");
    }
}

#[test]
fn a_changed_number_or_type_is_seen() {
    let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
    let was =
        by_number(&lines(&["field .p.M a = 1: string", "value .p.E X = 2", "call .p.S/C: .p.A -> .p.B"]));
    assert_eq!(was["field .p.M 1"], "a: string");
    assert_eq!(was["value .p.E 2"], "X: ");
    assert_eq!(was["call .p.S/C"], ".p.A -> .p.B");
}

/// Prints the listing, for a release that adds to it: `cargo test -p evenkeel-proto --test compatible listing --
/// --nocapture`.
#[test]
fn the_listing_names_every_message_once() {
    let present = present();
    for line in &present {
        println!("{line}");
    }
    assert_eq!(by_number(&present).len(), present.len());
}
