//! Records of the kernel's log and the two lines about an OOM kill (mm/oom_kill.c: `dump_oom_victim`,
//! `__oom_kill_process`). Pure; any bytes are a valid input.
//!
//! Names of commands and cgroups are chosen by containers and may look like fields. So fields are taken from
//! where no name can reach: the number of the victim from the end of the first line, its command from the second
//! line, and the cgroup is what is left between.

use evenkeel_model::units::{Bytes, OomScoreAdj};

use crate::parse;

/// Why the kernel was out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// The machine.
    None,
    /// A cgroup's limit.
    Memcg,
    /// The nodes of a cpuset.
    Cpuset,
    /// A NUMA policy.
    MemoryPolicy,
}

impl Constraint {
    fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"CONSTRAINT_NONE" => Some(Self::None),
            b"CONSTRAINT_MEMCG" => Some(Self::Memcg),
            b"CONSTRAINT_CPUSET" => Some(Self::Cpuset),
            b"CONSTRAINT_MEMORY_POLICY" => Some(Self::MemoryPolicy),
            _ => None,
        }
    }

    /// Name for events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "machine",
            Self::Memcg => "cgroup",
            Self::Cpuset => "cpuset",
            Self::MemoryPolicy => "memory policy",
        }
    }
}

/// A process ended by the OOM killer. What the kernel did not tell is `None`: a process that is killed because
/// another of its group was (`memory.oom.group`) has no constraint and no cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKill {
    /// Number of the record, one more for each since boot.
    pub sequence: u64,
    /// When, microseconds since boot (the clock of the kernel's log).
    pub at_usec: u64,
    /// The victim, in the initial process namespace.
    pub pid: u32,
    /// Its command, at most 15 bytes.
    pub comm: String,
    /// Its cgroup in the memory hierarchy.
    pub task_memcg: Option<String>,
    /// The cgroup whose limit was hit.
    pub oom_memcg: Option<String>,
    /// Why.
    pub constraint: Option<Constraint>,
    /// Its address space.
    pub total_vm: Option<Bytes>,
    /// Its anonymous memory.
    pub anon_rss: Option<Bytes>,
    /// Its mapped files.
    pub file_rss: Option<Bytes>,
    /// Its shared memory.
    pub shmem_rss: Option<Bytes>,
    /// Its user.
    pub uid: Option<u32>,
    /// Its score.
    pub oom_score_adj: Option<OomScoreAdj>,
}

/// One record: `priority,sequence,microseconds,flags[,...];text` and, on lines of their own, its dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelRecord<'a> {
    /// Number since boot.
    pub sequence: u64,
    /// Microseconds since boot.
    pub at_usec: u64,
    /// True when the kernel itself wrote it; everybody who may open `/dev/kmsg` can write for other facilities.
    pub by_kernel: bool,
    /// The text.
    pub text: &'a [u8],
}

impl<'a> KernelRecord<'a> {
    /// Reads one record; `None` when it is none.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let semicolon = bytes.iter().position(|&b| b == b';')?;
        let (head, text) = (&bytes[..semicolon], &bytes[semicolon + 1..]);
        let mut fields = head.split(|&b| b == b',');
        let priority = parse::uint(fields.next()?)?;
        let sequence = parse::uint(fields.next()?)?;
        let at_usec = parse::uint(fields.next()?)?;
        let end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
        // The facility is above the three bits of the level (syslog(2)); the kernel's is 0.
        Some(Self { sequence, at_usec, by_kernel: priority >> 3 == 0, text: &text[..end] })
    }
}

/// The first line, until its second comes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OomKillHead {
    pid: u32,
    uid: Option<u32>,
    constraint: Option<Constraint>,
    /// From `oom_memcg=` or `global_oom` to the end of the command.
    names: Vec<u8>,
}

/// Joins the lines about a kill. Holds at most one first line.
#[derive(Debug, Default)]
pub struct Joiner {
    head: Option<OomKillHead>,
}

