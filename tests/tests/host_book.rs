//! Suite `host`: the commands of the documentation. Those in blocks `sh` are run against an agent and a recommender; all others, and those
//! in running text, are read by the command lines of the programs they name; configuration is checked by its program.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evenkeel_tests::book::{Block, Page, commands, pages, words};
use evenkeel_tests::product::{Ended, Pair, await_acknowledged, directory, kept};
use evenkeel_tests::{machine, places, require};

/// Our programs, as the book calls them.
const PROGRAMS: [&str; 3] = ["evenkeel", "evenkeel-agent", "evenkeel-recommender"];

/// A directory in which commands of the book are run: programs on a path of their own, the examples, and a copy of what they name.
struct Shell {
    directory: PathBuf,
    /// What stands in the book, and what is there in its place.
    places: Vec<(&'static str, String)>,
}

impl Shell {
    /// Without daemons: programs run as they are.
    fn bare(directory: &Path) -> Result<Shell> {
        let shell = Shell { directory: directory.to_path_buf(), places: Vec::new() };
        for program in PROGRAMS {
            shell.program(program, &format!("exec {} \"$@\"", places::program(program)?.display()))?;
        }
        Ok(shell)
    }

    /// With the daemons of a pair.
    fn of(pair: &Pair, directory: &Path) -> Result<Shell> {
        let mut shell = Shell::bare(directory)?;
        let agent = pair.site.agent.socket().display().to_string();
        let recommender = pair.recommender.socket().display().to_string();
        let ours = places::program("evenkeel")?;
        shell.program(
            "evenkeel",
            &format!(
                "export EVENKEEL_AGENT=unix://{agent} EVENKEEL_RECOMMENDER=unix://{recommender}\nexec {} \"$@\"",
                ours.display()
            ),
        )?;
        for (program, config) in [
            ("evenkeel-agent", pair.site.agent.config()?),
            ("evenkeel-recommender", pair.recommender.config()?),
        ] {
            let path = places::program(program)?;
            shell
                .program(program, &format!("exec {} \"$@\" --config {}", path.display(), config.display()))?;
        }
        shell.program("sudo", "exec \"$@\"")?;
        for example in ["pod.yaml", "cluster.yaml"] {
            let from = places::repository().join("docs/examples").join(example);
            std::fs::copy(&from, directory.join(example))
                .with_context(|| format!("no {}", from.display()))?;
        }
        std::os::unix::fs::symlink(places::repository().join("packaging"), directory.join("packaging"))?;
        shell.places = vec![
            ("/run/evenkeel/agent.sock", agent),
            ("/run/evenkeel/recommender.sock", recommender),
            ("/backup/", format!("{}/backup-", directory.display())),
        ];
        Ok(shell)
    }

    fn program(&self, name: &str, script: &str) -> Result<()> {
        let path = self.directory.join("bin");
        std::fs::create_dir_all(&path)?;
        let path = path.join(name);
        std::fs::write(&path, format!("#!/bin/bash\n{script}\n"))?;
        Ok(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?)
    }

    fn command(&self, script: &str) -> Command {
        let mut text = script.to_owned();
        for (from, to) in &self.places {
            text = text.replace(from, to);
        }
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-xc", &text]).current_dir(&self.directory);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("EVENKEEL_") {
                command.env_remove(variable);
            }
        }
        command
            .env("PATH", format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.directory.join("bin").display()));
        command
    }
}

/// Blocks of shell of a page.
fn scripts(page: &Page) -> impl Iterator<Item = Block> {
    page.blocks().into_iter().filter(|block| block.language == "sh")
}

#[test]
fn commands_of_the_book_do_what_they_say() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let own = directory()?;
    let mut pair = Pair::new()?;
    let tokens = format!("\"{}\"", own.path().join("tokens.toml").display());
    pair.recommender = pair.recommender.set("access.tokens", &tokens);
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    agent.await_settled("web")?;
    await_acknowledged(&agent, 3)?;
    kept(&recommender)?;
    let shell = Shell::of(&pair, own.path())?;
    let mut failed = Vec::new();
    let mut run = 0;
    for page in pages()? {
        for block in page.blocks() {
            if let Some(file) = block.file() {
                std::fs::write(own.path().join(file), &block.text)?;
            }
            if block.language != "sh" || block.has("parsed") {
                continue;
            }
            run += commands(&block.text).len();
            let ended = Ended::of(&mut shell.command(&block.text))?;
            if ended.status != Some(0) {
                let end = ended.stderr.lines().rev().take(12).collect::<Vec<_>>();
                let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
                failed
                    .push(format!("docs/{}:{} ended with {:?}:\n{end}", page.name, block.line, ended.status));
            }
        }
    }
    println!("{run} commands of the book were run");
    ensure!(failed.is_empty(), "{} blocks failed:\n{}", failed.len(), failed.join("\n\n"));
    agent.stop()?;
    recommender.stop()
}

/// Calls of our programs in a command: their words up to what ends them in a shell.
fn calls(command: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut call: Option<Vec<String>> = None;
    let mut is_first = true;
    for word in words(command) {
        let ends = matches!(word.as_str(), "|" | "&&" | "||" | "&" | ";" | ">" | ">>" | "<" | "2>");
        if ends {
            found.extend(call.take());
            is_first = true;
        } else if let Some(call) = &mut call {
            call.push(word);
        } else if is_first && PROGRAMS.contains(&word.as_str()) {
            call = Some(vec![word]);
        } else {
            // Variables before a program, sudo, and kubectl, whose plugin it is, leave the next word first.
            is_first = matches!(word.as_str(), "sudo" | "kubectl" | "-E") || word.contains('=');
        }
    }
    found.extend(call);
    found
}

