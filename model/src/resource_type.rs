//! Owns what is known about resource types: unit, internal scale, compressibility, default request, granularity.
//!
//! The predefined types are those of the resource model, plus the native ones Kubernetes has added since
//! (`ephemeral-storage`, `pods`, `hugepages-*`). An unknown type is incompressible, not scaled, without a default.
//! Conversion of CPU between physical cores and Kubernetes compute units is here too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::{NameError, ResourceName};
use crate::quantity::{Quantity, div_away};

/// Largest power of ten by which a type may be scaled: a quantity has nine decimals.
const MAX_SCALE_EXPONENT: u8 = 9;

/// What is known about one resource type. The JSON names are those of the resource model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceType {
    #[serde(serialize_with = "qualified")]
    name: ResourceName,
    internal_scale_exponent: u8,
    units: String,
    is_compressible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_request: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantization: Option<Quantity>,
}

fn qualified<S: serde::Serializer>(name: &ResourceName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.qualified())
}

impl ResourceType {
    /// A type of which nothing is known: quantified, incompressible, not scaled, no default, no unit.
    #[must_use]
    pub fn unknown(name: ResourceName) -> Self {
        Self {
            name,
            internal_scale_exponent: 0,
            units: String::new(),
            is_compressible: false,
            default_request: None,
            quantization: None,
        }
    }

    /// The same type measured in `units`, in the form `unit* [per unit+]`; empty means dimensionless.
    #[must_use]
    pub fn with_units(self, units: impl Into<String>) -> Self {
        Self { units: units.into(), ..self }
    }

    /// The same type, declared compressible: it can be throttled in a relatively benign manner.
    #[must_use]
    pub fn compressible(self) -> Self {
        Self { is_compressible: true, ..self }
    }

    /// The same type with amounts held as integers of 10^-`exponent` units.
    ///
    /// # Errors
    /// [`ResourceTypeError::Scale`] above 9: a quantity has nine decimals.
    pub fn with_scale(self, exponent: u8) -> Result<Self, ResourceTypeError> {
        if exponent > MAX_SCALE_EXPONENT {
            return Err(ResourceTypeError::Scale { name: self.name, exponent });
        }
        Ok(Self { internal_scale_exponent: exponent, ..self })
    }

    /// The same type with a request for containers that give neither request nor limit.
    ///
    /// # Errors
    /// [`ResourceTypeError::Negative`] when the amount is below zero.
    pub fn with_default_request(self, amount: Quantity) -> Result<Self, ResourceTypeError> {
        if amount.is_negative() {
            return Err(ResourceTypeError::Negative { name: self.name, what: "defaultRequest", amount });
        }
        Ok(Self { default_request: Some(amount), ..self })
    }

    /// The same type with the smallest granularity of allocation: requests are rounded up to a multiple of it.
    ///
    /// # Errors
    /// [`ResourceTypeError::Negative`] when the amount is not above zero.
    pub fn with_quantization(self, step: Quantity) -> Result<Self, ResourceTypeError> {
        if step <= Quantity::ZERO {
            return Err(ResourceTypeError::Negative { name: self.name, what: "quantization", amount: step });
        }
        Ok(Self { quantization: Some(step), ..self })
    }

    /// The type's name.
    #[must_use]
    pub fn name(&self) -> &ResourceName {
        &self.name
    }

    /// Amounts are multiplied by ten to this power for internal integers (3: milli-units).
    #[must_use]
    pub fn internal_scale_exponent(&self) -> u8 {
        self.internal_scale_exponent
    }

    /// The unit, such as `byte per second`; empty means dimensionless.
    #[must_use]
    pub fn units(&self) -> &str {
        &self.units
    }

    /// Whether usage can be throttled in a relatively benign manner.
    #[must_use]
    pub fn is_compressible(&self) -> bool {
        self.is_compressible
    }

    /// The request of a container that gives neither request nor limit.
    #[must_use]
    pub fn default_request(&self) -> Option<Quantity> {
        self.default_request
    }

