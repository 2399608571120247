//! From the configuration as written to the valid one. All errors are told at once.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_enforce::config::{self as enforce, Features, Mode, Roots};
use evenkeel_enforce::converge::rules::{Converge, CpuRules, FreezeWhen, Switches};
use evenkeel_enforce::reconcile::Manage;
use evenkeel_net::get::HttpsEndpoint;
use evenkeel_proto::line::{self, LineError, Trust};
use evenkeel_qos::config::{KnobSwitches, PlanConfig};
use evenkeel_qos::cpu::WeightConversion;
use evenkeel_qos::rules::RuleSet;
use hyper::Uri;

use super::raw;
use super::sections::cpu::Conversion;
use super::sections::memory::{MemoryRules, OomScope};
use super::sections::{admission, cpu, daemons, knobs, memory, node, node_memory, own, systemd};
use super::sections::{eviction, oom, overlay, parts, pressure, ring, starvation, trust};
use super::{ConfigError, Loaded};
use crate::pods::Kubelet;
use crate::trust::membership::Joining;

use crate::sources::systemd::is_wanted;

use super::valid::{Config, SamplerConfig, Serve, Sources, StreamConfig};

/// Shortest and longest audit period: below, audits alone load a node of a thousand containers; above, a missed
/// event would stay unnoticed for too long.
const AUDIT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// How long a source has to tell of an update that a runtime made in place: a listing settles 10 ms and takes the runtime some more, or much
/// more on a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A frozen container serves nobody.
const FREEZE_MAX: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(5);
/// Below a tenth of a second sampling costs more than it tells; a minute is the resolution of history.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// Two segments of the smallest useful size, and what nobody means to give a spool.
const SPOOL: (u64, u64) = (1 << 20, 1 << 40);

/// Checks every value.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub(crate) fn check(loaded: &Loaded) -> Result<Config, Vec<ConfigError>> {
    let mut c = Checker { loaded, errors: Vec::new() };
    let raw = &loaded.value;
    let kubelet_rules = matches!(raw.rules, raw::Rules::Kubelet);
    // In this order, which is the one in which errors are told.
    let cluster = c.name("node.cluster", &raw.node.cluster).unwrap_or_default();
    let node_name = if raw.node.name.is_empty() { None } else { c.name("node.name", &raw.node.name) };
    let sources = sources(&mut c, &raw.sources);
    let manage = manage(&mut c, &raw.manage, kubelet_rules);
    let admission = admission::check(&mut c, &raw.admission, kubelet_rules);
    let knobs = knobs::switches(&raw.knobs);
    let cpu = cpu::check(&mut c, &raw.cpu);
    let memory = memory::check(&mut c, &raw.memory);
    let node_memory = node_memory::check(&mut c, raw.memory.overcommit, &raw.memory.workloads_cap);
    let daemons = daemons::check(&mut c, &raw.daemons);
    let allocatable = node::check(&mut c, &raw.node);
    let cpu_factor = node::cpu_factor(&mut c, &raw.node);
    let types = Arc::new(node::types(&mut c, &raw.resources));
    let mut enforce = enforce::Config {
        mode: match raw.mode {
            raw::Mode::Enforce => Mode::Enforce,
            raw::Mode::DryRun => Mode::DryRun,
        },
        mode_is_set: loaded.is_set("mode"),
        strict: raw.strict,
        roots: Roots {
            proc: raw.roots.proc.clone(),
            cgroup: raw.roots.cgroup.clone(),
            run: raw.roots.run.clone(),
        },
        sources: enforce::Expected {
            manifests: sources.manifests.is_some(),
            systemd: is_wanted(&sources.systemd),
            cri: sources.cri.len(),
        },
        manage,
        admission,
        plan: plan(raw, &knobs, &cpu, &memory),
        weight_conversion: match raw.cpu.weight_conversion {
            Conversion::Auto => None,
            Conversion::Linear => Some(WeightConversion::Linear),
            Conversion::Quadratic => Some(WeightConversion::Quadratic),
            Conversion::Systemd => Some(WeightConversion::Systemd),
        },
        knobs,
        cpu,
        node_memory,
        daemons,
        allocatable,
        own: own::check(&mut c, &raw.own, &raw.manage.deny),
        dynamic_scores: raw.scores == raw::Scores::Dynamic,
        pressure: pressure::check(&mut c, &raw.pressure),
        starvation: starvation::check(&mut c, &raw.starvation),
        overlay: overlay::check(&mut c, &raw.overlay, kubelet_rules),
        oom: oom::check(&mut c, &raw.oom),
        eviction: eviction::check(&mut c, &raw.eviction),
        acting: eviction::acting(&mut c, &raw.eviction, kubelet_rules),
        converge: converge(&mut c, &raw.converge),
        state_dir: PathBuf::new(),
        features: Features {
            proc_connector: raw.features.proc_connector,
            short_psi: raw.features.short_psi,
            v1_kill: raw.features.v1_kill || raw.memory.oom_kill == OomScope::Container,
            kernel_log: raw.features.kernel_log,
        },
    };
    let sample = SamplerConfig { interval: c.span("sample.interval", raw.sample.interval.get(), INTERVAL) };
    let ring = ring::check(&mut c, &raw.ring);
    let stream = stream(&mut c, &raw.stream);
    enforce.state_dir = c.absolute("state_dir", &raw.state_dir);
    let parts = parts::check(&mut c, &raw.parts);
    let serve = serve(&mut c, &raw.serve);
    let trust = trust::check(&mut c, raw, &serve);
    let enforce = Arc::new(enforce);
    let config = Config {
        enforce,
        cluster,
        node_name,
        sources,
        cpu_factor,
        types,
        sample,
        ring,
        stream,
        parts,
        serve,
        trust,
    };
    if c.errors.is_empty() { Ok(config) } else { Err(c.errors) }
}

