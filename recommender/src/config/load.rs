//! Reading the configuration from files, environment and flags.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use figment::providers::{Env, Format, Serialized, Toml};
use figment::{Figment, Profile};

use super::Config;

/// The file read where no other is named; it may be missing.
pub const DEFAULT_FILE: &str = "/etc/evenkeel/recommender.toml";

/// Environment variables outside a section that are read too.
const PLAIN_VARIABLES: [&str; 6] = ["state_dir", "policies", "objects", "panic", "panic_file", "insecure"];

/// Where the configuration is read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A file that must be there; [`DEFAULT_FILE`], which may be missing, without.
    pub file: Option<PathBuf>,
    /// Values given on the command line, by key such as `serve.grpc`.
    pub flags: Vec<(String, String)>,
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read configuration {}; name an existing file with --config", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A key or value is wrong.
    #[error("configuration: {what}; `evenkeel-recommender config default` shows every key with its default")]
    Invalid {
        /// Where (key and source) and what.
        what: String,
    },
}

/// Reads, merges and checks.
///
/// # Errors
/// [`ConfigError`] naming file, key and what is wrong with it.
pub fn load(sources: &Sources) -> Result<Config, ConfigError> {
    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    for path in files(sources)? {
        figment = figment.merge(Toml::file_exact(path));
    }
    figment = figment.merge(
        Env::prefixed("EVENKEEL_")
            .filter(|key| key.as_str().contains("__") || PLAIN_VARIABLES.iter().any(|plain| key == *plain))
            .split("__"),
    );
    for (key, value) in &sources.flags {
        let given = value.parse::<figment::value::Value>();
        let value = given.unwrap_or_else(|never| match never {});
        figment = figment.merge(Serialized::from(value, Profile::Default).key(key));
    }
    let mut config: Config =
        figment.extract().map_err(|errors| ConfigError::Invalid { what: shown(errors) })?;
    take_former(&mut config);
    let problems = config.problems();
    if problems.is_empty() {
        return Ok(config);
    }
    let all: Vec<String> = problems.iter().map(|(key, what)| format!("{key} {what}")).collect();
    Err(ConfigError::Invalid { what: all.join("; ") })
}

/// What each file says, by key; one that cannot be read says nothing.
pub(crate) fn values(sources: &Sources) -> BTreeMap<PathBuf, BTreeMap<String, String>> {
    let read = |path: PathBuf| {
        let read = Figment::from(Toml::file_exact(&path)).extract::<serde_json::Value>();
        let mut values = BTreeMap::new();
        flatten("", &read.unwrap_or_default(), &mut values);
        (path, values)
    };
    files(sources).unwrap_or_default().into_iter().map(read).collect()
}

fn flatten(key: &str, value: &serde_json::Value, into: &mut BTreeMap<String, String>) {
    match value {
        serde_json::Value::Object(table) => {
            let dot = if key.is_empty() { "" } else { "." };
            table.iter().for_each(|(name, value)| flatten(&format!("{key}{dot}{name}"), value, into));
        }
        serde_json::Value::Null => {}
        value => drop(into.insert(key.to_owned(), value.to_string())),
    }
}

/// Values given under the name that a key had in former releases count beside those under its present one.
fn take_former(config: &mut Config) {
    let Config { objects, recommend, capacity, former, .. } = config;
    for (key, given) in
        [("recommend.objects", &mut recommend.objects), ("capacity.objects", &mut capacity.objects)]
    {
        for path in given.drain(..) {
            if !former.contains(&key) {
                former.push(key);
            }
            if !objects.contains(&path) {
                objects.push(path);
            }
        }
    }
}

/// The files in the order they are read.
fn files(sources: &Sources) -> Result<Vec<PathBuf>, ConfigError> {
    let main = sources.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    let mut found = Vec::new();
    match fs::metadata(&main) {
        Ok(_) => found.push(main.clone()),
        Err(e) if e.kind() == io::ErrorKind::NotFound && sources.file.is_none() => {}
        Err(source) => return Err(ConfigError::Read { path: main, source }),
    }
    let parts = main.parent().unwrap_or(Path::new("/")).join("conf.d");
    match fs::read_dir(&parts) {
        Ok(entries) => {
            let mut names: Vec<PathBuf> = entries
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| is_part(path))
                .collect();
            names.sort();
            found.extend(names);
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(ConfigError::Read { path: parts, source }),
    }
    Ok(found)
}

/// Whether a file of `conf.d` is this program's: `recommender.toml` or `recommender-<anything>.toml`, possibly behind
/// a number (`10-recommender.toml`); the directory is shared with the agent.
fn is_part(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_suffix(".toml").is_some_and(|stem| stem.split(['-', '.']).any(|word| word == "recommender"))
}

