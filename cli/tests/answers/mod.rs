//! Servers with fixed answers, on a socket and a port of their own.

use std::pin::Pin;

use evenkeel_capacity::load::{Loader, Manifest};
use evenkeel_capacity::question::{CapacityQuestion, QuestionOptions, Snapshot};
use evenkeel_proto::tonic::transport::Server;
use evenkeel_proto::tonic::{Request, Response, Status};
use evenkeel_proto::v1::agent_service_server::{AgentService, AgentServiceServer};
use evenkeel_proto::v1::audit_service_server::{AuditService, AuditServiceServer};
use evenkeel_proto::v1::capacity_service_server::{CapacityService, CapacityServiceServer};
use evenkeel_proto::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use evenkeel_proto::v1::recommender_service_server::{RecommenderService, RecommenderServiceServer};
use evenkeel_proto::v1::watch_decisions_response::Event as Watched;
use evenkeel_proto::v1::watch_usage_response::Event as Used;
use evenkeel_proto::v1::*;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};

type Answer<T> = Result<Response<T>, Status>;
type Stream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

/// Both servers, until dropped.
pub struct Servers {
    pub agent: String,
    pub recommender: String,
    _runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

impl Servers {
    pub fn start() -> Self {
        Self::with(Agent { follows: false })
    }

    /// The same with an agent whose seconds go on, twenty in one.
    pub fn start_following() -> Self {
        Self::with(Agent { follows: true })
    }

    fn with(own: Agent) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let _inside = runtime.enter();
        let agent = UnixListenerStream::new(tokio::net::UnixListener::bind(&path).unwrap());
        runtime.spawn(Server::builder().add_service(AgentServiceServer::new(own)).serve_with_incoming(agent));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let recommender = format!("http://{}", tcp.local_addr().unwrap());
        let incoming = TcpListenerStream::new(tokio::net::TcpListener::from_std(tcp).unwrap());
        let service = RecommenderServiceServer::new(Recommender);
        let policies = PolicyServiceServer::new(Policies);
        let audit = AuditServiceServer::new(Audit);
        let capacity = CapacityServiceServer::new(Capacity);
        let both = Server::builder().add_service(service).add_service(policies).add_service(audit);
        let both = both.add_service(capacity);
        runtime.spawn(both.serve_with_incoming(incoming));
        drop(_inside);
        Self { agent: format!("unix://{}", path.display()), recommender, _runtime: runtime, _dir: dir }
    }
}

fn stream<T: Send + 'static>(items: Vec<T>) -> Answer<Stream<T>> {
    Ok(Response::new(Box::pin(tokio_stream::iter(items.into_iter().map(Ok)))))
}

const TIME: u64 = 1_700_000_000_000_000;

fn identity() -> ContainerIdentity {
    ContainerIdentity {
        id: "c0ffee".into(),
        namespace: "shop".into(),
        pod: "web".into(),
        container: "app".into(),
        kind: ContainerKind::Regular.into(),
        workload: "deployment/web".into(),
        cgroup_inode: 4242,
        requested: Some(ResourceValues {
            cpu_request_milli: Some(1000),
            memory_request_bytes: Some(1 << 30),
            ..Default::default()
        }),
        memory_class: QosClass::Burstable.into(),
        cpu_class: QosClass::Burstable.into(),
        ..Default::default()
    }
}

