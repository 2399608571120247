//! Reading what the command line names: a file, or standard input for `-`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use evenkeel_model::pod::{MAX_TEXT_BYTES, Pod, ReadError, read_pods};
use evenkeel_model::resource_type::{Definition, ResourceTypes};
use evenkeel_model::yaml::{self, YamlBounds};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use serde::Deserialize;

use crate::failure::Failure;

/// Largest file that is kept because it can be read once alone, bytes.
const MOST_KEPT: u64 = 1 << 20;

/// Text of a file; `-` is standard input. At most as much as is read of pods.
///
/// # Errors
/// When it cannot be opened or read, is no text, or is too large.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let name = name(path);
    let failed = |why: String, remedy: &str| Failure::new("cannot read the file", &name, why, remedy);
    let read = |from: &mut dyn Read| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        from.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = if is_stdin(path) {
        read(&mut io::stdin().lock())
    } else {
        File::open(path).and_then(|mut file| read(&mut file))
    };
    let bytes = bytes.map_err(|e| failed(e.to_string(), remedy(&e)))?;
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(failed(
            format!("it is larger than the {MAX_TEXT_BYTES} bytes that are read"),
            "split it",
        ));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        failed(format!("byte {at} is not UTF-8"), "give a text file in YAML or JSON")
    })
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the name, or use - for standard input",
        io::ErrorKind::PermissionDenied => "run as a user who may read it",
        _ => "give a readable text file",
    }
}

/// Keeps what can be read once alone, as what a shell gives for `<(COMMAND)`, where it can be read again: commands ask more than once,
/// and run others.
///
/// # Errors
/// When it cannot be read or kept, or is larger than a token or a certificate is.
pub(crate) fn keep(file: &mut Option<PathBuf>) -> Result<(), Failure> {
    let Some(path) = file else { return Ok(()) };
    if !fs::metadata(&path).is_ok_and(|of| of.file_type().is_fifo()) {
        return Ok(());
    }
    let kept = kept(path).map_err(|why| {
        Failure::new("cannot read the file", name(path), why.to_string(), "give a file that can be read")
    })?;
    // Open to the end, and to programs that this one runs.
    *path = format!("/proc/{}/fd/{}", std::process::id(), kept.into_raw_fd()).into();
    Ok(())
}

fn kept(path: &Path) -> io::Result<File> {
    let memory = memfd_create(c"evenkeel", MFdFlags::MFD_CLOEXEC)?;
    fchmod(&memory, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut kept = File::from(memory);
    if io::copy(&mut File::open(path)?.take(MOST_KEPT + 1), &mut kept)? > MOST_KEPT {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    Ok(kept)
}

/// Pods of several files.
///
/// # Errors
/// As [`text`], or when a file holds no pods that can be read.
pub(crate) fn pods(paths: &[PathBuf]) -> Result<Vec<Pod>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        let text = text(path)?;
        all.extend(read_pods(&text, &name(path)).map_err(|e| unreadable(&e))?);
    }
    Ok(all)
}

/// What a file of resource types holds: the form of the resource model, or that of a daemon's configuration in YAML.
#[derive(Deserialize)]
struct Types {
    #[serde(alias = "resourceTypes")]
    resources: BTreeMap<String, Definition>,
}

/// Resource types that a file defines.
///
/// # Errors
/// As [`text`], and everything that is wrong with the definitions.
pub(crate) fn types(path: &Path) -> Result<ResourceTypes, Failure> {
    const BOUNDS: YamlBounds = YamlBounds { documents: 1, nodes: 100_000 };
    let name = name(path);
    let failed = |why: String| {
        let remedy = "give resourceTypes: {example.com/seat: {units: \"\", defaultRequest: 1}}";
        Failure::new("cannot use the resource types", &name, why, remedy)
    };
    let text = text(path)?;
    let read: Vec<Types> = yaml::documents(&text, BOUNDS).map_err(|error| failed(error.to_string()))?;
    let [types] = &read[..] else { return Err(failed("it holds no resource types".to_owned())) };
    ResourceTypes::with(&types.resources)
        .map_err(|errors| failed(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

/// A source of pods that cannot be understood, in parts.
pub(crate) struct InputProblem {
    /// File, document, line and field, as far as known.
    pub(crate) place: String,
    /// What is wrong.
    pub(crate) why: String,
    /// What to do.
    pub(crate) remedy: String,
}

/// Takes a reading error apart; its reason ends with what to do.
pub(crate) fn problem(error: &ReadError) -> InputProblem {
    let mut place = vec![error.source_name.clone()];
    place.extend(error.document.map(|d| format!("document {d}")));
    place.extend(error.line.map(|l| format!("line {l}")));
    place.extend(error.path.clone().filter(|p| !p.is_empty()));
    let reason = error.reason.to_string();
    let (why, remedy) = reason.rsplit_once("; ").unwrap_or((&reason, "write it as Kubernetes reads it"));
    InputProblem { place: place.join(", "), why: why.to_owned(), remedy: remedy.to_owned() }
}

fn unreadable(error: &ReadError) -> Failure {
    let InputProblem { place, why, remedy } = problem(error);
    Failure::new("cannot read the pod", place, why, remedy)
}

/// Name of a file in messages.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_can_be_read_once_alone_is_kept_and_a_file_is_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let kept = |bytes: usize| {
            let (pipe, mut file) = (pipe.clone(), Some(pipe.clone()));
            let writes = std::thread::spawn(move || fs::write(pipe, vec![b'a'; bytes]));
            let done = keep(&mut file).map(|()| file.unwrap());
            // Whoever was not read to the end is told so.
            let _ = writes.join().unwrap();
            done
        };
        let token = kept(7).unwrap();
        for _ in 0..2 {
            assert_eq!(fs::read_to_string(&token).unwrap(), "aaaaaaa");
        }
        assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(kept(MOST_KEPT as usize + 1).unwrap_err().cause().contains("larger than 1 MiB"));
        for file in [None, Some(dir.path().join("none")), Some(token)] {
            let mut same = file.clone();
            keep(&mut same).unwrap();
            assert_eq!(same, file);
        }
    }
}
