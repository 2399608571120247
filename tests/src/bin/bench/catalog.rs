//! All measurements by name. One bench may give several figures, because they come from the same run.

use serde_json::json;

use crate::figure::Figure;
use crate::options::Options;
use crate::run::{self, Run};
use crate::{backtest, capacity, converge, ingest, people, pressure, recommend, sample, webhook};

/// One run and the figures it gives.
pub(crate) struct Bench {
    /// Name and meaning of each figure.
    figures: &'static [(&'static str, &'static str)],
    /// Gives all of them.
    run: fn(&Run) -> anyhow::Result<Vec<Figure>>,
}

const BENCHES: [Bench; 31] = [
    Bench {
        figures: &[
            ("sample/sampler-vs-pread", "CPU time of the sampler against bare preads of the same files"),
            ("sample/allocations-per-tick", "allocations of the sampler in a tick of 1,000 containers"),
        ],
        run: sample::sampler::run,
    },
    Bench {
        figures: &[
            ("sample/agent-cpu-1x", "the agent's CPU for 1,000 containers of one process"),
            ("sample/agent-rss", "the agent's memory for 1,000 containers of one process"),
            ("sample/ring-hour", "room the ring takes for an hour of 1,000 sleeping containers"),
            ("sample/tick-lateness-p99", "how late the agent's ticks begin"),
        ],
        run: sample::agent::one_process,
    },
    Bench {
        figures: &[("sample/agent-cpu-10x", "the agent's CPU for 1,000 containers of ten processes")],
        run: sample::agent::ten_processes,
    },
    Bench {
        figures: &[
            (
                "sample/agent-cpu-active",
                "the agent's CPU for 1,000 containers whose every file changes every second",
            ),
            ("sample/ring-hour-active", "room the ring takes for an hour of these"),
        ],
        run: sample::agent::active,
    },
    Bench {
        figures: &[(
            "sample/agent-cpu-storm",
            "the agent's CPU for 1,000 containers while others fork all the time",
        )],
        run: sample::agent::storm,
    },
    Bench {
        figures: &[
            ("sample/agent-parts-pss", "memory of all processes of an agent in three, for 1,000 containers"),
            ("sample/agent-parts-cpu", "their CPU"),
        ],
        run: sample::parts::run,
    },
    Bench {
        figures: &[
            (
                "converge/new-process-p99",
                "a wrong score where the kernel wakes the agent (exec, fork, move) is right",
            ),
            (
                "converge/audit-max",
                "a wrong score a process gave itself, which the kernel tells nobody, is right",
            ),
        ],
        run: converge::new_process::run,
    },
    Bench {
        figures: &[
            (
                "converge/network-killed-p99",
                "a wrong score is right while the network part of an agent in three processes is killed",
            ),
            ("converge/network-killed-missed", "seconds not sampled meanwhile"),
            ("converge/restart-first-sample", "its enforcing part, killed and started anew, samples again"),
        ],
        run: converge::apart::run,
    },
    Bench {
        figures: &[("converge/churn-workers", "wrong scores after `converged`, 20 forking workers")],
        run: converge::churn::workers,
    },
    Bench {
        figures: &[("converge/churn-chain", "wrong scores after `converged`, one fork-and-exit chain")],
        run: converge::churn::chain,
    },
    Bench {
        figures: &[("converge/churn-chains", "wrong scores after `converged`, 32 fork-and-exit chains")],
        run: converge::churn::chains,
    },
    Bench {
        figures: &[
            ("ingest/samples-per-core-second", "samples into the synced log per second of CPU"),
            ("ingest/wire-bytes-busy", "bytes on the socket for a sample in which every field moves"),
            ("ingest/wire-bytes-idle", "bytes on the socket for a sample in which none does"),
        ],
        run: ingest::run,
    },
    Bench {
        figures: &[
            ("ingest/load-300k", "the recommender's CPU for 300,000 containers every second"),
            ("ingest/load-300k-memory", "its memory for them"),
            ("ingest/ack-p99", "time until a frame is acknowledged under this load"),
            ("ingest/ack-p99-checkpoint", "the same while a checkpoint is written"),
            ("ingest/ack-p99-hour", "the same at the turn of the hour"),
        ],
        run: ingest::load::run,
    },
    Bench {
        figures: &[("ingest/load-300k-tcp", "the recommender's CPU for the same load over TCP")],
        run: ingest::load::tcp,
    },
    Bench {
        figures: &[("ingest/load-300k-tls", "the recommender's CPU for the same load over TLS")],
        run: ingest::load::tls,
    },
    Bench {
        figures: &[("ingest/storm-5000", "5,000 nodes that connect at once all stream again")],
        run: ingest::storm::run,
    },
    Bench {
        figures: &[("ingest/rss-flat", "growth of the recommender's memory while pods come and go")],
        run: ingest::churn::run,
    },
    Bench {
        figures: &[
            ("ingest/disk-busy", "history on disk of a busy container and day"),
            ("ingest/disk-idle", "history on disk of an idle container and day"),
        ],
        run: ingest::cost::disk,
    },
    Bench {
        figures: &[
            ("recommend/ready-30d", "a month of history of 10,000 workloads is read back"),
            ("recommend/history-read-p99", "reading what an answer needs"),
        ],
        run: ingest::cost::ready,
    },
    Bench {
        figures: &[
            (
                "recommend/in-process-p99",
                "an answer about a pod inside the recommender, under a third of the load",
            ),
            ("recommend/grpc-p99", "the same over gRPC, beside an echo"),
            ("recommend/policies-10k", "10,000 policies and their containers made anew"),
        ],
        run: recommend::run,
    },
    Bench {
        figures: &[("recommend/one-image", "12,000 young workloads of one image answered")],
        run: recommend::one_image::run,
    },
    Bench {
        figures: &[(
            "pressure/first-write",
            "memory is short by the kernel's word until the first write is done",
        )],
        run: pressure::run,
    },
    Bench {
        figures: &[
            (
                "backtest/year-1000",
                "a year of 5-minute samples of 1,000 series replayed under the default rule",
            ),
            ("backtest/load", "megabytes of CSV read into series in a second"),
        ],
        run: backtest::run,
    },
    Bench {
        figures: &[
            ("capacity/closed-form", "one shape counted in closed form on 5,000 nodes"),
            ("capacity/step-local", "placements a second of a shape whose rules are local to a node"),
            ("capacity/step-spread", "placements a second with one spread constraint"),
            ("capacity/step-anti-affinity", "placements a second, one of a kind on each node"),
        ],
        run: capacity::step,
    },
    Bench {
        figures: &[
            ("capacity/load", "a snapshot of 5,000 nodes and 150,000 pods is read and asked"),
            ("capacity/load-memory", "memory that takes"),
        ],
        run: capacity::load,
    },
    Bench {
        figures: &[("capacity/openb", "8,152 tasks of a production cluster are replayed")],
        run: capacity::openb,
    },
    Bench {
        figures: &[(
            "capacity/growth",
            "how the cost of a placing grows with the nodes, against their logarithm",
        )],
        run: capacity::growth,
    },
    Bench {
        figures: &[
            ("people/pages", "a page of the dashboard over 1,000 nodes and 100,000 containers"),
            ("people/pages-bytes", "the largest of them"),
        ],
        run: people::pages,
    },
    Bench {
        figures: &[("people/top-cpu", "the CPU of `evenkeel top` on a screen with 1,000 containers")],
        run: people::top,
    },
    Bench {
        figures: &[("sample/first-sample", "an agent that is started has its first sample")],
        run: people::first_sample,
    },
    Bench {
        figures: &[
            (
                "webhook/review-p99",
                "time for the admission webhook's answer from objects it follows, at 500 a second",
            ),
            ("webhook/review-cpu", "the webhook's CPU for one answer"),
        ],
        run: webhook::run,
    },
];

