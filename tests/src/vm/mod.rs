//! A virtual machine with what this one may lack: cgroup v2 with every controller, all capabilities, memory small
//! enough to run out of.
//!
//! Owns one boot: the kernel, a root file system in memory made of busybox and the given files, and qemu, which emulates
//! the processor in software (TCG) and so runs wherever it is installed, with or without virtualisation. Power-on to
//! script takes some seconds. The script's output and status come back over a serial port.

mod cases;
mod initramfs;
mod kernel;
mod pulse;
mod systemd;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::stage::{self, Staged};
use crate::{daemon, figures, machine, runtime, wait};
pub use cases::{Case, in_guest, in_guest_abreast};
use initramfs::Initramfs;
use kernel::Kernel;
pub use kernel::Release;
use pulse::{Pulse, Stopped};

const QEMU: &str = "qemu-system-x86_64";
/// Programs the fixture runs.
pub const TOOLS: [&str; 4] = [QEMU, "apt-get", "dpkg", "modprobe"];
const INIT: &str = include_str!("init.sh");
/// What the C library's own ldd is made of, without the shell it wants.
const LDD: &str = "#!/bin/sh\nexec /lib64/ld-linux-x86-64.so.2 --list \"$1\"\n";
const EXIT_MARK: &str = "evenkeel-vm-exit: ";
/// How a guest's kernel begins its last words when qemu (7.2, 8.0) lets one processor run the breakpoint that another has
/// put into the kernel's code for a moment and already taken away (linux-kernel list, July 2023, "int3" under qemu 8.0;
/// met once in some hundred boots). Nothing these guests run puts a breakpoint into the kernel.
const EMULATOR_FAULT: &str = "int3: 0000 [#1]";
/// No guest that lives lets so much time pass without a timer.
const STILL: Duration = Duration::from_secs(60);
/// Times a guest is switched on when the emulator's fault ends it.
const ATTEMPTS: u32 = 3;

/// Guests of one test program run one at a time: each has two processors of its own, emulated on those of the machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Why a machine cannot be booted here, or `None` when it can.
pub fn impossible() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("the guest kernel is for x86_64".to_string());
    }
    if let Err(error) = stage::busybox() {
        return Some(error.to_string());
    }
    let packages = "apt-get install qemu-system-x86 kmod";
    machine::missing(&TOOLS).map(|tool| format!("{tool} is not installed: {packages}"))
}

/// Which control group interface the guest has mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cgroups {
    V1,
    V2,
}

/// A machine that is not running; see [`Vm::builder`].
#[derive(Debug)]
pub struct Vm;

impl Vm {
    /// A machine with 512 MiB, two processors, cgroup v2 at /sys/fs/cgroup and ten minutes to do its work.
    pub fn builder() -> VmBuilder {
        VmBuilder {
            memory_mib: 512,
            processors: 2,
            cgroups: Cgroups::V2,
            kernel: Release::Own,
            disk_mib: None,
            disk_rate_mib: None,
            systemd: false,
            packages: &[],
            files: Vec::new(),
            contents: Vec::new(),
            programs: Vec::new(),
            modules: Vec::new(),
            script: String::new(),
            timeout: Duration::from_secs(600),
        }
    }

    /// Whether the guest kernel has the memory controller of cgroup v1; Debian's has it up to release 12.
    ///
    /// # Errors
    ///
    /// Fails when the kernel cannot be obtained.
    pub fn has_cgroup_v1() -> Result<bool> {
        let kernel = Kernel::obtain(Release::Own)?;
        // CONFIG_MEMCG_V1 came with Linux 6.11; before, the v1 interface was part of CONFIG_MEMCG.
        let (major, minor) = numbers(&kernel.release);
        if (major, minor) < (6, 11) { Ok(true) } else { kernel.has("CONFIG_MEMCG_V1") }
    }
}

/// Release of the kernel of a Debian release, as in `uname -r`; downloaded when it is not there yet.
///
/// # Errors
///
/// Fails when it cannot be had.
pub fn kernel_release(release: Release) -> Result<String> {
    Kernel::obtain(release).map(|kernel| kernel.release)
}

