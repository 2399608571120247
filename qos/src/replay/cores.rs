//! CPUs of one's own and the shared pool again.

use super::inputs::{Case, Unreplayable};
use crate::cores::{CpuList, pick, read_topology};

pub(super) fn exclusive(case: &Case<'_>) -> Result<String, Unreplayable> {
    if let Some(kept) = case.known::<CpuList>("kept")? {
        return Ok(kept.to_string());
    }
    let text = case.text("topology")?;
    let all = read_topology(text)
        .ok_or_else(|| Unreplayable(format!("its input topology cannot be read: {text}")))?;
    let free: CpuList = case.get("free")?;
    let free: Vec<_> = all.iter().copied().filter(|cpu| free.contains(cpu.id)).collect();
    Ok(pick(case.get("count")?, &free, &all).map_or_else(|| "none".to_owned(), |cpus| cpus.to_string()))
}

pub(super) fn shared(case: &Case<'_>) -> Result<String, Unreplayable> {
    let online: CpuList = case.get("online")?;
    Ok(online.without(&case.get("taken")?).to_string())
}
