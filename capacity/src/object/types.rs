//! Resource types as somebody defined them: what containers request that do not say so themselves, and in which portions.

use evenkeel_model::name::ResourceName;
use evenkeel_model::resource_type::ResourceTypes;

use super::{Pod, ResourceList};

impl Pod {
    /// Fills in default requests, and rounds requests and limits up to the granularity of their types. A container that gives a limit
    /// requests that much, as everywhere.
    pub fn fill(&mut self, types: &ResourceTypes) {
        for container in self.spec.containers.iter_mut().chain(&mut self.spec.init_containers) {
            let resources = &mut container.resources;
            for defined in types.iter() {
                let name = defined.name().short();
                if let Some(default) = defined.default_request()
                    && !resources.requests.contains_key(name)
                    && !resources.limits.contains_key(name)
                {
                    resources.requests.insert(name.to_owned(), default);
                    if !defined.name().is_native() {
                        // What Kubernetes does not overcommit has a limit, equal to the request.
                        resources.limits.insert(name.to_owned(), default);
                    }
                }
            }
            round(&mut resources.requests, types);
            round(&mut resources.limits, types);
        }
    }
}

fn round(list: &mut ResourceList, types: &ResourceTypes) {
    for (name, amount) in list {
        // Pages of a size that is no multiple of it are refused by the API server, not rounded.
        if let Some(name) = ResourceName::parse(name).ok().filter(|name| types.has(name)) {
            *amount = types.get(&name).quantized(*amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_requests_the_default_and_all_is_rounded_up() {
        let definitions = r#"{"example.com/disk": {"units": "byte per second", "defaultRequest": "1500", "quantization": "1k"},
            "cpu": {"quantization": "100m"}}"#;
        let types = ResourceTypes::with(&serde_json::from_str(definitions).unwrap()).unwrap();
        let mut pod: Pod = serde_json::from_str(
            r#"{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "150m", "hugepages-2Mi": "1Mi"}}},
                {"name": "b", "resources": {"limits": {"example.com/disk": "2500"}}}], "initContainers": [{"name": "i"}]}}"#,
        )
        .unwrap();
        pod.fill(&types);
        let told =
            |list: &ResourceList| list.iter().map(|(n, q)| format!("{n}={q}")).collect::<Vec<_>>().join(" ");
        let [a, b] = &pod.spec.containers[..] else { panic!("two containers") };
        assert_eq!(told(&a.resources.requests), "cpu=200m example.com/disk=2k hugepages-2Mi=1Mi");
        assert_eq!(told(&a.resources.limits), "example.com/disk=2k");
        assert_eq!(
            (told(&b.resources.requests), told(&b.resources.limits)),
            (String::new(), "example.com/disk=3k".into())
        );
        assert_eq!(told(&pod.spec.init_containers[0].resources.requests), "example.com/disk=2k");
    }
}
