//! The channels of a link: what waits in each, and who may send.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::{Bounds, Ended, Side, WINDOW};
use crate::ask::Failure;
use crate::coded::Coded as _;
use crate::packet::{Packet, PacketKind};

/// All channels.
pub(super) struct ChannelTable {
    side: Side,
    bounds: Bounds,
    state: Mutex<ChannelStates>,
    /// Why the link ended.
    gone: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct ChannelStates {
    slots: BTreeMap<u32, ChannelSlot>,
    /// Of the channel that this side opened last.
    last: u32,
    /// Bytes that wait.
    waiting: usize,
    ours: usize,
    theirs: usize,
    /// Messages taken and not told yet, by channel.
    credits: BTreeMap<u32, u32>,
    /// Channels dropped here, and not told yet.
    ends: VecDeque<u32>,
}

struct ChannelSlot {
    /// The message of which parts came.
    part: Vec<u8>,
    messages: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    /// The other side sends nothing more.
    ended: Option<Ended>,
    /// What this side has said of its end. Both have, and the channel is no more.
    own: Own,
    /// Messages that this side may send.
    credit: u32,
    /// Something came, or may be sent.
    bell: Arc<Notify>,
}

/// How far this side has ended a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    Open,
    /// Nobody here wants more; the other side is to be told.
    Ending,
    /// It was told.
    Ended,
}

impl ChannelStates {
    fn remove(&mut self, id: u32, is_ours: bool) {
        if self.slots.remove(&id).is_some() {
            let count = if is_ours { &mut self.ours } else { &mut self.theirs };
            *count -= 1;
        }
    }

    /// Nobody here wants more of it; true when the other side is to be told.
    fn leave(&mut self, id: u32) -> bool {
        self.credits.remove(&id);
        let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.own != Own::Ended) else { return false };
        slot.own = Own::Ending;
        let messages = std::mem::take(&mut slot.messages);
        self.waiting -= std::mem::take(&mut slot.part).len()
            + messages.iter().map(|(bytes, _)| bytes.len()).sum::<usize>();
        true
    }
}

impl ChannelTable {
    pub(super) fn new(side: Side, bounds: Bounds) -> Self {
        Self { side, bounds, state: Mutex::default(), gone: watch::Sender::new(None) }
    }

