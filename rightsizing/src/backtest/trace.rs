//! Reads traces: CSV with the header `series,t,value`, pushed in as bytes as they come.
//!
//! `t` is in seconds since 1970 and must grow within a series, whose rows need not be adjacent; `value` is in cores or
//! bytes. Times are kept to the millisecond, values to the millionth of a core or the byte. What cannot be a
//! measurement (negative, NaN, infinite, out of order, twice at one time, after the year 9999) is an error with its line,
//! never skipped: a backtest of half a trace would look like one of the whole.

use std::collections::HashMap;
use std::fmt;

use super::number;
use crate::Resource;

/// Longest line that is read, bytes.
const MAX_LINE: usize = 64 << 10;

/// The last millisecond of the year 9999, behind which RFC 3339 cannot write a time. Milliseconds given as seconds lie
/// there, and a single such row would be a gap of thousands of years to walk through.
const LAST_MS: u64 = 253_402_300_799_999;

/// A value measured at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSample {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Millionths of a core, or bytes.
    pub value: u64,
}

/// One series in the order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceSeries {
    /// Its name in the trace.
    pub name: String,
    /// What was measured.
    pub samples: Vec<TraceSample>,
}

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadTrace {
    /// Line, from 1.
    pub line: u64,
    /// What is wrong there.
    pub why: String,
    /// What to do.
    pub remedy: &'static str,
}

impl fmt::Display for BadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.why, self.remedy)
    }
}

impl std::error::Error for BadTrace {}

/// A trace being read.
#[derive(Debug)]
pub struct TraceReader {
    resource: Resource,
    /// Lines that ended.
    lines: u64,
    has_header: bool,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
    series: Vec<TraceSeries>,
    by_name: HashMap<String, usize>,
    /// Series of the row before.
    last: usize,
}

impl TraceReader {
    /// Nothing was read yet.
    pub fn new(resource: Resource) -> Self {
        Self {
            resource,
            lines: 0,
            has_header: false,
            rest: Vec::new(),
            series: Vec::new(),
            by_name: HashMap::new(),
            last: 0,
        }
    }

