//! Owns what a bundle is made of: questions, and how each is asked, bounded in time and size.

mod command;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SupportArgs;
use crate::args::Global;
use crate::client::Address;
use crate::commands::config::program;
use crate::commands::dashboard::target::Upstream;
use command::command;

/// Longest answer that is taken; what is longer is cut.
const MOST: u64 = 8 << 20;
/// Longest time for one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lines of a unit's log.
const LOG_LINES: &str = "5000";

/// Files of the kernel, below procfs, that say what a node allows and how it is.
const KERNEL: [&str; 12] = [
    "version",
    "meminfo",
    "loadavg",
    "swaps",
    "cgroups",
    "pressure/cpu",
    "pressure/memory",
    "pressure/io",
    "sys/vm/overcommit_memory",
    "sys/vm/panic_on_oom",
    "sys/vm/swappiness",
    "self/mountinfo",
];
/// What systemd tells of a unit; not its environment.
const PROPERTIES: &str = "--property=Id,LoadState,ActiveState,SubState,Result,NRestarts,ExecMainStatus,MemoryCurrent,FragmentPath,DropInPaths,StateChangeTimestamp";

/// One file of the bundle.
pub(super) struct Item {
    pub(super) file: String,
    pub(super) from: From,
    pub(super) what: &'static str,
}

/// Where it comes from.
pub(super) enum From {
    /// A program and its arguments.
    Command(PathBuf, Vec<String>),
    /// A file.
    File(PathBuf),
    /// The agent's metrics.
    Url(String),
    /// The recommender's metrics; or why they cannot be asked for.
    Recommender(Result<Upstream, String>, Option<String>),
    /// Names of variables of this environment.
    Variables,
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(program, args) => {
                let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
                write!(f, "{name} {}", args.join(" "))
            }
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(url),
            Self::Recommender(..) => f.write_str("the recommender's /metrics"),
            Self::Variables => f.write_str("names of variables that begin with EVENKEEL_"),
        }
    }
}

/// An answer, as far as there is one.
pub(super) struct Taken {
    pub(super) text: String,
    pub(super) trouble: Option<String>,
}

impl Taken {
    fn none(why: impl Into<String>) -> Self {
        Self { text: String::new(), trouble: Some(why.into()) }
    }
}

/// Everything a bundle is made of.
pub(super) fn all(args: &SupportArgs, global: &Global, recommender: &Address) -> Vec<Item> {
    let mut items = questions(args, global);
    for (daemon, config) in [("agent", &args.agent_config), ("recommender", &args.recommender_config)] {
        let mut words = vec![];
        words.extend(config.iter().flat_map(|file| ["--config".to_owned(), file.display().to_string()]));
        let of = |action: &str| [words.clone(), vec!["config".to_owned(), action.to_owned()]].concat();
        let name = format!("evenkeel-{daemon}");
        let command = |action: &str| From::Command(program(&name), of(action));
        items.push(item(format!("config/{daemon}.toml"), command("show"), "configuration in force"));
        items.push(item(format!("config/{daemon}-valid.txt"), command("validate"), "which files were read"));
        let journal = ["--unit", &name, "--since", &format!("-{}", args.since), "--lines", LOG_LINES];
        let journal = journal.map(str::to_owned).into_iter();
        let journal = journal.chain(["--no-pager".to_owned(), "--output=short-iso".to_owned()]);
        let from = From::Command("journalctl".into(), journal.collect());
        items.push(item(format!("log/{daemon}.txt"), from, "log lines of the unit"));
        let from = From::Command("systemctl".into(), vec!["show".into(), name.clone(), PROPERTIES.into()]);
        items.push(item(format!("log/{daemon}-unit.txt"), from, "state of the unit"));
    }
    items.push(item("metrics/agent.txt", From::Url(args.agent_metrics.clone()), "metrics of the agent"));
    let target = Upstream::of(None, recommender).map_err(|failure| failure.summary());
    let token = recommender.token().ok().flatten();
    items.push(item(
        "metrics/recommender.txt",
        From::Recommender(target, token),
        "metrics of the recommender",
    ));
    for name in KERNEL {
        items.push(item(
            format!("kernel/{}.txt", name.replace('/', "-")),
            From::File(args.proc.join(name)),
            "the kernel",
        ));
    }
    items.push(item("kernel/os-release.txt", From::File("/etc/os-release".into()), "the system"));
    items.push(item("environment.txt", From::Variables, "configuration by environment, without values"));
    items
}

fn item(file: impl Into<String>, from: From, what: &'static str) -> Item {
    Item { file: file.into(), from, what }
}