    /// What a container that says nothing about this type requests: the default, else nothing.
    #[must_use]
    pub fn implicit_request(&self) -> Quantity {
        self.default_request.unwrap_or_default()
    }

    /// Granularity of allocation.
    #[must_use]
    pub fn quantization(&self) -> Option<Quantity> {
        self.quantization
    }

    /// What people are told of it: unit, whether it can be throttled, default request, granularity.
    #[must_use]
    pub fn told(&self) -> String {
        let unit = if self.units.is_empty() { "a plain number" } else { &self.units };
        let kind = if self.is_compressible { "compressible" } else { "incompressible" };
        let mut told = format!("{unit}, {kind}");
        if let Some(amount) = self.default_request {
            told.push_str(&format!(", {amount} where nothing is said"));
        }
        if let Some(step) = self.quantization {
            told.push_str(&format!(", in steps of {step}"));
        }
        told
    }

    /// A request rounded up to the granularity of allocation.
    #[must_use]
    pub fn quantized(&self, request: Quantity) -> Quantity {
        self.quantization.map_or(request, |step| request.rounded_up_to(step))
    }

    /// The internal integer: the amount times 10^`internal_scale_exponent`, rounded away from zero.
    #[must_use]
    pub fn to_internal(&self, amount: Quantity) -> i128 {
        div_away(amount.nano(), self.nano_per_internal())
    }

    /// The amount that an internal integer stands for, capped at the range of a quantity.
    #[must_use]
    pub fn from_internal(&self, internal: i128) -> Quantity {
        let nano = internal.saturating_mul(self.nano_per_internal());
        Quantity::from_nano(nano, crate::quantity::Format::DecimalSI)
    }

    fn nano_per_internal(&self) -> i128 {
        10_i128.pow(u32::from(MAX_SCALE_EXPONENT - self.internal_scale_exponent))
    }
}

/// What is wrong with the definition of a resource type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceTypeError {
    /// The name cannot be a user's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The type is defined already.
    #[error("resource type {name} is defined more than once; keep one definition")]
    Duplicate {
        /// The type.
        name: ResourceName,
    },
    /// The scale is finer than a quantity.
    #[error(
        "resource type {name}: internalScaleExponent {exponent} is above 9; a quantity has nine decimals"
    )]
    Scale {
        /// The type.
        name: ResourceName,
        /// The exponent.
        exponent: u8,
    },
    /// An amount that must not be negative, or must be above zero.
    #[error("resource type {name}: {what} {amount} is too small; write an amount above zero")]
    Negative {
        /// The type.
        name: ResourceName,
        /// The property.
        what: &'static str,
        /// Its value.
        amount: Quantity,
    },
    /// A definition without units: nobody could tell what its amounts mean.
    #[error(
        "resource type {name} has no units; write such as \"byte per second\", or \"\" for a plain number"
    )]
    NoUnits {
        /// The type.
        name: ResourceName,
    },
    /// Units that are not words.
    #[error("resource type {name}: units {units:?} are not words, as in \"byte per second\"")]
    Units {
        /// The type.
        name: ResourceName,
        /// What is written.
        units: String,
    },
    /// A native type has a meaning of its own.
    #[error("resource type {name}: its {what} is defined already; give defaultRequest and quantization only")]
    Fixed {
        /// The type.
        name: ResourceName,
        /// The property.
        what: &'static str,
    },
    /// The conversion factor of a node's CPU is no factor between machines.
    #[error(
        "cpuConversionFactor {factor} is outside 0.1 to 10; 1 is a canonical CPU, 2 a core that is twice as fast"
    )]
    ConversionFactor {
        /// The factor.
        factor: Quantity,
    },
}

/// A resource type as configuration defines it, under its name. Names of the keys are those of the resource model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Definition {
    /// Unit, such as `byte per second`; empty for a plain number. A user type must say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<String>,
    /// Amounts are held as integers of ten to the minus this power; 0 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_scale_exponent: Option<u8>,
    /// Whether usage can be throttled; false unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_compressible: Option<bool>,
    /// Request of a container that gives neither request nor limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_request: Option<Quantity>,
    /// Requests are rounded up to a multiple of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantity>,
}

