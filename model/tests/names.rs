//! Resource names and what is known about their types.
#![allow(clippy::unwrap_used, clippy::panic)] // a failing helper fails its test

use evenkeel_model::name::{NameErrorReason, ResourceName};
use evenkeel_model::quantity::Quantity;
use evenkeel_model::resource_type::{
    CpuConversionFactor, Definition, ResourceType, ResourceTypeError, ResourceTypes,
};

fn q(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

fn name(text: &str) -> ResourceName {
    ResourceName::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn names_are_qualified_and_shortened() {
    for (text, qualified, short, native) in [
        ("cpu", "kubernetes.io/cpu", "cpu", true),
        ("kubernetes.io/cpu", "kubernetes.io/cpu", "cpu", true),
        ("memory", "kubernetes.io/memory", "memory", true),
        ("hugepages-2Mi", "kubernetes.io/hugepages-2Mi", "hugepages-2Mi", true),
        ("ephemeral-storage", "kubernetes.io/ephemeral-storage", "ephemeral-storage", true),
        (
            "attachable-volumes-aws-ebs",
            "kubernetes.io/attachable-volumes-aws-ebs",
            "attachable-volumes-aws-ebs",
            true,
        ),
        ("nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/gpu", false),
        (
            "example.com/Shiny_New-Resource.Type",
            "example.com/Shiny_New-Resource.Type",
            "example.com/Shiny_New-Resource.Type",
            false,
        ),
        ("node.kubernetes.io/x", "node.kubernetes.io/x", "node.kubernetes.io/x", true),
        ("notkubernetes.io/x", "notkubernetes.io/x", "notkubernetes.io/x", false),
        ("a/b", "a/b", "a/b", false),
    ] {
        let name = name(text);
        assert_eq!((name.qualified(), name.short(), name.is_native()), (qualified, short, native), "{text}");
        assert_eq!(ResourceName::parse(name.short()).unwrap(), name, "{text}");
        assert_eq!(name.to_string(), short);
    }
    assert_eq!(name("cpu"), ResourceName::CPU);
    assert_eq!(name("kubernetes.io/memory"), ResourceName::MEMORY);
}

#[test]
fn wrong_names_say_why() {
    use NameErrorReason as Reason;
    let long_label = format!("{}.com/x", "a".repeat(64));
    let long_domain = format!("{}a/x", "abcdefgh.".repeat(29));
    let long_name = format!("example.com/{}", "a".repeat(64));
    for (text, reason) in [
        ("", Reason::EmptyName),
        ("example.com/", Reason::EmptyName),
        ("/cpu", Reason::EmptySubdomain),
        ("example.com/a/b", Reason::NameCharacter),
        ("-cpu", Reason::NameCharacter),
        ("cpu.", Reason::NameCharacter),
        ("_cpu", Reason::NameCharacter),
        ("c pu", Reason::NameCharacter),
        ("cpü", Reason::NameCharacter),
        ("Example.com/x", Reason::SubdomainCharacter),
        ("exa_mple.com/x", Reason::SubdomainCharacter),
        ("-a.com/x", Reason::SubdomainCharacter),
        ("a..b/x", Reason::SubdomainCharacter),
        (".a/x", Reason::SubdomainCharacter),
        (&long_label, Reason::LongSubdomain),
        (&long_domain, Reason::LongSubdomain),
        (&long_name, Reason::LongName),
    ] {
        let error = ResourceName::parse(text).expect_err(text);
        assert_eq!(error.reason(), reason, "{text}");
        assert!(error.to_string().contains(reason.remedy()), "{error}");
    }
    assert!(ResourceName::parse(&format!("example.com/{}", "a".repeat(63))).is_ok());
}

#[test]
fn users_name_types_outside_the_reserved_namespace() {
    assert!(ResourceName::parse_user("example.com/slots").is_ok());
    for (text, reason) in [
        ("slots", NameErrorReason::Unqualified),
        ("kubernetes.io/slots", NameErrorReason::Reserved),
        ("x.kubernetes.io/slots", NameErrorReason::Reserved),
        ("example.com/", NameErrorReason::EmptyName),
    ] {
        assert_eq!(ResourceName::parse_user(text).expect_err(text).reason(), reason, "{text}");
    }
}

#[test]
fn predefined_types_are_those_of_the_document() {
    let types = ResourceTypes::predefined();
    for (text, units, scale, compressible) in [
        ("cpu", "KCU second per second", 3, true),
        ("memory", "byte", 0, false),
        ("network-bandwidth", "byte per second", 0, true),
        ("network-iops", "operation per second", 0, true),
        ("storage-space", "byte", 0, false),
        ("storage-time", "second per second", 3, true),
        ("storage-iops", "operation per second", 0, true),
        ("evenkeel.dev/storage-bandwidth", "byte per second", 0, true),
        ("ephemeral-storage", "byte", 0, false),
        ("pods", "", 0, false),
        ("hugepages-2Mi", "byte", 0, false),
        ("example.com/unknown", "", 0, false),
    ] {
        let found = types.get(&name(text));
        let facts = (found.units(), found.internal_scale_exponent(), found.is_compressible());
        assert_eq!(facts, (units, scale, compressible), "{text}");
        assert_eq!(found.implicit_request(), Quantity::ZERO, "{text}");
    }
    assert_eq!(types.get(&name("hugepages-2Mi")).quantized(q("1")), q("2Mi"));
}

#[test]
fn amounts_become_scaled_integers() {
    let types = ResourceTypes::predefined();
    let (cpu, memory) = (types.get(&ResourceName::CPU), types.get(&ResourceName::MEMORY));
    assert_eq!(cpu.to_internal(q("2.5")), 2500);
    assert_eq!(cpu.to_internal(q("0.0001")), 1);
    assert_eq!(cpu.from_internal(300).to_string(), "300m");
    assert_eq!(memory.to_internal(q("40Mi")), 41_943_040);
    assert_eq!(memory.to_internal(q("1.1")), 2);
    assert_eq!(memory.from_internal(i128::MAX), Quantity::MAX);
}

#[test]
fn users_define_types_once() {
    let mut types = ResourceTypes::predefined();
    let slots = ResourceType::unknown(name("example.com/slots"))
        .with_units("slot")
        .with_default_request(q("1"))
        .and_then(|slots| slots.with_quantization(q("0.5")))
        .and_then(|slots| slots.with_scale(1))
        .unwrap();
    types.define(slots.clone()).unwrap();
    let found = types.get(slots.name());
    assert_eq!(found.implicit_request(), q("1"));
    assert_eq!(found.quantized(q("1.2")), q("1.5"));
    assert_eq!(found.to_internal(q("1.5")), 15);
    assert!(matches!(types.define(slots), Err(ResourceTypeError::Duplicate { .. })));
    let native = ResourceType::unknown(name("disk-heads"));
    assert!(matches!(types.define(native.clone()), Err(ResourceTypeError::Name(_))));
    assert!(native.clone().with_scale(10).is_err());
    assert!(native.clone().with_quantization(q("0")).is_err());
    assert!(native.with_default_request(q("-1")).is_err());
}

#[test]
fn a_type_is_written_with_the_names_of_the_document() {
    let cpu = ResourceTypes::predefined().get(&ResourceName::CPU);
    let json = serde_json::to_string(&cpu).unwrap();
    assert_eq!(
        json,
        r#"{"name":"kubernetes.io/cpu","internalScaleExponent":3,"units":"KCU second per second","isCompressible":true}"#
    );
}

#[test]
fn the_conversion_factor_is_exact() {
    let factor = CpuConversionFactor::new(q("1.25")).unwrap();
    assert_eq!(factor.to_canonical(q("4")), Some(q("5")));
    assert_eq!(factor.to_physical(q("5")), Some(q("4")));
    assert_eq!(factor.to_physical(q("1")), Some(q("800m")));
    let third = CpuConversionFactor::new(q("3")).unwrap();
    assert_eq!(third.to_physical(q("1")).map(Quantity::exact).as_deref(), Some("0.333333334"));
    assert_eq!(CpuConversionFactor::default().to_canonical(q("7500m")), Some(q("7.5")));
    assert_eq!(third.to_canonical(Quantity::MAX), None);
    for text in ["0", "-1", "1000", "10001m", "99m", "2400M"] {
        let error = CpuConversionFactor::new(q(text)).unwrap_err().to_string();
        assert!(error.contains("is outside 0.1 to 10"), "{text}: {error}");
    }
    for text in ["100m", "10"] {
        assert!(CpuConversionFactor::new(q(text)).is_ok(), "{text}");
    }
    assert_eq!((factor.canonical(1001), factor.physical(1001), factor.milli()), (1251, 801, 1250));
    assert_eq!(factor.canonical(u64::MAX), u64::MAX);
    assert!(CpuConversionFactor::default().is_one() && !factor.is_one());
}

#[test]
fn definitions_are_checked_all_at_once() {
    let read = |json: &str| ResourceTypes::with(&serde_json::from_str(json).unwrap());
    let types = read(
        r#"{"example.com/disk": {"units": "byte per second", "isCompressible": true, "internalScaleExponent": 3,
            "defaultRequest": "1500", "quantization": "1k"},
            "cpu": {"defaultRequest": "100m", "quantization": "10m"}, "example.com/seat": {"units": ""}}"#,
    )
    .unwrap();
    let disk = types.get(&name("example.com/disk"));
    assert_eq!((disk.units(), disk.is_compressible()), ("byte per second", true));
    assert_eq!((disk.to_internal(q("2")), disk.quantized(disk.implicit_request())), (2000, q("2k")));
    assert_eq!(
        types.told(disk.name()).as_deref(),
        Some("byte per second, compressible, 1500 where nothing is said, in steps of 1k")
    );
    assert_eq!(types.told(&name("example.com/seat")).as_deref(), Some("a plain number, incompressible"));
    assert_eq!(types.told(&ResourceName::CPU), None, "everybody knows");
    let cpu = types.get(&ResourceName::CPU);
    assert_eq!((cpu.units(), cpu.quantized(q("101m"))), ("KCU second per second", q("110m")));
    let errors = read(
        r#"{"example.com/a": {}, "hadoop": {"units": "slot"}, "kubernetes.io/hadoop": {"units": "slot"},
            "example.com/b": {"units": "2 bytes"}, "memory": {"units": "page"}, "cpu": {"quantization": "0"},
            "example.com/c": {"units": "x", "internalScaleExponent": 10}}"#,
    )
    .unwrap_err();
    let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 7, "{said:?}");
    for part in [
        "a has no units",
        "no subdomain",
        "is reserved",
        "are not words",
        "defined already",
        "too small",
        "above 9",
    ] {
        assert!(said.iter().any(|error| error.contains(part)), "{part}: {said:?}");
    }
    assert!(serde_json::from_str::<Definition>(r#"{"unit": "byte"}"#).is_err());
}
