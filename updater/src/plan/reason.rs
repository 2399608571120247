//! Why a step is taken, or is not.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why a step is taken, or is not.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

reasons! {
    /// Taken: it was OOM-killed, and gets more.
    OomKilled,
    /// Taken: its node's agent says that it should go.
    Offered,
    /// Taken: a request rises.
    Raise,
    /// Taken: requests fall.
    Lower,
    /// Taken: a step that is over is noted.
    Finished,
    /// Taken: a canary did not become worse.
    CanaryPassed,
    /// Taken: a canary became worse.
    CanaryWorse,
    /// Taken: a step that goes no further is given up.
    GaveUp,
    /// Taken: the panic switch gives back what was asked for.
    Revert,
    /// Not taken: the panic switch.
    Frozen,
    /// Not taken: another updater has these pods.
    OtherUpdater,
    /// Not taken: a roll-out is under way.
    Rollout,
    /// Not taken: no window is open.
    WindowClosed,
    /// Not taken: a step of the pod is under way.
    UnderWay,
    /// Not taken: somebody else resized it.
    ChangedByOthers,
    /// Not taken: pods of this kind are not resized.
    Unsupported,
    /// Not taken: it is too young.
    TooYoung,
    /// Not taken: it does not serve.
    NotReady,
    /// Not taken: what scales it rests on its requests.
    ScaledByHpa,
    /// Not taken: memory is in use.
    MemoryInUse,
    /// Not taken: its class would change, which is never done in place.
    ClassWouldChange,
    /// Not taken: the simulator finds no room.
    NoRoom,
    /// Not taken: too many replicas are away.
    Budget,
    /// Not taken: its PodDisruptionBudget allows none.
    DisruptionBudget,
    /// Not taken: it has too few replicas.
    MinReplicas,
    /// Not taken: its policy lets nothing be evicted or restarted.
    EvictNever,
    /// Not taken: nobody makes it anew.
    NotRemade,
    /// Not taken: it is not proven that a pod made anew gets what is recommended.
    AdmissionUnproven,
    /// Not taken: the last step came to nothing.
    BackOff,
    /// Not taken: the first replica is watched.
    CanaryWatched,
    /// Not taken: too many steps in this minute.
    Rate,
}