fn container() -> ContainerStatus {
    let knob = |name: &str, wanted: &str, actual: &str, state: ConvergeState, reason: &str| KnobValue {
        name: name.into(),
        wanted: Some(wanted.into()),
        actual: Some(actual.into()),
        state: state.into(),
        reason: reason.into(),
        ..Default::default()
    };
    ContainerStatus {
        identity: Some(identity()),
        state: ConvergeState::Denied.into(),
        generation: 3,
        verified_at_usec: TIME,
        processes: 7,
        knobs: vec![
            knob("oom_score_adj", "750", "750", ConvergeState::Converged, "Burstable: 1000 - 250"),
            knob("cpu.shares", "1024", "2", ConvergeState::Denied, "cpu request"),
            KnobValue {
                count: 3,
                since_usec: TIME,
                by: "rewritten to 100000".into(),
                remedy: "turn the knob off there or in [knobs] here".into(),
                ..knob("cpu.cfs_quota_us", "50000", "100000", ConvergeState::Contended, "left alone")
            },
        ],
        source: "cri".into(),
        managed: true,
        why: String::new(),
        cgroup: "/kubepods/burstable/pod1/c0ffee".into(),
        throttling: Some(Throttling {
            window_seconds: 60,
            periods: 600,
            throttled_periods: 75,
            throttled_usec: 1_234_567,
        }),
        required_by: "api".into(),
        ..Default::default()
    }
}

fn daemon(name: &str, actual: i32, state: &str, why: &str) -> DaemonStatus {
    DaemonStatus {
        name: name.into(),
        pid: 700,
        found_by: format!("unit {name}.service"),
        cgroup: format!("/system.slice/{name}.service"),
        wanted: -999,
        actual: Some(actual),
        state: state.into(),
        why: why.into(),
    }
}

fn status() -> GetStatusResponse {
    GetStatusResponse {
        cluster: "default".into(),
        node: "n1".into(),
        mode: "enforce".into(),
        rules: "proposal".into(),
        panic: false,
        overlay: None,
        pods: Some(PodsStatus {
            pods: 12,
            generation: 345,
            changed_usec: TIME,
            followed: 1,
            kept: true,
            refused: vec!["shop/db: name has 300 bytes".into()],
            kubelet: None,
        }),
        capabilities: vec!["CAP_KILL".into()],
        parts_mode: "three-processes".into(),
        parts: vec![
            PartStatus {
                name: "enforcing".into(),
                pid: 70,
                capabilities: vec!["CAP_KILL".into()],
                no_new_privs: true,
                seccomp: true,
                ..PartStatus::default()
            },
            PartStatus {
                name: "network".into(),
                restarts: 2,
                ended: "signal: 9 (SIGKILL)".into(),
                ..PartStatus::default()
            },
        ],
        knobs: vec![KnobStatus {
            name: "cpu.shares".into(),
            state: "denied".into(),
            why: "the cgroup file system is read-only".into(),
            remedy: "mount it writable".into(),
        }],
        containers: vec![container()],
        version: "0.1.0".into(),
        facts: None,
        stream: Some(StreamStatus {
            address: "http://127.0.0.1:9520".into(),
            connected: true,
            epoch: 0xabc,
            frames_written: 10,
            frames_sent: 9,
            last_acknowledged: 8,
            leads: true,
            ..Default::default()
        }),
        streams: Vec::new(),
        wake: Some(WakeStatus {
            process_events: false,
            cgroup_events: true,
            audit_period_usec: 5_000_000,
            why: "no CAP_NET_ADMIN".into(),
        }),
        sources: vec![SourceStatus {
            name: "cri".into(),
            address: "/run/containerd/containerd.sock".into(),
            healthy: true,
            containers: 1,
            ..Default::default()
        }],
        daemons: vec![
            daemon("kubelet", -999, "protected", ""),
            daemon("containerd", 0, "denied", "permission denied (EACCES)"),
        ],
        workloads_cap: Some(WorkloadsCapStatus {
            cgroup: "/machine.slice".into(),
            state: "ok".into(),
            reserve_bytes: 512 << 20,
            cap_bytes: Some(3584 << 20),
            inside_bytes: 1 << 30,
            outside_bytes: 300 << 20,
            ..Default::default()
        }),
        pressure: Some(PressureStatus {
            enabled: true,
            starving: 1,
            domains: vec![PressureDomain { grade: "high".into(), ..Default::default() }],
            ..Default::default()
        }),
        holds: vec![HoldStatus {
            container: "shop/batch/main".into(),
            cgroup: "/kubepods/besteffort/pod2/main".into(),
            knob: "memory.high".into(),
            value: "67108864".into(),
            original: "max".into(),
            since_usec: TIME,
            by: "pressure".into(),
            why: "BestEffort first".into(),
        }],
    }
}

