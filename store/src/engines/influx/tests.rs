//! Tests of what comes back from InfluxDB, without one.

use std::io::Cursor;

use super::answer;
use crate::engines::failure::EngineFailure;
use crate::engines::http::BoundedBody;
use crate::engines::row::{EngineRow, Faults, RowKind};
use crate::engines::rows;
use crate::history::exchange::Batch;

fn read(text: &str) -> Result<(Vec<EngineRow>, Faults), EngineFailure> {
    let answer = BoundedBody::over(Cursor::new(text.as_bytes().to_vec()), 1 << 16);
    answer::rows(answer, RowKind::CpuHour, 3_600_000, 7_200_000)
}

fn hour(values: &str, partial: &str) -> String {
    format!(
        r#"{{"results":[{{"statement_id":0,"series":[{{"name":"evenkeel_cpu_hour",
           "tags":{{"cluster":"","container":"main","host":"x"}},
           "columns":["time","all","max_microcores","starved_milliseconds","worst"],
           "values":[{values}]}}]{partial}}}]}}"#
    )
}

#[test]
fn chunks_make_one_answer() {
    let good = r#"[3600005,"1;3:4",7,0,null]"#;
    let both = hour(good, r#","partial":true"#) + "\n" + &hour(good, "");
    let (rows, faults) = read(&both).unwrap();
    assert_eq!((rows.len(), faults), (1, Faults::default()), "the same twice is once");
    let mut batch = Batch::default();
    assert!(rows::take(&rows[0], &mut batch));
    assert_eq!((batch.hours[0].hour.hour, batch.hours[0].hour.all.buckets()), (1, &[(3, 4)][..]));
    assert_eq!(batch.hours[0].hour.worst, None);
    assert_eq!(read(r#"{"results":[{"statement_id":0}]}"#).unwrap().0, []);
}

#[test]
fn lies_are_counted_by_kind_and_never_become_values() {
    let none = Faults::default();
    let table = [
        (r#"["x","1;3:4",7,0,null]"#, Faults { numbers: 1, ..none }),
        (r#"[3600005,"1;3:4",7.5,0,null]"#, Faults { numbers: 1, ..none }),
        (r#"[3600005,"1;3:4",-7,0,null]"#, Faults { numbers: 1, ..none }),
        (r#"[3600005,"1;3:4","7",0,null]"#, Faults { numbers: 1, ..none }),
        (r#"[3600005,"1;9:4,3:4",7,0,null]"#, Faults { numbers: 1, ..none }),
        (r#"[3600005,17,7,0,null]"#, Faults { numbers: 1, ..none }),
        (r#"[9600005,"1;3:4",7,0,null]"#, Faults { times: 1, ..none }),
        (r#"[3700005,"1;3:4",7,0,null]"#, Faults { times: 1, ..none }),
        (r#"[3600005,"1;3:4",7,0,null],[3600005,"1;3:4",8,0,null]"#, Faults { contradictions: 1, ..none }),
    ];
    for (values, want) in table {
        let (rows, faults) = read(&hour(values, "")).unwrap();
        assert_eq!((rows, faults), (Vec::new(), want), "{values}");
    }
    for short in [r#"[3600005]"#, r#"[3600005,null,7,0,null]"#] {
        let (rows, _) = read(&hour(short, "")).unwrap();
        assert!(!rows.iter().any(|row| rows::take(row, &mut Batch::default())), "{short}");
    }
    let other = hour("", "").replace("cpu_hour", "cpu_day");
    assert_eq!(read(&other).unwrap().1, Faults { labels: 1, ..none });
}

#[test]
fn what_is_no_answer_is_an_error_and_not_an_empty_one() {
    let broken = hour("", r#","partial":true"#);
    for text in ["", &broken] {
        assert!(matches!(read(text), Err(EngineFailure::Down { .. })), "{text}");
    }
    for text in ["[]", "<html>", r#"{"results":[{"series":[{}]}]}"#, r#"{"results":["#] {
        assert!(matches!(read(text), Err(EngineFailure::Malformed { .. })), "{text}");
    }
    for text in [r#"{"error":"no"}"#, r#"{"results":[{"error":"no"}]}"#] {
        assert_eq!(read(text), Err(EngineFailure::Refused { what: "no".into() }), "{text}");
    }
    let endless = hour(&r#"[3600005,"1;3:4",7,0,null],"#.repeat(4000), "");
    assert_eq!(read(&endless), Err(EngineFailure::TooLong));
}
