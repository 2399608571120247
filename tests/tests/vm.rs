//! Suite `vm`: a guest with cgroup v2, every controller and every capability.

#[path = "cases/cgroups.rs"]
mod cgroups;
#[path = "cases/kernel_events.rs"]
mod kernel_events;
#[path = "cases/primitives.rs"]
mod primitives;

use anyhow::Result;
use evenkeel_tests::vm::{self, Vm};
use evenkeel_tests::{places, require};

#[test]
fn a_guest_has_every_controller_and_lowers_scores() -> Result<()> {
    require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let script = r#"
        echo "controllers: $(cat /sys/fs/cgroup/cgroup.subtree_control)"
        mkdir -p /sys/fs/cgroup/kubepods/a
        echo +memory > /sys/fs/cgroup/kubepods/cgroup.subtree_control
        workload hold 16Mi & pid=$!
        echo $pid > /sys/fs/cgroup/kubepods/a/cgroup.procs
        echo -997 > /proc/$pid/oom_score_adj
        echo "score: $(cat /proc/$pid/oom_score_adj)"
        echo "member: $(cat /sys/fs/cgroup/kubepods/a/cgroup.procs)"
        echo "pid: $pid"
        test -f /sys/fs/cgroup/kubepods/a/memory.min && test -f /proc/pressure/memory && echo "memory: yes"
        kill $pid; wait $pid; echo "ended: $?"
    "#;
    let workload = places::program("evenkeel-workload")?;
    let result = Vm::builder().program(workload, "bin/workload").script(script).run()?;
    assert_eq!(result.status, 0, "{}", result.output);
    let controllers: Vec<&str> = result.value("controllers:")?.split(' ').collect();
    for controller in ["cpu", "io", "memory", "pids"] {
        assert!(controllers.contains(&controller), "{controller} is not in {controllers:?}");
    }
    assert_eq!(result.value("score:")?, "-997");
    assert_eq!(result.value("member:")?, result.value("pid:")?);
    assert_eq!(result.value("memory:")?, "yes");
    Ok(())
}

/// The fixtures make cgroups as well where v2 is all there is.
#[test]
fn the_cgroup_cases_hold_on_v2() -> Result<()> {
    require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    // This very program, in the guest, with the workload beside it.
    let result = Vm::builder()
        .program(std::env::current_exe()?, "bin/cases")
        .program(places::program("evenkeel-workload")?, "bin/evenkeel-workload")
        .script("CI=true /bin/cases --test-threads=1 cgroups:: && ls /sys/fs/cgroup | grep -c ^ek-; true")
        .run()?;
    assert!(result.output.contains("test result: ok"), "{}", result.output);
    assert!(result.output.trim_end().ends_with("\n0"), "test cgroups are left: {}", result.output);
    Ok(())
}

/// What enforcement is made of holds on v2, and on v1 with another kernel than the machine's.
#[test]
fn the_primitives_hold_on_v2_and_v1() -> Result<()> {
    require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let mut guests = vec![Vm::builder().disk_mib(64)];
    if Vm::has_cgroup_v1()? {
        guests.push(Vm::builder().cgroup_v1());
    }
    for guest in guests {
        let result = guest
            .program(std::env::current_exe()?, "bin/cases")
            .program(places::program("evenkeel-workload")?, "bin/evenkeel-workload")
            .script(
                "CI= EVENKEEL_EMULATED=1 /bin/cases --test-threads=1 primitives:: kernel_events:: 2>&1
                status=$?; find /sys/fs/cgroup -maxdepth 2 -name 'ek-*' | sed 's/^/left: /'; exit $status",
            )
            .run()?;
        assert!(result.status == 0 && result.output.contains("test result: ok"), "{}", result.output);
        assert!(!result.output.contains("left: "), "test cgroups are left: {}", result.output);
    }
    Ok(())
}

#[test]
fn a_guest_can_have_cgroup_v1() -> Result<()> {
    require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    require!(Vm::has_cgroup_v1()?, "the kernel of this Debian release has no cgroup v1 memory controller");
    let script = r#"
        mkdir /sys/fs/cgroup/memory/a /sys/fs/cgroup/cpu,cpuacct/a
        echo 33554432 > /sys/fs/cgroup/memory/a/memory.limit_in_bytes
        echo "limit: $(cat /sys/fs/cgroup/memory/a/memory.limit_in_bytes)"
        echo "shares: $(cat /sys/fs/cgroup/cpu,cpuacct/a/cpu.shares)"
    "#;
    let result = Vm::builder().cgroup_v1().script(script).run()?;
    assert_eq!(result.value("limit:")?, "33554432");
    assert_eq!(result.value("shares:")?, "1024");
    Ok(())
}

#[test]
fn a_script_that_fails_and_a_kernel_that_panics_are_told_apart() -> Result<()> {
    require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let failed =
        Vm::builder().module("veth").script("grep -c '^veth ' /proc/modules; echo oops; exit 7").run()?;
    assert_eq!((failed.status, failed.output.as_str()), (7, "1\noops\n"));
    assert!(failed.success().is_err());

    // Setting the terminal waits until the word is sent.
    let script = "echo here; stty -F /dev/ttyS1 raw; echo c > /proc/sysrq-trigger";
    let panicked = Vm::builder().script(script).run();
    let text = panicked.err().map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(
        text.contains("no exit status") && text.contains("here") && text.contains("Kernel panic"),
        "{text}"
    );
    Ok(())
}