/// Every figure and its meaning.
pub(crate) fn figures() -> impl Iterator<Item = (&'static str, &'static str)> {
    BENCHES.iter().flat_map(|bench| bench.figures.iter().copied())
}

/// The benches that give a figure asked for.
pub(crate) fn chosen(options: &Options) -> impl Iterator<Item = &'static Bench> {
    BENCHES.iter().filter(|bench| bench.figures.iter().any(|(name, _)| options.wants(name)))
}

/// Prints all figures.
pub(crate) fn list(as_json: bool) {
    if as_json {
        let all: Vec<_> = figures().map(|(name, what)| json!({"name": name, "what": what})).collect();
        println!("{}", json!(all));
    } else {
        for (name, what) in figures() {
            println!("{name:<34}{what}");
        }
    }
}

impl Bench {
    /// Runs it. When it fails each of its figures says so.
    pub(crate) fn measure(&self, run: &Run) -> Vec<Figure> {
        let names: Vec<&str> = self.figures.iter().map(|(name, _)| *name).collect();
        eprintln!("==> {}", names.join(", "));
        let began = run::Machine::now();
        let measured = if evenkeel_tests::machine::is_root() {
            (self.run)(run)
        } else {
            Err(anyhow::anyhow!("test cgroups and other programs' numbers need root"))
        };
        let mut figures = measured.unwrap_or_else(|error| {
            let why = format!("{error:#}");
            eprintln!("    not measured: {why}");
            // What follows the first line is a program's log.
            let why = format!("not measured here: {}", why.lines().next().unwrap_or_default());
            names.iter().map(|name| Figure::absent(name, &why)).collect()
        });
        let meanwhile = began.until_now();
        for figure in &mut figures {
            figure.machine(&meanwhile);
            eprintln!("    {figure}");
        }
        figures
    }
}