fn shown(errors: figment::Error) -> String {
    let all: Vec<String> = errors
        .into_iter()
        .map(|error| {
            let key = error.path.join(".");
            let source = error.metadata.as_ref().map(|m| match &m.source {
                Some(source) => format!(" in {source}"),
                None => format!(" in {}", m.name),
            });
            let at = if key.is_empty() { String::new() } else { format!("{key}: ") };
            format!("{at}{}{}", error.kind, source.unwrap_or_default())
        })
        .collect();
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, flags: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("recommender.toml");
        fs::write(&file, text).unwrap();
        let flags = flags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        load(&Sources { file: Some(file), flags })
    }

    #[test]
    fn an_empty_file_gives_the_defaults_and_the_defaults_read_back() {
        let config = with("", &[]).unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(config.problems(), []);
    }

    #[test]
    fn flags_go_over_the_file() {
        let text =
            "state_dir = '/a'\n[serve]\ngrpc = '127.0.0.1:1'\nworkers = 3\n[log]\nsync_interval = '50ms'\n";
        let config = with(text, &[("serve.grpc", "127.0.0.1:2"), ("state_dir", "/b")]).unwrap();
        assert_eq!(config.serve.grpc.unwrap().port(), 2);
        assert_eq!((config.serve.workers, config.state_dir), (3, PathBuf::from("/b")));
        assert_eq!(config.log.sync_interval, super::super::Span::from_millis(50));
    }

    #[test]
    fn former_names_of_a_key_are_read_beside_it_and_told() {
        let text =
            "objects = ['/a', '/b']\n[recommend]\nobjects = ['/b', '/c']\n[capacity]\nobjects = ['/d']\n";
        let config = with(text, &[]).unwrap();
        assert_eq!(config.objects, ["/a", "/b", "/c", "/d"].map(PathBuf::from));
        assert_eq!(config.former, ["recommend.objects", "capacity.objects"]);
        assert_eq!((config.recommend.objects.len(), config.capacity.objects.len()), (0, 0));
        let present = with("objects = []\n", &[]).unwrap();
        assert_eq!((present.objects.len(), present.former.len()), (0, 0));
    }

    #[test]
    fn what_is_wrong_names_key_and_place() {
        let table = [
            ("[serve]\ngrcp = '1'\n", "grcp"),
            ("serv = 1\n", "serv"),
            ("[serve]\ngrpc = 'here'\n", "serve.grpc"),
            ("[log]\nsync_interval = '1s'\n", "log.sync_interval"),
            ("[log]\nsync_interval = '1 week'\n", "1 week"),
            ("[ingest]\ncredits = -1\n", "ingest.credits"),
            ("[serve\n", "recommender.toml"),
            ("[serve]\nsocket = ''\n", "serve.socket"),
            ("[serve]\nsocket = 'run/x.sock'\n", "absolute"),
            ("[serve]\ngrpc = '0.0.0.0:1'\n", "insecure = true"),
            ("[serve]\nhttp = '[::]:1'\n", "serve.http = [::]:1"),
        ];
        for (text, want) in table {
            let error = with(text, &[]).unwrap_err().to_string();
            assert!(error.contains(want), "{text:?}: {error}");
        }
    }

    #[test]
    fn plaintext_off_loopback_is_accepted_by_name_alone() {
        let text = "insecure = true\n[serve]\ngrpc = '10.0.0.1:1'\nhttp = '127.0.0.1:2'\n";
        let config = with(text, &[]).unwrap();
        let told = config.plaintext().unwrap();
        assert!(told.contains("serve.grpc = 10.0.0.1:1") && !told.contains("serve.http"), "{told}");
        assert_eq!(Config::default().plaintext(), None);
    }

    #[test]
    fn resource_types_are_read_and_checked() {
        let text = "[resources.cpu]\nquantization = '10m'\n[resources.\"example.com/seat\"]\nunits = ''\n";
        assert_eq!(with(text, &[]).unwrap().resources.len(), 2);
        let error =
            with("[resources.\"example.com/seat\"]\ndefaultRequest = 1\n", &[]).unwrap_err().to_string();
        assert!(error.contains("resources") && error.contains("has no units"), "{error}");
    }

    #[test]
    fn a_named_file_that_is_missing_is_an_error() {
        let sources = Sources { file: Some("/nowhere/recommender.toml".into()), flags: Vec::new() };
        assert!(load(&sources).unwrap_err().to_string().contains("/nowhere/recommender.toml"));
    }

    #[test]
    fn parts_are_told_apart_by_name() {
        for (name, want) in [("recommender.toml", true), ("10-recommender.toml", true), ("agent.toml", false)]
        {
            assert_eq!(is_part(Path::new(name)), want, "{name}");
        }
    }
}
