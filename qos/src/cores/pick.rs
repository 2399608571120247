//! Which of the free logical CPUs one container gets.

use std::collections::BTreeMap;

use super::list::CpuList;

/// One online logical CPU and where it sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// Its NUMA node.
    pub numa: u32,
    /// Its package.
    pub socket: u32,
    /// Its physical core, by a number that is unique within its package.
    pub core: u32,
}

impl Cpu {
    /// Its physical core among all of the machine.
    pub(super) const fn place(&self) -> (u32, u32, u32) {
        (self.numa, self.socket, self.core)
    }
}

/// Logical CPUs as the inputs of a decision have them: `id:numa/socket/core`, separated by commas.
pub fn topology_text(cpus: &[Cpu]) -> String {
    let one = |c: &Cpu| format!("{}:{}/{}/{}", c.id, c.numa, c.socket, c.core);
    cpus.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Reads back what [`topology_text`] wrote; `None` when it is no such text.
pub fn read_topology(text: &str) -> Option<Vec<Cpu>> {
    let one = |part: &str| {
        let (id, place) = part.split_once(':')?;
        let mut numbers = place.split('/').map(|n| n.parse::<u32>().ok());
        let (numa, socket, core) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(Cpu { id: id.parse().ok()?, numa, socket, core })
    };
    text.split(',').filter(|p| !p.is_empty()).map(one).collect()
}

/// Chooses `count` of the `free` logical CPUs: on the NUMA node they fit with the least left over, else from the
/// nodes with most; whole physical cores first, then what completes a core that is already broken up, highest
/// numbers first. A physical core is whole when every CPU it has among `all` is free. `None` when there are not
/// enough.
pub fn pick(count: usize, free: &[Cpu], all: &[Cpu]) -> Option<CpuList> {
    if count == 0 || free.len() < count {
        return None;
    }
    let mut by_numa: BTreeMap<u32, Vec<Cpu>> = BTreeMap::new();
    for cpu in free {
        by_numa.entry(cpu.numa).or_default().push(*cpu);
    }
    let fits = by_numa.values().rev().filter(|cpus| cpus.len() >= count).min_by_key(|cpus| cpus.len());
    if let Some(cpus) = fits {
        return Some(CpuList::from_iter(from_cores(count, cpus, all)));
    }
    let mut nodes: Vec<_> = by_numa.values().rev().collect();
    nodes.sort_by_key(|cpus| std::cmp::Reverse(cpus.len()));
    let mut chosen = CpuList::default();
    for cpus in nodes {
        let missing = count - chosen.len();
        chosen.extend(&CpuList::from_iter(from_cores(missing.min(cpus.len()), cpus, all)));
    }
    Some(chosen)
}

/// `count` of `free`, which has as many: whole cores, then the rest.
fn from_cores(count: usize, free: &[Cpu], all: &[Cpu]) -> Vec<u32> {
    let mut cores: BTreeMap<(u32, u32, u32), Vec<u32>> = BTreeMap::new();
    for cpu in free {
        cores.entry(cpu.place()).or_default().push(cpu.id);
    }
    let size = |place: &(u32, u32, u32)| all.iter().filter(|c| c.place() == *place).count();
    let (whole, mut broken): (Vec<_>, Vec<_>) =
        cores.into_iter().partition(|(place, free)| free.len() >= size(place));
    let mut chosen = Vec::new();
    let mut rest = Vec::new();
    for (_, cpus) in whole.into_iter().rev() {
        if chosen.len() + cpus.len() <= count {
            chosen.extend(cpus);
        } else {
            rest.push(cpus);
        }
    }
    // Highest numbers first, and of broken cores those with least left, so that whole ones stay whole.
    broken.reverse();
    broken.sort_by_key(|(_, cpus)| cpus.len());
    let singles =
        broken.into_iter().map(|(_, cpus)| cpus).chain(rest).flat_map(|cpus| cpus.into_iter().rev());
    let missing = count - chosen.len();
    chosen.extend(singles.take(missing));
    chosen
}
