//! The bytes of the process connector: netlink header, connector header, process event, in the machine's byte
//! order (include/uapi/linux/{netlink,connector,cn_proc}.h). Pure; any bytes are a valid input.

use evenkeel_model::narrow::usize_to_u32;

/// What happened to a process. Threads are left out: scores and cgroup membership of a process are shared by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEvent {
    /// A process was forked.
    Fork {
        /// The process that forked.
        parent: u32,
        /// The new one.
        child: u32,
    },
    /// A process began another program.
    Exec {
        /// The process.
        pid: u32,
    },
    /// A process ended (its main thread did).
    Exit {
        /// The process.
        pid: u32,
    },
    /// The kernel's queue was full and events were lost: audit everything.
    Overrun,
}

/// One message of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Answer to our subscription; errno 0 is consent.
    Consent { errno: i32 },
    /// An event.
    Event(ProcessEvent),
}

const NLMSG_DONE: u16 = 3;
pub(super) const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;

pub(super) const PROC_EVENT_NONE: u32 = 0;
pub(super) const PROC_EVENT_FORK: u32 = 1;
pub(super) const PROC_EVENT_EXEC: u32 = 2;
const PROC_EVENT_EXIT: u32 = 0x8000_0000;

/// Offsets from the start of the datagram: `nlmsghdr` is 16 bytes, `cn_msg` 20, the head of `proc_event` 16.
pub(super) const NETLINK_HEADER: usize = 16;
const CONNECTOR_HEADER: usize = 20;
pub(super) const EVENT: usize = NETLINK_HEADER + CONNECTOR_HEADER;
pub(super) const EVENT_DATA: usize = EVENT + 16;

/// The datagram that subscribes.
pub(super) fn listen_request() -> Vec<u8> {
    let payload = PROC_CN_MCAST_LISTEN.to_ne_bytes();
    let size = NETLINK_HEADER + CONNECTOR_HEADER + payload.len();
    let total = usize_to_u32(size);
    let mut out = Vec::with_capacity(size);
    out.extend(total.to_ne_bytes());
    out.extend(NLMSG_DONE.to_ne_bytes());
    // Flags, sequence and port of the netlink header.
    out.extend([0; 10]);
    out.extend(CN_IDX_PROC.to_ne_bytes());
    out.extend(CN_VAL_PROC.to_ne_bytes());
    // Sequence and acknowledgement of the connector header.
    out.extend([0; 8]);
    out.extend(u16::try_from(payload.len()).unwrap_or(u16::MAX).to_ne_bytes());
    // Flags of the connector header.
    out.extend([0; 2]);
    out.extend(payload);
    out
}

/// Reads one datagram; `None` for what is no process event we know, or is cut.
pub(super) fn parse(datagram: &[u8]) -> Option<Message> {
    if word(datagram, NETLINK_HEADER)? != CN_IDX_PROC || word(datagram, NETLINK_HEADER + 4)? != CN_VAL_PROC {
        return None;
    }
    let data = |i: usize| word(datagram, EVENT_DATA + 4 * i);
    let event = match word(datagram, EVENT)? {
        PROC_EVENT_NONE => return Some(Message::Consent { errno: data(0)?.cast_signed() }),
        // parent_pid, parent_tgid, child_pid, child_tgid
        PROC_EVENT_FORK if data(2)? == data(3)? => ProcessEvent::Fork { parent: data(1)?, child: data(3)? },
        // process_pid, process_tgid
        PROC_EVENT_EXEC => ProcessEvent::Exec { pid: data(1)? },
        PROC_EVENT_EXIT if data(0)? == data(1)? => ProcessEvent::Exit { pid: data(1)? },
        _ => return None,
    };
    Some(Message::Event(event))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn datagram(what: u32, data: &[u32]) -> Vec<u8> {
        let mut bytes = listen_request();
        bytes.truncate(EVENT);
        bytes.extend(what.to_ne_bytes());
        bytes.extend([0; 12]);
        data.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
        bytes
    }

    #[test]
    fn events_of_processes_are_read_and_those_of_threads_passed_over() {
        let table = [
            (PROC_EVENT_FORK, vec![5, 4, 9, 9], Some(ProcessEvent::Fork { parent: 4, child: 9 })),
            (PROC_EVENT_FORK, vec![4, 4, 10, 4], None),
            (PROC_EVENT_EXEC, vec![9, 9], Some(ProcessEvent::Exec { pid: 9 })),
            (PROC_EVENT_EXIT, vec![9, 9, 0, 17], Some(ProcessEvent::Exit { pid: 9 })),
            (PROC_EVENT_EXIT, vec![10, 9, 0, 17], None),
            (0x40, vec![1, 1], None),
        ];
        for (what, data, want) in table {
            assert_eq!(parse(&datagram(what, &data)), want.map(Message::Event), "{what} {data:?}");
        }
        assert_eq!(parse(&datagram(PROC_EVENT_NONE, &[1])), Some(Message::Consent { errno: 1 }));
    }

    #[test]
    fn a_cut_datagram_is_passed_over() {
        let whole = datagram(PROC_EVENT_FORK, &[5, 4, 9, 9]);
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None);
        }
    }
}
