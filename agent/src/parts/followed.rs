//! What the enforcing part gives the runtime's to do, and takes of what it found.
//!
//! Owned here: connecting to runtimes' sockets for it, and what of its finds may be. It knows nothing but what runtimes told it, and may have
//! been taken over by one: a container is taken in under its whole id alone, in a cgroup that is named by it, as runtimes name theirs, so that
//! nothing else of the machine can be passed off as one. Runtimes that name them otherwise do so below cgroups that the configuration names
//! (`parts.runtime_cgroups`), where there is nothing else.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use evenkeel_border::ask::{Connect, Failure};
use evenkeel_border::coded::Coded as _;
use evenkeel_border::found::Found;
use evenkeel_border::link::{Bounds, Channel, Link, Pace};
use evenkeel_border::order::{Follow, Order, Word};
use evenkeel_enforce::shared::{SourceProblem, SourceUpdate, UpdateSender, lock};
use evenkeel_model::workload::{CgroupBinding, SourceKind, Workload};
use evenkeel_proto::v1;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Part;
use super::found::{hand_on, is_bounded, problem};
use super::keeper::{Duty, ending};
use crate::outward::Gate;
use crate::pods::Pods;
use crate::shared::Rescan;
use crate::sources::engines::api::unusable;

/// What the enforcing part takes of the runtime's, and keeps: all that is found of some thousand containers, a few times.
const BOUNDS: Bounds = Bounds {
    theirs: 256,
    ours: 16,
    message: 16 << 20,
    waiting: 24 << 20,
    packets: 4_000,
    descriptors: false,
};
/// Longest name: Kubernetes has 253 bytes, the kernel 255.
const MOST_NAME: usize = 255;
/// Shortest id: runtimes' are 64 hexadecimal digits.
const LEAST_ID: usize = 32;
/// Problems of one source that are told one by one: each is a decision and a line of the log, and who was taken over could make any number.
const MOST_TOLD: usize = 8;
/// All that is found of one source at most so often a second; what comes faster waits with the part.
const FINDS: u32 = 10;

/// The work of the runtime's part.
pub(crate) struct Followed {
    /// The way to it for what is to be stopped.
    pub gate: Gate,
    /// What it follows.
    pub follow: Follow,
    /// Where what it found goes.
    pub updates: UpdateSender,
    /// Rung when it should list again.
    pub rescan: Rescan,
    /// What it is told of the node's pods.
    pub pods: Arc<Pods>,
    /// Subtrees whose cgroups need not be named by ids.
    pub cgroups: Arc<[String]>,
    /// What was taken in last, by address, which is what stands while there is no part.
    pub known: Known,
}

/// What was taken in, by source and address.
pub(crate) type Known = Arc<Mutex<HashMap<(SourceKind, String), HashMap<String, Arc<Workload>>>>>;

impl Duty for Followed {
    const PART: Part = Part::Runtime;
    const BOUNDS: Bounds = BOUNDS;

    fn begin(
        &self,
        link: &Link,
        asks: mpsc::Receiver<Channel>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<mpsc::Receiver<String>> {
        self.gate.set(Some(link.clone()));
        tasks.spawn(connect_all(self.follow.clone(), asks));
        let task = Following {
            follow: self.follow.clone(),
            updates: self.updates.clone(),
            rescan: self.rescan.clone(),
            pods: Arc::clone(&self.pods),
            cgroups: Arc::clone(&self.cgroups),
            known: Arc::clone(&self.known),
        };
        Ok(ending(tasks, task.run(link.clone())))
    }

    fn end(&self) {
        self.gate.set(None);
    }
}

/// Connects to the sockets that are followed, and to no other.
async fn connect_all(follow: Follow, mut asks: mpsc::Receiver<Channel>) {
    let mut connecting = JoinSet::new();
    let sockets: Vec<String> = follow.cri.clone();
    let engines: Vec<String> =
        follow.engines.into_iter().flat_map(|(docker, podman)| [docker, podman]).collect();
    loop {
        tokio::select! {
            asked = asks.recv() => {
                let Some(channel) = asked else { return };
                let (sockets, engines) = (sockets.clone(), engines.clone());
                connecting.spawn(async move {
                    let done = connected(&channel, &sockets, &engines).await;
                    channel.end(done.map_err(|message| Failure { code: 14, message })).await;
                });
            }
            Some(_) = connecting.join_next() => {}
        }
    }
}

async fn connected(channel: &Channel, sockets: &[String], engines: &[String]) -> Result<(), String> {
    let message = channel.receive().await.map_err(|ended| ended.to_string())?;
    let Connect(path) = Connect::of(&message).map_err(|error| error.to_string())?;
    if engines.contains(&path) {
        if let Some(why) = unusable(&PathBuf::from(&path)) {
            return Err(why);
        }
    } else if !sockets.contains(&path) {
        return Err("this is no socket of sources.cri or sources.engines".to_owned());
    }
    let stream = UnixStream::connect(&path).await.map_err(|error| error.to_string())?;
    channel.send_with(&[], Some(stream.as_fd())).await.map_err(|ended| ended.to_string())
}

struct Following {
    follow: Follow,
    updates: UpdateSender,
    rescan: Rescan,
    pods: Arc<Pods>,
    cgroups: Arc<[String]>,
    known: Known,
}

impl Following {
    /// Takes what is found until the border ends; why it does.
    async fn run(self, link: Link) -> String {
        match self.follow(&link).await {
            Ok(()) => "it found what it was not asked for".to_owned(),
            Err(ended) => format!("nothing is found: {ended}"),
        }
    }