/// Major and minor number of a kernel release; 0 for what is not a number.
fn numbers(release: &str) -> (u32, u32) {
    let mut parts = release.split('.').map(|part| part.parse().unwrap_or_default());
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// What a machine gets before it is switched on.
#[derive(Debug, Clone)]
pub struct VmBuilder {
    memory_mib: u32,
    processors: u32,
    cgroups: Cgroups,
    kernel: Release,
    disk_mib: Option<u64>,
    disk_rate_mib: Option<u64>,
    systemd: bool,
    packages: &'static [&'static str],
    files: Vec<Staged>,
    contents: Vec<(String, u32, String)>,
    programs: Vec<(PathBuf, String)>,
    modules: Vec<String>,
    script: String,
    timeout: Duration,
}

/// What a machine left behind.
#[derive(Debug, Clone)]
pub struct VmResult {
    /// Exit status of the script.
    pub status: i32,
    /// What the script and everything it started wrote to standard output and error.
    pub output: String,
    /// The kernel's own messages.
    pub console: String,
}

impl VmResult {
    /// The output, when the script ended with 0.
    ///
    /// # Errors
    ///
    /// Fails with status, output and the end of the console log otherwise.
    pub fn success(self) -> Result<String> {
        if self.status != 0 {
            let console = daemon::last_lines(&self.console);
            bail!("the guest's script ended with {}:\n{}\nconsole:\n{console}", self.status, self.output);
        }
        Ok(self.output)
    }

    /// The first line of the output that starts with `key`, without it.
    ///
    /// # Errors
    ///
    /// Fails when there is none.
    pub fn value(&self, key: &str) -> Result<&str> {
        let found = self.output.lines().find_map(|line| line.strip_prefix(key));
        found.map(str::trim).with_context(|| format!("the guest did not print {key:?}:\n{}", self.output))
    }
}

