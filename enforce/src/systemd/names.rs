//! Names: from the path of a cgroup to the unit it belongs to, and from an object path to a unit's name.
//!
//! Pure. Rules: systemd.unit(5) for escaping, systemd.slice(5) for where slices lie, "CGROUP_DELEGATION" of systemd's
//! documentation for what is below a unit.

/// Suffixes of units, other than slices, that have a cgroup of their own.
const OWNERS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];
const SLICE: &str = ".slice";

/// Where a cgroup stands in the tree of units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitMembership {
    /// It is this unit's own cgroup: systemd keeps its knobs.
    Unit(String),
    /// It lies below this unit's cgroup and is the business of whoever the subtree is delegated to.
    Below(String),
    /// It is no unit's.
    Foreign,
}

/// Where the cgroup at a path below the hierarchy's root stands.
pub fn standing(path: &str) -> UnitMembership {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).map(unit_of_directory).peekable();
    // Name of the slice so far, without its suffix; empty at the root.
    let mut stem = "";
    while let Some(name) = parts.next() {
        if let Some(inner) = name.strip_suffix(SLICE) {
            if !is_in_slice(inner, stem) {
                return UnitMembership::Foreign;
            }
            stem = inner;
        } else if OWNERS.iter().any(|suffix| name.strip_suffix(suffix).is_some_and(|stem| !stem.is_empty())) {
            let unit = name.to_owned();
            return if parts.peek().is_none() {
                UnitMembership::Unit(unit)
            } else {
                UnitMembership::Below(unit)
            };
        } else {
            return UnitMembership::Foreign;
        }
    }
    if stem.is_empty() { UnitMembership::Foreign } else { UnitMembership::Unit(format!("{stem}{SLICE}")) }
}

/// A cgroup's directory has the unit's name, after an underscore where the name could be taken for a file of the
/// kernel's, such as `_cpu.service`.
fn unit_of_directory(directory: &str) -> &str {
    directory.strip_prefix('_').unwrap_or(directory)
}

/// `a-b.slice` lies in `a.slice`, and `a.slice` in the root.
fn is_in_slice(stem: &str, parent: &str) -> bool {
    stem.rsplit_once('-').map_or("", |(parent, _)| parent) == parent && !stem.is_empty()
}

/// The name of the unit an object path stands for: `/org/freedesktop/systemd1/unit/a_2eservice` is `a.service`.
pub fn unit_of_object(path: &str) -> Option<String> {
    let label = path.strip_prefix("/org/freedesktop/systemd1/unit/")?;
    let mut bytes = Vec::with_capacity(label.len());
    let mut rest = label.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'_' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_a_unit_or_below_one_or_neither() {
        let unit = |name: &str| UnitMembership::Unit(name.into());
        let below = |name: &str| UnitMembership::Below(name.into());
        let table = [
            ("/system.slice/db.service", unit("db.service")),
            ("/system.slice", unit("system.slice")),
            ("/system.slice/system-getty.slice/getty@tty1.service", unit("getty@tty1.service")),
            ("/system.slice/_cpu.service", unit("cpu.service")),
            ("/system.slice/dev-disk-by\\x2dlabel-x.swap", unit("dev-disk-by\\x2dlabel-x.swap")),
            ("/init.scope", unit("init.scope")),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-c1.scope",
                unit("cri-containerd-c1.scope"),
            ),
            ("/system.slice/containerd.service/kubepods/pod1/c1", below("containerd.service")),
            ("/machine.slice/libpod-1.scope/container", below("libpod-1.scope")),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.service", below("user@1000.service")),
            ("/kubepods/burstable/pod1", UnitMembership::Foreign),
            ("/kubepods/x.slice", UnitMembership::Foreign),
            ("/a-b.slice", UnitMembership::Foreign),
            ("/a.slice/b.slice", UnitMembership::Foreign),
            ("/system.slice/made-by-hand", UnitMembership::Foreign),
            ("/.slice", UnitMembership::Foreign),
            ("/", UnitMembership::Foreign),
        ];
        for (path, want) in table {
            assert_eq!(standing(path), want, "{path}");
        }
    }

    #[test]
    fn an_object_path_is_unescaped() {
        let unit = |label: &str| unit_of_object(&format!("/org/freedesktop/systemd1/unit/{label}"));
        assert_eq!(unit("db_2eservice").as_deref(), Some("db.service"));
        assert_eq!(unit("getty_40tty1_2eservice").as_deref(), Some("getty@tty1.service"));
        assert_eq!(unit("_2d_2eslice").as_deref(), Some("-.slice"));
        for bad in ["a_2", "a_zz", "a_é"] {
            assert_eq!(unit(bad), None, "{bad}");
        }
        assert_eq!(unit_of_object("/org/freedesktop/systemd1"), None);
    }
}
