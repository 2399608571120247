//! What the network's part asks of the enforcing one: closed questions about what the agent knows, none of which changes anything.
//!
//! An answer is a list of messages, whose bytes the network's part passes on: what the wire calls the answer, a page's text, or a text
//! of metrics. It ends well or with a [`Failure`].

use crate::coded::{coded, coded_enum};

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// All of `GetStatus`.
    Status,
    /// All of `ListContainers`.
    Containers,
    /// `WatchUsage`: a message a tick.
    WatchUsage,
    /// `GetUsage` at a time, microseconds since 1970.
    Usage(u64),
    /// `WatchDecisions`.
    WatchDecisions(Decisions),
    /// `ListOomKills`.
    OomKills,
    /// `ListEvictions`; true with those that are over.
    Evictions(bool),
    /// `Admit`: whether so much of each resource fits.
    Fits(Vec<Amount>),
    /// The text of `/metrics`.
    Metrics,
    /// The page of the node: so many pages on.
    NodePage(u32),
    /// The page of decisions.
    DecisionsPage(DecisionFilter),
    /// The time of the newest tick, microseconds since 1970: a `u64`.
    Ticked,
}

coded_enum!(Ask {
    1 = Status,
    2 = Containers,
    3 = WatchUsage,
    4 = Usage(at),
    5 = WatchDecisions(asked),
    6 = OomKills,
    7 = Evictions(all),
    8 = Fits(asked),
    9 = Metrics,
    10 = NodePage(number),
    11 = DecisionsPage(filter),
    12 = Ticked,
});

/// What the runtime's part asks: a connection to the socket at this path, which comes as a descriptor with an empty message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connect(pub String);

/// Which decisions, as `WatchDecisionsRequest` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the message, and documented there")]
pub struct Decisions {
    pub from_seq: u64,
    pub since_usec: u64,
    pub kinds: Vec<String>,
    pub pod: String,
    pub limit: u32,
    pub no_follow: bool,
}

/// So much of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amount {
    /// Of which.
    pub name: String,
    /// Billionths of its unit.
    pub nano: i128,
    /// Written with the suffixes of bytes (Ki, Mi).
    pub is_binary: bool,
}

/// Which decisions a page shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecisionFilter {
    /// One kind; empty for all.
    pub kind: String,
    /// Words to look for.
    pub text: String,
    /// So many pages on.
    pub page: u32,
}

/// Why there is no answer, or no more of it, in gRPC's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// The status code's number.
    pub code: u8,
    /// A sentence.
    pub message: String,
}

coded! {
    Connect { 0 }
    Decisions { from_seq, since_usec, kinds, pod, limit, no_follow }
    Amount { name, nano, is_binary }
    DecisionFilter { kind, text, page }
    Failure { code, message }
}
