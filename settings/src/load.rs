//! Merging: defaults of whoever starts the program, then files, then environment, then flags.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml_edit::ImDocument;

use crate::error::{ConfigError, ConfigErrors};
use crate::files::{Program, Sources};
use crate::locate::{line_at, located, place_of};
use crate::render::{is_known, json, schema};

/// Prefix of the variables that both programs shared before each had its own.
const SHARED: &str = "EVENKEEL_";
/// Variables of the command line, not of a program's configuration.
const COMMAND_LINE: [&str; 5] = [
    "EVENKEEL_AGENT",
    "EVENKEEL_AGENT_TOKEN_FILE",
    "EVENKEEL_CA_FILE",
    "EVENKEEL_RECOMMENDER",
    "EVENKEEL_TOKEN_FILE",
];

/// A merged configuration, and where it is from.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The values.
    pub value: T,
    /// Files read, in order.
    pub files: Vec<PathBuf>,
    /// What a person should know: files and variables under former names, files that are not read.
    pub warnings: Vec<String>,
    figment: Figment,
}

impl<T> Loaded<T> {
    /// A configuration that comes from nowhere.
    pub fn of(value: T) -> Self {
        Self { value, files: Vec::new(), warnings: Vec::new(), figment: Figment::new() }
    }

    /// Whether a file, variable or flag set a key.
    pub fn is_set(&self, key: &str) -> bool {
        self.figment.find_metadata(key).is_some()
    }

    /// The file and line, variable or flag that set a key.
    pub fn place(&self, key: &str) -> String {
        let parts: Vec<String> = key.split('.').map(str::to_owned).collect();
        match self.figment.find_metadata(key) {
            Some(metadata) => located(place_of(Some(metadata)), &parts),
            None => "defaults".to_owned(),
        }
    }
}

/// A value from a flag.
#[derive(Debug, Clone)]
pub struct Flag {
    /// As typed, for errors: `--dry-run`.
    pub name: String,
    /// Dotted key.
    pub key: String,
    /// The value.
    pub value: String,
    /// It is a default of whoever starts the program: files and environment go over it.
    pub is_default: bool,
}

/// Merges everything. `file` is what the command line names; without it the program's own file is read if it is there.
///
/// # Errors
/// A file that does not read, a key that is not known, a value of the wrong type.
pub fn load<T: Default + Serialize + DeserializeOwned + JsonSchema>(
    program: Program,
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &[Flag],
) -> Result<Loaded<T>, ConfigErrors> {
    load_files(program, Sources::find(program, file)?, env, flags)
}

/// Merges these files, the environment and the flags.
///
/// # Errors
/// As [`load`].
pub fn load_files<T: Default + Serialize + DeserializeOwned + JsonSchema>(
    program: Program,
    sources: Sources,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &[Flag],
) -> Result<Loaded<T>, ConfigErrors> {
    let typed = Typed { defaults: json(&T::default()), schema: schema::<T>() };
    let Sources { files, mut warnings } = sources;
    let mut figment = Figment::new();
    for flag in flags.iter().filter(|flag| flag.is_default) {
        figment = figment.merge(SingleValue::flag(flag, &typed));
    }
    for path in &files {
        check_syntax(path)?;
        figment = figment.merge(Toml::file_exact(path));
    }
    for variable in variables(program, env, &typed, &mut warnings) {
        figment = figment.merge(variable);
    }
    for flag in flags.iter().filter(|flag| !flag.is_default) {
        figment = figment.merge(SingleValue::flag(flag, &typed));
    }
    match read(&figment) {
        Ok(value) => Ok(Loaded { value, files, warnings, figment }),
        Err(errors) => {
            let all = errors.into_iter().map(|error| ConfigError::from_figment(&error)).collect();
            Err(ConfigErrors(all))
        }
    }
}

/// What was merged, as a value of this type. `Figment::extract` does the same, and compiles each type's reader three times more,
/// for values of its own that no configuration has.
fn read<T: DeserializeOwned>(figment: &Figment) -> Result<T, Box<figment::Error>> {
    let value = figment.find_value("")?;
    T::deserialize(&value).map_err(|mut error| {
        error.metadata = figment.get_metadata(deepest(&value, &error.path).tag()).cloned();
        error.profile = Some(Profile::Default);
        Box::new(error)
    })
}

/// What stands at a path, or at as much of it as there is.
fn deepest<'a>(value: &'a Value, path: &[String]) -> &'a Value {
    let Some((first, rest)) = path.split_first() else { return value };
    let inner = match value {
        Value::Dict(_, table) => table.get(first),
        Value::Array(_, list) => first.parse().ok().and_then(|at: usize| list.get(at)),
        _ => None,
    };
    inner.map_or(value, |inner| deepest(inner, rest))
}