/// The planner's part of it.
fn plan(raw: &raw::Raw, on: &Switches, cpu: &CpuRules, memory: &MemoryRules) -> PlanConfig {
    PlanConfig {
        rules: match raw.rules {
            raw::Rules::Proposal => RuleSet::Proposal,
            raw::Rules::Kubelet => RuleSet::Kubelet,
        },
        knobs: KnobSwitches {
            oom_score_adj: on.oom_score_adj,
            cpu_shares: on.cpu_shares || on.cpu_weight,
            cpu_quota: on.cpu_quota,
            cpu_burst: on.cpu_burst,
            memory_protection: on.memory_protection,
            memory_max: on.memory_max,
            memory_oom_group: on.memory_oom_group,
            memory_swap: on.memory_swap,
        },
        memory_high: memory.high,
        oom_kill: memory.oom_kill,
        cpu_period: cpu.period,
        cpu_burst: cpu.burst,
        cpu_idle_best_effort: cpu.idle_best_effort,
        swap_limits: memory.swap_limits,
        ..PlanConfig::default()
    }
}

fn sources(c: &mut Checker<'_>, raw: &raw::Sources) -> Sources {
    let dir = c.absolute("sources.manifests.dir", &raw.manifests.dir);
    let sockets = raw.cri.sockets.iter().map(|socket| c.absolute("sources.cri.sockets", socket)).collect();
    let engines = [
        c.absolute("sources.engines.docker", &raw.engines.docker),
        c.absolute("sources.engines.podman", &raw.engines.podman),
    ];
    Sources {
        manifests: raw.manifests.enabled.then_some(dir),
        cri: if raw.cri.enabled { sockets } else { Vec::new() },
        engines: raw.engines.enabled.then_some(engines),
        systemd: systemd::check(c, &raw.systemd),
        kubelet: kubelet(c, &raw.kubelet),
    }
}

/// How the kubelet is asked; its name is the node's where none is given, which is not known here.
fn kubelet(c: &mut Checker<'_>, raw: &raw::Kubelet) -> Option<Kubelet> {
    if !raw.enabled {
        return None;
    }
    let url: Option<Uri> = raw.address.parse().ok();
    let host = url.as_ref().and_then(Uri::host).map(|host| host.trim_matches(['[', ']']).to_owned());
    let is_secure = url.as_ref().and_then(Uri::scheme_str) == Some("https");
    let Some(host) = host.filter(|_| is_secure) else {
        let reason = format!("{:?} is not https://HOST:PORT", raw.address);
        c.fail("sources.kubelet.address", reason, "give the kubelet's, such as \"https://127.0.0.1:10250\"");
        return None;
    };
    let interval = raw.interval.get();
    let (least, most) = (Duration::from_secs(2), Duration::from_secs(3600));
    if !(least..=most).contains(&interval) {
        c.fail("sources.kubelet.interval", format!("{} is not 2s to 1h", raw.interval), "give such a time");
    }
    let asked = HttpsEndpoint {
        host,
        port: url.and_then(|url| url.port_u16()).unwrap_or(10250),
        name: raw.server_name.clone(),
        authorities: c.absolute("sources.kubelet.ca", &raw.ca),
        token: c.absolute("sources.kubelet.token", &raw.token),
    };
    Some(Kubelet { asked, interval })
}

fn manage(c: &mut Checker<'_>, raw: &raw::Manage, kubelet_rules: bool) -> Manage {
    for prefix in &raw.deny {
        let parts_fine = prefix.split('/').all(|part| part != "..");
        if !prefix.starts_with('/') || !parts_fine {
            let reason = format!("\"{prefix}\" is not a cgroup path");
            c.fail("manage.deny", reason, "give a path below the cgroup root, such as \"/system.slice\"");
        }
    }
    if kubelet_rules && !raw.trust_annotations.is_empty() {
        let reason = "requests belong to the pod where rules = \"kubelet\"".to_owned();
        c.fail("manage.trust_annotations", reason, "leave it empty beside a kubelet");
    }
    Manage {
        exclude_namespaces: raw.exclude_namespaces.clone(),
        deny: raw.deny.clone(),
        trust_annotations: raw.trust_annotations.clone(),
    }
}

