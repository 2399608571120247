//! Owns values for well-known images: what is answered when nothing at all is known, and never otherwise.
//!
//! They come from a file people can edit (`recommend.predefined`); without one, from the copy built in.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context as _;
use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::Resource;
use evenkeel_store::key::Image;
use serde::Deserialize;

/// Tier of an answer that rests on these values.
pub const TIER: &str = "predefined";

const BUILT_IN: &str = include_str!("../../../packaging/predefined.toml");

/// Values by image name, tags left aside.
#[derive(Debug, Clone, Default)]
pub struct Predefined {
    by_image: HashMap<String, [Option<u64>; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PredefinedFile {
    #[serde(default)]
    image: Vec<PredefinedImage>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PredefinedImage {
    name: String,
    cpu: Option<Quantity>,
    memory: Option<Quantity>,
}

impl Predefined {
    /// Reads a file, or the values built in.
    ///
    /// # Errors
    /// When the file cannot be read, or an entry of it is wrong.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        match file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.with_context(|| {
                    format!("cannot read recommend.predefined {}; name an existing file", path.display())
                })?;
                Self::parse(&text).with_context(|| format!("predefined values in {}", path.display()))
            }
            None => Self::parse(BUILT_IN).context("predefined values built in"),
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let file: PredefinedFile = evenkeel_settings::toml_value(text)?;
        let mut by_image = HashMap::new();
        for PredefinedImage { name, cpu, memory } in file.image {
            let image = Image::parse(&name).with_context(|| format!("{name:?} is no image"))?;
            let amount = |q: Option<Quantity>, of: fn(Quantity) -> Option<u64>| {
                q.map(|q| of(q).with_context(|| format!("{name}: {q} is out of range"))).transpose()
            };
            let values = [amount(cpu, Quantity::milli_u64)?, amount(memory, Quantity::to_u64)?];
            anyhow::ensure!(values.iter().any(Option::is_some), "{name}: give cpu, memory or both");
            let before = by_image.insert(image.name, values);
            anyhow::ensure!(before.is_none(), "{name} is there twice; keep one");
        }
        Ok(Self { by_image })
    }

    /// The value for an image: thousandths of a core, or bytes.
    pub fn of(&self, image: &Image, resource: Resource) -> Option<u64> {
        let [cpu, memory] = self.by_image.get(&image.name)?;
        match resource {
            Resource::Cpu => *cpu,
            Resource::Memory => *memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_built_in_can_be_read_and_are_found_by_any_spelling() {
        let known = Predefined::load(None).unwrap();
        for name in ["nginx", "docker.io/library/nginx:1.27", "nginx@sha256:00"] {
            let image = Image::parse(name).unwrap();
            assert!(known.of(&image, Resource::Memory).is_some_and(|bytes| bytes > 1 << 20), "{name}");
        }
        assert_eq!(known.of(&Image::parse("nobody/nothing").unwrap(), Resource::Cpu), None);
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_entry() {
        let table = [
            ("[[image]]\nname = 'a'\ncpu = '1x'\n", "cpu"),
            ("[[image]]\nname = 'a'\n", "a: give"),
            ("[[image]]\nname = 'a'\ncpu = '-1'\n", "out of range"),
            ("[[image]]\nname = 'a'\ncpu = '1'\n[[image]]\nname = 'a:2'\ncpu = '1'\n", "twice"),
            ("[[image]]\nname = 'a'\ncpus = '1'\n", "cpus"),
        ];
        for (text, want) in table {
            let error = format!("{:#}", Predefined::parse(text).unwrap_err());
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