fn decision(seq: u64, kind: &str, pod: Option<&str>) -> Decision {
    Decision {
        time_usec: TIME + seq * 500_000,
        seq,
        pod: pod.map(str::to_owned),
        container: pod.map(|_| "app".into()),
        kind: kind.into(),
        knob: pod.map(|_| "oom_score_adj".into()),
        old: pod.map(|_| "0".into()),
        new: pod.map(|_| "750".into()),
        reason: "Burstable: 1000 - 250".into(),
        inputs: [("memory_request".to_owned(), "1073741824".to_owned())].into(),
        result: "done".into(),
        node: String::new(),
        epoch: 0,
    }
}

fn tick(cpu: u64) -> WatchUsageResponse {
    let usage = |pod: &str, cpu_milli: u64| ContainerUsage {
        identity: Some(ContainerIdentity { pod: pod.into(), ..identity() }),
        time_usec: TIME,
        sample: Some(Sample {
            interval_usec: 1_000_000,
            memory_current_bytes: Some(64 << 20),
            memory_working_set_bytes: Some(48 << 20),
            pids: Some(3),
            ..Default::default()
        }),
        cpu_milli: Some(cpu_milli),
        ..Default::default()
    };
    let containers = vec![usage("db", cpu / 2), usage("web", cpu)];
    WatchUsageResponse { event: Some(Used::Tick(UsageTick { containers })) }
}

struct Agent {
    follows: bool,
}

#[evenkeel_proto::tonic::async_trait]
impl AgentService for Agent {
    type WatchUsageStream = Stream<WatchUsageResponse>;
    type WatchDecisionsStream = Stream<WatchDecisionsResponse>;

    async fn get_status(&self, _: Request<GetStatusRequest>) -> Answer<GetStatusResponse> {
        Ok(Response::new(status()))
    }

    async fn list_containers(&self, _: Request<ListContainersRequest>) -> Answer<ListContainersResponse> {
        Ok(Response::new(ListContainersResponse { containers: vec![container()] }))
    }

    async fn watch_usage(&self, _: Request<WatchUsageRequest>) -> Answer<Self::WatchUsageStream> {
        let bookmark = WatchUsageResponse { event: Some(Used::Bookmark(Bookmark {})) };
        let missed = WatchUsageResponse { event: Some(Used::MissedTicks(2)) };
        if self.follows {
            let ticks = futures::stream::unfold(0, |number: u64| async move {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                Some((Ok(tick(1000 + number % 100)), number + 1))
            });
            return Ok(Response::new(Box::pin(ticks)));
        }
        stream(vec![tick(1500), bookmark, missed, tick(20)])
    }

    async fn get_usage(&self, r: Request<GetUsageRequest>) -> Answer<GetUsageResponse> {
        match r.into_inner().at_usec {
            60_000_000 => {
                let Some(Used::Tick(tick)) = tick(1500).event else {
                    return Err(Status::internal("no tick"));
                };
                Ok(Response::new(GetUsageResponse { tick: Some(tick) }))
            }
            _ => Err(Status::not_found("it is outside of what is kept")),
        }
    }

    async fn watch_decisions(&self, r: Request<WatchDecisionsRequest>) -> Answer<Self::WatchDecisionsStream> {
        let event = |event| WatchDecisionsResponse { event: Some(event) };
        let mut all = vec![
            event(Watched::Decision(decision(1, "agent", None))),
            event(Watched::Decision(decision(2, "set", Some("shop/web")))),
            event(Watched::Bookmark(Bookmark {})),
        ];
        if !r.into_inner().no_follow {
            all.push(event(Watched::Missed(4)));
            all.push(event(Watched::Decision(decision(3, "gone", Some("shop/web")))));
        }
        stream(all)
    }