fn converge(c: &mut Checker<'_>, raw: &raw::Converge) -> Converge {
    let freeze = FreezeWhen::parse(&raw.freeze.0);
    if freeze.is_none() {
        let reason = format!("\"{}\" is not one of its values", raw.freeze.0);
        c.fail(
            "converge.freeze",
            reason,
            "give \"when-forking\", \"after-3-passes\" (or another number) or \"never\"",
        );
    }
    if raw.contended_after == 0 {
        c.fail("converge.contended_after", "0 would give up every knob at once".into(), "give 1 or more");
    }
    Converge {
        audit_period: c.span("converge.audit_period", raw.audit_period.get(), AUDIT),
        freeze: freeze.unwrap_or(FreezeWhen::Never),
        freeze_max: c.span("converge.freeze_max", raw.freeze_max.get(), FREEZE_MAX),
        score: raw.score.into(),
        contended_after: raw.contended_after,
        answer_within: ANSWER_WITHIN,
    }
}

fn stream(c: &mut Checker<'_>, raw: &raw::Stream) -> StreamConfig {
    let addresses = addresses(c, &raw.recommender.list());
    let spool = raw.spool_bytes.get();
    if !(SPOOL.0..=SPOOL.1).contains(&spool) {
        let reason = format!("{spool} bytes is outside {} to {}", SPOOL.0, SPOOL.1);
        c.fail("stream.spool_bytes", reason, "give a size in this range, such as \"64Mi\"");
    }
    let mut file = |key, path: &PathBuf| {
        Some(path).filter(|path| !path.as_os_str().is_empty()).map(|path| c.absolute(key, path))
    };
    let trust = Trust {
        token: file("stream.token", &raw.token),
        ca: file("stream.ca", &raw.ca),
        cert: file("stream.cert", &raw.cert),
        key: file("stream.key", &raw.key),
        pair: None,
        name: Some(raw.name.clone()).filter(|name| !name.is_empty()),
        insecure: raw.insecure,
    };
    if trust.cert.is_some() != trust.key.is_some() {
        c.fail(
            "stream.cert",
            "it is given without stream.key, or the other way round".into(),
            "give both or none",
        );
    }
    let joining = joining(c, raw, &trust);
    let clear = addresses.iter().filter_map(|address| reachable(c, address, &trust, joining.as_ref()));
    let clear: Vec<String> = clear.collect();
    let in_the_clear = (!clear.is_empty()).then(|| clear.join("; "));
    StreamConfig { recommenders: addresses, trust, joining, in_the_clear, spool_bytes: spool }
}

/// Recommenders at most.
const MAX_RECOMMENDERS: usize = 4;

/// The recommenders whose addresses are some.
fn addresses(c: &mut Checker<'_>, given: &[String]) -> Vec<String> {
    const REMEDY: &str = "give one such as \"unix:///run/evenkeel/recommender.sock\" or \"http://127.0.0.1:9520\", or \"\" for no stream";
    let is_known = |address: &String| {
        ["unix:///", "http://", "https://"].iter().any(|scheme| {
            let rest = address.strip_prefix(scheme);
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
        })
    };
    for address in given.iter().filter(|address| !is_known(address)) {
        c.fail("stream.recommender", format!("\"{address}\" is not an address"), REMEDY);
    }
    let mut found: Vec<String> = given.iter().filter(|address| is_known(address)).cloned().collect();
    let distinct: std::collections::BTreeSet<&String> = found.iter().collect();
    if distinct.len() < found.len() {
        let reason = "an address is there more than once".to_owned();
        c.fail("stream.recommender", reason, "give each recommender once: it would be sent everything again");
    }
    if found.len() > MAX_RECOMMENDERS {
        let reason = format!("there are {} addresses", found.len());
        c.fail("stream.recommender", reason, "give at most 4: every frame is kept until each of them has it");
        found.truncate(MAX_RECOMMENDERS);
    }
    found
}

