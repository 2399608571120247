//! Owns the items of history files: names, where minutes lie, sealed hours, days and events.
//!
//! | byte | item | fields |
//! | --- | --- | --- |
//! | 1 | subject | number, scope (1 to 5), its names |
//! | 2 | series | number, cluster, namespace, workload, container, image and tag (both empty without) |
//! | 3 | minutes | series, hour of the day, offset, length |
//! | 4, 5 | hour of CPU, of memory | subject, hour of the day, bytes |
//! | 6, 7 | day of CPU, of memory | subject, bytes |
//! | 8 | event | subject, bytes |
//!
//! Numbers are varints (seven bits per byte, lowest first); names and bytes follow their length. A name precedes what
//! uses its number within the same file.

use evenkeel_model::key::ContainerKey;

use crate::key::{Image, SeriesKey, Subject};
use evenkeel_rightsizing::Resource;

/// One item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Subject { number: u32, key: Subject },
    Series { number: u32, key: SeriesKey },
    Minutes { series: u32, hour: u8, offset: u64, length: u32 },
    Hour { subject: u32, resource: Resource, hour: u8, bytes: &'a [u8] },
    Day { subject: u32, resource: Resource, bytes: &'a [u8] },
    Event { subject: u32, bytes: &'a [u8] },
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

const fn of_resource(first: u8, resource: Resource) -> u8 {
    match resource {
        Resource::Cpu => first,
        Resource::Memory => first + 1,
    }
}

/// Appends an item.
pub(crate) fn put_item(out: &mut Vec<u8>, item: &Item<'_>) {
    match item {
        Item::Subject { number, key } => {
            out.push(1);
            put_varint(out, u64::from(*number));
            put_subject(out, key);
        }
        Item::Series { number, key } => {
            out.push(2);
            put_varint(out, u64::from(*number));
            let (image, tag) = key.image.as_ref().map_or(("", ""), |i| (i.name.as_str(), i.tag.as_str()));
            for name in key.of.names().into_iter().chain([image, tag]) {
                put_bytes(out, name.as_bytes());
            }
        }
        Item::Minutes { series, hour, offset, length } => {
            out.push(3);
            put_varint(out, u64::from(*series));
            out.push(*hour);
            put_varint(out, *offset);
            put_varint(out, u64::from(*length));
        }
        Item::Hour { subject, resource, hour, bytes } => {
            out.push(of_resource(4, *resource));
            put_varint(out, u64::from(*subject));
            out.push(*hour);
            put_bytes(out, bytes);
        }
        Item::Day { subject, resource, bytes } => {
            out.push(of_resource(6, *resource));
            put_varint(out, u64::from(*subject));
            put_bytes(out, bytes);
        }
        Item::Event { subject, bytes } => {
            out.push(8);
            put_varint(out, u64::from(*subject));
            put_bytes(out, bytes);
        }
    }
}

/// Appends a subject: its scope, then its names.
pub(crate) fn put_subject(out: &mut Vec<u8>, key: &Subject) {
    let (scope, names, hash): (u8, Vec<&str>, Option<u64>) = match key {
        Subject::Own(of) => (1, of.names().into(), None),
        Subject::Command { container, image, tag, hash } => (2, vec![container, image, tag], Some(*hash)),
        Subject::NamespaceImageTag { cluster, namespace, image, tag } => {
            (3, vec![cluster, namespace, image, tag], None)
        }
        Subject::ImageTag { image, tag } => (4, vec![image, tag], None),
        Subject::Image { image } => (5, vec![image], None),
    };
    out.push(scope);
    names.into_iter().for_each(|name| put_bytes(out, name.as_bytes()));
    if let Some(hash) = hash {
        out.extend_from_slice(&hash.to_le_bytes());
    }
}

/// Reads items until the bytes end or are not understood.
#[derive(Debug)]
pub(crate) struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether everything was read.
    pub(crate) const fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn name(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// A subject alone.
    pub(crate) fn subject(&mut self) -> Option<Subject> {
        Some(match self.byte()? {
            1 => Subject::Own(self.container()?),
            2 => {
                let (container, image, tag) = (self.name()?, self.name()?, self.name()?);
                let (hash, rest) = self.0.split_first_chunk::<8>()?;
                self.0 = rest;
                Subject::Command { container, image, tag, hash: u64::from_le_bytes(*hash) }
            }
            3 => Subject::NamespaceImageTag {
                cluster: self.name()?,
                namespace: self.name()?,
                image: self.name()?,
                tag: self.name()?,
            },
            4 => Subject::ImageTag { image: self.name()?, tag: self.name()? },
            5 => Subject::Image { image: self.name()? },
            _ => return None,
        })
    }

    fn container(&mut self) -> Option<ContainerKey> {
        Some(ContainerKey {
            cluster: self.name()?,
            namespace: self.name()?,
            workload: self.name()?,
            container: self.name()?,
        })
    }

    fn item(&mut self) -> Option<Item<'a>> {
        let kind = self.byte()?;
        let resource = if kind % 2 == 0 { Resource::Cpu } else { Resource::Memory };
        let number = self.small()?;
        Some(match kind {
            1 => Item::Subject { number, key: self.subject()? },
            2 => {
                let of = self.container()?;
                let (name, tag) = (self.name()?, self.name()?);
                let image = (!name.is_empty()).then_some(Image { name, tag });
                Item::Series { number, key: SeriesKey { of, image } }
            }
            3 => Item::Minutes {
                series: number,
                hour: self.byte()?,
                offset: self.varint()?,
                length: self.small()?,
            },
            4 | 5 => Item::Hour { subject: number, resource, hour: self.byte()?, bytes: self.bytes()? },
            6 | 7 => Item::Day { subject: number, resource, bytes: self.bytes()? },
            8 => Item::Event { subject: number, bytes: self.bytes()? },
            _ => return None,
        })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let before = self.0;
        let item = self.item();
        if item.is_none() {
            self.0 = before;
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_and_a_cut_is_noticed() {
        let s = |text: &str| text.to_owned();
        let image = Some(Image { name: s("docker.io/library/web"), tag: s("1") });
        let of = ContainerKey::new("c", "n", "deployment/ä", "main");
        let key = SeriesKey { of: of.clone(), image };
        let own = Subject::Own(of);
        let command =
            Subject::Command { container: s("main"), image: s("i"), tag: s("t"), hash: u64::MAX - 7 };
        let spaced =
            Subject::NamespaceImageTag { cluster: s("c"), namespace: s("n"), image: s("i"), tag: s("t") };
        let bytes = b"abc".as_slice();
        let items = [
            Item::Subject { number: 0, key: own },
            Item::Subject { number: 1, key: command },
            Item::Subject { number: 2, key: spaced },
            Item::Subject { number: 3, key: Subject::ImageTag { image: s("i"), tag: s("t") } },
            Item::Subject { number: 300, key: Subject::Image { image: s("i") } },
            Item::Series { number: 5, key: key.clone() },
            Item::Series { number: 6, key: SeriesKey { image: None, ..key } },
            Item::Minutes { series: 5, hour: 23, offset: 1 << 40, length: 99 },
            Item::Hour { subject: 300, resource: Resource::Cpu, hour: 7, bytes },
            Item::Hour { subject: 1, resource: Resource::Memory, hour: 0, bytes: &[] },
            Item::Day { subject: 1, resource: Resource::Cpu, bytes },
            Item::Day { subject: 1, resource: Resource::Memory, bytes },
            Item::Event { subject: 2, bytes },
        ];
        let mut out = Vec::new();
        let mut ends = vec![0];
        for item in &items {
            put_item(&mut out, item);
            ends.push(out.len());
        }
        for end in 0..=out.len() {
            let mut reader = Items::new(&out[..end]);
            let whole = ends.iter().filter(|e| **e <= end).count() - 1;
            assert_eq!(reader.by_ref().collect::<Vec<_>>(), items[..whole], "cut at {end}");
            assert_eq!(reader.is_whole(), ends.contains(&end), "cut at {end}");
        }
    }
}
