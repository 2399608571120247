//! What enforcement writes and does to cgroups, on whatever kernel this runs: the machine's own, or a guest's.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use evenkeel_host::action::HostActor;
use evenkeel_host::cgroup::CgroupTree as Tree;
use evenkeel_host::dry_run::DryRunWriter;
use evenkeel_host::error::Category;
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::kernel_writer::KernelWriter;
use evenkeel_host::knob::{BurstUsec, Knob, Overcommit, PeriodUsec, QuotaUsec, Setting};
use evenkeel_host::node;
use evenkeel_host::roots::Roots;
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter, Outcome, Refusal, Target, Write};
use evenkeel_model::units::{Bytes, CpuWeight, Limit};
use evenkeel_tests::cgroups::{CgroupTree, TestCgroup, Tier};
use evenkeel_tests::{machine, places, require, wait};

/// This machine as the agent holds it.
pub(crate) struct Rig {
    pub(crate) tree: Arc<Tree>,
    pub(crate) reader: KernelReader,
    pub(crate) writer: KernelWriter,
}

impl Rig {
    pub(crate) fn new(owned: &[String], deny: &[String]) -> Result<Rig> {
        let roots = Roots::default();
        let tree = Arc::new(Tree::open(&roots)?);
        let reader = KernelReader::new(roots.clone(), Arc::clone(&tree));
        let writer = KernelWriter::new(roots, Arc::clone(&tree), deny)?.owning(owned);
        Ok(Rig { tree, reader, writer })
    }

    /// The place of a cgroup in the hierarchy of a controller.
    pub(crate) fn place(&self, cgroup: &TestCgroup, controller: Controller) -> Result<CgroupRef> {
        let home = self.tree.layout().home(controller).context("the controller is not here")?;
        Ok(self.tree.dir(home, &cgroup.path())?.at().clone())
    }

    /// Writes a knob of a cgroup.
    fn write(&mut self, at: &CgroupRef, setting: Setting) -> Outcome {
        self.writer.apply(&Write::cgroup(at.clone(), setting))
    }

    /// Writes a knob of a cgroup, and back what it held.
    fn there_and_back(&mut self, at: &CgroupRef, setting: Setting) -> Result<()> {
        let outcome = self.write(at, setting);
        let Outcome::Written { old: Some(old), new } = outcome.clone() else {
            anyhow::bail!("{setting:?} at {at}: {outcome:?}")
        };
        ensure!(new == setting, "{setting:?} became {new:?}");
        ensure!(self.reader.setting(&Target::Cgroup(at.clone()), setting.knob())? == setting);
        let back = self.write(at, old);
        ensure!(matches!(back, Outcome::Written { .. }), "{back:?}");
        Ok(())
    }
}

pub(crate) fn workload(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(places::program("evenkeel-workload")?);
    command.args(words);
    Ok(command)
}

/// Whether the kernel has a file for this cgroup.
fn has(cgroup: &TestCgroup, controller: &str, file: &str) -> bool {
    cgroup.directory(controller).is_ok_and(|dir| dir.join(file).exists())
}

fn quota(usec: u64) -> Result<Setting> {
    Ok(Setting::CpuCfsQuota(Limit::Value(QuotaUsec::new(usec)?)))
}