    /// Reads the next bytes, cut anywhere.
    ///
    /// # Errors
    /// [`BadTrace`] with the line; nothing further should be read then.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), BadTrace> {
        if !self.rest.is_empty() {
            let Some(end) = bytes.iter().position(|b| *b == b'\n') else {
                self.rest.extend_from_slice(bytes);
                return Self::check(self.lines, &self.rest);
            };
            let mut line = std::mem::take(&mut self.rest);
            line.extend_from_slice(&bytes[..end]);
            self.line(&line)?;
            bytes = &bytes[end + 1..];
        }
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.line(&bytes[..end])?;
            bytes = &bytes[end + 1..];
        }
        self.rest.extend_from_slice(bytes);
        Self::check(self.lines, &self.rest)
    }

    /// Refuses a line, or the beginning of one, that is too long; `before` lines ended.
    fn check(before: u64, line: &[u8]) -> Result<(), BadTrace> {
        if line.len() > MAX_LINE {
            let why = format!("longer than {MAX_LINE} bytes");
            return Err(BadTrace { line: before + 1, why, remedy: "give one sample a line" });
        }
        Ok(())
    }

    /// Ends the trace and gives its series in the order of their first rows.
    ///
    /// # Errors
    /// [`BadTrace`] of a last line without an end, or when there is no sample.
    pub fn finish(mut self) -> Result<Vec<TraceSeries>, BadTrace> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.line(&rest)?;
        }
        if self.series.is_empty() {
            let remedy = "give a CSV with the header series,t,value and a sample a line";
            return Err(BadTrace { line: self.lines.max(1), why: "no sample".into(), remedy });
        }
        Ok(self.series)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), BadTrace> {
        Self::check(self.lines, line)?;
        self.lines += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let read = if !self.has_header {
            self.header(line)
        } else if line.is_empty() {
            Ok(())
        } else {
            self.row(line)
        };
        read.map_err(|(why, remedy)| BadTrace { line: self.lines, why, remedy })
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Wrong> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let names: Vec<&[u8]> = line.split(|b| *b == b',').map(<[u8]>::trim_ascii).collect();
        if names != [b"series".as_slice(), b"t", b"value"] {
            let shown: String = String::from_utf8_lossy(line).chars().take(60).collect();
            return Err((format!("the header is {shown:?}"), "begin with the line series,t,value"));
        }
        self.has_header = true;
        Ok(())
    }

    fn row(&mut self, line: &[u8]) -> Result<(), Wrong> {
        let (name, rest) = name_of(line)?;
        // One look at each byte: a field too many is no number either, and counted once something is wrong.
        let Some(comma) = rest.iter().position(|byte| *byte == b',') else { return Err(of_fields(rest)) };
        let (time, value) = (&rest[..comma], &rest[comma + 1..]);
        let wrong = |field, text, why| {
            if value.contains(&b',') { of_fields(rest) } else { of_field(field, text, why) }
        };
        let time_ms = number::fixed(time.trim_ascii(), 3).map_err(|why| wrong("t", time, why))?;
        if time_ms > LAST_MS {
            return Err(wrong("t", time, number::Why::TooLarge));
        }
        let decimals = match self.resource {
            Resource::Cpu => 6,
            Resource::Memory => 0,
        };
        let value = number::fixed(value.trim_ascii(), decimals).map_err(|why| wrong("value", value, why))?;
        let at = self.find(&name)?;
        let samples = &mut self.series[at].samples;
        if let Some(before) = samples.last().filter(|before| before.time_ms >= time_ms) {
            let why = format!("t {} does not come after {}", Seconds(time_ms), Seconds(before.time_ms));
            return Err((why, "sort the rows of a series by time and give each time once"));
        }
        samples.push(TraceSample { time_ms, value });
        Ok(())
    }

    /// Place of a series, a new one for a name not seen before.
    fn find(&mut self, name: &[u8]) -> Result<usize, Wrong> {
        if self.series.get(self.last).is_some_and(|series| series.name.as_bytes() == name) {
            return Ok(self.last);
        }
        let name = std::str::from_utf8(name)
            .map_err(|_| ("the name of the series is not UTF-8".to_owned(), "write it as UTF-8"))?;
        self.last = match self.by_name.get(name) {
            Some(at) => *at,
            None => {
                let at = self.series.len();
                self.series.push(TraceSeries { name: name.to_owned(), samples: Vec::new() });
                self.by_name.insert(name.to_owned(), at);
                at
            }
        };
        Ok(self.last)
    }
}

/// Why, and what to do.
type Wrong = (String, &'static str);

/// A row that has not a name, a time and a value; `rest` is what follows the name.
fn of_fields(rest: &[u8]) -> Wrong {
    let count = rest.split(|byte| *byte == b',').count() + 1;
    (format!("{count} fields instead of 3"), "write series,t,value")
}

fn of_field(field: &str, text: &[u8], why: number::Why) -> Wrong {
    let text: String = String::from_utf8_lossy(text).chars().take(40).collect();
    (format!("{field} {text:?} {}", why.text()), why.remedy())
}

/// The series' name and what follows its comma. A name with commas stands in quotes, where a quote is written twice.
fn name_of(line: &[u8]) -> Result<(std::borrow::Cow<'_, [u8]>, &[u8]), Wrong> {
    let (name, rest): (std::borrow::Cow<'_, [u8]>, &[u8]) = if let Some(quoted) = line.strip_prefix(b"\"") {
        let unclosed = || ("a quote is not closed".to_owned(), "close it, and write a quote in a name twice");
        let mut name = Vec::new();
        let mut at = 0;
        loop {
            match (quoted.get(at), quoted.get(at + 1)) {
                (Some(b'"'), Some(b'"')) => at += 1,
                (Some(b'"'), Some(b',')) => break,
                (Some(b'"'), _) | (None, _) => return Err(unclosed()),
                _ => {}
            }
            name.push(quoted[at]);
            at += 1;
        }
        (name.into(), &quoted[at + 2..])
    } else {
        let Some(comma) = line.iter().position(|b| *b == b',') else {
            return Err(("1 field instead of 3".to_owned(), "write series,t,value"));
        };
        (line[..comma].trim_ascii().into(), &line[comma + 1..])
    };
    if name.is_empty() {
        return Err(("the name of the series is empty".to_owned(), "name every series"));
    }
    Ok((name, rest))
}

/// Milliseconds shown as seconds, with decimals where there are any.
#[derive(Debug, Clone, Copy)]
pub struct Seconds(pub u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:03}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}
