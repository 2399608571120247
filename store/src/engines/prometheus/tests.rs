//! Tests of what goes to a Prometheus-compatible engine and comes back, without one.

use evenkeel_model::key::ContainerKey;
use proptest::prelude::*;

use super::answer::read_text;
use super::assembly::Assembly;
use super::wire::WriteRequest;
use super::{pack, rows};
use crate::engines::failure::EngineFailure;
use crate::engines::row::{EngineRow, Faults, Labels, RowKind};
use crate::engines::samples::{batch, sorted};
use crate::history::exchange::Batch;

/// All time the tests know.
const SPAN: (u64, u64) = (0, 30_000_000 * 60_000);

/// What an engine that keeps everything answers about each table.
fn read_back(request: &WriteRequest) -> (Vec<EngineRow>, Faults) {
    let (mut rows, mut faults) = (Vec::new(), Faults::default());
    for table in RowKind::ALL {
        let mut assembly = Assembly::new(table, SPAN.0, SPAN.1);
        for series in &request.timeseries {
            let labels: Labels = series.labels.iter().map(|l| (l.name.clone(), l.value.clone())).collect();
            if labels["__name__"].starts_with(&format!("evenkeel_{}_", table.name())) {
                let samples: Vec<_> = series.samples.iter().map(|s| (s.timestamp as f64, s.value)).collect();
                assembly.take(labels, &samples);
            }
        }
        let (found, wrong) = assembly.rows();
        rows.extend(found);
        faults.incomplete += wrong.total();
    }
    (rows, faults)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_written_comes_back_equal(given in batch()) {
        let written = rows::rows(&given);
        let all: Vec<&EngineRow> = written.iter().collect();
        let request = pack::request(&all);
        for series in &request.timeseries {
            prop_assert!(series.samples.windows(2).all(|w| w[0].timestamp < w[1].timestamp));
            prop_assert!(series.labels.windows(2).all(|w| w[0].name < w[1].name));
            prop_assert!(series.samples.iter().all(|s| s.value <= pack::LARGEST as f64));
        }
        let (rows, faults) = read_back(&request);
        prop_assert_eq!(faults, Faults::default());
        let mut back = Batch::default();
        prop_assert!(rows.iter().all(|row| rows::take(row, &mut back)));
        prop_assert_eq!(sorted(&back), sorted(&given));
    }
}