#[test]
fn cpu_idle_and_burst_are_written_and_taken_back() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::BestEffort, "0101", "c1")?;
    let mut rig = Rig::new(&[], &[])?;
    let at = rig.place(&cgroup, Controller::Cpu)?;
    if has(&cgroup, "cpu", "cpu.idle") {
        rig.there_and_back(&at, Setting::CpuIdle(true))?;
        if cgroup.is_v2() {
            // An idle group has no weight of its own: the kernel refuses one until it is no longer idle.
            rig.write(&at, Setting::CpuIdle(true));
            let refused = rig.write(&at, Setting::CpuWeight(CpuWeight::new(50)?));
            ensure!(
                matches!(&refused, Outcome::Failed { error, .. } if error.category() == Category::Rejected),
                "{refused:?}"
            );
            rig.write(&at, Setting::CpuIdle(false));
            rig.there_and_back(&at, Setting::CpuWeight(CpuWeight::new(50)?))?;
        }
    }
    let burst = BurstUsec::new(20_000)?;
    if cgroup.is_v2() {
        let limited = Limit::Value(QuotaUsec::new(30_000)?);
        rig.write(&at, Setting::CpuMax { quota: limited, period: PeriodUsec::new(100_000)? });
        rig.there_and_back(&at, Setting::CpuMaxBurst(burst))
    } else {
        rig.write(&at, quota(30_000)?);
        rig.there_and_back(&at, Setting::CpuCfsBurst(burst))?;
        let too_much = rig.write(&at, Setting::CpuCfsBurst(BurstUsec::new(40_000)?));
        ensure!(!too_much.is_done(), "a burst above the quota was taken: {too_much:?}");
        Ok(())
    }
}

#[test]
fn processors_and_swap_are_limited_where_the_kernel_can() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::Guaranteed, "0102", "c1")?;
    let mut rig = Rig::new(&[], &[])?;
    let memory = rig.place(&cgroup, Controller::Memory)?;
    let limit = Limit::Value(Bytes::new(64 << 20));
    if !cgroup.is_v2() {
        if has(&cgroup, "memory", "memory.memsw.limit_in_bytes") {
            // The kernel wants it to be at least the limit of memory alone.
            rig.write(&memory, Setting::MemoryLimit(limit));
            rig.there_and_back(&memory, Setting::MemorySwLimit(limit))?;
        }
        return Ok(());
    }
    if has(&cgroup, "memory", "memory.swap.max") {
        rig.there_and_back(&memory, Setting::MemorySwapMax(limit))?;
    }
    if has(&cgroup, "cpuset", "cpuset.cpus") {
        let mut rig = rig;
        rig.there_and_back(&memory, Setting::CpusetCpus("0".parse()?))?;
        let missing = rig.write(&memory, Setting::CpusetCpus("255".parse()?));
        // v2 keeps what it cannot give and gives what it can (cgroup-v2.rst, cpuset.cpus); v1 refuses.
        ensure!(!matches!(missing, Outcome::Refused(_)), "{missing:?}");
    }
    Ok(())
}

#[test]
fn inner_cgroups_are_written_in_owned_subtrees_only() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let tree = CgroupTree::new()?;
    let cgroup = tree.group("inner")?;
    if !cgroup.is_v2() {
        // v1 gives every controller to every cgroup of its hierarchy: there is nothing to write.
        return Ok(());
    }
    let give = Setting::SubtreeControl { controller: Controller::Memory, on: true };
    let mut rig = Rig::new(&[], &[])?;
    let at = rig.place(&cgroup, Controller::Cpu)?;
    ensure!(rig.write(&at, give) == Outcome::Refused(Refusal::NotOwned));
    let mut rig = Rig::new(&[tree.path()], &[])?;
    // The fixture gives everything on; only the state matters here.
    let take = Setting::SubtreeControl { controller: Controller::Memory, on: false };
    rig.write(&at, take);
    rig.there_and_back(&at, give)?;
    let facts = rig.reader.cgroup(&cgroup.path())?;
    ensure!(facts.knob(give.knob()).is_none(), "a container's facts have nothing of inner cgroups");
    Ok(())
}