/// Questions of this program's own.
fn questions(args: &SupportArgs, global: &Global) -> Vec<Item> {
    let own = std::env::current_exe().unwrap_or_else(|_| "evenkeel".into());
    let mut peers = vec![
        "--agent".to_owned(),
        global.agent.clone(),
        "--recommender".to_owned(),
        global.recommender.clone(),
    ];
    let files = [
        ("--token-file", &global.token_file),
        ("--agent-token-file", &global.agent_token_file),
        ("--ca-file", &global.ca_file),
        ("--cert-file", &global.cert_file),
        ("--key-file", &global.key_file),
    ];
    for (flag, file) in files {
        peers.extend(file.iter().flat_map(|file| [flag.to_owned(), file.display().to_string()]));
    }
    let ask = |file: &str, words: &[&str], what| {
        let words = words.iter().map(|word| (*word).to_owned()).chain(peers.iter().cloned());
        let words = words.chain(["-o".to_owned(), "json".to_owned()]).collect();
        item(file, From::Command(own.clone(), words), what)
    };
    vec![
        ask("version.json", &["version"], "version of this program"),
        ask("doctor.json", &["doctor"], "what this node allows, and troubles of both programs"),
        ask("status.json", &["status"], "status of the agent: containers, knobs, sources, stream"),
        ask("decisions.json", &["events", "--since", &args.since], "what the agent decided"),
        ask("nodes.json", &["nodes"], "nodes that the recommender hears from"),
        ask("policies.json", &["policy", "get"], "policies and their conditions"),
    ]
}

impl Item {
    /// Asks; what is not told in time, or at all, is a trouble and no failure.
    pub(super) fn take(&self) -> Taken {
        match &self.from {
            From::Command(program, args) => command(program, args),
            From::File(path) => file(path),
            From::Url(url) => url_of(url),
            From::Recommender(Ok(target), token) => {
                match target.get("/metrics", token.as_deref(), PATIENCE, MOST) {
                    Ok(text) => Taken { text, trouble: None },
                    Err(failure) => Taken::none(failure.summary()),
                }
            }
            From::Recommender(Err(why), _) => Taken::none(why.clone()),
            From::Variables => variables(),
        }
    }
}

fn variables() -> Taken {
    let mut names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|n| n.starts_with("EVENKEEL_"))
        .collect();
    names.sort();
    Taken { text: names.iter().map(|name| format!("{name}\n")).collect(), trouble: None }
}

fn file(path: &Path) -> Taken {
    match File::open(path).and_then(read) {
        Ok(text) => Taken { text, trouble: None },
        Err(why) => Taken::none(why.to_string()),
    }
}

/// The first bytes of a text.
fn read(from: impl Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    from.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn url_of(url: &str) -> Taken {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().into();
    let answer = agent.get(url).call().map_err(|why| why.to_string());
    let text = answer.and_then(|mut answer| {
        answer.body_mut().with_config().limit(MOST).read_to_string().map_err(|why| why.to_string())
    });
    match text {
        Ok(text) => Taken { text, trouble: None },
        Err(why) => Taken::none(why),
    }
}

/// Secrets that are known by their text: values of variables and contents of files whose names say that they are secret.
pub(super) fn secrets(args: &SupportArgs, global: &Global) -> Vec<String> {
    let words = ["TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL", "AUTH", "COOKIE"];
    let is_secret = |name: &str| words.iter().any(|word| name.to_ascii_uppercase().contains(word));
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    // A variable that names a file has no secret itself.
    let mut found: Vec<String> = variables
        .filter(|(name, value)| is_secret(name) && !value.starts_with('/'))
        .map(|(_, value)| value)
        .collect();
    let mut files: Vec<PathBuf> = [&global.token_file, &global.agent_token_file, &global.key_file]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    for (daemon, config) in
        [("evenkeel-agent", &args.agent_config), ("evenkeel-recommender", &args.recommender_config)]
    {
        let mut words: Vec<String> =
            config.iter().flat_map(|file| ["--config".to_owned(), file.display().to_string()]).collect();
        words.extend(["config".to_owned(), "show".to_owned()]);
        let shown = command(&program(daemon), &words).text;
        files.extend(shown.lines().filter(|line| is_secret(line)).filter_map(path_in));
    }
    for path in files {
        let text = file(&path).text;
        found.extend(
            text.lines().filter(|line| !line.starts_with("-----") && line.len() < 4096).map(str::to_owned),
        );
    }
    found
}

/// The absolute path in quotes of a line.
fn path_in(line: &str) -> Option<PathBuf> {
    let at = line.find("\"/")?;
    let rest = line.get(at + 1..)?;
    Some(PathBuf::from(rest.get(..rest.find('"')?)?))
}
