//! Owns keeping a caller's deadline: a pod is answered afresh where there is time, from what was kept where there is not.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use evenkeel_model::pod::Pod;
use tonic::metadata::MetadataMap;

use super::Context;
use crate::policy::Set;
use crate::recommend::Desk;
use crate::recommend::kept::AtHand;
use crate::recommend::pod::{self, PodAdvice};

/// Why a pod was not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodAnswerError {
    /// A rule that was asked for is none.
    Rule(String),
    /// Neither a fresh nor a kept answer was there in time.
    Late,
    /// A fault in the program.
    Fault,
}

/// Containers of a pod that is answered without changing threads: together they take a few milliseconds at most.
const AT_ONCE: usize = 4;

/// Answered without changing threads.
fn is_small(pod: &Pod) -> bool {
    pod.counted_containers().take(AT_ONCE + 1).count() <= AT_ONCE
}

/// The part of a caller's time after which it is given what was kept: what is left has to do for making and sending it.
fn for_fresh(patience: Duration) -> Duration {
    patience - patience / 5
}

impl Context {
    /// How long a caller waits: as long as it says, but no longer than anybody.
    pub(super) fn patience(&self, asked: Option<Duration>) -> Duration {
        let most = self.config.now().serve.request_timeout.get();
        asked.map_or(most, |asked| asked.min(most))
    }

    /// Answers for a pod within this time. Rules that are named are not answered from what was kept, which may be another's.
    pub(super) async fn pod_within(
        &self,
        patience: Duration,
        pod: Pod,
        rules: Vec<String>,
    ) -> Result<PodAdvice, PodAnswerError> {
        if rules.is_empty()
            && let Some(answer) = self.pod_at_once(&pod)
        {
            return Ok(answer);
        }
        let began = Instant::now();
        let rule_is_named = !rules.is_empty();
        let (context, asked) = (self.clone(), pod.clone());
        let mut fresh = tokio::task::spawn_blocking(move || {
            let is_held = context.is_held(&asked);
            context.rules(&rules).map(|rules| context.recommend_pod(&asked, &rules, is_held))
        });
        match tokio::time::timeout(for_fresh(patience), &mut fresh).await {
            Ok(Ok(answer)) => return answer.map_err(PodAnswerError::Rule),
            Ok(Err(_)) => return Err(PodAnswerError::Fault),
            // One that has not begun is not to begin: callers in a hurry would fill the queue with work nobody waits for.
            Err(_) => fresh.abort(),
        }
        if rule_is_named {
            return Err(PodAnswerError::Late);
        }
        let kept = match self.policies.at_hand().filter(|_| is_small(&pod)) {
            // Without another thread: a busy machine may not begin it in what is left.
            Some(set) => self.kept_pod(&set, &pod),
            // A change of policies that is being synced may hold this up, too.
            None => {
                let context = self.clone();
                let kept =
                    tokio::task::spawn_blocking(move || context.kept_pod(&context.policies.set(), &pod));
                match tokio::time::timeout(patience.saturating_sub(began.elapsed()), kept).await {
                    Ok(kept) => kept.map_err(|_| PodAnswerError::Fault)?,
                    Err(_) => None,
                }
            }
        };
        let advice = kept.ok_or(PodAnswerError::Late)?;
        self.advisor.late.fetch_add(1, Ordering::Relaxed);
        Ok(advice)
    }

    /// The fresh answer where nothing has to be waited for: neither a lock nor a file. Another thread would be as fast only
    /// where processors are idle: on a busy one each change of threads costs milliseconds.
    fn pod_at_once(&self, pod: &Pod) -> Option<PodAdvice> {
        if !is_small(pod) {
            return None;
        }
        let began = Instant::now();
        let set = self.policies.at_hand()?;
        let labels = pod.metadata.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let (governing, _) = set.governing(None, &pod.metadata.namespace, labels);
        if governing.map_or(&self.advisor.default, |g| g.rule).asks_for_minutes() {
            return None;
        }
        // Replaced within an instant at the end of a pass.
        let before = self.stored.kept();
        let frozen = self.is_held(pod);
        let state = self.engine.state().try_read()?;
        let advice = pod::advise_pod(&Desk { frozen, ..self.desk(&set, &before, &state) }, pod, &[]);
        drop(state);
        self.advisor.times.observe(began.elapsed());
        Some(advice)
    }

    fn kept_pod(&self, policies: &Set, pod: &Pod) -> Option<PodAdvice> {
        let at_hand = AtHand {
            kept: &self.stored,
            policies,
            advisor: &self.advisor,
            panic: self.is_held(pod),
            now_usec: self.engine.now_usec(),
        };
        at_hand.pod(pod)
    }
}

/// The time a call's client waits for it, as the header `grpc-timeout` says ("PROTOCOL-HTTP2.md" of gRPC: up to eight
/// digits and a unit). What cannot be read is no deadline.
pub(super) fn of_call(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
