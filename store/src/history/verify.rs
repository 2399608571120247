//! Owns looking through a history file for damage, without making anything of what it holds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::batch::{BatchesRead, batches};
use super::codec::decode_minutes;
use super::files::{FileKind, HEADER, VERSION, version};
use super::item::Item;
use super::minute_files::{Extent, MAX_EXTENT};
use super::sealed::{decode_day, decode_event, decode_hour};

/// Something of a history file that cannot be had any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// It is in the day's file of minutes, not in the one that was looked through.
    pub(crate) in_minutes: bool,
    /// Where it begins.
    pub(crate) offset: u64,
    /// How many bytes it has.
    pub(crate) bytes: u64,
    pub(crate) what: String,
}

/// Looks through a file of which `length` bytes count. `minutes` is the day's file of minutes and how much of it counts, for a
/// file of hours; what is in it is found through that alone.
///
/// # Errors
/// When a file cannot be read, which is more than damage.
pub(crate) fn verify(
    day: u32,
    kind: FileKind,
    file: &File,
    length: u64,
    minutes: Option<(&File, u64)>,
    mut tell: impl FnMut(Flaw),
) -> io::Result<()> {
    let real = file.metadata()?.len();
    let mut flaw =
        |offset: u64, bytes: u64, what: String| tell(Flaw { in_minutes: false, offset, bytes, what });
    if real < length {
        flaw(
            real,
            length - real,
            format!("the file ends {} bytes before its end in the checkpoint", length - real),
        );
    }
    let length = length.min(real);
    let Some(version) = version(file)? else {
        flaw(0, length, "the file has no header".to_owned());
        return Ok(());
    };
    if version > VERSION {
        flaw(8, 4, format!("the file has format version {version}, and this program reads up to {VERSION}"));
        return Ok(());
    }
    if kind == FileKind::Minutes {
        return Ok(());
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    let (mut found, mut extents, mut names, mut values) =
        (BatchesRead::default(), Vec::new(), Vec::new(), 0_u64);
    let end = batches(&bytes, &mut found, |item| match item {
        Item::Series { key, .. } => {
            names.push(format!("{}/{}/{}", key.of.namespace, key.of.workload, key.of.container));
        }
        Item::Minutes { series, hour, offset, length } => extents.push((
            series,
            Extent { day, hour: day.saturating_mul(24).saturating_add(u32::from(hour)), offset, length },
        )),
        Item::Hour { bytes, .. } => values += u64::from(decode_hour(0, bytes).is_none()),
        Item::Day { bytes, .. } => values += u64::from(decode_day(0, bytes).is_none()),
        Item::Event { bytes, .. } => values += u64::from(decode_event(bytes).is_none()),
        Item::Subject { .. } => {}
    });
    if end < length {
        flaw(
            end,
            length - end,
            "a batch does not match its checksum; everything from here on is lost".to_owned(),
        );
    }
    for what in found.damage {
        flaw(HEADER, 0, what);
    }
    if values > 0 {
        flaw(HEADER, 0, format!("{values} values cannot be decoded"));
    }
    for (series, extent) in extents {
        let of = || names.get(series as usize).map_or("an unnamed series", String::as_str).to_owned();
        let hour = extent.hour % 24;
        let why = match minutes {
            Some((file, most)) => unreadable(file, most, &extent)?,
            None => Some("the file of minutes is missing"),
        };
        if let Some(why) = why {
            let what = format!("minutes of {} in hour {hour} of the day: {why}", of());
            tell(Flaw { in_minutes: true, offset: extent.offset, bytes: u64::from(extent.length), what });
        }
    }
    Ok(())
}

/// Why the minutes of an extent cannot be had.
fn unreadable(file: &File, most: u64, extent: &Extent) -> io::Result<Option<&'static str>> {
    let end = extent.offset.saturating_add(u64::from(extent.length));
    if end > most || extent.length > MAX_EXTENT {
        return Ok(Some("they lie beyond the end of the file"));
    }
    let mut bytes = vec![0; extent.length as usize];
    match file.read_exact_at(&mut bytes, extent.offset) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(Some("they lie beyond the end of the file"));
        }
        read => read?,
    }
    let mut rest = bytes.as_slice();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let Some((block, after)) = after.split_at_checked(u32::from_le_bytes(*length) as usize) else {
            return Ok(Some("a length in them is impossible"));
        };
        if decode_minutes(block).is_none() {
            return Ok(Some("they cannot be decoded"));
        }
        rest = after;
    }
    Ok((!rest.is_empty()).then_some("a length in them is impossible"))
}
