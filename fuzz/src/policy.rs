//! Policies, as people write them.

use evenkeel_rightsizing::policy;
use serde_json::Value;

/// Policies that are read are written as objects that are read as the same.
pub(crate) fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = policy::find(text);
    for one in policy::read_all(text).into_iter().flatten() {
        let object = one.object(None, Value::Null);
        let again = policy::read_object(&object);
        assert!(again.as_ref().is_ok_and(|again| again.is_same(&one)), "{object}: {again:?}");
        for seconds in [0, 1_700_000_000, u64::MAX] {
            let _ = one.updates.is_open(seconds);
        }
    }
}

pub(crate) fn some() -> Vec<Vec<u8>> {
    crate::owned(&["apiVersion: evenkeel.dev/v1
kind: Policy
metadata: {name: web, namespace: shop, labels: {team: a}}
spec:
  target: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [a, b]}]}
  updatePolicy: {mode: auto, evict: always, evictOffers: always, minReplicas: 2, maxUnavailable: 30%, tolerance: {up: 0.1, down: 0.2},
    minAgeSeconds: 60, windows: [{days: [Mon, Sun], from: '22:00', to: '06:00'}], canarySeconds: 5}
  resourcesPolicy:
    limits: ratio
    containers: [{name: '*', requests: {cpu: {min: 10m, max: 4}, memory: {min: 16Mi}}}, {name: mesh, mode: off}]
  startupBoost: {factor: 2.5, seconds: 30, learned: true}
  goals: {cpu: {threshold: 0.9, over: 0.01}, memory: {over: 0.001}}
  rule: default
  parameters: {margin: 0.15}
"])
}