/// Whether a call is one that its program's command line knows; `--help` at its end keeps it from being made.
fn read(shell: &Shell, call: &[String]) -> Result<Option<String>> {
    let (program, arguments) = call.split_first().context("no program")?;
    let mut command = Command::new(shell.directory.join("bin").join(program));
    // What stands for a number in the book, and for more of the same.
    let arguments = arguments.iter().filter(|word| *word != "...");
    let arguments = arguments.map(|word| if word == "N" { "7" } else { word });
    let ended = Ended::of(command.args(arguments).arg("--help"))?;
    Ok((ended.status != Some(0)).then(|| format!("{}: {}", call.join(" "), ended.said().trim())))
}

#[test]
fn other_commands_of_the_book_are_what_the_programs_know() -> Result<()> {
    let own = directory()?;
    let shell = Shell::bare(own.path())?;
    let (mut wrong, mut known, mut others) = (Vec::new(), 0, 0);
    for page in pages()? {
        let blocks = scripts(&page).filter(|block| block.has("parsed")).map(|block| (block.line, block.text));
        // A command in running text is one with words behind the program.
        let spans = page.spans().into_iter().filter(|span| span.contains(' ')).map(|span| (0, span));
        for (line, script) in blocks.chain(spans) {
            if line > 0 {
                let checked = Ended::of(Command::new("bash").args(["-n", "-c", &script]))?;
                ensure!(checked.status == Some(0), "docs/{}:{line}: {}", page.name, checked.said());
            }
            for command in commands(&script) {
                let calls = calls(&command);
                others += usize::from(calls.is_empty() && line > 0);
                for call in calls {
                    known += 1;
                    wrong.extend(read(&shell, &call)?.map(|why| format!("docs/{}: {why}", page.name)));
                }
            }
        }
    }
    println!(
        "{known} calls of the book were read, and {others} commands of other programs by the shell alone"
    );
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    ensure!(known > 100, "only {known} calls were found");
    Ok(())
}

#[test]
fn files_of_the_repository_that_the_book_names_are_there() -> Result<()> {
    let mut missing = Vec::new();
    for page in pages()? {
        let scripts = scripts(&page).map(|block| block.text).chain(page.spans());
        for script in scripts {
            for word in commands(&script).iter().flat_map(|command| words(command)) {
                let word = word.trim_start_matches("./").trim_end_matches([',', ';', '/']);
                let ours = [
                    "scripts/",
                    "packaging/",
                    "docs/",
                    "clients/",
                    "systemd/",
                    "recommender/",
                    "rightsizing/",
                    "tests/",
                ];
                let is_path = ours.iter().any(|folder| word.starts_with(folder));
                // What is made by a build, and what a shell fills in.
                let made = ["packaging/deb/out", "packaging/image/evenkeel-"];
                let is_ours = is_path && !made.iter().any(|made| word.starts_with(made));
                let path = word.split(['*', '[', ':', '{']).next().unwrap_or_default();
                let exists = || places::repository().join(path.trim_end_matches('/')).exists();
                if is_ours && !path.is_empty() && word == path && !exists() {
                    missing.push(format!("docs/{}: {word}", page.name));
                }
            }
        }
    }
    ensure!(missing.is_empty(), "{}", missing.join("\n"));
    Ok(())
}

/// Files that configuration names, below a directory: one certificate, its key, and itself as the authority.
fn certificates(directory: &Path) -> Result<()> {
    let key = rcgen::KeyPair::generate().context("no key")?;
    let made = rcgen::CertificateParams::new(vec!["recommender.example".to_owned()]).context("no names")?;
    let made = made.self_signed(&key).context("cannot sign")?;
    std::fs::create_dir_all(directory)?;
    for name in ["recommender", "node", "ca"] {
        std::fs::write(directory.join(name).with_extension("crt"), made.pem())?;
        let path = directory.join(name).with_extension("key");
        std::fs::write(&path, key.serialize_pem())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

#[test]
fn configuration_in_the_book_is_valid() -> Result<()> {
    let own = directory()?;
    certificates(&own.path().join("tls"))?;
    let (tls, fingerprint) =
        (format!("{}/tls/", own.path().display()), format!("sha256:{}", "0a".repeat(32)));
    let mut wrong = Vec::new();
    for page in pages()? {
        for block in page.blocks().into_iter().filter(|block| block.language == "toml") {
            let program = if block.has("agent") { "evenkeel-agent" } else { "evenkeel-recommender" };
            let file = own.path().join("of-the-book.toml");
            let text = block.text.replace("/etc/evenkeel/tls/", &tls).replace("sha256:...", &fingerprint);
            std::fs::write(&file, text)?;
            let mut command = places::command(program)?;
            let ended = Ended::of(command.args(["config", "validate", "--config"]).arg(&file))?;
            if ended.status != Some(0) {
                wrong.push(format!("docs/{}:{}: {}", page.name, block.line, ended.said()));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}
