//! `own`: subtrees given to the agent, in which it writes inner cgroups too.

use super::super::check::Checker;

/// The kubelet's tiers, by either driver.
const KUBELET: [&str; 2] = ["/kubepods", "/kubepods.slice"];

/// Checks every path; what is refused is refused by name.
pub(in super::super) fn check(c: &mut Checker<'_>, own: &[String], deny: &[String]) -> Vec<String> {
    let mut valid: Vec<String> = Vec::new();
    for path in own {
        match why_not(path, &valid, deny) {
            None => valid.push(path.trim_end_matches('/').to_owned()),
            Some((why, remedy)) => c.fail("own", format!("\"{path}\" {why}"), remedy),
        }
    }
    valid
}

fn why_not(path: &str, others: &[String], deny: &[String]) -> Option<(String, &'static str)> {
    let named = path.trim_end_matches('/');
    if !path.starts_with('/')
        || path.split('/').any(|part| part == ".." || part == ".")
        || path.contains("//")
    {
        return Some((
            "is not a cgroup path".into(),
            "give a path below the cgroup root, such as \"/evenkeel.slice\"",
        ));
    }
    if named.is_empty() {
        return Some(("is the root, which belongs to everybody".into(), "give a cgroup below it"));
    }
    if let Some(tier) = KUBELET.iter().find(|tier| is_at_or_below(named, tier)) {
        return Some((
            format!("is at or below {tier}, which the kubelet rewrites every minute"),
            "leave it to the kubelet: the containers in it are managed all the same",
        ));
    }
    if let Some(other) = others.iter().find(|o| is_at_or_below(named, o) || is_at_or_below(o, named)) {
        return Some((format!("overlaps {other}"), "name the upper one only"));
    }
    let denied = deny.iter().find(|d| is_at_or_below(named, d) || is_at_or_below(d, named));
    denied.map(|prefix| {
        (format!("overlaps {prefix}, which manage.deny names"), "take it out of one of the two")
    })
}

fn is_at_or_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_others_is_refused_by_name() {
        let others = ["/mine".to_owned()];
        let deny = ["/system.slice/db.service".to_owned()];
        for (path, why) in [
            ("/evenkeel.slice", None),
            ("/kubepods-of-mine", None),
            ("evenkeel.slice", Some("not a cgroup path")),
            ("/a/../b", Some("not a cgroup path")),
            ("/", Some("the root")),
            ("/kubepods", Some("the kubelet")),
            ("/kubepods.slice/kubepods-burstable.slice", Some("the kubelet")),
            ("/mine/inner", Some("overlaps /mine")),
            ("/system.slice", Some("manage.deny")),
            ("/system.slice/db.service/a", Some("manage.deny")),
        ] {
            let said = why_not(path, &others, &deny).map(|(said, _)| said);
            match (why, &said) {
                (None, None) => {}
                (Some(why), Some(said)) if said.contains(why) => {}
                _ => panic!("{path}: {said:?}, wanted {why:?}"),
            }
        }
    }
}