    async fn list_oom_kills(&self, _: Request<ListOomKillsRequest>) -> Answer<ListOomKillsResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn list_evictions(&self, _: Request<ListEvictionsRequest>) -> Answer<ListEvictionsResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn admit(&self, r: Request<AdmitRequest>) -> Answer<AdmitResponse> {
        let fits = r.into_inner().pod == "small";
        let short = Shortage {
            resource: "cpu".into(),
            requested: "4".into(),
            free: "1".into(),
            by: "3".into(),
            why: String::new(),
        };
        Ok(Response::new(AdmitResponse { fits, short: if fits { vec![] } else { vec![short] } }))
    }
}

struct Recommender;

/// The same under further rules, each of which asks for as much again.
fn under(rules: &[String], all: Vec<Recommendation>) -> Vec<Recommendation> {
    let rules = if rules.is_empty() { vec!["initial".to_owned()] } else { rules.to_vec() };
    let of = |(at, rule): (usize, &String)| {
        let rule = if rule == "*" { "initial" } else { rule };
        let times = at as u64 + 1;
        let scaled = move |r: Recommendation| Recommendation {
            rule: rule.to_owned(),
            request: r.request.map(|request| request * times),
            risk_then: r.risk_then.map(|risk| risk / times as f64),
            young: r.young && rule != "goal",
            ..r
        };
        all.iter().cloned().map(scaled).collect::<Vec<_>>()
    };
    rules.iter().enumerate().flat_map(of).collect()
}

struct Policies;

const POLICY: &str = r#"{"apiVersion": "evenkeel.dev/v1", "kind": "Policy",
    "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": "2023-11-14T22:13:20Z"},
    "spec": {"target": {"matchLabels": {"app": "web"}}, "rule": "goal", "resourcesPolicy": {"limits": "ratio"}},
    "status": {"source": "applied",
        "recommendation": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "250m"}}}]},
        "conditions": [{"type": "Selects", "status": "True", "reason": "Governs", "message": "1 workloads are governed"}]}}"#;

const RANGE: &str = r#"{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds", "namespace": "shop"},
    "spec": {"limits": [{"type": "Container", "min": {"cpu": "10m"}}]}}"#;

struct Audit;

