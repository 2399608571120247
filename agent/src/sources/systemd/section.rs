//! `[X-Evenkeel]` in unit files: sections whose name begins with `X-` are left to others by systemd (systemd.unit(5)).
//!
//! Owned here: the syntax of unit files as far as it concerns this section, its keys, and errors that name file, line
//! and key. Pure: texts in, a statement out. Later files override earlier ones, key by key; an empty value takes back
//! what was said before.

use std::collections::BTreeMap;

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::name::ResourceName;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::{RequirementReason, Requirements};

/// Its name in a unit file.
pub(crate) const SECTION: &str = "X-Evenkeel";

/// Keys of the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    CpuRequest,
    CpuLimit,
    MemoryRequest,
    MemoryLimit,
    Manage,
}

impl Key {
    const ALL: [Self; 5] =
        [Self::CpuRequest, Self::CpuLimit, Self::MemoryRequest, Self::MemoryLimit, Self::Manage];

    const fn name(self) -> &'static str {
        match self {
            Self::CpuRequest => "CPURequest",
            Self::CpuLimit => "CPULimit",
            Self::MemoryRequest => "MemoryRequest",
            Self::MemoryLimit => "MemoryLimit",
            Self::Manage => "Manage",
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }
}

/// What a unit's files say.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Statement {
    /// Requests and limits as written.
    pub(super) requirements: Requirements,
    /// `Manage=no`.
    pub(super) opted_out: bool,
    /// Whether everything was understood. If not, nothing of it may be applied.
    pub(super) is_whole: bool,
}

/// A value with the place it was written at.
#[derive(Debug, Clone)]
struct SectionValue {
    text: String,
    place: String,
}

/// Reads a unit's files in the order in which they count; `None` when none has the section.
pub(super) fn read<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    problems: &mut Vec<SourceProblem>,
) -> Option<Statement> {
    let before = problems.len();
    let mut said: BTreeMap<Key, SectionValue> = BTreeMap::new();
    let mut has_section = false;
    for (file, text) in files {
        for assignment in assignments(text, &mut has_section) {
            let place = format!("{file}:{}", assignment.line);
            let Some((name, value)) = assignment.text.split_once('=') else {
                let why = format!("`{}` is no assignment", shown(&assignment.text));
                problems.push(problem(place, "a line", why, "write KEY=VALUE"));
                continue;
            };
            match (Key::of(name.trim()), value.trim()) {
                (None, _) => problems.push(problem(place, &shown(name.trim()), unknown(), KEYS)),
                (Some(key), "") => {
                    said.remove(&key);
                }
                (Some(key), value) => {
                    said.insert(key, SectionValue { text: value.to_owned(), place });
                }
            }
        }
    }
    if !has_section {
        return None;
    }
    let mut statement = Statement {
        opted_out: said.get(&Key::Manage).is_some_and(|said| opted_out(said, problems)),
        ..Statement::default()
    };
    for key in [Key::CpuRequest, Key::CpuLimit, Key::MemoryRequest, Key::MemoryLimit] {
        if let Some(amount) = said.get(&key).and_then(|said| quantity(key, said, problems)) {
            put(&mut statement.requirements, key, amount);
        }
    }
    check(&statement.requirements, &said, problems);
    statement.is_whole = problems.len() == before;
    Some(statement)
}

const KEYS: &str = "write CPURequest=, CPULimit=, MemoryRequest=, MemoryLimit= or Manage=";

fn unknown() -> String {
    format!("[{SECTION}] has no such key")
}

fn problem(place: String, key: &str, why: String, remedy: &str) -> SourceProblem {
    SourceProblem {
        what: format!("read {key} of [{SECTION}]"),
        where_: place,
        why,
        remedy: format!("{remedy}; then run systemctl daemon-reload"),
    }
}

