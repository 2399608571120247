//! The page as a scraper sees it.

use std::sync::Arc;

use evenkeel_host::knob::Knob;
use evenkeel_model::sample::Sample;

use super::*;
use crate::report::test_support::tracked;
use crate::shared::LiveContainer;

#[test]
fn a_page_has_each_family_once_and_escapes_labels() {
    let stats = Stats::default();
    stats.ticks.add(3);
    stats.tick_lateness.observe(300);
    stats.enforce.writes.of(Knob::CpuWeight).denied.add(2);
    let mut sample = Sample::with_interval_usec(1_000_000);
    sample.set(Field::CpuUsageUsec, 1_500_000);
    sample.set(Field::MemoryWorkingSetBytes, 4096);
    let tracked = Arc::new(tracked(1, "web \"x\""));
    let class = tracked.classes.memory.map_or("", |class| class.as_str());
    let containers = vec![LiveContainer { tracked, sample, cpu_milli: None, traffic: None }];
    let page = render(&stats, Some(&LiveTick { time_usec: 1, containers }), "n1").finish();

    let labels = "{namespace=\"default\",pod=\"web \\\"x\\\"\",container=\"main\",name=\"default/web \\\"x\\\"/main\",node=\"n1\"}";
    for line in [
        "evenkeel_agent_ticks_total 3".to_owned(),
        "evenkeel_agent_writes_total{knob=\"cpu.weight\",result=\"denied\"} 2".to_owned(),
        "evenkeel_agent_tick_lateness_seconds_bucket{le=\"0.00025\"} 0".to_owned(),
        "evenkeel_agent_tick_lateness_seconds_bucket{le=\"0.0005\"} 1".to_owned(),
        "evenkeel_agent_tick_lateness_seconds_bucket{le=\"+Inf\"} 1".to_owned(),
        "evenkeel_agent_tick_lateness_seconds_sum 0.0003".to_owned(),
        format!("container_cpu_usage_seconds_total{labels} 1.5"),
        format!("container_memory_working_set_bytes{labels} 4096"),
        format!(
            "evenkeel_agent_container_qos_info{},memory_class=\"{class}\",cpu_class=\"\"}} 1",
            labels.trim_end_matches('}')
        ),
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
    for own in ["process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "] {
        let value = page.lines().find_map(|l| l.strip_prefix(own)).and_then(|v| v.parse::<f64>().ok());
        assert!(value.is_some_and(|v| v >= 0.0), "{own} is not in\n{page}");
    }
    assert!(!page.contains("container_threads{"), "an unknown number has no series");
    let mut types: Vec<&str> = page.lines().filter(|l| l.starts_with("# TYPE")).collect();
    let all = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), all);
}

#[test]
fn containers_of_one_name_are_series_of_their_own() {
    let of = |slot: u32, id: &str| {
        let mut tracked = tracked(slot, "web");
        Arc::make_mut(&mut tracked.workload).id = id.to_owned();
        let mut sample = Sample::with_interval_usec(1_000_000);
        sample.set(Field::Pids, u64::from(slot));
        LiveContainer { tracked: Arc::new(tracked), sample, cpu_milli: None, traffic: None }
    };
    let ids = [format!("{}1", "a".repeat(63)), format!("{}2", "a".repeat(63))];
    let tick = LiveTick { time_usec: 1, containers: vec![of(1, &ids[0]), of(2, &ids[1])] };
    let page = render(&Stats::default(), Some(&tick), "n1").finish();
    let mut series: Vec<&str> = page
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.rsplit_once(' '))
        .map(|(s, _)| s)
        .collect();
    let all = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), all, "{page}");
    assert!(page.contains(&format!("name=\"{}\"", ids[0])), "{page}");
}

#[tokio::test]
async fn a_name_of_others_that_points_here_reads_nothing() {
    use tower::ServiceExt as _;
    let app = Router::new().route("/metrics", get(|| async { "numbers" })).layer(from_fn(by_own_name));
    for (host, want) in [
        (Some("localhost:9523"), 200),
        (Some("127.0.0.1:9523"), 200),
        (Some("[::1]:9523"), 200),
        (Some("rebound.example:9523"), 421),
        (Some("127.0.0.1.rebound.example"), 421),
        (None, 421),
    ] {
        let mut request = Request::get("/metrics");
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        let request = request.body(axum::body::Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status().as_u16(), want, "{host:?}");
    }
}