/// A change, and an attempt of somebody with a hostile name.
fn audited() -> Vec<AuditEntry> {
    let text = |text: &str| Some(AuditText { text: text.into(), bytes: text.len() as u64 });
    let change = AuditEntry {
        number: 7,
        time_usec: TIME,
        who: "user anna (1000)".into(),
        from: "unix socket, pid 4711, uid 1000".into(),
        method: "evenkeel.v1.PolicyService/Apply".into(),
        kind: "Policy".into(),
        namespace: "shop".into(),
        name: "web".into(),
        after: text(r#"{"kind":"Policy"}"#),
        outcome: "done".into(),
        ..Default::default()
    };
    let attempt = AuditEntry {
        number: 8,
        who: "token x\u{1b}[2J\u{202e}y".into(),
        from: "192.0.2.1:4711".into(),
        method: "evenkeel.v1.EnrollService/Revoke".into(),
        kind: "Node".into(),
        namespace: String::new(),
        name: "default/n1".into(),
        before: Some(AuditText { text: "{\"cut".into(), bytes: 70_000 }),
        after: None,
        outcome: "refused".into(),
        reason: "token x has the role view, this asks for enroll".into(),
        left_out: 3,
        ..change
    };
    vec![attempt, change]
}

#[evenkeel_proto::tonic::async_trait]
impl AuditService for Audit {
    /// One entry a page.
    async fn list_changes(&self, r: Request<ListChangesRequest>) -> Answer<ListChangesResponse> {
        let asked = r.into_inner();
        let before = asked.page_token.parse().unwrap_or(u64::MAX);
        let fits = |e: &AuditEntry| {
            e.number < before
                && (asked.who.is_empty() || e.who.contains(&asked.who))
                && (asked.outcome.is_empty() || e.outcome == asked.outcome)
                && (asked.kind.is_empty() || e.kind == asked.kind)
                && e.time_usec >= asked.since_usec
        };
        let mut found = audited().into_iter().filter(fits);
        let (entries, more) = (found.next(), found.next().is_some());
        let next = entries.iter().filter(|_| more).map(|e| e.number.to_string()).collect();
        let trouble = if asked.name == "damaged" { "a record is damaged".to_owned() } else { String::new() };
        let entries = entries.into_iter().collect();
        Ok(Response::new(ListChangesResponse { entries, next_page_token: next, trouble }))
    }
}

#[evenkeel_proto::tonic::async_trait]
impl PolicyService for Policies {
    async fn list(&self, r: Request<ListRequest>) -> Answer<ListResponse> {
        let namespace = r.into_inner().namespace;
        let policies = if namespace == "none" { vec![] } else { vec![POLICY.to_owned()] };
        let objects = if namespace == "bounded" { vec![RANGE.to_owned()] } else { vec![] };
        Ok(Response::new(ListResponse { policies, objects }))
    }

    async fn get(&self, r: Request<GetRequest>) -> Answer<GetResponse> {
        let GetRequest { name, kind, .. } = r.into_inner();
        match name.as_str() {
            "bounds" if kind == "LimitRange" => Ok(Response::new(GetResponse { policy: RANGE.to_owned() })),
            // As a recommender answers that knows policies alone.
            "web" => Ok(Response::new(GetResponse { policy: POLICY.to_owned() })),
            other => Err(Status::not_found(format!("there is no policy shop/{other}"))),
        }
    }

    async fn apply(&self, r: Request<ApplyRequest>) -> Answer<ApplyResponse> {
        let ApplyRequest { policy, dry_run } = r.into_inner();
        if policy.contains("ResourceQuota") {
            return Err(Status::permission_denied("quotas are not yours"));
        }
        if policy.contains("LimitRange") {
            let outcome = "created".to_owned();
            return Ok(Response::new(ApplyResponse { policy, outcome, preview: Vec::new() }));
        }
        assert!(policy.contains("evenkeel.dev/v1"), "{policy}");
        let outcome = if dry_run { "created" } else { "changed" }.to_owned();
        Ok(Response::new(ApplyResponse { policy, outcome, preview: recommendations() }))
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Answer<DeleteResponse> {
        Ok(Response::new(DeleteResponse {}))
    }
}

fn recommendations() -> Vec<Recommendation> {
    let cpu = Recommendation {
        namespace: "shop".into(),
        workload: "deployment/web".into(),
        container: "app".into(),
        resource: "cpu".into(),
        current: Some(1000),
        request: Some(250),
        lower: Some(200),
        upper: Some(400),
        raw: Some(240),
        capped_by: vec!["minimum".into()],
        rule: "initial".into(),
        tier: "image-tag-7d".into(),
        samples: 60,
        span_seconds: 3600,
        confidence: Some(0.5),
        risk_now: Some(0.0),
        risk_then: Some(0.01),
        age_seconds: 12,
        replicas: 3,
        limit: Some(2000),
        current_limit: Some(2000),
        policy: "shop/web".into(),
        mode: "auto".into(),
        qos_class_before: QosClass::Guaranteed.into(),
        qos_class_after: QosClass::Burstable.into(),
        changes_class: true,
        young: true,
        ..Default::default()
    };
    let memory = Recommendation {
        namespace: "shop".into(),
        workload: "deployment/web".into(),
        container: "app".into(),
        resource: "memory".into(),
        rule: "initial".into(),
        tier: "none".into(),
        ..Default::default()
    };
    vec![cpu, memory]
}

fn sums() -> Allocated {
    Allocated { pods: 1, containers: 2, ..Allocated::default() }
}

fn cpu(allocatable: Option<u64>, quota_requests: Option<u64>) -> Option<AllocatedResource> {
    Some(AllocatedResource {
        allocatable,
        requested: 1500,
        limited: 5000,
        unlimited: 1,
        used: 320,
        recommended: 600,
        recommended_containers: 1,
        quota_requests,
        quota_limits: quota_requests.map(|quota| quota * 8),
    })
}

fn memory(allocatable: Option<u64>) -> Option<AllocatedResource> {
    Some(AllocatedResource {
        allocatable,
        requested: 2 << 30,
        limited: 2 << 30,
        used: 700 << 20,
        recommended: 1 << 30,
        recommended_containers: 2,
        ..AllocatedResource::default()
    })
}

#[evenkeel_proto::tonic::async_trait]
impl RecommenderService for Recommender {
    type WatchRecommendationsStream = Stream<WatchRecommendationsResponse>;
    type QuerySeriesStream = Stream<QuerySeriesResponse>;
    type WatchUsageStream = Stream<RecommenderServiceWatchUsageResponse>;

    async fn recommend_pod(&self, r: Request<RecommendPodRequest>) -> Answer<RecommendPodResponse> {
        let resources = ResourceValues { cpu_request_milli: Some(250), ..Default::default() };
        Ok(Response::new(RecommendPodResponse {
            recommendations: under(&r.into_inner().rules, recommendations()),
            containers: vec![RecommendedContainer {
                name: "app".into(),
                resources: Some(resources),
                ..Default::default()
            }],
            policy: "shop/web".into(),
            conflicts: vec!["shop/all".into()],
            qos_before: QosClass::Guaranteed.into(),
            qos_after: QosClass::Burstable.into(),
            ..Default::default()
        }))
    }

    async fn list_recommendations(
        &self,
        r: Request<ListRecommendationsRequest>,
    ) -> Answer<ListRecommendationsResponse> {
        let ListRecommendationsRequest { namespace: wanted, rules, selector } = r.into_inner();
        if selector == "app=(" {
            return Err(Status::invalid_argument("selector: \"app=(\" has no closing bracket"));
        }
        let all = recommendations().into_iter().filter(|r| wanted.is_empty() || r.namespace == wanted);
        let recommendations = under(&rules, all.collect());
        let panic_reason = "drill".to_owned();
        Ok(Response::new(ListRecommendationsResponse {
            recommendations,
            panic: wanted.is_empty(),
            panic_reason,
            ..Default::default()
        }))
    }

    async fn watch_recommendations(
        &self,
        _: Request<WatchRecommendationsRequest>,
    ) -> Answer<Self::WatchRecommendationsStream> {
        Err(Status::unimplemented("not here"))
    }

    async fn query_usage(&self, r: Request<QueryUsageRequest>) -> Answer<QueryUsageResponse> {
        let stats = Stats {
            mean: Some(200),
            max: Some(900),
            min: Some(10),
            count: 3600,
            percentiles: [("50".to_owned(), 180), ("90".to_owned(), 400), ("99".to_owned(), 850)].into(),
        };
        let record = UsageRecord {
            namespace: "shop".into(),
            workload: "deployment/web".into(),
            container: "app".into(),
            usage: [("cpu".to_owned(), stats.clone())].into(),
            max_usage: [("cpu".to_owned(), stats.clone())].into(),
            predicted: [("cpu".to_owned(), Stats { mean: Some(300), max: Some(1200), ..stats })].into(),
            predicted_seconds: Some(86_400),
            predicted_confidence: Some(0.9),
            window_seconds: r.into_inner().window_seconds.max(60),
            confidence: Some(1.0),
            dropped: 2,
            ..Default::default()
        };
        Ok(Response::new(QueryUsageResponse { records: vec![record] }))
    }

    async fn query_series(&self, r: Request<QuerySeriesRequest>) -> Answer<Self::QuerySeriesStream> {
        let request = r.into_inner();
        let (begin, step) = (1_700_000_000, request.step_seconds.max(60));
        // Four days of minutes, with a lost hour on the second.
        let times: Vec<u64> = (0..4 * 1440).filter(|at| !(2000..2060).contains(at)).collect();
        let value = |at: u64| 100_000 + at % 1440 * 100;
        let pieces = times.chunks(2000).map(|chunk| QuerySeriesResponse {
            series: "shop/deployment/web/app".into(),
            times: chunk.iter().map(|at| begin + at * step).collect(),
            values: chunk.iter().map(|at| value(*at)).collect(),
            gaps: match chunk.contains(&2060) {
                true => {
                    vec![SeriesGap { from_seconds: begin + 2000 * step, to_seconds: begin + 2060 * step }]
                }
                false => Vec::new(),
            },
        });
        let is_known = ["", "deployment/web"].contains(&request.workload.as_str());
        let pieces: Vec<_> = pieces.filter(|_| is_known).map(Ok).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    async fn watch_usage(
        &self,
        _: Request<RecommenderServiceWatchUsageRequest>,
    ) -> Answer<Self::WatchUsageStream> {
        let Some(Used::Tick(tick)) = tick(1500).event else { return Err(Status::internal("no tick")) };
        let usage = |one: ContainerUsage| {
            let usage = ContainerUsage { cluster: "default".into(), node: "n1".into(), ..one };
            let identity = usage.identity.clone().map(|i| ContainerIdentity { id: i.pod.clone(), ..i });
            let event =
                recommender_service_watch_usage_response::Event::Usage(ContainerUsage { identity, ..usage });
            Ok(RecommenderServiceWatchUsageResponse { event: Some(event) })
        };
        let told: Vec<_> = tick.containers.into_iter().map(usage).collect();
        // It stays open.
        let all = futures::StreamExt::chain(futures::stream::iter(told), futures::stream::pending());
        Ok(Response::new(Box::pin(all)))
    }

    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Answer<ListNodesResponse> {
        let node = Node {
            cluster: "default".into(),
            name: "n1".into(),
            version: "0.1.0".into(),
            connected: true,
            last_seen_usec: TIME,
            containers: 1,
            facts: Some(NodeFacts { memory_bytes: 8 << 30, cpu_milli: 4000, ..Default::default() }),
            frames: 8,
            samples: 80,
            gaps: 1,
            clock_behind_usec: 1_500_000,
            dropped: vec![Dropped {
                reason: "too-many-names".into(),
                count: 3,
                remedy: "raise ingest.max_names_per_minute".into(),
            }],
            allocated: Some(Allocated {
                cpu: cpu(Some(4000), None),
                memory: memory(Some(7 << 30)),
                ..sums()
            }),
            ..Node::default()
        };
        Ok(Response::new(ListNodesResponse { nodes: vec![node], ..ListNodesResponse::default() }))
    }

    async fn list_namespaces(&self, _: Request<ListNamespacesRequest>) -> Answer<ListNamespacesResponse> {
        let of = |name: &str, allocated| Namespace {
            cluster: "default".into(),
            name: name.into(),
            allocated: Some(allocated),
        };
        let shop = Allocated { cpu: cpu(None, Some(1000)), memory: memory(None), ..sums() };
        let all = Allocated { cpu: cpu(Some(4000), None), memory: memory(Some(7 << 30)), ..sums() };
        let quota_trouble = "objects: q.yaml: no such file".into();
        Ok(Response::new(ListNamespacesResponse {
            namespaces: vec![of("shop", shop)],
            clusters: vec![of("", all)],
            quota_trouble,
        }))
    }

    async fn list_events(&self, _: Request<ListEventsRequest>) -> Answer<ListEventsResponse> {
        let event = Decision { node: "n2".into(), ..decision(9, "set", Some("shop/web")) };
        Ok(Response::new(ListEventsResponse { events: vec![event] }))
    }

    async fn list_updates(&self, r: Request<ListUpdatesRequest>) -> Answer<ListUpdatesResponse> {
        let step = PodUpdate {
            time_usec: 1_795_225_427_000_000,
            namespace: "shop".into(),
            workload: "deployment/web".into(),
            policy: "shop/web".into(),
            pod: "web-a-x".into(),
            deed: "resize".into(),
            reason: "Raise".into(),
            why: "main: cpu 100m/- to 300m/-".into(),
            outcome: "done".into(),
            inputs: [("evict".to_owned(), "never".to_owned())].into(),
            ..PodUpdate::default()
        };
        let left = PodLeftAlone {
            namespace: "shop".into(),
            workload: "deployment/db".into(),
            reason: "Rollout".into(),
            why: "a roll-out is under way".into(),
            ..PodLeftAlone::default()
        };
        let steps = vec![step];
        let failure = PodFailure {
            namespace: "shop".into(),
            workload: "deployment/web".into(),
            pod: "web-a-x".into(),
            node: "n1".into(),
            container: "main".into(),
            reason: "OOMKilled".into(),
            time: "2026-11-21T00:30:00Z".into(),
            ..PodFailure::default()
        };
        let case = UpdateCase { text: include_str!("choice.json").into(), ..UpdateCase::default() };
        let (left_alone, failures) = (vec![left], vec![failure]);
        let told = match r.into_inner().cases {
            true => ListUpdatesResponse { cases: vec![case], ..ListUpdatesResponse::default() },
            false => ListUpdatesResponse { steps, left_alone, failures, ..ListUpdatesResponse::default() },
        };
        Ok(Response::new(ListUpdatesResponse { mode: "on".into(), passes: 9, ..told }))
    }

    async fn set_panic(&self, r: Request<SetPanicRequest>) -> Answer<SetPanicResponse> {
        let SetPanicRequest { on, revert, .. } = r.into_inner();
        Ok(Response::new(SetPanicResponse { on, revert }))
    }
}

/// The cluster that the recommender knows: two nodes, one of them half full.
pub const CLUSTER: &str = r#"{"kind": "List", "items": [
    {"kind": "Node", "metadata": {"name": "n1", "labels": {"pool": "a"}}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
    {"kind": "Node", "metadata": {"name": "n2"}, "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"}}},
    {"kind": "Pod", "metadata": {"name": "db", "namespace": "shop"}, "spec": {"nodeName": "n1", "containers": [
        {"name": "db", "resources": {"requests": {"cpu": "2"}}}]}}]}"#;