/// How the node joins.
fn joining(c: &mut Checker<'_>, raw: &raw::Stream, trust: &Trust) -> Option<Joining> {
    let given = |path: &Path| !path.as_os_str().is_empty();
    let sha256 = raw.ca_sha256.strip_prefix("sha256:").unwrap_or(&raw.ca_sha256);
    let is_hash = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !sha256.is_empty() && !is_hash {
        let reason = format!("{:?} is no fingerprint", raw.ca_sha256);
        c.fail("stream.ca_sha256", reason, "give sha256: and 64 hexadecimal digits (evenkeel ca list)");
    }
    if !given(&raw.join_token) {
        if !sha256.is_empty() {
            let reason = "it is given without stream.join_token".to_owned();
            c.fail("stream.ca_sha256", reason, "give a join token, or the file of the authority (stream.ca)");
        }
        return None;
    }
    if trust.cert.is_some() || trust.token.is_some() {
        let reason = "the node has a certificate or token already (stream.cert, stream.token)".to_owned();
        c.fail("stream.join_token", reason, "give one of them");
    }
    let addresses = raw.recommender.list();
    if let Some(address) = addresses.iter().find(|address| !address.starts_with("https://")) {
        let reason =
            format!("a certificate shows who this node is over TLS, and stream.recommender is \"{address}\"");
        c.fail("stream.join_token", reason, "use https://, or leave it empty");
    }
    if addresses.len() > 1 {
        let reason = "each of several recommenders would have an authority of its own".to_owned();
        c.fail("stream.join_token", reason, "give a token or certificate that all of them take");
    }
    let ca_sha256 = Some(sha256.to_owned()).filter(|text| !text.is_empty());
    Some(Joining { token: c.absolute("stream.join_token", &raw.join_token), ca_sha256 })
}

/// Whether the stream is encrypted where it leaves the machine, or accepted as it is: then it is said what is.
fn reachable(c: &mut Checker<'_>, address: &str, trust: &Trust, joining: Option<&Joining>) -> Option<String> {
    // A stream without a token is no safer than one with it: the samples themselves can be read and changed.
    let exposed = Trust { token: Some(PathBuf::new()), insecure: false, ..trust.clone() };
    match line::endpoint(address, &exposed) {
        Err(LineError::Readable(_)) if trust.insecure => {
            return Some(format!(
                "stream.recommender = {address} is reached over a network without encryption"
            ));
        }
        Err(LineError::Readable(_)) => c.fail(
            "stream.recommender",
            format!("\"{address}\" is reached over a network without encryption"),
            "use https:// and stream.ca, or accept it with stream.insecure = true",
        ),
        Err(LineError::NoAuthority(_)) if joining.is_some_and(|joining| joining.ca_sha256.is_some()) => {}
        Err(LineError::NoAuthority(_)) => c.fail(
            "stream.ca",
            "it is empty, and the recommender is reached by https://".into(),
            "name the file of the authorities of its certificate",
        ),
        // Files may come later: they are read at each connection.
        Ok(_) | Err(_) => {}
    }
    None
}

fn serve(c: &mut Checker<'_>, raw: &raw::Serve) -> Serve {
    Serve {
        socket: c.absolute("serve.socket", &raw.socket),
        address: c.address("serve.address", &raw.address),
        metrics: c.address("serve.metrics", &raw.metrics),
        dashboard: c.address("serve.dashboard", &raw.dashboard),
    }
}

/// Collects what is wrong; sections in files of their own check themselves with it.
pub(super) struct Checker<'a> {
    loaded: &'a Loaded,
    errors: Vec<ConfigError>,
}

impl Checker<'_> {
    pub(super) fn fail(&mut self, key: &str, reason: String, remedy: &str) {
        let place = self.loaded.place(key);
        self.errors.push(ConfigError { place, key: Some(key.to_owned()), reason, remedy: remedy.to_owned() });
    }

    pub(super) fn span(&mut self, key: &str, value: Duration, range: RangeInclusive<Duration>) -> Duration {
        if !range.contains(&value) {
            self.fail(
                key,
                format!("{value:?} is outside {:?} to {:?}", range.start(), range.end()),
                "give a duration in this range",
            );
        }
        value
    }

    /// Names become parts of keys and metric labels.
    pub(super) fn name(&mut self, key: &str, value: &str) -> Option<String> {
        let fits = !value.is_empty() && value.len() <= 253;
        if !fits || value.chars().any(|ch| ch.is_control() || ch.is_whitespace() || ch == '/') {
            let reason = format!("{value:?} is not a name");
            self.fail(key, reason, "give 1 to 253 characters without blanks and slashes");
            return None;
        }
        Some(value.to_owned())
    }

    pub(super) fn absolute(&mut self, key: &str, path: &Path) -> PathBuf {
        if !path.is_absolute() {
            self.fail(key, format!("\"{}\" is not an absolute path", path.display()), "begin it with /");
        }
        path.to_owned()
    }

    pub(super) fn address(&mut self, key: &str, text: &str) -> Option<SocketAddr> {
        if text.is_empty() {
            return None;
        }
        let address = text.parse().ok();
        if address.is_none() {
            let reason = format!("\"{text}\" is not an address and port");
            self.fail(key, reason, "give one such as \"127.0.0.1:9523\", or \"\" for none");
        }
        address
    }
}
