//! Reading the configuration: its sources, keys under former names, and the checks of all sections.

use std::collections::BTreeMap;
use std::path::PathBuf;

use evenkeel_settings::{self as settings, ConfigError, ConfigErrors, Flag, Loaded, Program};

use super::Config;

/// Where the configuration is read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A file that must be there; [`Program::RECOMMENDER`]'s, which may be missing, without.
    pub file: Option<PathBuf>,
    /// Values given on the command line, by key such as `serve.grpc`.
    pub flags: Vec<(String, String)>,
}

/// Reads, merges and checks.
///
/// # Errors
/// Everything that is wrong, each with file and line, variable or flag, key, reason and remedy.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let flags = sources.flags.iter().map(|(key, value)| Flag {
        name: format!("--set {key}"),
        key: key.clone(),
        value: value.clone(),
        is_default: false,
    });
    let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let flags: Vec<Flag> = flags.collect();
    let loaded = settings::load::<Config>(Program::RECOMMENDER, sources.file.as_deref(), env, &flags)?;
    let problems = problems(&loaded);
    if !problems.is_empty() {
        return Err(ConfigErrors(problems));
    }
    let mut config = loaded.value;
    config.files = loaded.files;
    config.warnings = loaded.warnings;
    take_former(&mut config);
    Ok(config)
}

fn problems(loaded: &Loaded<Config>) -> Vec<ConfigError> {
    let problem = |(key, reason): (&str, String)| ConfigError {
        place: loaded.place(key),
        key: Some(key.to_owned()),
        reason,
        remedy: String::new(),
    };
    loaded.value.problems().into_iter().map(problem).collect()
}

/// What each file says, by key; one that cannot be read says nothing.
pub(crate) fn values(sources: &Sources) -> BTreeMap<PathBuf, BTreeMap<String, String>> {
    let found = settings::Sources::find(Program::RECOMMENDER, sources.file.as_deref());
    settings::by_file(&found.map(|found| found.files).unwrap_or_default())
}

/// Values given under the name that a key had in former releases count beside those under its present one.
fn take_former(config: &mut Config) {
    let Config { objects, recommend, capacity, warnings, .. } = config;
    for (key, given) in
        [("recommend.objects", &mut recommend.objects), ("capacity.objects", &mut capacity.objects)]
    {
        if !given.is_empty() {
            warnings.push(format!("{key} is called objects now, and is read beside it; rename it"));
        }
        for path in given.drain(..) {
            if !objects.contains(&path) {
                objects.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::Span;

    fn with(text: &str, flags: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("recommender.toml");
        fs::write(&file, text).unwrap();
        let flags = flags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        load(&Sources { file: Some(file), flags }).map(|config| Config { files: Vec::new(), ..config })
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
        assert_eq!(config.log.sync_interval, Span::from_millis(50));
    }

    #[test]
    fn former_names_of_a_key_are_read_beside_it_and_told() {
        let text =
            "objects = ['/a', '/b']\n[recommend]\nobjects = ['/b', '/c']\n[capacity]\nobjects = ['/d']\n";
        let config = with(text, &[]).unwrap();
        assert_eq!(config.objects, ["/a", "/b", "/c", "/d"].map(PathBuf::from));
        let told: Vec<&str> = config.warnings.iter().filter_map(|told| told.split(' ').next()).collect();
        assert_eq!(told, ["recommend.objects", "capacity.objects"]);
        assert_eq!((config.recommend.objects.len(), config.capacity.objects.len()), (0, 0));
        let present = with("objects = []\n", &[]).unwrap();
        assert_eq!((present.objects.len(), present.warnings.len()), (0, 0));
    }

    #[test]
    fn what_is_wrong_names_line_key_and_remedy() {
        let table = [
            (
                "[serve]\ngrcp = '1'\n",
                "recommender.toml:2: serve.grcp: this key is not known; did you mean \"grpc\"?",
            ),
            ("serv = 1\n", "recommender.toml:1: serv: this key is not known; did you mean \"serve\"?"),
            ("[serve]\ngrpc = 'here'\n", "recommender.toml:2: serve.grpc"),
            ("[log]\nsync_interval = '1s'\n", "recommender.toml:2: log.sync_interval"),
            ("[log]\nsync_interval = '1 week'\n", "1 week"),
            ("[ingest]\ncredits = -1\n", "ingest.credits"),
            ("\n[serve\n", "recommender.toml:2: the file is not TOML"),
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
}
