//! Amounts by resource: names and quantities as text, so that no unit and no range is fixed on the wire.

use std::collections::BTreeMap;

use evenkeel_model::name::ResourceName;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::ResourceList;

use super::ConvertError;

/// Resources of one node or pod. A node of Kubernetes has a handful.
pub const MAX_AMOUNTS: usize = 64;

/// Amounts as the wire has them.
pub fn amounts_to_wire(amounts: &ResourceList) -> BTreeMap<String, String> {
    amounts.iter().map(|(name, amount)| (name.to_string(), amount.canonical())).collect()
}

/// Amounts of a message.
///
/// # Errors
/// [`ConvertError::Invalid`] for more than [`MAX_AMOUNTS`], a name that is none, and what is no quantity of zero or more.
pub fn amounts_from_wire(
    field: &'static str,
    wire: &BTreeMap<String, String>,
) -> Result<ResourceList, ConvertError> {
    let invalid = |why: String| ConvertError::Invalid { field, why };
    if wire.len() > MAX_AMOUNTS {
        return Err(invalid(format!("it has {} resources; {MAX_AMOUNTS} are the most", wire.len())));
    }
    let mut amounts = ResourceList::new();
    for (name, text) in wire {
        let name = ResourceName::parse(name).map_err(|error| invalid(error.to_string()))?;
        let amount = Quantity::parse(text).map_err(|error| invalid(error.to_string()))?;
        if amount.is_negative() {
            return Err(invalid(format!("{name} is {amount}, below zero")));
        }
        amounts.insert(name, amount).map_err(|error| invalid(error.to_string()))?;
    }
    Ok(amounts)
}