    async fn follow(&self, link: &Link) -> anyhow::Result<()> {
        let channel = link.open().await?;
        channel.send(&Order::Follow(self.follow.clone()).message()).await?;
        let (mut changes, mut generation, mut asked) = (self.pods.changes(), 0, Instant::now());
        let bell = self.rescan.clone();
        let mut rung = Box::pin(bell.notified());
        let mut pace = Pace::new(FINDS);
        // Those that are known already; later ones when they change.
        changes.mark_changed();
        loop {
            tokio::select! {
                found = channel.receive() => {
                    let found = Found::of(&found?)?;
                    pace.wait().await;
                    let Some(update) = self.taken(found) else { return Ok(()) };
                    hand_on(&self.updates, update).await;
                }
                () = &mut rung => {
                    rung.set(bell.notified());
                    let since = std::mem::replace(&mut asked, Instant::now());
                    let word = Word::Rescan(bell.bell().asked_after(since));
                    channel.send(&word.message()).await?;
                }
                Ok(()) = changes.changed() => {
                    generation += 1;
                    let by_uid = self.pods.by_uid();
                    let changed = by_uid.values().map(|pod| v1::PodRequirements::from(&**pod)).collect();
                    let told = v1::NodePods { run: 1, generation, whole: true, changed, ..v1::NodePods::default() };
                    channel.send(&Word::Pods(told).message()).await?;
                }
            }
        }
    }

    /// What of it may be; `None` of a source that it was not asked for.
    fn taken(&self, found: Found) -> Option<SourceUpdate> {
        let is_bounded = is_bounded(&found);
        let Found { source, address, workloads, problems, healthy } = found;
        let is_asked = match source {
            SourceKind::Cri => self.follow.cri.contains(&address),
            SourceKind::Names => self.follow.roots.first() == Some(&address),
            _ => false,
        };
        if !is_asked || !is_bounded {
            return None;
        }
        let mut told: Vec<SourceProblem> = problems.into_iter().map(problem).collect();
        let mut known = lock(&self.known);
        let before = known.remove(&(source, address.clone())).unwrap_or_default();
        let mut now = HashMap::new();
        for workload in workloads {
            if let Err(why) = may_be(source, &workload, &self.cgroups) {
                told.push(refused(&workload, why));
                continue;
            }
            // What is as it was stays the same one, so that a container is in memory once however many hold it.
            let same = before.get(&workload.id).filter(|before| ***before == workload).map(Arc::clone);
            let workload = same.unwrap_or_else(|| Arc::new(workload));
            now.insert(workload.id.clone(), workload);
        }
        if told.len() > MOST_TOLD {
            told.truncate(MOST_TOLD);
            told.push(more(&address));
        }
        let mut workloads: Vec<Arc<Workload>> = now.values().map(Arc::clone).collect();
        workloads.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        known.insert((source, address.clone()), now);
        let update = SourceUpdate { source, address, workloads, problems: told, healthy };
        self.pods.found(&update);
        Some(update)
    }
}

/// Whether a container can be one of a runtime; below `named` its cgroup need not show it.
fn may_be(source: SourceKind, workload: &Workload, named: &[String]) -> Result<(), &'static str> {
    let Workload { id, pod, container, workload: controller, cgroup, .. } = workload;
    if workload.source != source {
        return Err("it is said to be of another source");
    }
    let is_named = matches!(cgroup, CgroupBinding::Path(path) if named.iter().any(|at| is_below(path, at)));
    let is_id = match is_named {
        true => !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'),
        false => id.len() >= LEAST_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
    };
    if id.len() > MOST_NAME || !is_id {
        return Err("its id is none of a runtime");
    }
    let names = [&pod.namespace, &pod.name, container, controller];
    if names.iter().any(|name| name.len() > 2 * MOST_NAME) {
        return Err("a name of it is too long");
    }
    match cgroup {
        CgroupBinding::Path(path) => {
            let last = path.rsplit('/').next().unwrap_or_default();
            let climbs = path.split('/').any(|part| part == "..");
            if climbs || !(is_named || last.contains(id.as_str())) {
                Err("its cgroup is not named by its id")
            } else {
                Ok(())
            }
        }
        CgroupBinding::Unit(_) => Err("its cgroup is not told by its path"),
    }
}

