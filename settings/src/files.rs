//! Which files a program reads: its own, then those of its directory beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::ConfigError;

/// A program with a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Name of its file (`NAME.toml`) and of its directory (`NAME.d`).
    pub name: &'static str,
    /// The file read where none is named; it may be missing.
    pub file: &'static str,
    /// Prefix of its environment variables: `PREFIX<SECTION>__<KEY>`.
    pub prefix: &'static str,
}

impl Program {
    /// `evenkeel-agent`.
    pub const AGENT: Self =
        Self { name: "agent", file: "/etc/evenkeel/agent.toml", prefix: "EVENKEEL_AGENT_" };
    /// `evenkeel-recommender`.
    pub const RECOMMENDER: Self =
        Self { name: "recommender", file: "/etc/evenkeel/recommender.toml", prefix: "EVENKEEL_RECOMMENDER_" };

    /// Whether a file of the directory that both programs shared was this program's: the recommender's name it.
    fn had(self, path: &Path) -> bool {
        let names = path.file_name().is_some_and(|name| name.to_string_lossy().contains("recommender"));
        names == (self == Self::RECOMMENDER)
    }
}

/// The directory that both programs shared before each had its own.
const FORMER: &str = "conf.d";

/// Where a configuration is read from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Files in the order they are read: later ones go over earlier ones.
    pub files: Vec<PathBuf>,
    /// What a person should know about them: files that are not read, files to move.
    pub warnings: Vec<String>,
}

impl Sources {
    /// The files of a program: the one that is named, or the default one where it is there, then those of the former shared
    /// directory, then `*.toml` of its own directory, each by name.
    ///
    /// # Errors
    /// A named file that cannot be opened, a directory that cannot be listed.
    pub fn find(program: Program, named: Option<&Path>) -> Result<Self, ConfigError> {
        let main = named.unwrap_or(Path::new(program.file));
        let mut found = Self::default();
        match fs::File::open(main) {
            Ok(_) => found.files.push(main.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {}
            Err(error) => {
                let remedy = "name an existing file with --config, or correct its permissions";
                return Err(unreadable(main, "file", &error, remedy));
            }
        }
        let beside = main.parent().unwrap_or(Path::new("/"));
        let own = beside.join(format!("{}.d", program.name));
        let former = found.listed(&beside.join(FORMER))?;
        for path in former.into_iter().filter(|path| program.had(path)) {
            let told = format!("{}: conf.d is read for now; move it to {}", path.display(), own.display());
            found.warnings.push(told);
            found.files.push(path);
        }
        let parts = found.listed(&own)?;
        found.files.extend(parts);
        Ok(found)
    }

    /// `*.toml` of a directory by name; others are named in a warning.
    fn listed(&mut self, directory: &Path) -> Result<Vec<PathBuf>, ConfigError> {
        let remedy = "correct its permissions, or remove it";
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(directory, "directory", &error, remedy)),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| unreadable(directory, "directory", &error, remedy))?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                paths.push(path);
            } else {
                self.warnings.push(format!("{}: not read, its name does not end in .toml", path.display()));
            }
        }
        paths.sort_unstable();
        Ok(paths)
    }
}

fn unreadable(path: &Path, kind: &str, error: &io::Error, remedy: &str) -> ConfigError {
    ConfigError {
        place: path.display().to_string(),
        key: None,
        reason: format!("the {kind} cannot be read: {error}"),
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_the_shared_directory_is_read_by_one_program_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["conf.d", "agent.d", "recommender.d"] {
            fs::create_dir(at(folder)).unwrap();
        }
        let names = [
            "agent.toml",
            "recommender.toml",
            "conf.d/10.toml",
            "conf.d/my_recommender.toml",
            "agent.d/20.toml",
            "agent.d/10.toml",
            "agent.d/old.toml.bak",
            "recommender.d/a.toml",
        ];
        for name in names {
            fs::write(at(name), "").unwrap();
        }
        let agent = Sources::find(Program::AGENT, Some(&at("agent.toml"))).unwrap();
        let expected = ["agent.toml", "conf.d/10.toml", "agent.d/10.toml", "agent.d/20.toml"].map(at);
        assert_eq!(agent.files, expected);
        assert_eq!(agent.warnings.len(), 2, "{:?}", agent.warnings);
        assert!(agent.warnings[0].contains("move it to") && agent.warnings[1].contains("old.toml.bak"));
        let recommender = Sources::find(Program::RECOMMENDER, Some(&at("recommender.toml"))).unwrap();
        let expected = ["recommender.toml", "conf.d/my_recommender.toml", "recommender.d/a.toml"].map(at);
        assert_eq!(recommender.files, expected);
    }

    #[test]
    fn a_named_file_has_to_be_there() {
        let error = Sources::find(Program::AGENT, Some(Path::new("/nonexistent/agent.toml"))).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/agent.toml: the file cannot be read"), "{error}");
    }
}
