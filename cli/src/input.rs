//! Reading what the command line names: a file, or standard input for `-`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use evenkeel_model::pod::{MAX_TEXT_BYTES, Pod, ReadError, read_pods};
use evenkeel_model::resource_type::{Definition, ResourceTypes};
use evenkeel_model::yaml::{self, YamlBounds};
use serde::Deserialize;

use crate::failure::Failure;

/// Text of a file; `-` is standard input. At most as much as is read of pods.
///
/// # Errors
/// When it cannot be opened or read, is no text, or is too large.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let name = name(path);
    let failed = |why: String, remedy: &str| Failure::new("cannot read the file", &name, why, remedy);
    let read = |from: &mut dyn Read| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        from.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = if is_stdin(path) {
        read(&mut io::stdin().lock())
    } else {
        File::open(path).and_then(|mut file| read(&mut file))
    };
    let bytes = bytes.map_err(|e| failed(e.to_string(), remedy(&e)))?;
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(failed(
            format!("it is larger than the {MAX_TEXT_BYTES} bytes that are read"),
            "split it",
        ));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        failed(format!("byte {at} is not UTF-8"), "give a text file in YAML or JSON")
    })
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the name, or use - for standard input",
        io::ErrorKind::PermissionDenied => "run as a user who may read it",
        _ => "give a readable text file",
    }
}

/// Pods of several files.
///
/// # Errors
/// As [`text`], or when a file holds no pods that can be read.
pub(crate) fn pods(paths: &[PathBuf]) -> Result<Vec<Pod>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        let text = text(path)?;
        all.extend(read_pods(&text, &name(path)).map_err(|e| unreadable(&e))?);
    }
    Ok(all)
}

/// What a file of resource types holds: the form of the resource model, or that of a daemon's configuration in YAML.
#[derive(Deserialize)]
struct Types {
    #[serde(alias = "resourceTypes")]
    resources: BTreeMap<String, Definition>,
}

/// Resource types that a file defines.
///
/// # Errors
/// As [`text`], and everything that is wrong with the definitions.
pub(crate) fn types(path: &Path) -> Result<ResourceTypes, Failure> {
    const BOUNDS: YamlBounds = YamlBounds { documents: 1, nodes: 100_000 };
    let name = name(path);
    let failed = |why: String| {
        let remedy = "give resourceTypes: {example.com/seat: {units: \"\", defaultRequest: 1}}";
        Failure::new("cannot use the resource types", &name, why, remedy)
    };
    let text = text(path)?;
    let read: Vec<Types> = yaml::documents(&text, BOUNDS).map_err(|error| failed(error.to_string()))?;
    let [types] = &read[..] else { return Err(failed("it holds no resource types".to_owned())) };
    ResourceTypes::with(&types.resources)
        .map_err(|errors| failed(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

/// A source of pods that cannot be understood, in parts.
pub(crate) struct InputProblem {
    /// File, document, line and field, as far as known.
    pub(crate) place: String,
    /// What is wrong.
    pub(crate) why: String,
    /// What to do.
    pub(crate) remedy: String,
}

/// Takes a reading error apart; its reason ends with what to do.
pub(crate) fn problem(error: &ReadError) -> InputProblem {
    let mut place = vec![error.source_name.clone()];
    place.extend(error.document.map(|d| format!("document {d}")));
    place.extend(error.line.map(|l| format!("line {l}")));
    place.extend(error.path.clone().filter(|p| !p.is_empty()));
    let reason = error.reason.to_string();
    let (why, remedy) = reason.rsplit_once("; ").unwrap_or((&reason, "write it as Kubernetes reads it"));
    InputProblem { place: place.join(", "), why: why.to_owned(), remedy: remedy.to_owned() }
}

fn unreadable(error: &ReadError) -> Failure {
    let InputProblem { place, why, remedy } = problem(error);
    Failure::new("cannot read the pod", place, why, remedy)
}

/// Name of a file in messages.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}
