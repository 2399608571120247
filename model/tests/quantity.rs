//! Quantities at the boundary: a table of texts with all they mean, and the texts that mean nothing.
#![allow(clippy::unwrap_used, clippy::panic)] // a failing helper fails its test

use evenkeel_model::quantity::{Format, MAX_INPUT_BYTES, Quantity, QuantityErrorKind, QuantityReport};

/// Computed with rational numbers, apart from this crate; the forms of Kubernetes' own tests are among them.
const VECTORS: &str = include_str!("fixtures/quantities.tsv");

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_vector_reads_and_is_written() {
    let mut count = 0;
    for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let &[input, canonical, exact, value, milli, format] = columns.as_slice() else {
            panic!("not six columns: {line}");
        };
        let q = parse(input);
        assert_eq!(q.to_string(), canonical, "canonical form of {input}");
        assert_eq!(q.exact(), exact, "exact text of {input}");
        assert_eq!(q.value().to_string(), value, "value of {input}");
        assert_eq!(q.milli().to_string(), milli, "milli of {input}");
        assert_eq!(q.format().to_string(), format, "format of {input}");
        assert_eq!(parse(canonical), q, "{input} read back from {canonical}");
        assert_eq!(parse(canonical).to_string(), canonical, "{canonical} is stable");
        assert_eq!(parse(exact), q, "{input} read back from {exact}");
        count += 1;
    }
    assert!(count >= 200, "only {count} vectors");
}

#[test]
fn wrong_texts_name_the_place_and_the_remedy() {
    use QuantityErrorKind as Kind;
    let unknown = |suffix: &str| Kind::UnknownSuffix { suffix: suffix.to_owned() };
    let table = [
        ("", 0, Kind::Empty),
        (".", 0, Kind::NoDigits),
        ("-", 1, Kind::NoDigits),
        ("+", 1, Kind::NoDigits),
        ("-.", 1, Kind::NoDigits),
        ("m", 0, Kind::NoDigits),
        ("Ki", 0, Kind::NoDigits),
        (".Ki", 0, Kind::NoDigits),
        ("E", 0, Kind::NoDigits),
        ("e3", 0, Kind::NoDigits),
        ("--1", 1, Kind::NoDigits),
        ("+-1", 1, Kind::NoDigits),
        ("aoeu", 0, Kind::NoDigits),
        ("NaN", 0, Kind::NoDigits),
        ("inf", 0, Kind::NoDigits),
        (" 1", 0, Kind::WhiteSpace),
        ("1 ", 1, Kind::WhiteSpace),
        ("1 Gi", 1, Kind::WhiteSpace),
        ("1\n", 1, Kind::WhiteSpace),
        ("1.1.M", 3, Kind::SecondPoint),
        ("1..", 2, Kind::SecondPoint),
        ("1e", 1, Kind::NoExponent),
        ("1e+", 1, Kind::NoExponent),
        ("-3.01E-", 5, Kind::NoExponent),
        ("1e3.5", 1, unknown("e3.5")),
        ("1e3Ki", 1, unknown("e3Ki")),
        ("1ee3", 1, unknown("ee3")),
        ("1+1.0M", 1, unknown("+1.0M")),
        ("1i", 1, unknown("i")),
        (".5i", 2, unknown("i")),
        ("0.1mi", 3, unknown("mi")),
        ("0.1am", 3, unknown("am")),
        ("1kk", 1, unknown("kk")),
        ("1KI", 1, unknown("KI")),
        ("1Zi", 1, unknown("Zi")),
        ("1MB", 1, unknown("MB")),
        ("1MiB", 1, unknown("MiB")),
        ("1,5", 1, unknown(",5")),
        ("1_000", 1, unknown("_000")),
        ("0x10", 1, unknown("x10")),
        ("1µ", 1, unknown("µ")),
        ("١", 0, Kind::NoDigits),
    ];
    for (input, position, kind) in table {
        let error = Quantity::parse(input).expect_err(input);
        assert_eq!((error.position(), error.kind()), (position, &kind), "{input:?}");
        assert!(error.to_string().contains(error.remedy()), "{error}");
    }
}