/// A file's text as a value, with errors that have a path and a kind.
///
/// # Errors
/// What is no TOML, a key that is not known, a value of the wrong type.
pub fn toml_value<T: DeserializeOwned>(text: &str) -> Result<T, Box<figment::Error>> {
    read(&Figment::from(Toml::string(text)))
}

/// What each of these files says by dotted key, as JSON; one that does not read says nothing.
pub fn by_file(files: &[PathBuf]) -> BTreeMap<PathBuf, BTreeMap<String, String>> {
    let of = |path: &PathBuf| {
        let said = read::<serde_json::Value>(&Figment::from(Toml::file_exact(path)));
        let mut values = BTreeMap::new();
        flatten("", &said.unwrap_or_default(), &mut values);
        (path.clone(), values)
    };
    files.iter().map(of).collect()
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

/// Names the line of a file that is not TOML.
fn check_syntax(path: &Path) -> Result<(), ConfigError> {
    let fail = |line: Option<usize>, reason: String, remedy: &str| ConfigError {
        place: line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display())),
        key: None,
        reason,
        remedy: remedy.to_owned(),
    };
    let text = fs::read_to_string(path).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::IsADirectory => "remove the directory, or name it otherwise",
            ErrorKind::InvalidData => "write it as UTF-8",
            _ => "correct its permissions",
        };
        fail(None, format!("the file cannot be read: {error}"), remedy)
    })?;
    ImDocument::parse(text.as_str()).map(drop).map_err(|error| {
        let line = error.span().map(|span| line_at(&text, span.start));
        let reason = format!("the file is not TOML: {}", error.message().trim().replace('\n', ", "));
        fail(line, reason, "correct the line")
    })
}

/// What is known of the values' types.
struct Typed {
    defaults: serde_json::Value,
    schema: serde_json::Value,
}

impl Typed {
    /// A value given as text: text where the default is text, else what it reads as. Quotes about a text are those of a file's form,
    /// or what a reader of variables (`docker run --env-file`) leaves.
    fn read(&self, key: &str, text: &str) -> Value {
        let pointer = format!("/{}", key.replace('.', "/"));
        if self.defaults.pointer(&pointer).is_some_and(serde_json::Value::is_string) {
            return Value::from(unquoted(text));
        }
        // Reading a value never fails: what is no number, list or truth value is text.
        text.parse().unwrap_or_else(|never| match never {})
    }
}

fn unquoted(text: &str) -> &str {
    let without = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    without('"').or_else(|| without('\'')).unwrap_or(text)
}

/// Values of the environment: under the former shared names first, then the program's own.
fn variables(
    program: Program,
    env: impl IntoIterator<Item = (String, String)>,
    typed: &Typed,
    warnings: &mut Vec<String>,
) -> Vec<SingleValue> {
    let own = [Program::AGENT, Program::RECOMMENDER].map(|program| program.prefix);
    let (mut shared, mut ours) = (Vec::new(), Vec::new());
    for (name, text) in env {
        if COMMAND_LINE.contains(&name.as_str()) {
            continue;
        }
        let one = |rest: &str| {
            let key = rest.to_ascii_lowercase().replace("__", ".");
            SingleValue { name: format!("environment variable {name}"), value: typed.read(&key, &text), key }
        };
        if let Some(rest) = name.strip_prefix(program.prefix) {
            ours.push(one(rest));
            continue;
        }
        let Some(rest) = name.strip_prefix(SHARED) else { continue };
        if own.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let value = one(rest);
        if is_known(&typed.schema, &value.key) {
            let renamed = format!("{}{rest}", program.prefix);
            warnings.push(format!("environment variable {name} is read for now; rename it to {renamed}"));
            shared.push(value);
        } else if rest.contains("__") {
            warnings.push(format!(
                "environment variable {name} is not a key of evenkeel-{}: not used",
                program.name
            ));
        }
    }
    shared.append(&mut ours);
    shared
}

/// A provider of one value, so that an error can name the variable or flag it came from.
struct SingleValue {
    name: String,
    key: String,
    value: Value,
}

impl SingleValue {
    fn flag(flag: &Flag, typed: &Typed) -> Self {
        let name = format!("flag {}", flag.name);
        Self { name, key: flag.key.clone(), value: typed.read(&flag.key, &flag.value) }
    }
}