#[test]
fn overcommit_is_read_and_written_by_its_number() -> Result<()> {
    require!(machine::is_root(), "writing sysctls needs root");
    let mut rig = Rig::new(&[], &[])?;
    let old = rig.reader.setting(&Target::Node, Knob::OvercommitMemory)?;
    ensure!(rig.writer.apply(&Write::node(old)) == Outcome::Unchanged { value: old });
    ensure!(rig.writer.apply(&Write::node(Setting::CpuIdle(true))) == Outcome::Refused(Refusal::WrongTarget));
    let other = match old {
        Setting::OvercommitMemory(Overcommit::Always) => Overcommit::Heuristic,
        _ => Overcommit::Always,
    };
    if machine::is_emulated() {
        // A guest's is nobody else's business.
        let outcome = rig.writer.apply(&Write::node(Setting::OvercommitMemory(other)));
        ensure!(matches!(outcome, Outcome::Written { .. }), "{outcome:?}");
        rig.writer.apply(&Write::node(old));
    } else {
        let mut dry = DryRunWriter::new(rig.writer);
        let outcome = dry.apply(&Write::node(Setting::OvercommitMemory(other)));
        ensure!(outcome == Outcome::WouldWrite { old: Some(old) }, "{outcome:?}");
    }
    ensure!(rig.reader.setting(&Target::Node, Knob::OvercommitMemory)? == old);
    let memory = node::meminfo(&Roots::default())?;
    ensure!(memory.available.is_some_and(|a| a <= memory.total) && memory.committed.is_some());
    Ok(())
}

#[test]
fn a_whole_cgroup_is_ended_however_it_forks() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    for words in [&["sleep"][..], &["fork-churn", "workers", "8"], &["fork-churn", "chains", "16"]] {
        let mut tree = CgroupTree::new()?;
        let cgroup = tree.container(Tier::BestEffort, "0103", "c1")?;
        let other = tree.container(Tier::BestEffort, "0103", "c2")?;
        let spared = tree.spawn(&other, &workload(&["sleep"])?)?;
        let nested = tree.spawn(&cgroup, &workload(&["sleep"])?)?;
        cgroup.nest("inner", nested)?;
        // On v2 processes live in leaves only.
        let leaf = tree.group(&format!("{}/leaf", below(&tree, &cgroup)))?;
        tree.spawn(if cgroup.is_v2() { &leaf } else { &cgroup }, &workload(words)?)?;
        let mut rig = Rig::new(&[], &[])?;
        let at = rig.place(&cgroup, Controller::Memory)?;
        let ended = rig.writer.kill_cgroup(&at)?;
        ensure!(ended >= 2, "{words:?}: {ended}");
        wait::until_true("everybody to be gone", || rig.reader.pids(&at).is_ok_and(|pids| pids.is_empty()))?;
        ensure!(other.processes()? == [spared], "a neighbour was hit");
        ensure!(rig.writer.kill_cgroup(&at)? == 0, "there is nobody left to end");
    }
    Ok(())
}

/// A cgroup's path as the tree takes it.
fn below(tree: &CgroupTree, cgroup: &TestCgroup) -> String {
    cgroup.path().trim_start_matches(&tree.path()).trim_start_matches('/').to_owned()
}

#[test]
fn a_frozen_cgroup_can_be_ended() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::BestEffort, "0104", "c1")?;
    tree.spawn(&cgroup, &workload(&["sleep"])?)?;
    let mut rig = Rig::new(&[], &[])?;
    let freezer = rig.place(&cgroup, Controller::Freezer)?;
    let frozen = rig.writer.apply(&evenkeel_host::freeze::freeze_write(&freezer, true));
    ensure!(matches!(frozen, Outcome::Written { .. }), "{frozen:?}");
    let at = rig.place(&cgroup, Controller::Memory)?;
    ensure!(rig.writer.kill_cgroup(&at)? == 1);
    wait::until_true("it to be gone", || cgroup.processes().is_ok_and(|left| left.is_empty()))
}

