//! Quantities and manifests.

use evenkeel_model::pod::read_pods;
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

pub(crate) fn manifests() -> Vec<Vec<u8>> {
    crate::owned(&[
        include_str!("../../model/tests/fixtures/sidecar.yaml"),
        include_str!("../../model/tests/fixtures/mixed.yaml"),
        include_str!("../../model/tests/fixtures/podlist.json"),
    ])
}
