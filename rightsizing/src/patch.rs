//! Owns recommendations as commands that a shell runs: one `kubectl patch` a workload.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_model::quantity::Quantity;
use evenkeel_model::shown;
use serde_json::{Map, Value, json};

/// One resource of a workload's container: what it requests, and what it should.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceChange<'a> {
    /// Namespace.
    pub namespace: &'a str,
    /// `deployment/web`, or a pod's name.
    pub workload: &'a str,
    /// Container.
    pub container: &'a str,
    /// It is among the pod's init containers.
    pub init: bool,
    /// `cpu`, in thousandths of a core, or `memory`, in bytes.
    pub resource: &'a str,
    /// Request now.
    pub current: Option<u64>,
    /// Recommended request.
    pub request: Option<u64>,
    /// Limit now.
    pub current_limit: Option<u64>,
    /// Limit beside the recommended request.
    pub limit: Option<u64>,
    /// It rests on less than two days of history.
    pub young: bool,
    /// Classes before and after, where they are not the same.
    pub class: Option<[&'a str; 2]>,
}

/// One command a workload whose requests or limits are to change, behind comments that say what and how sure.
#[must_use]
pub fn commands(rows: &[ResourceChange<'_>]) -> String {
    let mut workloads: BTreeMap<(&str, &str), Vec<&ResourceChange<'_>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| changes(row)) {
        workloads.entry((row.namespace, row.workload)).or_default().push(row);
    }
    let mut text = String::new();
    for ((namespace, workload), rows) in workloads {
        for row in &rows {
            remark(&mut text, row);
        }
        // Writing to a string cannot fail.
        let _ = match PatchTarget::of(workload) {
            Some(target) => writeln!(
                text,
                "kubectl patch {} {} --namespace {}{} --type strategic --patch {}",
                target.kind,
                quoted(target.name),
                quoted(namespace),
                target.options,
                quoted(&shown::json(target.patch(&rows).to_string())),
            ),
            None => {
                writeln!(text, "# {}: it is no Kubernetes object that can be patched", shown::plain(workload))
            }
        };
    }
    text
}

fn changes(row: &ResourceChange<'_>) -> bool {
    row.request.is_some() && (row.request != row.current || row.limit != row.current_limit)
}

/// What becomes of one container's request, for whoever reads before running.
fn remark(text: &mut String, row: &ResourceChange<'_>) {
    let shown =
        |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| quantity(row.resource, value));
    let mut line = format!(
        "{}/{} {}: {} {} becomes {}",
        row.namespace,
        row.workload,
        row.container,
        row.resource,
        shown(row.current),
        shown(row.request)
    );
    if row.young {
        line.push_str("; rests on less than two days of history");
    }
    if let Some([before, after]) = row.class {
        let _ = write!(line, "; the class changes ({before} -> {after})");
    }
    let _ = writeln!(text, "# {}", shown::plain(&line));
}

/// Requests and limits of one container, by resource.
type Lists = (Map<String, Value>, Map<String, Value>);

/// The object that is patched.
struct PatchTarget<'a> {
    kind: &'a str,
    name: &'a str,
    options: &'static str,
    /// Where its pods' spec is.
    place: &'static [&'static str],
}

impl<'a> PatchTarget<'a> {
    /// The object of a workload's name; nothing where pods cannot be changed through it.
    fn of(workload: &'a str) -> Option<Self> {
        Self::named(workload).filter(|target| is_name(target.name))
    }

    fn named(workload: &'a str) -> Option<Self> {
        let Some((kind, name)) = workload.split_once('/') else {
            // Units of systemd are reported, too.
            let is_unit = [".service", ".scope", ".slice"].iter().any(|suffix| workload.ends_with(suffix));
            // A pod's resources change in place, through a subresource.
            let pod =
                Self { kind: "pod", name: workload, options: " --subresource resize", place: &["spec"] };
            return (!is_unit).then_some(pod);
        };
        let place: &[&str] = match kind {
            "deployment" | "statefulset" | "daemonset" | "replicaset" | "replicationcontroller" => {
                &["spec", "template", "spec"]
            }
            "cronjob" => &["spec", "jobTemplate", "spec", "template", "spec"],
            // The template of a job does not change.
            _ => return None,
        };
        Some(Self { kind, name, options: "", place })
    }