impl Joiner {
    /// Takes one record; tells of a kill when it is complete.
    pub fn take(&mut self, record: &[u8]) -> Option<OomKill> {
        let record = KernelRecord::parse(record).filter(|r| r.by_kernel)?;
        if let Some(rest) = record.text.strip_prefix(b"oom-kill:") {
            self.head = head(rest);
            return None;
        }
        let mut kill = killed(&record)?;
        if let Some(head) = self.head.take_if(|h| h.pid == kill.pid) {
            head.fill(&mut kill);
        }
        Some(kill)
    }
}

/// `constraint=C,nodemask=N,cpuset=S,mems_allowed=M,{oom_memcg=O|global_oom},task_memcg=T,task=COMM,pid=P,uid=U`.
fn head(text: &[u8]) -> Option<OomKillHead> {
    let uid_at = rfind(text, b",uid=")?;
    let uid = parse::uint(text[uid_at + 5..].trim_ascii()).and_then(|n| u32::try_from(n).ok());
    let before = &text[..uid_at];
    let pid_at = rfind(before, b",pid=")?;
    let pid = u32::try_from(parse::uint(&before[pid_at + 5..])?).ok()?;
    let names = before[..pid_at].to_vec();
    let constraint = text.strip_prefix(b"constraint=").and_then(|rest| {
        let end = rest.iter().position(|&b| b == b',')?;
        Constraint::parse(&rest[..end])
    });
    Some(OomKillHead { pid, uid, constraint, names })
}

impl OomKillHead {
    fn fill(self, kill: &mut OomKill) {
        kill.uid = kill.uid.or(self.uid);
        kill.constraint = self.constraint;
        let task = [b",task=".as_slice(), kill.comm.as_bytes()].concat();
        let Some(rest) = self.names.strip_suffix(task.as_slice()) else { return };
        let Some(at) = find(rest, b",task_memcg=") else { return };
        kill.task_memcg = Some(text(&rest[at + 12..]));
        let before = &rest[..at];
        kill.oom_memcg = find(before, b",oom_memcg=").map(|at| text(&before[at + 11..]));
    }
}

/// `REASON: Killed process P (COMM) total-vm:NkB, anon-rss:NkB, file-rss:NkB, shmem-rss:NkB, UID:U pgtables:NkB
/// oom_score_adj:A`.
fn killed(record: &KernelRecord<'_>) -> Option<OomKill> {
    const MARK: &[u8] = b": Killed process ";
    let line = record.text;
    if !(line.starts_with(b"Out of memory") || line.starts_with(b"Memory cgroup out of memory")) {
        return None;
    }
    let rest = &line[find(line, MARK)? + MARK.len()..];
    let blank = rest.iter().position(|&b| b == b' ')?;
    let pid = u32::try_from(parse::uint(&rest[..blank])?).ok()?;
    let command = rest[blank..].strip_prefix(b" (")?;
    let close = rfind(command, b") total-vm:").or_else(|| rfind(command, b"), "))?;
    let fields = &command[close + 2..];
    let kib = |key: &[u8]| {
        let value = value_of(fields, key)?.strip_suffix(b"kB")?;
        parse::uint(value)?.checked_mul(1024).map(Bytes::new)
    };
    let score = value_of(fields, b"oom_score_adj:").and_then(parse::int);
    Some(OomKill {
        sequence: record.sequence,
        at_usec: record.at_usec,
        pid,
        comm: text(&command[..close]),
        task_memcg: None,
        oom_memcg: None,
        constraint: None,
        total_vm: kib(b"total-vm:"),
        anon_rss: kib(b"anon-rss:"),
        file_rss: kib(b"file-rss:"),
        shmem_rss: kib(b"shmem-rss:"),
        uid: value_of(fields, b"UID:").and_then(parse::uint).and_then(|n| u32::try_from(n).ok()),
        oom_score_adj: score.and_then(|n| i16::try_from(n).ok()).and_then(|n| OomScoreAdj::new(n).ok()),
    })
}

/// The value of `key:value`, ended by a blank or comma.
fn value_of<'a>(fields: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    parse::words(fields).find_map(|w| w.strip_prefix(key)).map(|v| v.strip_suffix(b",").unwrap_or(v))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