/// The booleans of systemd.syntax(7).
fn opted_out(said: &SectionValue, problems: &mut Vec<SourceProblem>) -> bool {
    match said.text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => false,
        "0" | "no" | "n" | "false" | "f" | "off" => true,
        _ => {
            let why = format!("`{}` is neither yes nor no", shown(&said.text));
            problems.push(problem(said.place.clone(), Key::Manage.name(), why, "write yes or no"));
            // Said wrongly, it may have been meant as no.
            true
        }
    }
}

fn quantity(key: Key, said: &SectionValue, problems: &mut Vec<SourceProblem>) -> Option<Quantity> {
    match Quantity::parse(&said.text) {
        Ok(amount) => Some(amount),
        Err(error) => {
            // The text ends with the remedy, which is told apart here.
            let text = error.to_string();
            let why = text.strip_suffix(&format!("; {}", error.remedy())).unwrap_or(&text).to_owned();
            problems.push(problem(said.place.clone(), key.name(), why, error.remedy()));
            None
        }
    }
}

fn put(requirements: &mut Requirements, key: Key, amount: Quantity) {
    match key {
        Key::CpuRequest => requirements.requests.set(ResourceName::CPU, amount),
        Key::CpuLimit => requirements.limits.set(ResourceName::CPU, amount),
        Key::MemoryRequest => requirements.requests.set(ResourceName::MEMORY, amount),
        Key::MemoryLimit => requirements.limits.set(ResourceName::MEMORY, amount),
        Key::Manage => {}
    }
}

/// The rules every requirement must keep, told by key and line.
fn check(requirements: &Requirements, said: &BTreeMap<Key, SectionValue>, problems: &mut Vec<SourceProblem>) {
    for error in requirements.check("") {
        let key = match error.path.as_str() {
            ".requests.cpu" => Key::CpuRequest,
            ".limits.cpu" => Key::CpuLimit,
            ".requests.memory" => Key::MemoryRequest,
            _ => Key::MemoryLimit,
        };
        let place = said.get(&key).map_or_else(String::new, |said| said.place.clone());
        let limit = match (&error.reason, key) {
            (RequirementReason::RequestAboveLimit { .. }, Key::CpuRequest) => said.get(&Key::CpuLimit),
            (RequirementReason::RequestAboveLimit { .. }, _) => said.get(&Key::MemoryLimit),
            _ => None,
        };
        let mut why = format!("{}: {}", error.value, error.reason);
        if let Some(limit) = limit {
            why.push_str(&format!(" of {}", limit.place));
        }
        problems.push(problem(place, key.name(), why, error.reason.remedy()));
    }
}

/// One line of the section, continuations joined.
struct Assignment {
    line: usize,
    text: String,
}

/// Lines of the section (systemd.syntax(7)): comments begin with `#` or `;`, a backslash at the end of a line goes on
/// with the next that is no comment.
fn assignments(text: &str, has_section: &mut bool) -> Vec<Assignment> {
    let mut found = Vec::new();
    let mut inside = false;
    let mut open: Option<Assignment> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let (piece, goes_on) =
            line.strip_suffix('\\').map_or((line, false), |piece| (piece.trim_end(), true));
        let whole = match open.take() {
            Some(begun) => Assignment { text: format!("{} {piece}", begun.text), ..begun },
            None => Assignment { line: number + 1, text: piece.to_owned() },
        };
        if goes_on {
            open = Some(whole);
        } else if let Some(name) = whole.text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = name == SECTION;
            *has_section |= inside;
        } else if inside && !whole.text.trim().is_empty() {
            found.push(whole);
        }
    }
    // A file that ends within a line ends the line.
    found.extend(open.filter(|_| inside));
    found
}