    fn patch(&self, rows: &[&ResourceChange<'_>]) -> Value {
        let (mut containers, mut init) = (BTreeMap::new(), BTreeMap::new());
        for row in rows {
            let of = if row.init { &mut init } else { &mut containers };
            let lists: &mut Lists = of.entry(row.container).or_default();
            let set = |list: &mut Map<String, Value>, value: Option<u64>| {
                let value =
                    value.map(|value| (row.resource.to_owned(), quantity(row.resource, value).into()));
                list.extend(value);
            };
            set(&mut lists.0, row.request);
            set(&mut lists.1, row.limit.filter(|_| row.limit != row.current_limit));
        }
        let list = |all: BTreeMap<&str, Lists>| -> Value {
            let one = |(name, (requests, limits)): (&str, Lists)| {
                // Sorted by name, as maps without an order of their own are.
                let lists = [("limits", limits), ("requests", requests)];
                let given = lists.into_iter().filter(|(of, list)| *of == "requests" || !list.is_empty());
                let given = given.map(|(of, list)| (of.to_owned(), list.into()));
                json!({ "name": name, "resources": given.collect::<Map<_, _>>() })
            };
            all.into_iter().map(one).collect()
        };
        let mut spec = Map::new();
        for (key, all) in [("containers", containers), ("initContainers", init)] {
            if !all.is_empty() {
                spec.insert(key.to_owned(), list(all));
            }
        }
        self.place.iter().rev().fold(Value::Object(spec), |inner, key| json!({ *key: inner }))
    }
}

/// An amount as manifests have it, exactly.
fn quantity(resource: &str, value: u64) -> String {
    match resource {
        "cpu" => Quantity::from_milli(i64::try_from(value).unwrap_or(i64::MAX)).canonical(),
        _ => Quantity::from_bytes(value).canonical(),
    }
}

/// Whether Kubernetes has objects of this name (RFC 1123): kubectl would take another, such as `--server=...`, for an option,
/// quoted or not.
fn is_name(name: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(ends) && part.ends_with(ends) && part.chars().all(|c| ends(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_part)
}

/// One word of a shell, whatever is in it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let is_plain = !text.is_empty() && !text.starts_with('-') && text.chars().all(plain);
    if is_plain { text.to_owned() } else { format!("'{}'", shown::spelt(text).replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(workload: &'a str, container: &'a str, resource: &'a str, request: u64) -> ResourceChange<'a> {
        let (current, request) = (Some(1000), Some(request));
        ResourceChange {
            namespace: "shop",
            workload,
            container,
            resource,
            current,
            request,
            ..ResourceChange::default()
        }
    }

    fn patched(all: Vec<ResourceChange<'_>>) -> String {
        commands(&all)
    }

    #[test]
    fn each_workload_is_patched_where_its_pods_are_made() {
        let memory = ResourceChange {
            limit: Some(64 << 20),
            current_limit: Some(1 << 30),
            ..row("deployment/web", "app", "memory", 32 << 20)
        };
        let sidecar = ResourceChange { init: true, ..row("deployment/web", "proxy", "cpu", 20) };
        assert_eq!(
            patched(vec![row("deployment/web", "app", "cpu", 250), memory, sidecar]),
            "# shop/deployment/web app: cpu 1 becomes 250m\n\
             # shop/deployment/web app: memory 1k becomes 32Mi\n\
             # shop/deployment/web proxy: cpu 1 becomes 20m\n\
             kubectl patch deployment web --namespace shop --type strategic --patch \
             '{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"app\",\"resources\":{\"limits\":{\"memory\":\"64Mi\"},\
             \"requests\":{\"cpu\":\"250m\",\"memory\":\"32Mi\"}}}],\"initContainers\":[{\"name\":\"proxy\",\"resources\":\
             {\"requests\":{\"cpu\":\"20m\"}}}]}}}}'\n"
        );
        let cron = patched(vec![row("cronjob/tidy", "c", "cpu", 1)]);
        assert!(
            cron.contains("'{\"spec\":{\"jobTemplate\":{\"spec\":{\"template\":{\"spec\":{\"containers\""),
            "{cron}"
        );
        let pod = patched(vec![row("alone", "c", "cpu", 1)]);
        assert!(
            pod.contains("kubectl patch pod alone --namespace shop --subresource resize --type"),
            "{pod}"
        );
        for other in ["job/once", "nginx.service", "machine/x"] {
            assert!(!patched(vec![row(other, "c", "cpu", 1)]).contains("kubectl"), "{other}");
        }
        assert_eq!(patched(vec![row("deployment/web", "app", "cpu", 1000)]), "", "nothing is to change");
    }

    #[test]
    fn names_of_others_stay_words_of_the_shell() {
        let hostile =
            ResourceChange { namespace: "a'; rm -rf /", ..row("deployment/web", "c'\n$(id)", "cpu", 1) };
        let text = patched(vec![hostile]);
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("kubectl patch deployment web --namespace 'a'\\''; rm -rf /' "), "{last}");
        assert!(last.contains("c'\\''\\n$(id)"), "{last}");
        assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("kubectl ")), "{text}");
    }

    #[test]
    fn what_kubectl_would_take_for_an_option_is_no_name() {
        for name in ["--server=https://evil.example", "-f", "a'; rm -rf /", "Web", "a..b", ""] {
            let deployment = format!("deployment/{name}");
            let text = patched(vec![row(&deployment, "c", "cpu", 1), row(name, "c", "cpu", 1)]);
            assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
        }
        assert!(patched(vec![row("statefulset/db-0.eu", "c", "cpu", 1)]).contains("statefulset db-0.eu "));
    }
}