impl VmBuilder {
    /// Sets the memory, in MiB. The root file system lives in it too.
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: u32) -> VmBuilder {
        self.memory_mib = memory_mib;
        self
    }

    /// Sets the number of processors.
    #[must_use]
    pub fn processors(mut self, processors: u32) -> VmBuilder {
        self.processors = processors;
        self
    }

    /// Mounts cgroup v1 (cpu, cpuacct, memory, pids, freezer) with v2 beside it at `unified`, as hybrid machines do.
    #[must_use]
    pub fn cgroup_v1(mut self) -> VmBuilder {
        self.cgroups = Cgroups::V1;
        self
    }

    /// Boots Debian's systemd, with a system bus; the script is run by a service.
    #[must_use]
    pub fn systemd(mut self) -> VmBuilder {
        self.systemd = true;
        self
    }

    /// Adds Debian packages to a guest with systemd. With `dpkg` among them, its database has all that is there.
    #[must_use]
    pub fn packages(mut self, packages: &'static [&'static str]) -> VmBuilder {
        self.packages = packages;
        self
    }

    /// Sets whose kernel is booted.
    #[must_use]
    pub fn kernel(mut self, release: Release) -> VmBuilder {
        self.kernel = release;
        self
    }

    /// Adds an empty disk, `/dev/vda`: what is read from it is page cache that can be reclaimed, which nothing else in a
    /// guest is, whose files live in memory.
    #[must_use]
    pub fn disk_mib(mut self, disk_mib: u64) -> VmBuilder {
        self.disk_mib = Some(disk_mib);
        self.module("virtio_pci").module("virtio_blk")
    }

    /// Lets the disk move at most so many MiB per second, as rented ones do. Whoever waits behind others then waits long.
    #[must_use]
    pub fn disk_rate_mib(mut self, per_second: u64) -> VmBuilder {
        self.disk_rate_mib = Some(per_second);
        self
    }

    /// Adds a file with the given permissions and content.
    #[must_use]
    pub fn content(mut self, target: &str, mode: u32, content: &str) -> VmBuilder {
        self.contents.push((target.to_string(), mode, content.to_string()));
        self
    }

    /// Adds a file at a path such as `etc/x.toml`.
    #[must_use]
    pub fn file(mut self, source: impl Into<PathBuf>, target: &str) -> VmBuilder {
        self.files.push(Staged::new(source, target));
        self
    }

    /// Adds a program, without symbols and with the shared libraries it needs, at a path such as `bin/x`.
    #[must_use]
    pub fn program(mut self, source: impl Into<PathBuf>, target: &str) -> VmBuilder {
        self.programs.push((source.into(), target.to_string()));
        self
    }

    /// Adds what a private containerd needs, as [`Runtime`](crate::runtime::Runtime) runs it.
    ///
    /// # Errors
    ///
    /// Fails when a program of it is not installed on this machine.
    pub fn containers(mut self) -> Result<VmBuilder> {
        for name in runtime::TOOLS.into_iter().chain(["containerd-shim-runc-v2"]) {
            self = self.program(machine::find(name)?, &format!("bin/{name}"));
        }
        // Each sandbox gets a copy of these two.
        let guest =
            self.content("etc/hosts", 0o644, "127.0.0.1 localhost\n").content("etc/resolv.conf", 0o644, "");
        Ok(guest.content("bin/ldd", 0o755, LDD))
    }

    /// Loads a kernel module, and those it needs, before the script runs.
    #[must_use]
    pub fn module(mut self, name: &str) -> VmBuilder {
        self.modules.push(name.to_string());
        self
    }

    /// Sets what busybox's shell runs, as root.
    #[must_use]
    pub fn script(mut self, script: &str) -> VmBuilder {
        self.script = script.to_string();
        self
    }

    /// Sets how long the machine may take, boot included.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> VmBuilder {
        self.timeout = timeout;
        self
    }

    /// Switches the machine on, waits for its end and returns what it left. A machine that the emulator's own fault ended
    /// is switched on again, which is said.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be started, runs out of time, or ends without a status; the text has the end of its
    /// console log.
    pub fn run(&self) -> Result<VmResult> {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let kernel = Kernel::obtain(self.kernel)?;
        let scratch = TempDir::new().context("cannot make a scratch directory")?;
        let initrd = scratch.path().join("initrd");
        std::fs::write(&initrd, self.root(&kernel, scratch.path())?)
            .context("cannot write the guest's files")?;
        let (output, console) = (scratch.path().join("output"), scratch.path().join("console"));
        let mut attempt = 1;
        let (ended, output, console) = loop {
            let disk = self.disk(scratch.path())?;
            let ended = self.boot(&kernel, &initrd, disk.as_deref(), &output, &console);
            let (said, messages) = (daemon::read_lossy(&output), daemon::read_lossy(&console));
            let stopped = ended.as_ref().err().filter(|error| error.is::<Stopped>());
            let why = match stopped {
                Some(stopped) => format!("{stopped:#}"),
                None if ended_by_emulator(&messages) => "the emulator let a stale breakpoint run".to_owned(),
                None => break (ended, said, messages),
            };
            if attempt == ATTEMPTS {
                break (ended, said, messages);
            }
            figures::show(&format!("guest, boot {attempt}: {why}; once more"));
            attempt += 1;
        };
        ended.with_context(|| describe(&output, &console))?;
        // Scripts may end in the middle of a line, so the mark is looked for anywhere, from the end.
        let (before, status) = output
            .rsplit_once(EXIT_MARK)
            .with_context(|| format!("the guest gave no exit status; {}", describe(&output, &console)))?;
        let status = status.trim().parse().with_context(|| format!("not an exit status: {status:?}"))?;
        Ok(VmResult { status, output: before.to_string(), console })
    }

    /// The root file system.
    fn root(&self, kernel: &Kernel, scratch: &Path) -> Result<Vec<u8>> {
        let mut root = Initramfs::default();
        for directory in ["bin", "sbin", "dev", "etc", "proc", "sys", "root"] {
            root.directory(directory)?;
        }
        if self.systemd {
            root.content("init", 0o755, systemd::INIT.as_bytes())?;
            root.file(systemd::TAR, &systemd::tar(self.packages)?)?;
            for (target, mode, content) in systemd::files() {
                root.content(target, mode, content.as_bytes())?;
            }
        }
        root.content("init", 0o755, INIT.as_bytes())?;
        root.content("run.sh", 0o755, self.script.as_bytes())?;
        root.content(
            "etc/passwd",
            0o644,
            b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        )?;
        for (target, mode, content) in &self.contents {
            root.content(target, *mode, content.as_bytes())?;
        }
        if self.cgroups == Cgroups::V1 {
            root.content("cgroup-v1", 0o644, b"")?;
        }
        let mut files = stage::program(&stage::busybox()?, "bin/busybox")?;
        for (source, target) in &self.programs {
            let libraries = stage::program(source, target)?.into_iter().skip(1);
            files.push(Staged::new(stage::stripped(source, scratch)?, target));
            files.extend(libraries);
        }
        files.extend(self.files.clone());
        for Staged { source, target } in files {
            root.file(&target, &source)?;
        }
        self.load_modules(kernel, &mut root)?;
        root.finish()
    }

    /// A file with a hole of the disk's size, when one is wanted.
    fn disk(&self, scratch: &Path) -> Result<Option<PathBuf>> {
        let Some(size) = self.disk_mib else { return Ok(None) };
        let path = scratch.join("disk");
        let file = std::fs::File::create(&path).context("cannot make the guest's disk")?;
        file.set_len(size << 20).context("cannot size the guest's disk")?;
        Ok(Some(path))
    }

    fn load_modules(&self, kernel: &Kernel, root: &mut Initramfs) -> Result<()> {
        let mut order = String::new();
        for module in &self.modules {
            for path in kernel.module(module)? {
                let name =
                    path.file_name().context("a module without a name")?.to_string_lossy().into_owned();
                let target = format!("lib/modules/{name}");
                root.file(&target, &path)?;
                // Loading one again is refused, so each is listed once.
                if !order.lines().any(|line| line.ends_with(&format!("/{name}"))) {
                    order.push_str(&format!("/{target}\n"));
                }
            }
        }
        root.content("modules", 0o644, order.as_bytes())
    }

    fn boot(
        &self,
        kernel: &Kernel,
        initrd: &Path,
        disk: Option<&Path>,
        output: &Path,
        console: &Path,
    ) -> Result<()> {
        let mut qemu = Command::new(QEMU);
        // Without cmpxchg16b: emulating it damages the flags register in qemu 7.2, which newer kernels do not survive.
        qemu.args(["-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "qemu64,-cx16"]);
        qemu.args(["-nodefaults", "-nic", "none", "-display", "none", "-no-reboot"]);
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        qemu.args(["-m", &self.memory_mib.to_string(), "-smp", &self.processors.to_string()]);
        qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initrd);
        // The kernel gives up on a timer that does not tick in its first moments, as on a busy machine it may not.
        let is_legacy = self.systemd && self.cgroups == Cgroups::V1;
        let legacy = if is_legacy { " systemd.unified_cgroup_hierarchy=0" } else { "" };
        let line = format!("console=ttyS0 panic=-1 psi=1 no_timer_check quiet{legacy}");
        qemu.args(["-append", &line]);
        if let Some(disk) = disk {
            let rate = self.disk_rate_mib.map(|mib| format!(",throttling.bps-total={}", mib << 20));
            let rate = rate.unwrap_or_default();
            qemu.arg("-drive").arg(format!("if=virtio,format=raw,file={}{rate}", disk.display()));
        }
        qemu.arg("-serial").arg(format!("file:{}", console.display()));
        qemu.arg("-serial").arg(format!("file:{}", output.display()));
        let mut child = qemu
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start qemu")?;
        // The exit status of qemu says nothing here: isa-debug-exit makes it 1, a power-off 0, a panic 0 as well.
        let ended = Pulse::of(child.id(), STILL).and_then(|mut pulse| {
            wait::until("the guest to end", self.timeout, || {
                pulse.feel()?;
                child.try_wait().context("cannot see to qemu")
            })
        });
        if ended.is_err() {
            child.kill().context("cannot end qemu")?;
        }
        let messages = child.wait_with_output().context("cannot read what qemu said")?.stderr;
        ended.map(|_| ()).with_context(|| format!("qemu: {}", String::from_utf8_lossy(&messages).trim()))
    }
}

/// Whether a guest's kernel ended for [`EMULATOR_FAULT`], as its console tells.
fn ended_by_emulator(console: &str) -> bool {
    console.contains(EMULATOR_FAULT)
}

fn describe(output: &str, console: &str) -> String {
    format!(
        "end of the guest's output:\n{}\nend of its console:\n{}",
        daemon::last_lines(output),
        daemon::last_lines(console)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_emulators_fault_is_a_reason_to_switch_on_again() {
        let table = [
            ("[    1.251271] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n[ 1.25] CPU: 0", true),
            ("[    3.093098] int3: 0000 [#1] PREEMPT SMP NOPTI", true),
            (
                "[    9.1] Oops: general protection fault, probably for non-canonical address: 0000 [#1]",
                false,
            ),
            ("[   12.4] Kernel panic - not syncing: Out of memory: compulsory panic_on_oom", false),
            ("[   20.0] traps: workload[31] trap int3 ip:401000 sp:7ffc error:0", false),
            ("", false),
        ];
        for (console, expected) in table {
            assert_eq!(ended_by_emulator(console), expected, "{console}");
        }
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(numbers("6.1.0-56-cloud-amd64"), (6, 1));
        assert!(numbers("6.12.9") > (6, 11));
    }
}
