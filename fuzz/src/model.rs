//! Quantities and manifests.

use evenkeel_model::pod::{MAX_CONTAINERS, PodRequirements, read_pod_list, read_pods};
use evenkeel_model::quantity::Quantity;

/// A text is refused, or reads back from its canonical form.
pub(crate) fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(quantity) = Quantity::parse(text) {
        let canonical = quantity.canonical();
        assert_eq!(Quantity::parse(&canonical).as_ref(), Ok(&quantity), "{canonical}");
        assert_eq!(Quantity::parse(&quantity.exact()).as_ref(), Ok(&quantity));
        let _ = (quantity.value(), quantity.milli(), quantity.checked_add(quantity));
    }
}

pub(crate) fn quantities() -> Vec<Vec<u8>> {
    crate::owned(&[
        "0",
        "100m",
        "1.5Gi",
        "12e6",
        "-7n",
        "+.5k",
        "1000000000000Ei",
        "0.000000001",
        "3E",
        "12E-3",
    ])
}

/// A text gets pods or an error, and pods get requests and rules.
pub(crate) fn pods(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(pods) = read_pods(text, "fuzz") {
        for pod in pods {
            let _ = (pod.effective_requests(), pod.effective_limits(), pod.check());
        }
    }
}

/// A kubelet's list gives pods that are kept and read back as they are, and few words about those that it does not give.
pub(crate) fn pod_list(bytes: &[u8]) {
    let Ok(listed) = read_pod_list(bytes) else { return };
    assert!(listed.refused.len() <= 8, "{:?}", listed.refused);
    for pod in listed.pods {
        assert!(pod.containers.len() <= MAX_CONTAINERS);
        let _ = (pod.pod().effective_requests(), pod.uid_on_node());
        let kept = serde_json::to_vec(&pod).unwrap_or_default();
        assert_eq!(serde_json::from_slice::<PodRequirements>(&kept).ok().as_ref(), Some(&pod));
    }
}

pub(crate) fn pod_lists() -> Vec<Vec<u8>> {
    crate::owned(&[
        include_str!("../../model/tests/fixtures/podlist.json"),
        r#"{"kind":"PodList","items":[{"metadata":{"name":"web-1","namespace":"shop","uid":"u","annotations":
        {"kubernetes.io/config.mirror":"h","kubernetes.io/config.hash":"h"}},"spec":{"priority":7,"overhead":{"memory":"16Mi"},
        "initContainers":[{"name":"mesh","restartPolicy":"Always"}],"containers":[{"name":"main","resources":{"limits":{"cpu":"2"}}}]},
        "status":{"phase":"Running","qosClass":"Burstable","containerStatuses":[{"name":"main","resources":{"limits":{"cpu":"1"}}}]}}]}"#,
    ])
}

pub(crate) fn manifests() -> Vec<Vec<u8>> {
    crate::owned(&[
        include_str!("../../model/tests/fixtures/sidecar.yaml"),
        include_str!("../../model/tests/fixtures/mixed.yaml"),
        include_str!("../../model/tests/fixtures/podlist.json"),
    ])
}