impl Provider for SingleValue {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let nested = figment::util::nest(&self.key, self.value.clone());
        let dict = nested.into_dict().unwrap_or_default();
        Ok(Map::from([(Profile::Default, dict)]))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{Size, Span, toml};

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Config {
        /// Where state is kept.
        state_dir: PathBuf,
        /// An address.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// Limits.
        limits: Limits,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Limits {
        /// Most bytes.
        bytes: Size,
        /// Longest time.
        time: Span,
        /// Tiers, the first first.
        tiers: Vec<Tier>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Tier {
        /// Its name.
        name: String,
    }

    impl Default for Config {
        fn default() -> Self {
            Self { state_dir: "/var".into(), address: None, limits: Limits::default() }
        }
    }

    impl Default for Limits {
        fn default() -> Self {
            Self {
                bytes: Size::from_mib(64),
                time: Span::from_days(8),
                tiers: vec![Tier { name: "a".into() }],
            }
        }
    }

    fn with(text: &str, env: &[(&str, &str)]) -> Result<Loaded<Config>, ConfigErrors> {
        let dir = tempfile::tempdir().unwrap();
        within(dir.path(), text, env)
    }

    fn within(dir: &Path, text: &str, env: &[(&str, &str)]) -> Result<Loaded<Config>, ConfigErrors> {
        let file = dir.join("agent.toml");
        fs::write(&file, text).unwrap();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        load(Program::AGENT, Some(&file), env, &[])
    }

    #[test]
    fn each_program_has_a_prefix_and_former_variables_are_read_with_a_warning() {
        let env = [
            ("EVENKEEL_STATE_DIR", "/former"),
            ("EVENKEEL_AGENT_STATE_DIR", "/own"),
            ("EVENKEEL_ADDRESS", "a:1"),
            ("EVENKEEL_RECOMMENDER_STATE_DIR", "/others"),
            ("EVENKEEL_SERVE__METRICS", "others"),
            ("EVENKEEL_AGENT", "unix:///x"),
            ("EVENKEEL_AGENT_TOKEN_FILE", "/t"),
            ("EVENKEEL_FULL", "1"),
            ("HOME", "/"),
        ];
        let dir = tempfile::tempdir().unwrap();
        let loaded = within(dir.path(), "[limits]\nbytes = \"1Gi\"\n", &env).unwrap();
        let Config { state_dir, address, limits } = &loaded.value;
        assert_eq!((state_dir.to_str(), address.as_deref()), (Some("/own"), Some("a:1")));
        assert_eq!(limits.bytes, Size::from_mib(1024));
        assert_eq!(
            loaded.warnings,
            [
                "environment variable EVENKEEL_STATE_DIR is read for now; rename it to EVENKEEL_AGENT_STATE_DIR",
                "environment variable EVENKEEL_ADDRESS is read for now; rename it to EVENKEEL_AGENT_ADDRESS",
                "environment variable EVENKEEL_SERVE__METRICS is not a key of evenkeel-agent: not used",
            ]
        );
        assert!(loaded.is_set("limits.bytes") && !loaded.is_set("limits.time"));
        assert!(loaded.place("limits.bytes").ends_with("agent.toml:2"), "{}", loaded.place("limits.bytes"));
        assert_eq!(loaded.place("limits.time"), "defaults");
    }

    #[test]
    fn quotes_about_a_text_are_not_part_of_it() {
        for (text, expected) in
            [("/a", "/a"), ("\"/a\"", "/a"), ("'/a'", "/a"), ("\"\"", ""), ("\"", "\""), ("a\"b\"", "a\"b\"")]
        {
            let env = [("EVENKEEL_AGENT_STATE_DIR", text), ("EVENKEEL_AGENT_ADDRESS", "\"a:1\"")];
            let Config { state_dir, address, .. } = with("", &env).unwrap().value;
            assert_eq!((state_dir.to_str(), address.as_deref()), (Some(expected), Some("a:1")), "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        let text = toml(&Config::default());
        assert!(text.contains("# Longest time.\ntime = \"8d\"\n"), "{text}");
        assert!(text.contains("# An address.\n# address =\n"), "{text}");
        assert!(text.contains("[[limits.tiers]]\n# Its name.\nname = \"a\"\n"), "{text}");
        assert_eq!(with(&text, &[]).unwrap().value, Config::default());
    }

    #[test]
    fn errors_name_the_variable_or_the_line() {
        let unknown = [("EVENKEEL_AGENT_LIMITS__BITES", "1")];
        let error = with("", &unknown).unwrap_err().to_string();
        let expected = "environment variable EVENKEEL_AGENT_LIMITS__BITES: limits.bites: this key is not known; \
                        did you mean \"bytes\"?";
        assert_eq!(error, expected);
        let error = with("\n[limits]\n\ntime = \"9 weeks\"\n", &[]).unwrap_err().to_string();
        assert!(
            error.contains("agent.toml:4: limits.time: found the text \"9 weeks\"; give a duration"),
            "{error}"
        );
        for (text, expected) in [
            (
                "[[limits.tiers]]\nname = 'a'\n[[limits.tiers]]\nname = 1\n",
                "agent.toml:4: limits.tiers.1.name: found",
            ),
            ("\n[[limits.tiers]]\n", "agent.toml:2: limits.tiers.0: the key name is missing; add it"),
        ] {
            let error = with(text, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
