//! What is believed of the units that the reader lists.
//!
//! It reads the bus and unit files, and may have been taken over by either. A unit is taken in as what its cgroup shows it to be, and what
//! it is said to request counts only where one of its files has the section, which is looked for here, by its name and without reading what
//! the section says: nothing else of the machine is passed off as somebody who asked for it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_enforce::systemd::names::{UnitMembership, standing};
use evenkeel_model::workload::{CgroupBinding, Requested, SourceKind, Workload};

use crate::sources::open;
use crate::sources::systemd::{NAMESPACE, SECTION};

/// Where systemd's own and the machine's unit files are (systemd.unit(5), "Unit File Load Path").
const PATHS: [&str; 11] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
];
/// Unit files larger than this are refused, as where they are read.
const MOST_BYTES: u64 = 1 << 20;
/// Drop-ins of one directory that are looked into.
const MOST_FILES: usize = 256;

/// Those of the units that are believed, and what is told of the others.
pub(super) fn judged(units: Vec<Workload>, root: &Path) -> (Vec<Workload>, Vec<SourceProblem>) {
    let (mut good, mut told) = (Vec::new(), Vec::new());
    for unit in units {
        match may_be(&unit, root) {
            Ok(()) => good.push(unit),
            Err(why) => told.push(SourceProblem {
                what: "take in a unit".to_owned(),
                where_: unit.pod.name.chars().take(255).collect(),
                why: why.to_owned(),
                remedy: "it is left alone; put the section into the unit's file or a drop-in where systemctl edit puts them".to_owned(),
            }),
        }
    }
    (good, told)
}

fn may_be(workload: &Workload, root: &Path) -> Result<(), &'static str> {
    let Workload { id, source, pod, container, workload: template, image, pid, cgroup, requested, .. } =
        workload;
    if *source != SourceKind::Systemd || pid.is_some() || image.is_some() || pod.namespace != NAMESPACE {
        return Err("it is said to be another source's");
    }
    let Some((stem, kind)) =
        pod.name.rsplit_once('.').filter(|(_, kind)| ["service", "slice"].contains(kind))
    else {
        return Err("it is no service or slice");
    };
    if container != stem || *id != format!("{NAMESPACE}/{}/{stem}", pod.name) || template.len() > 255 {
        return Err("it is not called as its unit is");
    }
    let CgroupBinding::Path(path) = cgroup else { return Err("its cgroup is not told by its path") };
    let climbs = path.split('/').any(|part| part == "..");
    if climbs || standing(path) != UnitMembership::Unit(pod.name.clone()) {
        return Err("its cgroup is not the unit's");
    }
    match requested {
        Requested::Unknown => Ok(()),
        Requested::Estimated(_) => Err("it is said to request what nobody stated"),
        Requested::Stated(_) if files(&pod.name, stem, kind, root).iter().any(|file| has_section(file)) => {
            Ok(())
        }
        Requested::Stated(_) => Err("no file of it has the section [X-Evenkeel]"),
    }
}

/// Files that a unit is read from, should they be there: its own, its template's, and drop-ins of both, of its prefixes and of its type.
fn files(unit: &str, stem: &str, kind: &str, root: &Path) -> Vec<PathBuf> {
    let mut names = vec![unit.to_owned()];
    names.extend(stem.split_once('@').map(|(name, _)| format!("{name}@.{kind}")));
    let prefixes = stem.match_indices('-').filter_map(|(at, _)| stem.get(..=at));
    let mut drop_ins: Vec<String> = names.iter().map(|name| format!("{name}.d")).collect();
    drop_ins.extend(prefixes.map(|prefix| format!("{prefix}.{kind}.d")));
    drop_ins.push(format!("{kind}.d"));
    let mut files = Vec::new();
    for path in PATHS {
        let path = root.join(path.trim_start_matches('/'));
        files.extend(names.iter().map(|name| path.join(name)));
        for entries in drop_ins.iter().filter_map(|name| fs::read_dir(path.join(name)).ok()) {
            let of = entries.flatten().map(|entry| entry.path()).take(MOST_FILES);
            files.extend(of.filter(|file| file.extension().is_some_and(|end| end == "conf")));
        }
    }
    files
}

fn has_section(file: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = open(file).and_then(|open| open.take(MOST_BYTES).read_to_end(&mut bytes));
    let wanted = format!("[{SECTION}]");
    read.is_ok() && bytes.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use evenkeel_model::workload::ContainerResources;

    use super::*;

    fn unit(name: &str, cgroup: &str) -> Workload {
        let stem = name.rsplit_once('.').unwrap().0;
        let mut unit = (*crate::report::test_support::tracked(1, "web").workload).clone();
        unit.id = format!("systemd/{name}/{stem}");
        (unit.pod.namespace, unit.pod.name, unit.container) = ("systemd".into(), name.into(), stem.into());
        (unit.source, unit.image, unit.pid) = (SourceKind::Systemd, None, None);
        unit.cgroup = CgroupBinding::Path(cgroup.to_owned());
        unit.requested = Requested::Stated(ContainerResources::default());
        unit
    }

    #[test]
    fn only_a_unit_whose_files_have_the_section_is_given_anything() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "etc/systemd/system/db.service",
            "[Service]\nExecStart=/bin/x\n[X-Evenkeel]\nMemoryRequest=1Gi\n",
        );
        write(
            "usr/lib/systemd/system/ssh.service",
            "[Service]\n# [X-Evenkeel]\nExecStart=/bin/x [X-Evenkeel]\n",
        );
        write("lib/systemd/system/web@.service", " [X-Evenkeel] \n");
        write("run/systemd/system/app-.slice.d/10.conf", "[X-Evenkeel]\r\n");
        write("etc/systemd/system/cron.service.d/10.conf.bak", "[X-Evenkeel]\n");
        let table: [(&str, &str, bool); 9] = [
            ("db.service", "/system.slice/db.service", true),
            ("web@1.service", "/system.slice/system-web.slice/web@1.service", true),
            ("app-a.slice", "/app.slice/app-a.slice", true),
            ("ssh.service", "/system.slice/ssh.service", false),
            ("cron.service", "/system.slice/cron.service", false),
            ("db.service", "/system.slice/ssh.service", false),
            ("db.service", "/system.slice", false),
            ("db.service", "/x/../system.slice/db.service", false),
            ("db.service", "/", false),
        ];
        for (name, cgroup, is_good) in table {
            let (good, told) = judged(vec![unit(name, cgroup)], root.path());
            assert_eq!((good.len(), told.len()), if is_good { (1, 0) } else { (0, 1) }, "{name} {cgroup}");
        }
        let changes: [&dyn Fn(&mut Workload); 6] = [
            &|unit| unit.source = SourceKind::Cri,
            &|unit| unit.pod.namespace = "kube-system".into(),
            &|unit| unit.id = "systemd/ssh.service/ssh".into(),
            &|unit| unit.container = "ssh".into(),
            &|unit| unit.pid = Some(1),
            &|unit| unit.cgroup = CgroupBinding::Unit("db.service".into()),
        ];
        for (at, change) in changes.iter().enumerate() {
            let mut unit = unit("db.service", "/system.slice/db.service");
            change(&mut unit);
            assert_eq!(judged(vec![unit], root.path()).0.len(), 0, "{at}");
        }
        // What says nothing is sampled and never written.
        let silent =
            Workload { requested: Requested::Unknown, ..unit("ssh.service", "/system.slice/ssh.service") };
        assert_eq!(judged(vec![silent], root.path()).0.len(), 1);
    }
}