#[test]
fn deeds_are_refused_where_writes_are() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::Burstable, "0105", "c1")?;
    let pid = tree.spawn(&cgroup, &workload(&["sleep"])?)?;
    let mut rig = Rig::new(&[], &[])?;
    let at = rig.place(&cgroup, Controller::Memory)?;
    let root = rig.tree.dir(at.hierarchy, "/")?.at().clone();
    let rejected = |done: Result<u32, evenkeel_host::error::HostError>, why: &str| -> Result<()> {
        let error = done.err().context("it was done")?;
        ensure!(error.to_string().contains(why), "{error}");
        Ok(())
    };
    rejected(rig.writer.kill_cgroup(&root), "root cgroup")?;
    let replaced = CgroupRef { inode: at.inode + 1, ..at.clone() };
    ensure!(rig.writer.kill_cgroup(&replaced).is_err_and(|e| e.is_gone()));
    // Denied itself, below a denied one, and above a denied one.
    let parent = at.path.rsplit_once('/').map_or("/", |(parent, _)| parent).to_owned();
    for deny in [at.path.to_string(), parent, format!("{}/inner", at.path)] {
        let mut denied = Rig::new(&[], std::slice::from_ref(&deny))?;
        rejected(denied.writer.kill_cgroup(&at), "denies")?;
        ensure!(denied.writer.reclaim(&at, Bytes::new(1), true).is_err());
    }
    let mut dry = DryRunWriter::new(rig.writer);
    ensure!(dry.is_rehearsal() && dry.kill_cgroup(&at)? == 1);
    ensure!(cgroup.processes()? == [pid], "a rehearsal ended somebody");
    Ok(())
}

#[test]
fn our_own_cgroup_is_not_ended() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut rig = Rig::new(&[], &[])?;
    let text = std::fs::read_to_string("/proc/self/cgroup")?;
    let home = rig.tree.layout().home(Controller::Memory).context("no memory controller")?;
    let ours = text.lines().find_map(|line| {
        let (hierarchy, path) = line.split_once(':')?.1.split_once(':')?;
        (hierarchy == if home == Hierarchy::V2 { "" } else { "memory" }).then_some(path)
    });
    let dir = rig.tree.dir(home, ours.context("we are in no cgroup")?)?;
    let error = rig.writer.kill_cgroup(dir.at()).err().context("we should be dead")?;
    ensure!(error.category() == Category::Rejected, "{error}");
    Ok(())
}

#[test]
fn file_pages_are_reclaimed_on_request() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::BestEffort, "0106", "c1")?;
    let mut rig = Rig::new(&[], &[])?;
    let at = rig.place(&cgroup, Controller::Memory)?;
    if !cgroup.is_v2() {
        let error = rig.writer.reclaim(&at, Bytes::new(1 << 20), true).err().context("v1 has none")?;
        ensure!(error.category() == Category::Unsupported && error.remedy().is_some(), "{error}");
        return Ok(());
    }
    require!(has(&cgroup, "memory", "memory.reclaim"), "this kernel has no memory.reclaim");
    require!(Path::new("/dev/vda").exists() && machine::is_emulated(), "only a guest has a disk to spare");
    tree.spawn(&cgroup, &workload(&["read", "/dev/vda", "0", "48Mi"])?)?;
    let current = || -> Result<u64> { Ok(cgroup.read("memory", "memory.current")?.parse()?) };
    // Whoever looked for partitions has the first of them.
    wait::until("48 MiB to be cached", wait::PATIENCE, || Ok((current()? > 44 << 20).then_some(())))?;
    let before = current()?;
    let taken = rig.writer.reclaim(&at, Bytes::new(32 << 20), true)?;
    let after = current()?;
    ensure!(taken.get() >= 16 << 20, "took {taken:?} of {before}, left {after}");
    ensure!(before - after >= 16 << 20, "from {before} to {after}");
    // More than there is: less is no error.
    let rest = rig.writer.reclaim(&at, Bytes::new(1 << 30), true)?;
    ensure!(rest.get() < 1 << 30, "took {rest:?}");
    ensure!(DryRunWriter::new(rig.writer).reclaim(&at, Bytes::new(1 << 20), true)? == Bytes::ZERO);
    Ok(())
}