/// Answers about [`CLUSTER`], as the recommender does.
struct Capacity;

fn asked_about(texts: &[String]) -> Result<Manifest, Status> {
    let mut manifest = Manifest::default();
    for text in texts {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        manifest.take(&value).map_err(|error| Status::invalid_argument(error.to_string()))?;
    }
    Ok(manifest)
}

#[evenkeel_proto::tonic::async_trait]
impl CapacityService for Capacity {
    type SnapshotStream = Stream<SnapshotResponse>;

    async fn estimate(&self, request: Request<EstimateRequest>) -> Answer<EstimateResponse> {
        let EstimateRequest { pods, place, options_json, cluster, snapshot, recommended, .. } =
            request.into_inner();
        assert!(snapshot.is_empty() && !recommended);
        if !matches!(&*cluster, "" | "c" | "empty") {
            return Err(Status::invalid_argument(format!("no agent of cluster {cluster} reports")));
        }
        let mut loader = Loader::new();
        if cluster != "empty" {
            loader.document(&serde_json::from_str::<serde_json::Value>(CLUSTER).unwrap()).unwrap();
        }
        let (cluster, report) = loader.finish();
        // Unknown names are refused.
        let options: QuestionOptions = serde_json::from_str(&options_json).unwrap();
        let mut question = CapacityQuestion { options, ..CapacityQuestion::default() };
        question.asks(asked_about(&pods)?);
        question.places_first(asked_about(&place)?);
        let answered = question.answer(Snapshot { cluster, report }, None, &mut |_| true);
        let (whole, _) = answered.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let answer_json = serde_json::to_string(&whole).unwrap();
        Ok(Response::new(EstimateResponse { answer_json, ..EstimateResponse::default() }))
    }

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Answer<Self::SnapshotStream> {
        stream(Vec::new())
    }

    async fn list_watched(&self, _: Request<ListWatchedRequest>) -> Answer<ListWatchedResponse> {
        Ok(Response::new(ListWatchedResponse::default()))
    }
}
