//! What is believed of a manifest that another process read.
//!
//! The reader may have been taken over by the manifest, or by one before. Its word gives nothing that the bytes do not bear out as far as
//! they can be held against it without being understood: what a container is called, and what it is bound to, stands in them as a word of
//! its own. So it names no cgroup that the file does not name. Amounts are within the rules whatever they are.

use std::collections::HashSet;

use evenkeel_border::found::Read;
use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::workload::{CgroupBinding, SourceKind, Workload};

use super::super::annotations::{is_binding_path, is_unit_name};
use crate::parts::found::problem;

/// Containers and problems of one manifest at most.
const MOST: usize = 10_000;
/// Longest name of a pod, a namespace or a container, bytes (Kubernetes: 253).
const MOST_NAME: usize = 253;
/// Longest text beside these, such as an image's name.
const MOST_TEXT: usize = 4 << 10;
/// What a pod is in that says nothing of its namespace.
const DEFAULT: &str = "default";

/// What of it is used.
pub(super) fn judged(read: Read, place: &str, bytes: &[u8]) -> (Vec<Workload>, Vec<SourceProblem>) {
    let Read { workloads, problems } = read;
    let mut told: Vec<SourceProblem> = problems.into_iter().take(MOST).map(problem).collect();
    let mut good = Vec::new();
    let words = Words::of(&workloads, bytes);
    for workload in workloads.into_iter().take(MOST) {
        match may_be(&workload, &words) {
            Ok(()) => good.push(workload),
            Err(why) => told.push(SourceProblem {
                what: "use the manifest".to_owned(),
                where_: place.to_owned(),
                why: why.to_owned(),
                remedy: "write names of pods and containers, cgroups and units as they are, without escapes or spaces".to_owned(),
            }),
        }
    }
    (good, told)
}

fn may_be(workload: &Workload, words: &Words<'_>) -> Result<(), &'static str> {
    let Workload { id, source, pod, container, workload: controller, image, pid, cgroup, .. } = workload;
    if *source != SourceKind::Manifests || pid.is_some() {
        return Err("it is said to be another source's");
    }
    let names = [&pod.namespace, &pod.name, container];
    if names
        .iter()
        .any(|name| name.is_empty() || name.len() > MOST_NAME || name.chars().any(char::is_control))
    {
        return Err("a name of it is none");
    }
    if *id != format!("{}/{}/{}", pod.namespace, pod.name, container) {
        return Err("it is not called as its manifest calls it");
    }
    let texts = [Some(controller), pod.uid.as_ref(), image.as_ref()];
    if texts.into_iter().flatten().any(|text| text.len() > MOST_TEXT) {
        return Err("a text of it is too long");
    }
    let is_one = match cgroup {
        CgroupBinding::Path(path) => is_binding_path(path),
        CgroupBinding::Unit(unit) => is_unit_name(unit),
    };
    if !is_one {
        return Err("it is bound to what is no cgroup");
    }
    let is_default = pod.namespace == DEFAULT;
    if !(is_default || words.has(&pod.namespace)) || !words.has(&pod.name) || !words.has(container) {
        return Err("a name of it does not stand in the manifest");
    }
    if words.has(binding(workload)) {
        Ok(())
    } else {
        Err("what it is bound to does not stand in the manifest")
    }
}

fn binding(workload: &Workload) -> &str {
    match &workload.cgroup {
        CgroupBinding::Path(binding) | CgroupBinding::Unit(binding) => binding,
    }
}

/// Of the words that containers need those that stand in a manifest. Gone through once, however many there are.
struct Words<'a>(HashSet<&'a [u8]>);

impl<'a> Words<'a> {
    fn of(workloads: &[Workload], bytes: &'a [u8]) -> Self {
        let needed = |workload: &Workload| {
            let Workload { pod, container, .. } = workload;
            [&*pod.namespace, &*pod.name, &**container, binding(workload)].map(forms)
        };
        let wanted: HashSet<Vec<u8>> =
            workloads.iter().take(MOST).flat_map(needed).flatten().map(String::into_bytes).collect();
        Self(bytes.split(is_between).filter(|word| wanted.contains(*word)).collect())
    }