/// One minute of one container as an engine answers with it.
fn minute(points: &str) -> (Vec<EngineRow>, Faults) {
    let names = RowKind::Minute.numbers();
    let mut assembly = Assembly::new(RowKind::Minute, 60_000, 180_000);
    let series = |name: &str, points: &str| {
        format!(
            r#"{{"metric":{{"__name__":"evenkeel_minute_{name}","container":"main","job":"x"}},"values":[{points}]}}"#
        )
    };
    let mut list: Vec<String> = names[1..].iter().map(|name| series(name, r#"[60.001,"5"]"#)).collect();
    list.push(series(names[0], points));
    let text =
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#, list.join(","));
    read_text(&text, &mut |(labels, samples)| assembly.take(labels, &samples)).unwrap();
    assembly.rows()
}

#[test]
fn lies_are_counted_by_kind_and_never_become_values() {
    let good = r#"[60.001,"5"]"#;
    let (rows, faults) = minute(good);
    assert_eq!((rows.len(), faults), (1, Faults::default()));
    let mut batch = Batch::default();
    assert!(rows::take(&rows[0], &mut batch));
    assert_eq!((batch.minutes[0].minute, batch.minutes[0].weight_ms), (1, 5));
    let none = Faults::default();
    let table: [(&str, &str, Faults); 9] = [
        ("no number", r#"[60.001,"NaN"]"#, Faults { numbers: 1, ..none }),
        ("infinite", r#"[60.001,"+Inf"]"#, Faults { numbers: 1, ..none }),
        ("negative", r#"[60.001,"-1"]"#, Faults { numbers: 1, ..none }),
        ("not whole", r#"[60.001,"1.5"]"#, Faults { numbers: 1, ..none }),
        ("too large", r#"[60.001,"9007199254740994"]"#, Faults { numbers: 1, ..none }),
        ("text", r#"[60.001,"five"]"#, Faults { numbers: 1, ..none }),
        ("another time", r#"[600.001,"5"]"#, Faults { times: 1, ..none }),
        ("between periods", r#"[75,"5"]"#, Faults { times: 1, ..none }),
        ("two values", r#"[60.001,"5"],[60.001,"6"]"#, Faults { contradictions: 1, ..none }),
    ];
    for (what, points, want) in table {
        let (rows, faults) = minute(points);
        assert_eq!(faults, want, "{what}");
        let mut batch = Batch::default();
        assert!(!rows.iter().any(|row| rows::take(row, &mut batch)), "{what}");
    }
    let (rows, faults) = minute(r#"[60.001,"5"],[60.001,"5"]"#);
    assert_eq!((rows.len(), faults), (1, none), "the same twice is once");
    // A second row that has nothing but one number, out of order.
    let (rows, faults) = minute(r#"[120.002,"7"],[60.001,"5"]"#);
    let mut batch = Batch::default();
    let taken = rows.iter().filter(|row| rows::take(row, &mut batch)).count();
    assert_eq!((rows.len(), taken, faults), (2, 1, none));
}

#[test]
fn a_histogram_of_which_an_entry_is_missing_is_incomplete() {
    let mut hour = Batch::default();
    let mut all = evenkeel_rightsizing::histogram::Histogram::new();
    (0..100).for_each(|value| all.add(value, 1000));
    hour.hours.push(crate::history::exchange::HourOf {
        subject: crate::key::Subject::Own(ContainerKey::new("c", "n", "w", "main")),
        resource: evenkeel_rightsizing::Resource::Cpu,
        hour: evenkeel_rightsizing::history::Hour { hour: 483_333, all, ..Default::default() },
    });
    let rows = rows::rows(&hour);
    let whole = pack::request(&rows.iter().collect::<Vec<_>>());
    let entries = |request: &WriteRequest| {
        request
            .timeseries
            .iter()
            .position(|s| s.labels.iter().any(|l| l.value == "evenkeel_cpu_hour_all"))
            .unwrap()
    };
    let mut broken = whole.clone();
    broken.timeseries[entries(&whole)].samples.remove(50);
    let (rows, faults) = read_back(&broken);
    assert_eq!((rows.len(), faults.incomplete), (0, 1));
    let mut broken = whole.clone();
    let at = entries(&whole);
    broken.timeseries.remove(at);
    assert_eq!(read_back(&broken).1.incomplete, 1);
    assert_eq!(read_back(&whole).0.len(), 1);
}

#[test]
fn what_is_no_answer_is_an_error_and_not_an_empty_one() {
    let ok = r#"{"status":"success","data":{"resultType":"matrix","result":[]},"stats":{}}"#;
    assert_eq!(read_text(ok, &mut |_| {}), Ok(()));
    let table = [
        ("", true),
        ("<html>", true),
        ("{}", true),
        (r#"{"status":"success"}"#, true),
        (r#"{"status":"success","data":null}"#, true),
        (r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#, true),
        (
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,2]]}]}}"#,
            true,
        ),
        (
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":1},"values":[]}]}}"#,
            true,
        ),
        (r#"{"status":"success","data":{"resultType":"matrix","result":[{"values":[]}]}}"#, true),
        (r#"{"status":"success","data":{"resultType":"matrix","result":["#, true),
        (r#"{"status":"success","data":{"resultType":"matrix","result":[]}} x"#, true),
        (r#"{"status":"error","errorType":"bad_data","error":"no"}"#, false),
    ];
    for (text, malformed) in table {
        let failure = read_text(text, &mut |_| {}).unwrap_err();
        assert_eq!(matches!(failure, EngineFailure::Malformed { .. }), malformed, "{text}: {failure}");
    }
}