fn rfind(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).rposition(|w| w == what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "6,700,5000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/pod,task_memcg=/pod/c,task=stress,pid=42,uid=0\n";
    const LINE: &str = "3,701,5000010,-;Memory cgroup out of memory: Killed process 42 (stress) total-vm:2048kB, anon-rss:1024kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:60kB oom_score_adj:-998\n SUBSYSTEM=x\n";

    fn joined(lines: &[&str]) -> Vec<OomKill> {
        let mut joiner = Joiner::default();
        lines.iter().filter_map(|l| joiner.take(l.as_bytes())).collect()
    }

    #[test]
    fn the_two_lines_of_a_kill_are_joined() {
        let kills = joined(&[HEAD, "6,700,1,-;something else\n", LINE]);
        let kib = |n: u64| Some(Bytes::new(n * 1024));
        let want = OomKill {
            sequence: 701,
            at_usec: 5_000_010,
            pid: 42,
            comm: "stress".to_owned(),
            task_memcg: Some("/pod/c".to_owned()),
            oom_memcg: Some("/pod".to_owned()),
            constraint: Some(Constraint::Memcg),
            total_vm: kib(2048),
            anon_rss: kib(1024),
            file_rss: kib(4),
            shmem_rss: kib(0),
            uid: Some(0),
            oom_score_adj: Some(OomScoreAdj::new(-998).unwrap()),
        };
        assert_eq!(kills, vec![want]);
    }

    #[test]
    fn the_others_of_a_group_and_global_kills_are_told() {
        let global = HEAD.replace("oom_memcg=/pod", "global_oom").replace("MEMCG", "NONE");
        let other = LINE.replace("process 42", "process 43");
        let kills = joined(&[&global, LINE, &other]);
        assert_eq!(kills[0].constraint, Some(Constraint::None));
        assert_eq!((kills[0].oom_memcg.as_deref(), kills[0].task_memcg.as_deref()), (None, Some("/pod/c")));
        assert_eq!((kills[1].pid, kills[1].task_memcg.as_deref()), (43, None));
    }

    #[test]
    fn hostile_names_do_not_move_the_fields() {
        for (comm, cgroup) in [
            (",pid=1,uid=0", "/pod/c"),
            (") total-vm:1kB", "/pod/c"),
            ("a,task=b", "/pod/x,task=y"),
            ("x", "/pod/,pid=7,uid=7"),
            ("a (b) c", "/pod/c d"),
        ] {
            let head = HEAD.replace("stress", comm).replace("/pod/c", cgroup);
            let kills = joined(&[&head, &LINE.replace("stress", comm)]);
            assert_eq!(kills.len(), 1, "{comm:?}");
            assert_eq!((kills[0].pid, kills[0].comm.as_str()), (42, comm));
            assert_eq!(kills[0].task_memcg.as_deref(), Some(cgroup));
            assert_eq!(kills[0].anon_rss, Some(Bytes::new(1024 * 1024)));
        }
    }

    #[test]
    fn only_the_kernel_is_believed() {
        // Facility 1 (user): somebody wrote it to the log.
        assert!(joined(&[HEAD, &LINE.replacen("3,", "11,", 1)]).is_empty());
        assert!(joined(&["3,1,1,-;foo: Killed process 42 (x) total-vm:1kB\n"]).is_empty());
        assert!(joined(&["", ";", "3,1;x", "3,1,1,-;"]).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            pieces in prop::collection::vec(prop_oneof![
                Just(HEAD.as_bytes().to_vec()),
                Just(LINE.as_bytes().to_vec()),
                Just(b"3,1,1,-;Out of memory: Killed process ".to_vec()),
                Just(b",pid=".to_vec()),
                Just(b",uid=1".to_vec()),
                Just(b" (".to_vec()),
                Just(b") total-vm:".to_vec()),
                any::<u64>().prop_map(|n| n.to_string().into_bytes()),
                prop::collection::vec(any::<u8>(), 0..8),
            ], 0..12),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = pieces.concat();
            let at = if bytes.is_empty() { 0 } else { cut.index(bytes.len()) };
            let mut joiner = Joiner::default();
            let _first = joiner.take(&bytes[..at]);
            let _second = joiner.take(&bytes);
        }
    }
}