#[test]
fn an_error_reads_well() {
    insta::assert_snapshot!(Quantity::parse("64MB").unwrap_err(), @r#"quantity "64MB" at byte 2: "MB" is not a suffix; the unit is implied by the resource: leave the B away (64Mi, 64M)"#);
    insta::assert_snapshot!(Quantity::parse(".").unwrap_err(), @r#"quantity "." at byte 0: there is no digit; write a number such as 2, 0.5, 300m or 64Mi"#);
}

#[test]
fn long_texts_are_read_up_to_a_bound() {
    let nines = "9".repeat(MAX_INPUT_BYTES);
    assert_eq!(parse(&nines), Quantity::MAX);
    let zeros = format!("0.{}1", "0".repeat(MAX_INPUT_BYTES - 3));
    assert_eq!(parse(&zeros).to_string(), "1n");
    let leading = format!("{}7", "0".repeat(MAX_INPUT_BYTES - 1));
    assert_eq!(parse(&leading).to_string(), "7");
    let binary = format!("0.{}Ei", "3".repeat(MAX_INPUT_BYTES - 4));
    assert_eq!(parse(&binary).to_string(), "384307168202282325333333334n");
    let long = format!("{nines}9");
    let error = Quantity::parse(&long).expect_err("too long");
    assert_eq!(*error.kind(), QuantityErrorKind::TooLong { bytes: MAX_INPUT_BYTES + 1 });
    assert!(error.to_string().len() < 300, "the text is cut in the error");
}

#[test]
fn the_format_takes_no_part_in_comparison() {
    assert_eq!(parse("1Gi"), parse("1073741824"));
    assert_eq!(parse("129e6"), parse("129M"));
    assert!(parse("129M") > parse("123Mi"));
    assert!(parse("-1") < parse("0"));
    assert!(parse("1000m") < parse("1.000000001"));
    assert!(parse("9Ei") < parse("12E"));
}

#[test]
fn arithmetic_keeps_format_and_bounds() {
    let add = |a: &str, b: &str| parse(a).saturating_add(parse(b)).to_string();
    assert_eq!(add("1Gi", "512Mi"), "1536Mi");
    assert_eq!(add("0", "1Gi"), "1Gi");
    assert_eq!(add("1Gi", "0"), "1Gi");
    assert_eq!(add("100m", "1Ki"), "1024100m");
    assert_eq!(add("1e3", "1"), "1001");
    assert_eq!(parse("0").saturating_sub(parse("1Gi")).to_string(), "-1Gi");
    assert_eq!(parse("1").saturating_sub(parse("300m")).to_string(), "700m");
    assert_eq!(parse("250m").saturating_mul(3).to_string(), "750m");
    assert_eq!(parse("9Ei").saturating_add(parse("9Ei")).exact(), "18446744073709551614");
    assert_eq!(Quantity::MAX.saturating_add(Quantity::MAX), Quantity::MAX);
    assert_eq!(Quantity::MIN.saturating_sub(Quantity::MAX), Quantity::MIN);
    assert_eq!(Quantity::MAX.saturating_mul(i64::MIN), Quantity::MIN);
    assert_eq!(Quantity::MAX.checked_add(parse("1n")), None);
    assert_eq!(Quantity::MIN.checked_sub(parse("1n")), None);
    assert_eq!(Quantity::MAX.checked_mul(2), None);
    assert_eq!(parse("1").checked_add(parse("2")), Some(parse("3")));
}

#[test]
fn rounding_up_to_a_step() {
    let round = |q: &str, step: &str| parse(q).rounded_up_to(parse(step)).to_string();
    assert_eq!(round("1", "4Ki"), "4096");
    assert_eq!(round("4Ki", "4Ki"), "4Ki");
    assert_eq!(round("4097", "4Ki"), "8192");
    assert_eq!(round("101m", "10m"), "110m");
    assert_eq!(round("101m", "0"), "101m");
    assert_eq!(round("-101m", "10m"), "-110m");
}

#[test]
fn constructors_take_their_unit() {
    assert_eq!(Quantity::from_bytes(64 << 20).to_string(), "64Mi");
    assert_eq!(Quantity::from_bytes(u64::MAX).exact(), "18446744073709551615");
    assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    assert_eq!(Quantity::from_milli(-2000).to_string(), "-2");
    assert_eq!(Quantity::from_units(7).to_string(), "7");
    assert_eq!(Quantity::from_nano(i128::MAX, Format::DecimalSI), Quantity::MAX);
    assert_eq!(parse("1.1").to_u64(), Some(2));
    assert_eq!(parse("-1").to_u64(), None);
    assert_eq!(parse("1e21").to_u64(), None);
    assert_eq!(parse("0.1001").milli_u64(), Some(101));
}

#[test]
fn json_takes_strings_and_numbers() {
    let read = |json: &str| serde_json::from_str::<Quantity>(json).map(|q| q.to_string());
    for (json, canonical) in [
        ("\"1.5\"", "1500m"),
        ("\" 64Mi \"", "64Mi"),
        ("2", "2"),
        ("-2", "-2"),
        ("0.3", "300m"),
        ("2.5", "2500m"),
        ("1e3", "1k"),
        ("1e-7", "100n"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        assert_eq!(read(json).expect(json), canonical, "{json}");
    }
    for json in ["null", "true", "[]", "{}", "\"\"", "\"x\"", "9007199254740993.0", "1e300"] {
        assert!(read(json).is_err(), "{json}");
    }
    assert_eq!(serde_json::to_string(&parse("1024Mi")).unwrap(), "\"1Gi\"");
}

#[test]
fn yaml_takes_strings_and_numbers() {
    let read = |yaml: &str| serde_saphyr::from_str::<Quantity>(yaml).map(|q| q.to_string());
    for (yaml, canonical) in [("1.5", "1500m"), ("64Mi", "64Mi"), ("'2'", "2"), ("2", "2"), ("0.1", "100m")] {
        assert_eq!(read(yaml).expect(yaml), canonical, "{yaml}");
    }
    assert!(read("yes").is_err());
}

#[test]
fn the_report_has_the_pinned_form() {
    let reports: Vec<QuantityReport> =
        ["129M", "123Mi", "1.5", "300m", "12 Mi"].map(QuantityReport::of).into();
    assert!(reports[..4].iter().all(QuantityReport::is_accepted));
    assert!(!reports[4].is_accepted());
    insta::assert_snapshot!(serde_json::to_string_pretty(&reports).unwrap());
}
