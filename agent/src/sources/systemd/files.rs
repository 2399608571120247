//! Files of units, read.

use std::io::Read;
use std::path::Path;

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_enforce::systemd::names::{UnitMembership, standing};
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::hierarchy::{Controller, Hierarchy};

use super::{MAX_FILE, UnitStatement, section};
use crate::sources::open;

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
        let mut problems = Vec::new();
        let texts: Vec<(String, String)> =
            files.into_iter().filter_map(|file| read_bounded(file, &mut problems)).collect();
        let texts = texts.iter().map(|(file, text)| (file.as_str(), text.as_str()));
        let statement = section::read(texts, &mut problems);
        UnitStatement { statement, problems }
    });
    reading.await
}

/// A file that is gone was removed since the manager read it, and says nothing.
pub(super) fn read_bounded(file: String, problems: &mut Vec<SourceProblem>) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let read = open(Path::new(&file)).and_then(|open| open.take(MAX_FILE + 1).read_to_end(&mut bytes));
    let why = match read {
        Ok(read) if read as u64 <= MAX_FILE => {
            return Some((file, String::from_utf8_lossy(&bytes).into_owned()));
        }
        Ok(_) => "larger than 1 MiB".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    problems.push(SourceProblem {
        what: "read a unit file".into(),
        where_: file,
        why,
        remedy: "make it a readable text file of at most 1 MiB".into(),
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
        assert_eq!(told.problems, []);
        assert_eq!(read(vec![dir.path().display().to_string()]).await.problems.len(), 1);
        nix::unistd::mkfifo(path("pipe").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(
            read(vec![path("pipe"), "/dev/null".into()]).await.statement.is_none(),
            "nobody waits for it"
        );
    }
}
