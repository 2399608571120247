//! Owns what the webhook tells of what it set, as Events of the controllers whose pods these are. A pod waits for none of it.

use evenkeel_kubernetes::objects::ObjectEvent;
use evenkeel_store::clock::WallClock;
use evenkeel_webhook::serve::{Done, Tells};

use crate::events::{EventRecorder, event_time};

/// What records it.
#[derive(Debug)]
pub(super) struct AdmissionEvents(pub(super) EventRecorder);

impl Tells for AdmissionEvents {
    fn tell(&self, done: Done) {
        self.0.record(event(done, event_time(WallClock::system().now_usec())));
    }

    fn counted(&self) -> (u64, u64) {
        self.0.counted()
    }
}

fn event(Done { controller, text, is_applied }: Done, at: String) -> ObjectEvent {
    let note = match is_applied {
        true => format!("set for its pods: {text}"),
        false => format!("dry run, not set for its pods: {text}"),
    };
    ObjectEvent {
        api_version: controller.api_version,
        kind: controller.kind,
        namespace: controller.namespace,
        name: controller.name,
        uid: controller.uid,
        container: None,
        reason: if is_applied { "RequestsSet" } else { "RequestsEstimated" },
        action: "Admit",
        is_warning: false,
        controller: "evenkeel.dev/webhook",
        instance: "evenkeel-webhook".to_owned(),
        note,
        at,
        number: 0,
    }
}
