//! Owns hours and days that are open: made with the first use, sealed once nothing more is expected.

use evenkeel_model::narrow::usize_to_u32;
use evenkeel_rightsizing::Resource;

use super::{Past, SubjectId, held_of};
use crate::history::codec::encode_parts;
use crate::history::replica::ReplicaPart;
use crate::history::sealed::{OpenDay, OpenHour, SealedKind, at, encode_hour, hour_of};
use crate::history::starts::{DayStart, HourStart};

/// Minutes after which an hour that ended, or was last touched, is sealed: longer than a reconnect takes.
const HOUR_GRACE: u32 = 6;
/// The same of a day; later than its last hour.
const DAY_GRACE: u32 = 15;
/// Containers of an hour that take as long as another look.
const PARTS_A_LOOK: usize = 8;

impl Past {
    pub(super) fn open_hour(&mut self, clock: u32, id: SubjectId, hour: u32) -> Option<&mut OpenHour> {
        let held = held_of(&mut self.held, id)?;
        let at = match held.open_hours.iter().position(|open| open.hour == hour) {
            Some(at) => at,
            None => {
                let due = hour_due(hour, clock);
                self.due.entry(due).or_default().push((id, true, hour));
                held.open_hours.push(OpenHour { hour, ..OpenHour::default() });
                held.open_hours.len() - 1
            }
        };
        let open = &mut held.open_hours[at];
        open.touched = open.touched.max(clock);
        Some(open)
    }

    pub(super) fn open_day(&mut self, clock: u32, id: SubjectId, day: u32) -> Option<&mut OpenDay> {
        let held = held_of(&mut self.held, id)?;
        let at = match held.open_days.iter().position(|open| open.day == day) {
            Some(at) => at,
            None => {
                self.due.entry(day_due(day, clock)).or_default().push((id, false, day));
                held.open_days.push(OpenDay { day, ..OpenDay::default() });
                held.open_days.len() - 1
            }
        };
        let open = &mut held.open_days[at];
        open.touched = open.touched.max(clock);
        Some(open)
    }

    /// Puts back what was open when a checkpoint was taken.
    pub(crate) fn restore_open(&mut self, id: SubjectId, hours: Vec<OpenHour>, days: Vec<OpenDay>) {
        for open in &hours {
            self.due.entry(hour_due(open.hour, open.touched)).or_default().push((id, true, open.hour));
        }
        for open in &days {
            self.due.entry(day_due(open.day, open.touched)).or_default().push((id, false, open.day));
        }
        if let Some(held) = self.get_mut(id) {
            held.open_hours.extend(hours);
            held.open_days.extend(days);
        }
    }

    /// The next hours or days to be sealed by now, up to a number of looks; `live` gives what containers have of an hour.
    pub(crate) fn seal_due<'a>(
        &mut self,
        clock: u32,
        most: usize,
        live: impl Fn(&[(u64, u32)], u32) -> Vec<ReplicaPart<'a>>,
    ) {
        let mut looks = 0;
        while looks < most {
            looks += 1;
            let Some(mut entry) = self.due.first_entry() else { return };
            if *entry.key() > clock {
                return;
            }
            let Some((id, is_hour, number)) = entry.get_mut().pop() else {
                entry.remove();
                continue;
            };
            let Some(held) = held_of(&mut self.held, id) else { continue };
            if is_hour {
                let Some(at) = held.open_hours.iter().position(|open| open.hour == number) else { continue };
                let due = hour_due(number, held.open_hours[at].touched);
                if due > clock {
                    self.due.entry(due).or_default().push((id, true, number));
                    continue;
                }
                let open = held.open_hours.swap_remove(at);
                let running = live(&held.live, number);
                looks += running.len() / PARTS_A_LOOK;
                self.seal_hour(id, &open, running);
            } else {
                let Some(at) = held.open_days.iter().position(|open| open.day == number) else { continue };
                let due = day_due(number, held.open_days[at].touched);
                if due > clock {
                    self.due.entry(due).or_default().push((id, false, number));
                    continue;
                }
                let open = held.open_days.swap_remove(at);
                self.seal_day(id, &open);
            }
        }
    }

    fn seal_hour(&mut self, id: SubjectId, open: &OpenHour, running: Vec<ReplicaPart<'_>>) {
        let parts = open.replicas.with(running.into_iter());
        for resource in Resource::ALL {
            let hour = hour_of(open, &parts, resource);
            if !hour.all.is_empty() {
                self.counts.sealed_hours += 1;
                let start = match resource {
                    Resource::Cpu => HourStart::of(open, &parts),
                    Resource::Memory => None,
                };
                let bytes = HourStart::put(start.as_ref(), encode_hour(&hour));
                self.keep(id, SealedKind::Hour(resource), open.hour, bytes.into());
            }
        }
    }

    fn seal_day(&mut self, id: SubjectId, open: &OpenDay) {
        for resource in Resource::ALL {
            let i = at(resource);
            if !(open.all[i].is_empty() && open.minutes[i].is_empty()) {
                let bytes = encode_parts(&[open.peaks[i]], &[Some(&open.all[i]), Some(&open.minutes[i])]);
                let start = open.start.as_deref().filter(|_| resource == Resource::Cpu);
                let bytes = DayStart::put(start, bytes);
                self.counts.sealed_days += 1;
                self.keep(id, SealedKind::Day(resource), open.day, bytes.into());
            }
        }
    }

    /// Nothing was touched later than this minute: the clock was ahead when it seemed so.
    pub(crate) fn touched_by(&mut self, minute: u32) {
        for (at, held) in self.held.iter_mut().enumerate() {
            let Some(held) = held else { continue };
            let id = SubjectId { place: usize_to_u32(at), turn: held.turn };
            held.named = held.named.min(minute);
            for open in held.open_hours.iter_mut().filter(|open| open.touched > minute) {
                open.touched = minute;
                self.due.entry(hour_due(open.hour, minute)).or_default().push((id, true, open.hour));
            }
            for open in held.open_days.iter_mut().filter(|open| open.touched > minute) {
                open.touched = minute;
                self.due.entry(day_due(open.day, minute)).or_default().push((id, false, open.day));
            }
        }
    }
}

fn hour_due(hour: u32, touched: u32) -> u32 {
    (hour.saturating_add(1).saturating_mul(60)).max(touched).saturating_add(HOUR_GRACE)
}

fn day_due(day: u32, touched: u32) -> u32 {
    (day.saturating_add(1).saturating_mul(24 * 60)).max(touched).saturating_add(DAY_GRACE)
}
