//! Who reads a manifest: this process, or the reader where there is one.
//!
//! Owned here: reading a file's bytes, handing them over, and what becomes of a file over which the reader ends. Not owned: what is read
//! ([`super::read`]), what is believed of it ([`super::judged`]).

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_border::coded::{Bytes, Coded as _};
use evenkeel_border::found::Read;
use evenkeel_border::order::{Manifest, Order};
use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::workload::Workload;

use super::judged::judged;
use super::read::parse;
use crate::outward::Gate;
use crate::sources::{descriptors, open, shared};

/// A manifest larger than this is refused; the API server's own limit for an object is 1.5 MiB.
const MAX_BYTES: u64 = 8 << 20;
/// Between two looks at whether there is a reader.
const AGAIN: Duration = Duration::from_millis(50);
/// A reader that ended so often over one file is not given it again before the next listing.
const MOST_ENDS: u32 = 2;

/// What was to be done.
const READ: &str = "read the manifest";

/// Who reads manifests.
#[derive(Clone)]
pub(crate) enum Parser {
    /// This process, by these resource types.
    Here(Arc<ResourceTypes>),
    /// The reader, by their definitions: JSON.
    There(Gate, Arc<str>),
}

/// What one manifest says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Parsed {
    /// Containers, bound as they are written.
    pub(super) workloads: Vec<Arc<Workload>>,
    /// What could not be used.
    pub(super) problems: Vec<SourceProblem>,
    /// It is to be read again with the next listing, also if it has not changed.
    pub(super) is_open: bool,
}

impl Parsed {
    fn of(workloads: Vec<Workload>, problems: Vec<SourceProblem>) -> Self {
        Self { workloads: shared(None, workloads), problems, is_open: false }
    }

    fn unused(place: &str, why: String, remedy: &str) -> Self {
        let what = READ.to_owned();
        let problem = SourceProblem { what, where_: place.to_owned(), why, remedy: remedy.to_owned() };
        Self { problems: vec![problem], ..Self::default() }
    }
}

impl Parser {
    /// What a file says; with a reader it waits until there is one.
    ///
    /// # Errors
    /// Where the system does not give the file, which says nothing of what is in it.
    pub(super) async fn read(&self, path: &Path) -> Result<Parsed, SourceProblem> {
        const REMEDY: &str = "make it a readable text file of at most 8 MiB";
        let (place, file) = (path.display().to_string(), path.to_owned());
        let bytes = match super::super::blocking(move || read_bounded(&file)).await {
            Ok(bytes) => bytes,
            Err(error) if error.raw_os_error().is_some() => {
                let remedy = descriptors(&error).unwrap_or(REMEDY).to_owned();
                return Err(SourceProblem {
                    what: READ.to_owned(),
                    where_: place,
                    why: error.to_string(),
                    remedy,
                });
            }
            Err(error) => return Ok(Parsed::unused(&place, error.to_string(), REMEDY)),
        };
        match self {
            Self::Here(types) => {
                let types = Arc::clone(types);
                let parsed = move || {
                    let (workloads, problems) = parse(&bytes, &place, &types);
                    Parsed::of(workloads, problems)
                };
                Ok(super::super::blocking(parsed).await)
            }
            Self::There(gate, types) => Ok(there(gate, types, &place, bytes).await),
        }
    }
}

/// Has the reader read it.
async fn there(gate: &Gate, types: &str, place: &str, bytes: Vec<u8>) -> Parsed {
    let mut ends = 0;
    loop {
        while !gate.is_open() {
            tokio::time::sleep(AGAIN).await;
        }
        let text = Bytes(bytes.clone());
        let order = Order::Manifest(Manifest { place: place.to_owned(), types: types.to_owned(), text });
        let answer = gate.answer(&order, None).await;
        match answer.and_then(|message| Ok(Read::of(&message)?)) {
            Ok(read) => {
                let (workloads, problems) = judged(read, place, &bytes);
                return Parsed::of(workloads, problems);
            }
            Err(error) => {
                ends += 1;
                if ends == MOST_ENDS {
                    let remedy = "find out what is odd about it, and report it: the process that reads manifests ends over it";
                    let parsed = Parsed::unused(place, format!("{error:#}"), remedy);
                    return Parsed { is_open: true, ..parsed };
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if read as u64 > MAX_BYTES {
        return Err(io::Error::other("larger than 8 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_file_is_a_problem_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe.yaml");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let endless = Path::new("/dev/zero");
        for path in [&pipe, endless, dir.path()] {
            let parsed = Parser::Here(Arc::default()).read(path).await.unwrap();
            assert_eq!(parsed.problems[0].why, "not a regular file", "{}", path.display());
        }
    }

    #[tokio::test]
    async fn a_manifest_that_is_kept_takes_no_more_room_than_it_has_containers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.yaml");
        let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations: {evenkeel.dev/cgroup.app: /web}\n\
                   spec:\n  containers: [{name: app}]\n";
        std::fs::write(&path, pod).unwrap();
        let parsed = Parser::Here(Arc::default()).read(&path).await.unwrap();
        assert_eq!((parsed.workloads.len(), parsed.problems.len()), (1, 0), "{:?}", parsed.problems);
        assert_eq!(parsed.workloads.capacity(), 1);
    }
}
