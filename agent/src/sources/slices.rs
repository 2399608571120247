//! Paths of cgroups as runtimes write them: plain (cgroupfs driver) or systemd's `slice:prefix:name`.

/// Turns an OCI `cgroupsPath` into a path below the hierarchies' roots; `None` when it is neither form.
pub(super) fn from_oci(cgroups_path: &str) -> Option<String> {
    if let Some(rest) = cgroups_path.strip_prefix('/') {
        let plain = !rest.is_empty() && rest.split('/').all(|p| !p.is_empty() && p != "." && p != "..");
        return plain.then(|| cgroups_path.to_owned());
    }
    let mut parts = cgroups_path.splitn(3, ':');
    let (slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
    if name.is_empty() || name.contains('/') || prefix.contains('/') {
        return None;
    }
    let scope = if prefix.is_empty() { format!("{name}.scope") } else { format!("{prefix}-{name}.scope") };
    Some(format!("{}/{scope}", expand_slice(if slice.is_empty() { "system.slice" } else { slice })?))
}

/// `a-b.slice` lies in `a.slice`: `/a.slice/a-b.slice` (systemd.slice(5)).
pub(super) fn expand_slice(slice: &str) -> Option<String> {
    let name = slice.strip_suffix(".slice")?;
    if name.contains('/') {
        return None;
    }
    if name == "-" {
        return Some(String::new());
    }
    let mut path = String::new();
    let mut prefix = String::new();
    for part in name.split('-') {
        if part.is_empty() {
            return None;
        }
        prefix = if prefix.is_empty() { part.to_owned() } else { format!("{prefix}-{part}") };
        path.push_str(&format!("/{prefix}.slice"));
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_and_neither() {
        let table = [
            ("/kubepods/burstable/pod1/c1", Some("/kubepods/burstable/pod1/c1")),
            (
                "kubepods-burstable-pod1_2.slice:cri-containerd:c1",
                Some(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-c1.scope",
                ),
            ),
            ("machine.slice:libpod:c1", Some("/machine.slice/libpod-c1.scope")),
            (":docker:c1", Some("/system.slice/docker-c1.scope")),
            ("-.slice:crio:c1", Some("/crio-c1.scope")),
            ("", None),
            ("/", None),
            ("/a/../b", None),
            ("a.slice:x", None),
            ("a--b.slice:x:y", None),
            ("a.slice:x:../y", None),
        ];
        for (given, want) in table {
            assert_eq!(from_oci(given).as_deref(), want, "{given}");
        }
    }
}