impl Definition {
    fn leaves_native(&self, native: &ResourceType) -> Result<(), ResourceTypeError> {
        let given = [
            ("units", self.units.is_some()),
            ("internalScaleExponent", self.internal_scale_exponent.is_some()),
            ("isCompressible", self.is_compressible.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((what, _)) => Err(ResourceTypeError::Fixed { name: native.name.clone(), what }),
            None => Ok(()),
        }
    }
}

/// Nothing, or letters in words with single blanks and hyphens.
fn is_words(units: &str) -> bool {
    units.is_empty()
        || units.len() <= 63
            && units
                .split(' ')
                .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-'))
}

/// The resource types that are known: a value, not a global.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceTypes(BTreeMap<ResourceName, ResourceType>);

impl ResourceTypes {
    /// The types of the resource model and the native ones Kubernetes has added.
    #[must_use]
    pub fn predefined() -> Self {
        let plain = |name, units: &str| ResourceType::unknown(name).with_units(units);
        let milli = |name, units: &str| ResourceType { internal_scale_exponent: 3, ..plain(name, units) };
        let types = [
            // Kubernetes compute unit seconds per second, held as milli-KCU.
            milli(ResourceName::CPU, "KCU second per second").compressible(),
            plain(ResourceName::MEMORY, "byte"),
            plain(ResourceName::NETWORK_BANDWIDTH, "byte per second").compressible(),
            plain(ResourceName::NETWORK_IOPS, "operation per second").compressible(),
            plain(ResourceName::STORAGE_SPACE, "byte"),
            milli(ResourceName::STORAGE_TIME, "second per second").compressible(),
            plain(ResourceName::STORAGE_IOPS, "operation per second").compressible(),
            plain(ResourceName::STORAGE_BANDWIDTH, "byte per second").compressible(),
            plain(ResourceName::EPHEMERAL_STORAGE, "byte"),
            plain(ResourceName::PODS, ""),
        ];
        Self(types.into_iter().map(|t| (t.name.clone(), t)).collect())
    }

    /// Adds a type that a user defines.
    ///
    /// # Errors
    /// When the name is native or the type is defined already.
    pub fn define(&mut self, user: ResourceType) -> Result<(), ResourceTypeError> {
        ResourceName::parse_user(user.name.qualified())?;
        if self.0.contains_key(&user.name) {
            return Err(ResourceTypeError::Duplicate { name: user.name });
        }
        self.0.insert(user.name.clone(), user);
        Ok(())
    }

    /// The predefined types with definitions by name: user types, and defaultRequest and quantization of native ones.
    ///
    /// # Errors
    /// Everything that is wrong: names, units, scales, amounts, properties of native types.
    pub fn with(definitions: &BTreeMap<String, Definition>) -> Result<Self, Vec<ResourceTypeError>> {
        let (mut types, mut errors) = (Self::predefined(), Vec::new());
        for (name, definition) in definitions {
            if let Err(error) = types.add(name, definition) {
                errors.push(error);
            }
        }
        if errors.is_empty() { Ok(types) } else { Err(errors) }
    }

    fn add(&mut self, name: &str, definition: &Definition) -> Result<(), ResourceTypeError> {
        let known = ResourceName::parse(name).ok().and_then(|name| self.0.get(&name).cloned());
        let mut defined = match known {
            Some(native) => {
                definition.leaves_native(&native)?;
                native
            }
            None => {
                let name = ResourceName::parse_user(name)?;
                let units = definition.units.clone();
                let units = units.ok_or_else(|| ResourceTypeError::NoUnits { name: name.clone() })?;
                if !is_words(&units) {
                    return Err(ResourceTypeError::Units { name, units });
                }
                let user = ResourceType::unknown(name).with_units(units);
                let user = if definition.is_compressible == Some(true) { user.compressible() } else { user };
                user.with_scale(definition.internal_scale_exponent.unwrap_or(0))?
            }
        };
        if let Some(step) = definition.quantization {
            defined = defined.with_quantization(step)?;
        }
        if let Some(amount) = definition.default_request {
            defined = defined.with_default_request(amount)?;
        }
        self.0.insert(defined.name.clone(), defined);
        Ok(())
    }