/// Whether a cgroup lies below another; itself it is no container's.
fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above).and_then(|rest| rest.strip_prefix('/'));
    rest.is_some_and(|rest| rest.split('/').all(|part| !part.is_empty() && part != "." && part != ".."))
}

/// In the place of the rest; the same whatever they are.
fn more(address: &str) -> SourceProblem {
    SourceProblem {
        what: "take in more containers".to_owned(),
        where_: address.to_owned(),
        why: "more of what was found cannot be used than is told one by one".to_owned(),
        remedy: "mend what is told of the others first".to_owned(),
    }
}

fn refused(workload: &Workload, why: &str) -> SourceProblem {
    SourceProblem {
        what: "take in a container".to_owned(),
        where_: format!("container {}", workload.id.chars().take(64).collect::<String>()),
        why: why.to_owned(),
        remedy: "it is left alone; containerd, CRI-O, Docker and Podman name a container's cgroup by its id: where a runtime names it otherwise, \
                 name the cgroup that holds all of its containers in parts.runtime_cgroups"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use evenkeel_border::found::Problem;
    use evenkeel_enforce::shared::Waker;

    use super::super::found::{MOST, MOST_TEXT};
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn following() -> Following {
        let (sender, _) = sync_channel(1);
        let follow = Follow {
            cri: vec!["/run/c.sock".into()],
            roots: vec!["/sys/fs/cgroup".into()],
            ..Follow::default()
        };
        Following {
            follow,
            updates: UpdateSender { sender, waker: Waker::new().unwrap() },
            rescan: Rescan::default(),
            pods: Arc::new(Pods::none()),
            cgroups: Arc::from(["/kata".to_owned()]),
            known: Known::default(),
        }
    }

    fn workload(cgroup: &str) -> Workload {
        let mut workload = (*crate::report::test_support::tracked(1, "web").workload).clone();
        (workload.id, workload.source) = (ID.to_owned(), SourceKind::Cri);
        workload.cgroup = CgroupBinding::Path(cgroup.to_owned());
        workload
    }

    fn found(workloads: Vec<Workload>) -> Found {
        let (source, address) = (SourceKind::Cri, "/run/c.sock".to_owned());
        Found { source, address, workloads, problems: Vec::new(), healthy: true }
    }

    #[test]
    fn what_a_hostile_part_finds_is_no_container_unless_its_cgroup_is_named_by_its_id() {
        let of = |change: &dyn Fn(&mut Workload)| {
            let mut workload = workload(&format!("/kubepods/burstable/podu/{ID}"));
            change(&mut workload);
            workload
        };
        let path =
            |workload: &mut Workload, path: &str| workload.cgroup = CgroupBinding::Path(path.to_owned());
        let named = |workload: &mut Workload, id: &str, at: &str| {
            (workload.id, workload.cgroup) = (id.to_owned(), CgroupBinding::Path(at.to_owned()));
        };
        let table: [(&str, Workload); 20] = [
            ("", of(&|w| named(w, "web-1", "/kata/sandbox"))),
            ("", of(&|w| named(w, ID, "/kata/a/b"))),
            ("id", of(&|w| named(w, "web-1", "/kata"))),
            ("id", of(&|w| named(w, "web-1", "/katana/sandbox"))),
            ("id", of(&|w| named(w, "web-1", "/kata/../system.slice"))),
            ("id", of(&|w| named(w, "web-1", "/kata//x"))),
            ("id", of(&|w| named(w, "a/b", "/kata/x"))),
            ("id", of(&|w| named(w, "", "/kata/x"))),
            ("", of(&|_| ())),
            ("", of(&|w| path(w, &format!("/kubepods.slice/a.slice/cri-containerd-{ID}.scope")))),
            ("cgroup", of(&|w| path(w, "/system.slice/sshd.service"))),
            ("cgroup", of(&|w| path(w, "/"))),
            ("cgroup", of(&|w| path(w, &format!("/{ID}/..")))),
            ("cgroup", of(&|w| path(w, &format!("/../{ID}")))),
            ("cgroup", of(&|w| path(w, &format!("/{ID}/system.slice")))),
            ("cgroup", of(&|w| w.cgroup = CgroupBinding::Unit(format!("{ID}.service")))),
            ("id", of(&|w| w.id = "sshd".into())),
            ("id", of(&|w| w.id = "x".repeat(64))),
            ("source", of(&|w| w.source = SourceKind::Manifests)),
            ("name", of(&|w| w.pod.name = "x".repeat(1000))),
        ];
        for (want, workload) in table {
            let said = may_be(SourceKind::Cri, &workload, &["/kata".to_owned()]).err().unwrap_or_default();
            assert!(
                said.contains(want) && said.is_empty() == want.is_empty(),
                "{want}: {said}, {workload:?}"
            );
            let taken = following().taken(found(vec![workload])).unwrap();
            assert_eq!(
                (taken.workloads.len(), taken.problems.len()),
                if want.is_empty() { (1, 0) } else { (0, 1) }
            );
        }
    }

    #[tokio::test]
    async fn what_runs_is_what_the_kubelet_is_asked_about() {
        let following = following();
        following.taken(found(vec![workload(&format!("/{ID}"))])).unwrap();
        let rung = tokio::time::timeout(Duration::from_secs(60), following.pods.stirred()).await;
        assert!(rung.is_ok());
    }

    #[test]
    fn a_source_that_nobody_asked_for_and_more_than_may_be_end_the_border() {
        let following = following();
        let good = || found(vec![workload(&format!("/{ID}"))]);
        assert!(following.taken(good()).is_some());
        for bad in [
            Found { address: "/run/other.sock".into(), ..good() },
            Found { source: SourceKind::Manifests, ..good() },
            Found { source: SourceKind::Names, ..good() },
            Found { workloads: vec![workload("/x"); MOST + 1], ..good() },
            Found { problems: vec![Problem::default(); MOST + 1], ..good() },
        ] {
            assert!(following.taken(bad).is_none());
        }
        // What was taken in before is the same one still.
        let (one, other) = (following.taken(good()).unwrap(), following.taken(good()).unwrap());
        assert!(Arc::ptr_eq(&one.workloads[0], &other.workloads[0]));
        // Thousands of lies are told as a few.
        let lies = (0..MOST).map(|at| {
            let mut lie = workload("/system.slice/sshd.service");
            lie.id = format!("{at:064x}");
            lie
        });
        let told = following.taken(found(lies.collect())).unwrap();
        assert_eq!((told.workloads.len(), told.problems.len()), (0, MOST_TOLD + 1));
        let long = Problem { why: "x".repeat(100_000), ..Problem::default() };
        let told = following.taken(Found { problems: vec![long], ..good() }).unwrap();
        assert_eq!(told.problems[0].why.len(), MOST_TEXT);
    }

    #[tokio::test]
    async fn only_sockets_that_are_followed_are_connected_to() {
        use evenkeel_border::link::Side;

        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let _runtime = std::os::unix::net::UnixListener::bind(path("c.sock")).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(path("other.sock")).unwrap();
        let (ours, theirs) = evenkeel_border::socket::pair().unwrap();
        let (_link, asks) = Link::start(ours, Side::First, BOUNDS).unwrap();
        let there = Bounds { descriptors: true, ..BOUNDS };
        let (part, _orders) = Link::start(theirs, Side::Second, there).unwrap();
        let engines = Some((path("docker.sock"), path("podman.sock")));
        let follow = Follow { cri: vec![path("c.sock")], engines, ..Follow::default() };
        tokio::spawn(connect_all(follow, asks));
        let reach = crate::sources::reach::Reach::There(part);
        assert!(reach.connect(&dir.path().join("c.sock")).await.is_ok());
        for (name, why) in [("other.sock", "no socket of sources"), ("docker.sock", "No such file")] {
            let said = reach.connect(&dir.path().join(name)).await.unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }
}
