//! Files of units, read.

use std::io::Read;
use std::path::Path;

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_enforce::systemd::names::{UnitMembership, standing};
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::hierarchy::{Controller, Hierarchy};

use super::{MAX_FILE, UnitStatement, section};
use crate::sources::{descriptors, open};

/// Controllers of those a container needs that the unit's cgroup does not have. v1 hierarchies have one controller each
/// and a unit without it no cgroup there.
pub(super) fn missing(tree: &CgroupTree, path: &str) -> Vec<Controller> {
    let lacks = |controller: &Controller| match tree.layout().home(*controller) {
        Some(Hierarchy::V2) => {
            tree.dir(Hierarchy::V2, path).and_then(|dir| dir.read("cgroup.controllers")).is_ok_and(|text| {
                !text.split(u8::is_ascii_whitespace).any(|word| word == controller.name().as_bytes())
            })
        }
        Some(home) => tree.dir(home, path).is_err() && matches!(standing(path), UnitMembership::Unit(_)),
        None => false,
    };
    [Controller::Cpu, Controller::Memory].into_iter().filter(lacks).collect()
}

pub(super) async fn read(files: Vec<String>) -> UnitStatement {
    let reading = super::super::blocking(move || {
        let mut told = UnitStatement::default();
        let texts: Vec<(String, String)> =
            files.into_iter().filter_map(|file| read_bounded(file, &mut told)).collect();
        let texts = texts.iter().map(|(file, text)| (file.as_str(), text.as_str()));
        told.statement = section::read(texts, &mut told.problems);
        told
    });
    reading.await
}

/// A file that is gone was removed since the manager read it, and says nothing.
fn read_bounded(file: String, told: &mut UnitStatement) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let read = open(Path::new(&file)).and_then(|open| open.take(MAX_FILE + 1).read_to_end(&mut bytes));
    let (why, remedy) = match read {
        Ok(read) if read as u64 <= MAX_FILE => {
            return Some((file, String::from_utf8_lossy(&bytes).into_owned()));
        }
        Ok(_) => ("larger than 1 MiB".to_owned(), None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            told.is_open = true;
            (error.to_string(), descriptors(&error))
        }
    };
    told.problems.push(SourceProblem {
        what: "read a unit file".into(),
        where_: file,
        why,
        remedy: remedy.unwrap_or("make it a readable text file of at most 1 MiB").into(),
    });
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_read_in_order_and_missing_ones_say_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("a"), "[X-Evenkeel]\nCPURequest=1\n").unwrap();
        std::fs::write(path("b"), "[X-Evenkeel]\nCPURequest=2\n").unwrap();
        let told = read(vec![path("a"), path("gone"), path("b")]).await;
        assert_eq!(told.statement.unwrap().requirements.requests.cpu().unwrap().to_string(), "2");
        assert_eq!((told.problems.len(), told.is_open), (0, false));
        let unread = read(vec![dir.path().display().to_string()]).await;
        assert_eq!((unread.problems.len(), unread.is_open), (1, true), "it is to be read again");
        nix::unistd::mkfifo(path("pipe").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(
            read(vec![path("pipe"), "/dev/null".into()]).await.statement.is_none(),
            "nobody waits for it"
        );
    }
}