    /// What is known about a type; an unknown one is incompressible, not scaled, without default. `hugepages-<size>`
    /// is known by its form: bytes, in multiples of the page size.
    #[must_use]
    pub fn get(&self, name: &ResourceName) -> ResourceType {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let unknown = ResourceType::unknown(name.clone());
        match name.hugepage_size() {
            Some(size) => ResourceType { quantization: Some(size), ..unknown.with_units("byte") },
            None => unknown,
        }
    }

    /// Whether a type is predefined or defined.
    #[must_use]
    pub fn has(&self, name: &ResourceName) -> bool {
        self.0.contains_key(name)
    }

    /// What people are told of a type whose unit its name does not say: of those of users, and of the resource model's own beyond
    /// CPU, memory, disk space and places.
    #[must_use]
    pub fn told(&self, name: &ResourceName) -> Option<String> {
        let common =
            [ResourceName::CPU, ResourceName::MEMORY, ResourceName::EPHEMERAL_STORAGE, ResourceName::PODS];
        (!common.contains(name)).then(|| self.0.get(name)).flatten().map(ResourceType::told)
    }

    /// All defined types in the order of their qualified names.
    pub fn iter(&self) -> impl Iterator<Item = &ResourceType> {
        self.0.values()
    }
}

/// Speed of a node's cores relative to the canonical Kubernetes CPU, exact; 1 unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConversionFactor(Quantity);

impl Default for CpuConversionFactor {
    fn default() -> Self {
        Self(Quantity::from_units(1))
    }
}

impl CpuConversionFactor {
    /// A factor such as 1.25: one physical core is as fast as 1.25 canonical ones. It counts in thousandths.
    ///
    /// # Errors
    /// [`ResourceTypeError::ConversionFactor`] outside 0.1 to 10: no two cores of one cluster are farther apart, and a factor that is
    /// a percentage or a clock rate by mistake would turn every request into nonsense.
    pub fn new(factor: Quantity) -> Result<Self, ResourceTypeError> {
        let bounds = Quantity::from_milli(100)..=Quantity::from_units(10);
        if !bounds.contains(&factor) {
            return Err(ResourceTypeError::ConversionFactor { factor });
        }
        Ok(Self(Quantity::from_milli(i64::try_from(factor.milli()).unwrap_or(1000))))
    }

    /// Whether a physical core is a canonical one.
    #[must_use]
    pub fn is_one(self) -> bool {
        self.milli() == 1000
    }

    /// The factor in thousandths.
    #[must_use]
    pub fn milli(self) -> u64 {
        u64::try_from(self.0.milli()).unwrap_or(1000)
    }

    /// Time or thousandths of physical cores as those of canonical ones, rounded down: a counter goes on growing.
    #[must_use]
    pub fn canonical(self, physical: u64) -> u64 {
        let scaled = u128::from(physical) * u128::from(self.milli()) / 1000;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Thousandths of canonical cores as those of physical ones, rounded up: no less is given than was meant.
    #[must_use]
    pub fn physical(self, canonical: u64) -> u64 {
        let scaled = (u128::from(canonical) * 1000).div_ceil(u128::from(self.milli().max(1)));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// The factor.
    #[must_use]
    pub fn factor(self) -> Quantity {
        self.0
    }

    /// Physical cores as Kubernetes compute units, rounded away from zero to a nano-unit; `None` beyond the range.
    #[must_use]
    pub fn to_canonical(self, physical: Quantity) -> Option<Quantity> {
        physical.checked_scale(self.0)
    }

    /// Kubernetes compute units as physical cores, rounded away from zero to a nano-unit; `None` beyond the range.
    #[must_use]
    pub fn to_physical(self, canonical: Quantity) -> Option<Quantity> {
        canonical.checked_unscale(self.0)
    }
}