/// A value as it may stand in a message: short and on one line.
fn shown(value: &str) -> String {
    value.chars().take(80).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(files: &[(&str, &str)]) -> (Option<Statement>, Vec<SourceProblem>) {
        let mut problems = Vec::new();
        (read(files.iter().copied(), &mut problems), problems)
    }

    fn amounts(statement: &Statement) -> [Option<String>; 4] {
        let Requirements { requests, limits } = &statement.requirements;
        [requests.cpu(), limits.cpu(), requests.memory(), limits.memory()]
            .map(|amount| amount.map(|amount| amount.to_string()))
    }

    #[test]
    fn a_section_is_read_and_later_files_override_key_by_key() {
        let unit = "[Service]\nExecStart=/bin/x\nCPURequest=9\n[X-Evenkeel]\nCPURequest=250m\n# no\n; no\nMemoryRequest = 64Mi\nMemoryLimit=1Gi\n[Install]\nMemoryLimit=1\n";
        let (statement, problems) =
            told(&[("db.service", unit), ("10.conf", "[X-Evenkeel]\nMemoryRequest=128Mi\nMemoryLimit=\n")]);
        let statement = statement.unwrap();
        assert_eq!(problems, []);
        assert_eq!(amounts(&statement), [Some("250m".into()), None, Some("128Mi".into()), None]);
        assert!(statement.is_whole && !statement.opted_out);
    }

    #[test]
    fn a_unit_without_the_section_says_nothing() {
        assert_eq!(told(&[("a", "[Service]\nMemoryLimit=1\n"), ("b", "")]).0, None);
        let (empty, problems) = told(&[("a", "[X-Evenkeel]\n")]);
        assert!(empty.unwrap().requirements.is_empty() && problems.is_empty());
    }

    #[test]
    fn lines_are_continued() {
        let (statement, problems) =
            told(&[("a", "[X-Evenkeel]\nMemoryRequest= \\\n# comment\n  64Mi\nCPULimit=\\\n2")]);
        assert_eq!(problems, []);
        assert_eq!(amounts(&statement.unwrap()), [None, Some("2".into()), Some("64Mi".into()), None]);
    }

    #[test]
    fn manage_takes_systemds_booleans() {
        for (word, out) in [("no", true), ("false", true), ("0", true), ("yes", false), ("On", false)] {
            let (statement, problems) = told(&[("a", &format!("[X-Evenkeel]\nManage={word}\n"))]);
            assert_eq!((statement.unwrap().opted_out, problems.len()), (out, 0), "{word}");
        }
        let (statement, problems) = told(&[("a", "[X-Evenkeel]\nManage=maybe\n")]);
        assert!(statement.unwrap().opted_out && problems.len() == 1);
    }

    #[test]
    fn errors_name_file_line_key_and_remedy() {
        let text = "[X-Evenkeel]\nMemoryRequest=64Mb\nCPURequest=2\nCPULimit=1\nMemorylimit=1\nnonsense\nMemoryLimit=-1\n";
        let (statement, problems) = told(&[("/etc/db.service", text)]);
        assert!(!statement.unwrap().is_whole);
        let mut lines: Vec<String> =
            problems.iter().map(|p| format!("{} {}: {}; {}", p.where_, p.what, p.why, p.remedy)).collect();
        lines.sort();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        /etc/db.service:2 read MemoryRequest of [X-Evenkeel]: quantity "64Mb" at byte 2: "Mb" is not a suffix; the unit is implied by the resource: leave the B away (64Mi, 64M); then run systemctl daemon-reload
        /etc/db.service:3 read CPURequest of [X-Evenkeel]: 2: the request is above the limit 1 of /etc/db.service:4; lower the request or raise the limit; then run systemctl daemon-reload
        /etc/db.service:5 read Memorylimit of [X-Evenkeel]: [X-Evenkeel] has no such key; write CPURequest=, CPULimit=, MemoryRequest=, MemoryLimit= or Manage=; then run systemctl daemon-reload
        /etc/db.service:6 read a line of [X-Evenkeel]: `nonsense` is no assignment; write KEY=VALUE; then run systemctl daemon-reload
        /etc/db.service:7 read MemoryLimit of [X-Evenkeel]: -1: the amount is negative; write an amount of zero or more; then run systemctl daemon-reload
        "#);
    }
}