    fn state(&self) -> MutexGuard<'_, ChannelStates> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ours(&self, id: u32) -> bool {
        (id % 2 == 1) == (self.side == Side::First)
    }

    fn slot() -> ChannelSlot {
        ChannelSlot {
            part: Vec::new(),
            messages: VecDeque::new(),
            ended: None,
            own: Own::Open,
            credit: WINDOW,
            bell: Arc::default(),
        }
    }

    fn why(&self) -> Option<String> {
        self.gone.borrow().clone()
    }

    /// The number of a new channel of this side.
    pub(super) fn open(&self) -> Result<u32, Ended> {
        if let Some(why) = self.why() {
            return Err(Ended::Gone(why));
        }
        let mut state = self.state();
        if state.ours >= self.bounds.ours {
            return Err(Ended::Busy);
        }
        let mut id = state.last;
        loop {
            id = match id {
                0 if self.side == Side::First => 1,
                0 => 2,
                _ => id.wrapping_add(2),
            };
            if id != 0 && !state.slots.contains_key(&id) {
                break;
            }
        }
        state.last = id;
        state.ours += 1;
        state.slots.insert(id, Self::slot());
        Ok(id)
    }

    /// Takes a packet; the number of a channel that it opens, or what is wrong with it.
    pub(super) fn take(
        &self,
        packet: Packet<'_>,
        descriptor: Option<OwnedFd>,
    ) -> Result<Option<u32>, &'static str> {
        let mut state = self.state();
        let state = &mut *state;
        let id = packet.channel;
        if descriptor.is_some() && packet.kind != PacketKind::Last {
            return Err("passed a descriptor with nothing to say of it");
        }
        if packet.kind == PacketKind::Open {
            if id == 0 || self.is_ours(id) || state.slots.contains_key(&id) || !packet.body.is_empty() {
                return Err("opened a channel that it may not");
            }
            if state.theirs >= self.bounds.theirs {
                return Err("opened more channels than it may");
            }
            state.theirs += 1;
            state.slots.insert(id, Self::slot());
            return Ok(Some(id));
        }
        // A credit that came after the end of both.
        let Some(slot) = state.slots.get_mut(&id) else { return Ok(None) };
        if slot.ended.is_some() && packet.kind != PacketKind::Credit {
            return Err("went on in a channel that it had ended");
        }
        match packet.kind {
            // Nobody wants it any more, which the other side did not know yet.
            PacketKind::Part | PacketKind::Last if slot.own != Own::Open => {}
            PacketKind::Part | PacketKind::Last => {
                if slot.part.len() + packet.body.len() > self.bounds.message {
                    return Err("sent a message that is longer than it may be");
                }
                if slot.messages.len() >= WINDOW as usize {
                    return Err("sent more messages than it may");
                }
                state.waiting += packet.body.len();
                if state.waiting > self.bounds.waiting {
                    return Err("sent more than may wait here");
                }
                slot.part.extend_from_slice(packet.body);
                if packet.kind == PacketKind::Last {
                    slot.messages.push_back((std::mem::take(&mut slot.part), descriptor));
                    slot.bell.notify_waiters();
                }
            }
            PacketKind::Credit => {
                let credits = u32::of(packet.body).map_err(|_| "sent a credit that is none")?;
                slot.credit = slot.credit.saturating_add(credits);
                if credits == 0 || slot.credit > WINDOW {
                    return Err("gave more credit than it had taken");
                }
                slot.bell.notify_waiters();
            }
            PacketKind::End => {
                slot.ended = Some(match packet.body {
                    [] => Ended::Done,
                    body => {
                        Ended::Failed(Failure::of(body).map_err(|_| "ended a channel by what is no reason")?)
                    }
                });
                slot.bell.notify_waiters();
                if slot.own == Own::Ended {
                    state.remove(id, self.is_ours(id));
                }
            }
            PacketKind::Open => {}
        }
        Ok(None)
    }

    /// Waits until a message may be sent, and takes the right to.
    pub(super) async fn credit(&self, id: u32) -> Result<(), Ended> {
        self.wait(id, |slot| match (&slot.ended, slot.credit) {
            (Some(ended), _) => Some(Err(ended.clone())),
            (_, 0) => None,
            _ => {
                slot.credit -= 1;
                Some(Ok(()))
            }
        })
        .await
    }

    /// Waits for a message.
    pub(super) async fn receive(&self, id: u32) -> Result<(Vec<u8>, Option<OwnedFd>), Ended> {
        let message = self
            .wait(id, |slot| match slot.messages.pop_front() {
                Some(message) => Some(Ok(message)),
                None => slot.ended.clone().map(Err),
            })
            .await?;
        let mut state = self.state();
        state.waiting = state.waiting.saturating_sub(message.0.len());
        if state.slots.get(&id).is_some_and(|slot| slot.ended.is_none() && slot.own == Own::Open) {
            *state.credits.entry(id).or_default() += 1;
        }
        Ok(message)
    }

    async fn wait<T>(
        &self,
        id: u32,
        mut look: impl FnMut(&mut ChannelSlot) -> Option<Result<T, Ended>>,
    ) -> Result<T, Ended> {
        loop {
            let bell = {
                let mut state = self.state();
                let Some(slot) = state.slots.get_mut(&id) else { return Err(Ended::Done) };
                if let Some(found) = look(slot) {
                    return found;
                }
                Arc::clone(&slot.bell)
            };
            let rung = bell.notified();
            tokio::pin!(rung);
            // From now on no ring is missed; what came before is looked for once more.
            rung.as_mut().enable();
            {
                let mut state = self.state();
                let Some(slot) = state.slots.get_mut(&id) else { return Err(Ended::Done) };
                if let Some(found) = look(slot) {
                    return found;
                }
            }
            tokio::select! {
                () = rung => {}
                why = self.gone() => return Err(Ended::Gone(why)),
            }
        }
    }

    /// A credit, as how many messages were taken, or an end, as 0, that the other side is to be told.
    pub(super) fn next_control(&self) -> Option<(u32, u32)> {
        let mut state = self.state();
        if let Some(id) = state.ends.pop_front() {
            return Some((id, 0));
        }
        state.credits.pop_first()
    }

    /// It ends in order; whether it was there.
    pub(super) fn finish(&self, id: u32) -> bool {
        self.state().leave(id)
    }

    /// The other side was told of its end.
    pub(super) fn told_end(&self, id: u32) {
        let mut state = self.state();
        let Some(slot) = state.slots.get_mut(&id) else { return };
        slot.own = Own::Ended;
        if slot.ended.is_some() {
            state.remove(id, self.is_ours(id));
        }
    }

    /// It was dropped; whether the other side is to be told.
    pub(super) fn forget(&self, id: u32) -> bool {
        let mut state = self.state();
        let is_owed = state.leave(id);
        if is_owed {
            state.ends.push_back(id);
        }
        is_owed
    }

    /// The link has ended.
    pub(super) fn end(&self, why: &str) {
        self.gone.send_if_modified(|gone| {
            let is_first = gone.is_none();
            gone.get_or_insert_with(|| why.to_owned());
            is_first
        });
    }

    /// Waits for that.
    pub(super) async fn gone(&self) -> String {
        let mut gone = self.gone.subscribe();
        // The sender is as old as the table.
        let why = gone.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or_else(|| "the link has ended".to_owned())
    }
}
