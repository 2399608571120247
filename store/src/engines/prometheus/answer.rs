//! Owns the reading of answers of a Prometheus-compatible engine's query API (prometheus.io, "HTTP API"), series by
//! series, so that only one is in memory as text.

use std::fmt;
use std::io::BufReader;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::engines::failure::EngineFailure;
use crate::engines::http::BoundedBody;
use crate::engines::row::Labels;

/// Longest text of the engine's own error that is told.
const TOLD: usize = 512;

/// One series of an answer: its labels, and times in milliseconds with values. A value that is no number is NaN.
pub(crate) type Series = (Labels, Vec<(f64, f64)>);

/// Reads an answer and hands every series to `sink`.
///
/// # Errors
/// [`EngineFailure`]; series that were handed out before are whole.
pub(crate) fn read(mut answer: BoundedBody, sink: &mut dyn FnMut(Series)) -> Result<(), EngineFailure> {
    let mut reader = BufReader::new(&mut answer);
    let mut deserializer = serde_json::Deserializer::from_reader(&mut reader);
    let read = Top { sink }.deserialize(&mut deserializer).and_then(|status| {
        deserializer.end()?;
        Ok(status)
    });
    match (answer.take_failure(), read) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => {
            Err(EngineFailure::Malformed { what: format!("not an answer of the query API: {error}") })
        }
        (None, Ok(AnswerStatus { success: true, .. })) => Ok(()),
        (None, Ok(AnswerStatus { said, .. })) => {
            Err(EngineFailure::Refused { what: said.chars().take(TOLD).collect::<String>() })
        }
    }
}

/// What stands around the series.
#[derive(Default)]
struct AnswerStatus {
    success: bool,
    said: String,
}

struct Top<'a> {
    sink: &'a mut dyn FnMut(Series),
}

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = AnswerStatus;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<AnswerStatus, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = AnswerStatus;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with status and data")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnswerStatus, A::Error> {
        let mut status = AnswerStatus::default();
        let (mut told, mut data) = (false, false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" => {
                    status.success = map.next_value::<String>()? == "success";
                    told = true;
                }
                "error" => status.said = map.next_value()?,
                // Engines send it as null beside an error.
                "data" => data = map.next_value_seed(Data { sink: &mut *self.sink })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !told || (status.success && !data) {
            return Err(A::Error::custom("status or data is missing"));
        }
        Ok(status)
    }
}

struct Data<'a> {
    sink: &'a mut dyn FnMut(Series),
}

impl<'de> DeserializeSeed<'de> for Data<'_> {
    /// Whether there was a result.
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Data<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with resultType and result")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "resultType" => {
                    let kind: String = map.next_value()?;
                    if kind != "matrix" {
                        return Err(A::Error::custom(format_args!("a {kind} where a matrix was asked for")));
                    }
                }
                "result" => {
                    map.next_value_seed(SeriesList { sink: &mut *self.sink })?;
                    found = true;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

struct SeriesList<'a> {
    sink: &'a mut dyn FnMut(Series),
}

impl<'de> DeserializeSeed<'de> for SeriesList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SeriesList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(one) = list.next_element::<MatrixSeries>()? {
            let values =
                one.values.into_iter().map(|Point(seconds, value)| ((seconds * 1000.0).round(), value.0));
            (self.sink)((one.metric, values.collect()));
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct MatrixSeries {
    metric: Labels,
    values: Vec<Point>,
}

/// Seconds and value.
#[derive(Deserialize)]
struct Point(f64, SampleValue);

/// A value: a number as text, as `NaN` and `+Inf` have no other form in JSON.
struct SampleValue(f64);

impl<'de> Deserialize<'de> for SampleValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberText;
        impl Visitor<'_> for NumberText {
            type Value = SampleValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number as text")
            }

            fn visit_str<E>(self, text: &str) -> Result<SampleValue, E> {
                // What is no number is counted where the point is looked at.
                Ok(SampleValue(text.parse().unwrap_or(f64::NAN)))
            }
        }
        deserializer.deserialize_str(NumberText)
    }
}

/// So that tests need no connection.
#[cfg(test)]
pub(crate) fn read_text(text: &str, sink: &mut dyn FnMut(Series)) -> Result<(), EngineFailure> {
    read(BoundedBody::over(std::io::Cursor::new(text.as_bytes().to_vec()), 1 << 20), sink)
}
