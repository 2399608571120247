//! From a binding to the path of a cgroup: paths are checked, units are looked up in the tree, names of containers among
//! those that their engine named.

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use evenkeel_host::error::Category;
use evenkeel_host::snapshot::HostReader;
use evenkeel_model::workload::{CgroupBinding, SourceKind, Workload};

/// How deep slices are searched: systemd nests a slice for each dash in its name, and nobody uses many.
const MAX_DEPTH: usize = 8;
/// Below it are users' own units, some of whom may name theirs as a unit of the system is named.
const USERS: &str = "/user.slice";
/// Slices looked into at most for one lookup.
const MAX_SLICES: usize = 4096;

/// Where units were found, by their names.
pub(crate) type Units = HashMap<String, String>;

/// Finds bindings; remembers where units were found. Make a new one when the tree may have changed.
#[derive(Default)]
pub(crate) struct Binder {
    units: Option<Units>,
    /// Where they were the last time, for when nobody can look.
    before: Units,
    is_blind: bool,
    /// Cgroups of engines' containers by `docker://NAME`; `None` where two have one name, as for a moment while one takes
    /// the other's place.
    names: HashMap<String, Option<CgroupBinding>>,
}

impl Binder {
    /// Knows the containers of engines among these by their names, and where units were before.
    pub(crate) fn knowing<'a>(workloads: impl Iterator<Item = &'a Arc<Workload>>, before: Units) -> Self {
        let mut names = HashMap::new();
        for workload in workloads.filter(|workload| workload.source == SourceKind::Names) {
            let name = format!("{}://{}", workload.pod.namespace, workload.pod.name);
            let known = names.entry(name).or_insert_with(|| Some(workload.cgroup.clone()));
            known.take_if(|known| *known != workload.cgroup);
        }
        Self { before, names, ..Self::default() }
    }

    /// Units were looked for, and could not be seen.
    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// Where units are, as far as was looked.
    pub(crate) fn into_units(self) -> Units {
        self.units.unwrap_or(self.before)
    }

    /// The path of a binding; `None` when there is no such cgroup or the path is not usable.
    pub(crate) fn resolve(&mut self, reader: &dyn HostReader, binding: &CgroupBinding) -> Option<String> {
        match binding {
            CgroupBinding::Path(name) if name.contains("://") => {
                let named = self.names.get(name)?.clone()?;
                self.resolve(reader, &named)
            }
            CgroupBinding::Path(path) => {
                let path = normal(path)?;
                // Tells "not there yet" from "there"; asked of every container at each merge.
                reader.exists(&path).then_some(path)
            }
            CgroupBinding::Unit(unit) => {
                if self.units.is_none() {
                    let found = units(reader);
                    self.is_blind = found.is_none();
                    self.units = Some(found.unwrap_or_else(|| take(&mut self.before)));
                }
                self.units.as_ref()?.get(unit).cloned()
            }
        }
    }
}

/// The path with one leading slash; `None` for the root and for anything that climbs.
fn normal(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() || parts.contains(&"..") { None } else { Some(format!("/{}", parts.join("/"))) }
}

/// Every unit below the slices, but for users': slices themselves and the services and scopes in them. Nothing where the
/// system cannot say, for want of descriptors.
fn units(reader: &dyn HostReader) -> Option<Units> {
    let mut found = HashMap::new();
    let mut open = vec![(String::from("/"), 0)];
    let mut looked = 0;
    while let Some((path, depth)) = open.pop() {
        looked += 1;
        if looked > MAX_SLICES {
            tracing::warn!(
                MAX_SLICES,
                "more slices than are searched for units; some units may not be found"
            );
            break;
        }
        let children = match reader.children(&path) {
            Ok(children) => children,
            Err(error) if error.category() == Category::Io => return None,
            Err(_) => continue,
        };
        for name in children {
            let is_slice = name.ends_with(".slice");
            if !is_slice && !name.ends_with(".service") && !name.ends_with(".scope") {
                continue;
            }
            let child = format!("{}/{name}", path.trim_end_matches('/'));
            if is_slice && depth < MAX_DEPTH && child != USERS {
                open.push((child.clone(), depth + 1));
            }
            found.entry(name).or_insert(child);
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::CgroupMode;

    #[test]
    fn units_are_found_below_slices_and_paths_are_checked() {
        let kernel = FakeKernel::new(CgroupMode::V2);
        for path in [
            "/system.slice",
            "/system.slice/db.service",
            "/a.slice",
            "/a.slice/a-b.slice",
            "/plain",
            "/user.slice",
            "/user.slice/user-1000.slice",
            "/user.slice/user-1000.slice/mine.service",
            "/docker",
            "/docker/1",
            "/docker/2",
            "/docker/3",
        ] {
            kernel.with(|state| state.add_cgroup(path));
        }
        let container = |id: &str, name: &str| {
            let mut container = crate::testing::workload(id);
            container.source = SourceKind::Names;
            (container.pod.namespace, container.pod.name) = ("docker".into(), name.into());
            container.cgroup = CgroupBinding::Path(format!("/docker/{id}"));
            Arc::new(container)
        };
        let engines = [container("1", "web"), container("2", "db"), container("3", "db")];
        let mut binder = Binder::knowing(engines.iter(), Units::new());
        let unit = |name: &str| CgroupBinding::Unit(name.into());
        let path = |name: &str| CgroupBinding::Path(name.into());
        let table = [
            (unit("db.service"), Some("/system.slice/db.service")),
            (unit("a-b.slice"), Some("/a.slice/a-b.slice")),
            (unit("no.service"), None),
            (unit("user.slice"), Some("/user.slice")),
            (unit("mine.service"), None),
            (path("/plain"), Some("/plain")),
            (path("plain/"), Some("/plain")),
            (path("/"), None),
            (path(""), None),
            (path("/plain/../system.slice"), None),
            (path("docker://web"), Some("/docker/1")),
            (path("docker://db"), None),
            (path("docker://gone"), None),
            (path("podman://web"), None),
        ];
        for (binding, want) in &table {
            assert_eq!(binder.resolve(&kernel, binding).as_deref(), *want, "{binding:?}");
        }
        // Where nothing can be opened, whoever was there is not gone.
        kernel.with(|state| state.lacks_descriptors = true);
        let mut blind = Binder::knowing(engines.iter(), binder.into_units());
        for (binding, want) in &table {
            assert_eq!(blind.resolve(&kernel, binding).as_deref(), *want, "{binding:?}");
        }
        assert!(blind.is_blind());
        assert_eq!(blind.into_units().len(), 5);
    }
}
