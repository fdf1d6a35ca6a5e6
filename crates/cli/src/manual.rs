// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Manual pages and help topics.
//!
//! Pages of section 8 come from the definitions that parse the command line and from the table of
//! exit codes. asmp(7) and the pages of section 5 come from docs/man, and so do the topics of
//! `asmp help`.

use crate::args::Cli;
use crate::exit::{self, BAD_FILE, USAGE, failure};
use crate::prose::{self, to_text};
use crate::usage;
use anyhow::Result;
use clap::{Command, CommandFactory};
use std::fmt::Write as _;
use std::path::Path;

const CONCEPTS: &str = include_str!("../../../docs/man/asmp.7.md");
const PARTITIONS: &str = include_str!("../../../docs/man/asmp-partitions.5.md");
const POLICY: &str = include_str!("../../../docs/man/asmp-policy.5.md");
const DAEMON: &str = include_str!("../../../docs/man/asmpd.8.md");
const TREE: &str = include_str!("../../../docs/man/asmp-files.5.md");
const ANALYSIS: &str = include_str!("../../../docs/guide/analysis.md");
const GRANULARITY: &str = include_str!("../../../docs/guide/granularity.md");
const SHARING: &str = include_str!("../../../docs/guide/sharing.md");
const YARTEK: &str = include_str!("../../../docs/guide/yartek.md");
const ENVIRONMENT: &str = include_str!("../../../docs/man/environment.md");
const FILES: &str = "\
# FILES
- /run/asmp/state.json: the partitions in force, and every original value
- /run/asmp/journal: the way back of a change that is not complete
- /run/asmp/lock: held by the asmp that makes a change
- /run/asmp/fs: the partitions as files, while asmpd runs: asmp-files(5)
- /run/asmpd/socket, /run/asmpd/root: where asmpd answers: asmpd(8)
- /etc/asmp/policy.toml: which users may have real-time CPUs: asmp-policy(5)
- /etc/asmp/*.toml: the partitions of each boot: asmp-partitions(5)";

/// One page: `create` of section 8 has file name `asmp-create.8`.
pub struct Page {
    /// As in `asmp-create(8)`.
    pub name: String,
    pub section: u8,
    pub roff: String,
}

impl Page {
    fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }
}

/// Every page, asmp(8) first.
pub fn pages() -> Result<Vec<Page>> {
    let mut command = Cli::command();
    // clap fills in names and values only when it builds.
    command.build();
    let mut pages = vec![overview(&command)?];
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        of_command(sub, &mut pages)?;
    }
    for (name, section, source, manual) in [
        ("asmp", 7, CONCEPTS, "Concepts"),
        ("asmp-partitions", 5, PARTITIONS, "File Formats"),
        ("asmp-policy", 5, POLICY, "File Formats"),
        ("asmp-files", 5, TREE, "File Formats"),
        ("asmpd", 8, DAEMON, "System Administration"),
    ] {
        let roff = title(name, section, manual) + &prose::to_roff(source);
        pages.push(Page { name: name.to_owned(), section, roff });
    }
    Ok(pages)
}

/// The page with this name: `asmp-create.8`, `asmp-create`, `create`, `partitions`, `asmp.7`.
/// Errors: exit code 2 with the names there are.
pub fn page(name: &str) -> Result<String> {
    let pages = pages()?;
    let is_called = |page: &&Page| {
        let short = page.name.strip_prefix("asmp-").unwrap_or(&page.name);
        let names = [&page.name, short]
            .map(|known| [known.to_owned(), format!("{known}.{}", page.section)]);
        names.as_flattened().iter().any(|known| known == name)
    };
    match pages.iter().find(is_called) {
        Some(page) => Ok(page.roff.clone()),
        None => {
            let names: Vec<String> = pages.iter().map(Page::file_name).collect();
            Err(failure(
                USAGE,
                format!("no manual page {name:?}: choose one of {}", names.join(", ")),
            ))
        }
    }
}

/// Writes every page into `dir`, below `man5` and so on, where man(1) looks for them. Returns how
/// many. Errors: exit code 40 with the path.
pub fn write_all(dir: &Path) -> Result<usize> {
    let wrong = |path: &Path, error| failure(BAD_FILE, format!("{}: {error}", path.display()));
    let pages = pages()?;
    for page in &pages {
        let section = dir.join(format!("man{}", page.section));
        std::fs::create_dir_all(&section).map_err(|error| wrong(&section, error))?;
        let path = section.join(page.file_name());
        std::fs::write(&path, &page.roff).map_err(|error| wrong(&path, error))?;
    }
    Ok(pages.len())
}

fn title(name: &str, section: u8, manual: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(".TH \"{name}\" \"{section}\" \"\" \"asmp {version}\" \"{manual}\"\n")
}

/// The lines that `--help` prints after `Usage:`, with the command's name in bold. The synopsis of
/// clap_mangen shows neither `--` nor the values of options.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let lines = usage.trim_start_matches("Usage:").lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty()).map(|line| match line.strip_prefix(name) {
        Some(rest) => format!("**{name}**{rest}"),
        None => line.to_owned(),
    });
    // One line each, as --help has them.
    prose::to_roff(&format!("# SYNOPSIS\n{}\n", lines.collect::<Vec<_>>().join("\n\n")))
}

/// asmp(8): all commands in a line each, every exit code, files, environment.
fn overview(command: &Command) -> Result<Page> {
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render_name_section(&mut page)?;
    page.extend_from_slice(synopsis(command).as_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut roff = title("asmp", 8, "System Administration") + &String::from_utf8(page)?;
    let mut prose = String::from("# COMMANDS\n");
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        list(&mut prose, "asmp", sub);
    }
    let _ = write!(prose, "\n# EXIT STATUS\n{}", exit_codes());
    let _ = write!(prose, "\n{FILES}\n\n{ENVIRONMENT}\n{}", examples_of(command));
    prose.push_str(
        "\n# SEE ALSO\nasmp(7), asmpd(8), asmp-partitions(5), asmp-policy(5), asmp-files(5), and \
         the page of each command: asmp-create(8)\n",
    );
    roff.push_str(&prose::to_roff(&prose));
    Ok(Page { name: "asmp".to_owned(), section: 8, roff })
}

/// One line for a command, and one for each of its subcommands; `plan` has those of `asmp` again.
fn list(prose: &mut String, path: &str, command: &Command) {
    let path = format!("{path} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(prose, "- {path}: {about}");
    if path != "asmp plan" {
        command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .for_each(|sub| list(prose, &path, sub));
    }
}

/// The page of one command, and of each of its subcommands.
fn of_command(command: &Command, pages: &mut Vec<Page>) -> Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let is_plan = name == "asmp-plan";
    let mut shown = command.clone();
    if is_plan {
        shown = Command::new("plan");
        shown = shown.bin_name("asmp plan").display_name("asmp-plan").disable_help_flag(true);
        for argument in command.get_arguments() {
            shown = shown.arg(argument.clone());
        }
        let texts = (command.get_about(), command.get_long_about());
        shown = shown.about(texts.0.cloned().unwrap_or_default());
        shown = shown.long_about(texts.1.cloned().unwrap_or_default());
    }
    let man = clap_mangen::Man::new(shown).section("8");
    let mut page = Vec::new();
    man.render_name_section(&mut page)?;
    page.extend_from_slice(synopsis(command).as_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let has_subcommands = command.get_subcommands().any(|sub| !sub.is_hide_set());
    if has_subcommands && !is_plan {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = title(&name, 8, "System Administration") + &String::from_utf8(page)?;
    let mut prose = String::new();
    if is_plan {
        prose.push_str("# CHANGES\nAny command that changes partitions, with its own options: ");
        let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let _ = writeln!(prose, "{}.", names.join(", "));
    }
    let _ = write!(
        prose,
        "{}\n# EXIT STATUS\n0 on success; asmp(8) lists all exit codes.\n",
        examples_of(command)
    );
    let asks_asmpd = ["asmp-events", "asmp-top", "asmp-web"].contains(&name.as_str());
    let asmpd = if asks_asmpd { "asmpd(8), " } else { "" };
    let _ = write!(prose, "\n# SEE ALSO\nasmp(8), {asmpd}asmp(7), asmp-partitions(5)\n");
    roff.push_str(&prose::to_roff(&prose));
    pages.push(Page { name, section: 8, roff });
    if !is_plan {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            of_command(sub, pages)?;
        }
    }
    Ok(())
}

/// What `crate::examples` says below a command's help, as a section: what a command line does, and
/// the line.
fn examples_of(command: &Command) -> String {
    let Some(text) = command.get_after_long_help().map(ToString::to_string) else {
        return String::new();
    };
    let mut prose = String::from("\n# EXAMPLES\n");
    let mut example = "";
    for line in text.lines() {
        match (line.strip_prefix("      "), line.strip_prefix("  ")) {
            (Some(does), _) => {
                let _ = writeln!(prose, "{}:\n\n    {example}\n", does.trim_end_matches('.'));
            }
            (None, Some(line)) => example = line,
            (None, None) => {}
        }
    }
    prose
}

/// The table of exit codes as a list.
fn exit_codes() -> String {
    let mut prose = String::new();
    for (code, meaning) in exit::TABLE {
        let _ = writeln!(prose, "- {code}: {meaning}");
    }
    prose.push_str(
        "\n`asmp run` and `asmp exec` return the command's own status, or 128 + N if signal N \
         killed it. Any other command that changes something ends by SIGINT (^C), SIGQUIT, \
         SIGTERM or SIGHUP (128 + N in a shell) after it has undone its change. Where the signal \
         came too late, it says that the change was made.\n",
    );
    prose
}

/// A topic: its name, its text, what it is about.
type Topic = (&'static str, fn() -> String, &'static str);

const TOPICS: [Topic; 11] = [
    ("concepts", || to_text(CONCEPTS), "partitions, the tick, interrupts, tasks: asmp(7)"),
    ("partitions-file", || to_text(PARTITIONS), "the file of `asmp apply`: asmp-partitions(5)"),
    ("asmpd", || to_text(DAEMON), "what repairs the partitions, and what it serves: asmpd(8)"),
    ("policy", || to_text(POLICY), "which users need no root: asmp-policy(5)"),
    ("files", || to_text(TREE), "partitions as files: asmp-files(5)"),
    ("exit-codes", || to_text(&format!("# EXIT CODES\n{}", exit_codes())), "every exit code"),
    ("environment", || to_text(ENVIRONMENT), "environment variables"),
    ("sharing", || SHARING.to_owned(), "others compute on the CPUs: --share, classes"),
    ("analysis", || ANALYSIS.to_owned(), "task sets, `asmp analyze` and `simulate`"),
    ("yartek", || YARTEK.to_owned(), "microcontrollers: from a machine to a board, and ports"),
    ("granularity", || GRANULARITY.to_owned(), "data flow, `asmp analyze graph`"),
];

/// Finds a topic also by the name of its page or file: `asmp-files.5`, `policy.toml`.
fn topic(word: &str) -> Option<&'static Topic> {
    let named = short(word.trim_end_matches(".toml"));
    // Its page is asmp-partitions(5).
    let named = if named == "partitions" { "partitions-file" } else { named };
    TOPICS.iter().find(|(name, ..)| *name == named)
}

/// The name of a page without `asmp-` and without its section.
fn short(name: &str) -> &str {
    let name = name.strip_prefix("asmp-").unwrap_or(name);
    let section = name.rsplit_once('.').filter(|(_, section)| ["5", "7", "8"].contains(section));
    section.map_or(name, |(name, _)| name)
}

/// What `asmp help WORDS` prints: a topic, or the long help of a command. Errors: exit code 2.
pub fn help(words: &[String]) -> Result<String> {
    if let [word] = words {
        if word == "topics" {
            let lines = TOPICS.iter().map(|(name, _, about)| format!("  {name:<16} {about}\n"));
            return Ok(format!(
                "Topics:\n{}\nasmp help TOPIC prints one.\n",
                lines.collect::<String>()
            ));
        }
        if let Some((_, text, _)) = topic(word) {
            return Ok(text());
        }
    }
    let mut command = Cli::command();
    command.build();
    let mut found = &command;
    for word in words {
        found = found.find_subcommand(short(word)).ok_or_else(|| {
            let places = words.last().map_or_else(Vec::new, |last| usage::places(&command, last));
            let cure = match places.as_slice() {
                [] => "see asmp --help and asmp help topics".to_owned(),
                places => {
                    let helps = places.iter().map(|place| place.replacen("asmp", "asmp help", 1));
                    format!("write {}", helps.collect::<Vec<_>>().join(" or "))
                }
            };
            failure(USAGE, format!("no command or topic {:?}: {cure}", words.join(" ")))
        })?;
    }
    Ok(found.clone().render_long_help().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(path: &str, command: &Command, look: &mut dyn FnMut(&str, &Command)) {
        look(path, command);
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            walk(&format!("{path} {}", sub.get_name()), sub, look);
        }
    }

    #[test]
    fn the_page_has_every_command_and_every_exit_code() {
        let page = page("asmp").unwrap();
        for command in ["create", "run", "noise", "restore", "boot enable", "measure latency"] {
            assert!(page.contains(&format!("asmp {command}")), "{command}");
        }
        for (code, meaning) in exit::TABLE {
            let item = prose::to_roff(&format!("- {code}: {meaning}\n"));
            assert!(page.contains(item.trim_start_matches(".PP\n")), "{code}");
        }
        assert!(
            !page.contains("spin") && !page.contains("asmp flood"),
            "hidden commands stay hidden"
        );
    }

    #[test]
    fn pages_of_commands_that_ask_asmpd_name_its_page() {
        for (name, asks) in [("asmp-web", true), ("asmp-events", true), ("asmp-create", false)] {
            let page = page(name).unwrap();
            let (_, see_also) = page.rsplit_once("SEE ALSO").unwrap();
            assert_eq!(see_also.contains("asmpd"), asks, "{name}: {see_also}");
        }
    }

    #[test]
    fn every_command_has_a_long_help_with_an_example() {
        let mut command = Cli::command();
        command.build();
        walk("asmp", &command, &mut |path, command| {
            let (short, long) = (command.get_about(), command.get_long_about());
            assert!(
                long.is_some() && long.map(ToString::to_string) != short.map(ToString::to_string),
                "{path}"
            );
            let below = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = below.lines().collect();
            assert_eq!(lines.first(), Some(&"Examples:"), "{path}");
            let commands =
                lines.iter().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
            // `plan create` has the example of `create`.
            let verb = path.rsplit(' ').next().unwrap();
            assert!(
                commands.clone().any(|line| line.contains("asmp") && line.contains(verb)),
                "{path}"
            );
        });
    }

    #[test]
    fn every_argument_has_a_short_help_and_a_longer_one() {
        let mut command = Cli::command();
        command.build();
        let mut without = Vec::new();
        walk("asmp", &command, &mut |path, command| {
            let own = |id: &str| id != "help" && id != "version";
            for argument in
                command.get_arguments().filter(|argument| own(argument.get_id().as_str()))
            {
                let text = |help: Option<&clap::builder::StyledStr>| help.map(ToString::to_string);
                let (short, long) = (text(argument.get_help()), text(argument.get_long_help()));
                if short.is_none() || long.is_none() || short == long {
                    without.push(format!("{path}: {}", argument.get_id()));
                }
            }
        });
        assert!(without.is_empty(), "{without:#?}");
    }

    #[test]
    fn every_example_is_a_command_line_that_parses() {
        let mut command = Cli::command();
        command.build();
        walk("asmp", &command, &mut |path, command| {
            let below = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            for line in
                below.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            {
                let line = line.trim().trim_start_matches("sudo ");
                let end = line.find(['|', '>']).unwrap_or(line.len());
                let words = line[..end].split_whitespace();
                if let Err(error) = Cli::command().try_get_matches_from(words) {
                    panic!("{path}: {line}: {error}");
                }
            }
        });
    }

    #[test]
    fn the_synopsis_of_each_page_is_the_usage_of_its_help() {
        let run = page("run").unwrap();
        assert!(run.contains(" <COMMAND>...") && run.contains(" \\-\\- <COMMAND>"), "{run}");
        let mut command = Cli::command();
        command.build();
        walk("asmp", &command, &mut |path, command| {
            let is_planned = path.starts_with("asmp plan ");
            let usage = command.clone().render_usage().to_string();
            let name = path.replace(' ', "-");
            for line in usage.trim_start_matches("Usage:").lines().filter(|_| !is_planned) {
                let options = line.trim().strip_prefix(path).unwrap_or(line.trim());
                let roff = prose::to_roff(options);
                assert!(page(&name).unwrap().contains(roff.trim()), "{name}: {options}");
            }
        });
    }

    #[test]
    fn help_prints_topics_and_commands_and_refuses_the_rest() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(help(&[]).unwrap().contains("Usage: asmp"));
        assert!(help(&words("measure latency")).unwrap().contains("--samples"));
        let topics = help(&words("topics")).unwrap();
        for (name, ..) in TOPICS {
            assert!(topics.contains(name));
            assert!(help(&[name.to_owned()]).unwrap().len() > 200, "{name}");
        }
        assert!(help(&words("exit-codes")).unwrap().contains("39"));
        assert_eq!(exit::code_of(&help(&words("nonsense")).unwrap_err()), USAGE);
        assert_eq!(exit::code_of(&page("nonsense").unwrap_err()), USAGE);
        for (page, text) in [
            ("asmp-files", "asmp-files - "),
            ("asmpd.8", "asmpd - "),
            ("partitions", "asmp-partitions - "),
            ("policy.toml", "asmp-policy - "),
            ("asmp-create.8", "Usage: asmp create"),
        ] {
            assert!(help(&words(page)).unwrap().contains(text), "{page}");
        }
        for (line, cure) in
            [("latency", "asmp help measure latency"), ("measure noise", "asmp help noise")]
        {
            let refused = help(&words(line)).unwrap_err().to_string();
            assert!(refused.ends_with(&format!("{line:?}: write {cure}")), "{refused}");
        }
    }

    #[test]
    fn a_page_is_found_by_its_short_name_and_by_its_section() {
        assert!(page("create").unwrap().contains("asmp\\-create"));
        assert_eq!(page("asmp-create.8").unwrap(), page("create").unwrap());
        assert_ne!(page("asmp.7").unwrap(), page("asmp").unwrap());
        assert!(page("partitions").unwrap().contains("irq_priority"));
    }
}
