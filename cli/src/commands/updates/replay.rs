//! Choices of the updater made again from all that they rest on, by the same code that makes them (`evenkeel-updater`).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use evenkeel_proto::v1::ListUpdatesRequest;
use evenkeel_updater::ReplayCase;
use serde::Serialize;
use serde_json::Value;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::input;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, Tone, clean};
use crate::wire::time;

/// Largest text that is read, bytes: many times what a recommender keeps.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// What could not be read is told in words up to this many times.
const MAX_UNREAD: usize = 20;

/// The answer.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayReport {
    /// Choices read.
    choices: u64,
    /// Those that come out as they did.
    same: u64,
    /// What could not be read, in words.
    unread: Vec<String>,
    /// Those that come out differently.
    differences: Vec<Difference>,
}

#[derive(Debug, Serialize)]
struct Difference {
    time: Option<String>,
    namespace: String,
    workload: String,
    then: String,
    now: String,
}

/// The choices that a recommender keeps, as texts.
///
/// # Errors
/// When it cannot be asked.
pub(super) async fn asked(namespace: &str, address: &Address) -> Result<Vec<String>, Failure> {
    let request = ListUpdatesRequest { namespace: namespace.to_owned(), pod: String::new(), cases: true };
    let mut recommender = client::recommender(address).await?;
    let told = recommender.list_updates(request).await.map_err(|e| address.failed(&e))?.into_inner();
    Ok(told.cases.into_iter().map(|case| case.text).collect())
}

/// Those of a file: what `--cases` prints, or what `GET /api/v1/updates?cases=true` answers.
fn of_file(path: &Path) -> Result<Vec<String>, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        let remedy = "give what evenkeel updates --cases prints";
        Failure::new("cannot read the choices", input::name(path), why.to_string(), remedy)
    };
    let from: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).map_err(|error| failed(&error))?),
    };
    let mut texts = Vec::new();
    let text = BufReader::new(from.take(MAX_TEXT_BYTES));
    for value in serde_json::Deserializer::from_reader(text).into_iter::<Value>() {
        match value.map_err(|error| failed(&error))? {
            Value::Array(all) => texts.extend(all.iter().map(Value::to_string)),
            Value::Object(mut answer) => match answer.remove("cases") {
                Some(Value::Array(all)) => texts.extend(all.iter().map(Value::to_string)),
                _ => texts.push(Value::Object(answer).to_string()),
            },
            other => return Err(failed(&format!("{other} is no choice"))),
        }
    }
    Ok(texts)
}

/// Prints the choices that a recommender keeps, one a line.
pub(super) async fn list(namespace: &str, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    for text in asked(namespace, address).await? {
        output.line(&serde_json::from_str::<Value>(&text).unwrap_or_default())?;
    }
    Ok(YesOrNo::Yes)
}

/// Makes them again.
pub(super) async fn run(
    from: Option<&Path>,
    namespace: &str,
    address: &Address,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    let texts = match from {
        Some(path) => of_file(path)?,
        None => asked(namespace, address).await?,
    };
    let report = report(&texts);
    output.answer_text(&report, || text(&report, output))?;
    Ok(if report.differences.is_empty() { YesOrNo::Yes } else { YesOrNo::No })
}

fn report(texts: &[String]) -> ReplayReport {
    let mut report = ReplayReport::default();
    for text in texts {
        let case = match ReplayCase::read(text) {
            Ok(case) => case,
            Err(why) if report.unread.len() < MAX_UNREAD => {
                report.unread.push(why);
                continue;
            }
            Err(_) => continue,
        };
        report.choices += 1;
        let again = case.again();
        if again == *case.outcome() {
            report.same += 1;
            continue;
        }
        let (namespace, workload) = case.about();
        report.differences.push(Difference {
            time: time(case.seconds().saturating_mul(1_000_000)),
            namespace: namespace.to_owned(),
            workload: workload.to_owned(),
            then: case.outcome().to_string(),
            now: again.to_string(),
        });
    }
    report
}

fn text(report: &ReplayReport, output: &Output) -> String {
    let mut counts = Table::new(&["CHOICES", "SAME", "DIFFERENT"]);
    let tone = if report.differences.is_empty() { Tone::Good } else { Tone::Bad };
    counts.row(vec![
        report.choices.to_string().into(),
        report.same.to_string().into(),
        Cell::toned(report.differences.len().to_string(), tone),
    ]);
    let mut parts = vec![counts.render(output.has_colour())];
    if !report.differences.is_empty() {
        let mut table = Table::new(&["TIME", "WORKLOAD", "THEN", "NOW"]);
        for one in &report.differences {
            table.row(vec![
                one.time.as_deref().unwrap_or("-").into(),
                clean(&format!("{}/{}", one.namespace, one.workload)).into(),
                clean(&one.then).into(),
                Cell::toned(clean(&one.now), Tone::Bad),
            ]);
        }
        parts.push(table.render(output.has_colour()));
    }
    if !report.unread.is_empty() {
        let mut table = Table::new(&["NOT READ"]);
        report.unread.iter().for_each(|why| table.row(vec![clean(why).into()]));
        parts.push(table.render(output.has_colour()));
    }
    parts.join("\n")
}