    fn has(&self, text: &str) -> bool {
        forms(text).iter().any(|form| self.0.contains(form.as_bytes()))
    }
}

/// What stands between words in YAML and JSON.
const fn is_between(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b',' | b'{' | b'}' | b'[' | b']')
}

/// How a text stands there: plain, or within double quotes.
fn forms(text: &str) -> [String; 2] {
    [text.to_owned(), text.replace('\\', "\\\\")]
}

#[cfg(test)]
mod tests {
    use evenkeel_border::found::Problem;
    use evenkeel_model::resource_type::ResourceTypes;

    use super::super::read::parse;
    use super::*;

    const TEXT: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations:\n    evenkeel.dev/cgroup.main: /shop/web\n    \
                        evenkeel.dev/unit.side: \"dev-disk\\\\x2d1.scope\"\nspec:\n  containers:\n  - name: main\n  - name: side\n";

    fn honest() -> Vec<Workload> {
        let (workloads, problems) = parse(TEXT.as_bytes(), "web.yaml", &ResourceTypes::predefined());
        assert_eq!((workloads.len(), problems.len()), (2, 0), "{problems:?}");
        workloads
    }

    fn of(workloads: Vec<Workload>) -> (usize, usize) {
        let read = Read { workloads, problems: Vec::new() };
        let (good, told) = judged(read, "web.yaml", TEXT.as_bytes());
        (good.len(), told.len())
    }

    #[test]
    fn what_a_manifest_says_is_believed_and_nothing_that_does_not_stand_in_it() {
        assert_eq!(of(honest()), (2, 0));
        let path = |path: &str| CgroupBinding::Path(path.to_owned());
        let table: [&dyn Fn(&mut Workload); 12] = [
            &|w| w.cgroup = path("/system.slice/sshd.service"),
            &|w| w.cgroup = path("/shop/web/other"),
            &|w| w.cgroup = path("/"),
            &|w| w.cgroup = path("shop"),
            &|w| w.cgroup = path("docker://web2"),
            &|w| w.cgroup = CgroupBinding::Unit("sshd.service".into()),
            &|w| w.cgroup = CgroupBinding::Unit("web".into()),
            &|w| (w.pod.name, w.id) = ("db".into(), "default/db/main".into()),
            &|w| w.id = "default/web/other".into(),
            &|w| w.source = SourceKind::Cri,
            &|w| w.pid = Some(1),
            &|w| w.image = Some("x".repeat(MOST_TEXT + 1)),
        ];
        for (at, change) in table.iter().enumerate() {
            let mut workload = honest().swap_remove(0);
            change(&mut workload);
            assert_eq!(of(vec![workload.clone()]), (0, 1), "{at}: {workload:?}");
        }
        let mut problems = vec![Problem::default(); MOST + 1];
        problems[0].why = "x".repeat(1 << 20);
        let read = Read { problems, ..Read::default() };
        let (_, told) = judged(read, "web.yaml", b"");
        assert!(told.len() == MOST && told[0].why.len() < 1 << 13);
    }

    #[test]
    fn a_word_stands_where_it_is_and_no_part_of_it_does() {
        let mut workload = honest().swap_remove(0);
        for (bytes, text, stands) in [
            ("a: /shop/web\n", "/shop/web", true),
            ("a: /shop/web2", "/shop/web", false),
            ("a: /shop/web", "/shop", false),
            ("a: x/shop/web", "/shop/web", false),
            ("{\"a\":\"/shop/web\"}", "/shop/web", true),
            ("{a: /shop/web}", "/shop/web", true),
            ("['/shop/web','b']", "/shop/web", true),
            ("a: \"dev\\\\x2d1.scope\"", "dev\\x2d1.scope", true),
            ("", "/shop/web", false),
        ] {
            workload.cgroup = CgroupBinding::Path(text.to_owned());
            let words = Words::of(std::slice::from_ref(&workload), bytes.as_bytes());
            assert_eq!(words.has(text), stands, "{bytes} {text}");
        }
    }
}
