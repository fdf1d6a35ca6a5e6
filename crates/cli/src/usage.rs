// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clap says of a wrong command line, where its own words are false or leave the cure open.

use crate::args::Cli;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};

/// Either of these says which CPUs.
const CPUS_OR_COUNT: &str = "give --cpus LIST or --count N";

/// The same error with a cure. `words`: the command line, without the program's name.
pub fn explain(error: Error, words: &[String]) -> Error {
    let mut root = Cli::command();
    root.build();
    let (path, mut command) = meant(&root, words);
    match error.kind() {
        ErrorKind::MissingRequiredArgument => {
            let message =
                missing(&error, &command, words).or_else(|| with_example(&error, &command));
            match message {
                Some(message) => command.error(error.kind(), message),
                None => error,
            }
        }
        ErrorKind::ValueValidation => match not_a_number(&error) {
            Some(message) => command.error(error.kind(), message),
            None => error,
        },
        ErrorKind::UnknownArgument => match below_zero(&error, &command, words) {
            Some(message) => command.error(ErrorKind::ValueValidation, message),
            None => with_tip(error, &root, &path, &command, words),
        },
        ErrorKind::InvalidSubcommand => elsewhere(error, &root),
        _ => error,
    }
}

/// The command that the words begin with, and the names on the way to it.
fn meant<'a>(root: &Command, words: &'a [String]) -> (Vec<&'a str>, Command) {
    let (mut path, mut command) = (Vec::new(), root);
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        let Some(sub) = command.find_subcommand(word) else { break };
        path.push(word.as_str());
        command = sub;
    }
    (path, command.clone())
}

/// Of --cpus and --count one is needed; clap asks for both, or names only one.
fn missing(error: &Error, command: &Command, words: &[String]) -> Option<String> {
    let has = |name: &str| command.get_arguments().any(|argument| argument.get_id() == name);
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    match command.get_name() {
        "noise" => return Some("name a partition, or give --cpus LIST".to_owned()),
        "destroy" => {
            return Some("name a partition (`asmp status` lists them), or give --all".to_owned());
        }
        _ => {}
    }
    let (cpus, others): (Vec<&String>, Vec<&String>) =
        missing.iter().partition(|name| name.contains("--cpus") || name.contains("--count"));
    if cpus.is_empty() || !has("cpus") || !has("count") {
        return None;
    }
    let others: String = others.iter().map(|name| format!(", and {name}")).collect();
    let options = words.iter().take_while(|word| *word != "--");
    let mut names =
        options.map(|word| word.split_once('=').map_or(word.as_str(), |(name, _)| name));
    Some(match names.find(|name| ["--near", "--whole-cores"].contains(name)) {
        Some(option) => format!("{CPUS_OR_COUNT}{others}; {option} goes with --count"),
        None => format!("{CPUS_OR_COUNT}{others}"),
    })
}

/// What is missing, and a command line that has it.
fn with_example(error: &Error, command: &Command) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let text = command.get_after_long_help()?.to_string();
    // Of this command, not of `asmp plan` with it.
    let name = command.get_bin_name().unwrap_or("asmp");
    let mut examples = text.lines().filter_map(|line| line.strip_prefix("  ")).map(str::trim);
    let example =
        examples.find(|line| line.trim_start_matches("sudo ").starts_with(&format!("{name} ")))?;
    Some(format!("missing: {}; for example: {example}", missing.join(", ")))
}

/// A number below 0 looks like an option to clap.
fn below_zero(error: &Error, command: &Command, words: &[String]) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_number = |word: &str| {
        word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_it = |two: &&[String]| is_number(&two[1]) && two[1].starts_with(unknown.as_str());
    let [option, value] = words.windows(2).find(is_it)? else { return None };
    let is_option = |argument: &clap::Arg| {
        let long = argument.get_long_and_visible_aliases().unwrap_or_default();
        argument.get_action().takes_values()
            && option.strip_prefix("--").is_some_and(|name| long.contains(&name))
    };
    command
        .get_arguments()
        .any(is_option)
        .then(|| format!("invalid value '{value}' for '{option}': it must be above 0"))
}

/// A command of `asmp` itself that was looked for below another one, or the other way round.
fn elsewhere(mut error: Error, root: &Command) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let tips: Vec<StyledStr> =
        places(root, word).into_iter().map(|place| format!("write `{place}`").into()).collect();
    if !tips.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Where commands of that name are: `asmp noise`, `asmp measure latency`. Those of `plan` are those
/// of `asmp`.
pub fn places(root: &Command, name: &str) -> Vec<String> {
    let seen = |of: &Command, path: &str| {
        let found = of.find_subcommand(name).filter(|found| !found.is_hide_set());
        found.map(|_| format!("{path} {name}"))
    };
    let below = root.get_subcommands().filter(|sub| sub.get_name() != "plan");
    let below = below.filter_map(|sub| seen(sub, &format!("asmp {}", sub.get_name())));
    seen(root, "asmp").into_iter().chain(below).collect()
}

/// The standard library's words say which character of a number is wrong, not what is expected.
fn not_a_number(error: &Error) -> Option<String> {
    let cause = std::error::Error::source(error)?.to_string();
    let of_digits = ["invalid digit found in string", "cannot parse integer from empty string"];
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let (argument, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    of_digits
        .contains(&cause.as_str())
        .then(|| format!("invalid value '{value}' for '{argument}': use a whole number"))
}

/// clap suggests `-- WORD` for each unknown option of a command that takes words. That helps only
/// where the command runs another one, which follows `--`.
fn with_tip(
    mut error: Error,
    root: &Command,
    path: &[&str],
    command: &Command,
    words: &[String],
) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let takes_command = command.get_positionals().any(|positional| positional.is_last_set());
    let is_planned = |name: &str| {
        let plan = root.find_subcommand("plan");
        plan.is_some_and(|plan| plan.find_subcommand(name).is_some())
    };
    let tip = match path {
        _ if takes_command && !word.starts_with('-') && words.iter().any(|word| word == "--") => {
            let name = "a partition that `run` makes gets its name by --name";
            path.ends_with(&["run"]).then(|| name.to_owned())
        }
        _ if takes_command && !word.starts_with('-') => {
            Some(format!("put `--` before the command: asmp {} … -- {word} …", path.join(" ")))
        }
        [name] if word == "--dry-run" && is_planned(name) => {
            Some(format!("`asmp plan {name}` shows the steps and changes nothing"))
        }
        _ => None,
    };
    let tips = match (tip, error.get(ContextKind::Suggested)) {
        (Some(tip), _) => vec![tip.into()],
        (None, Some(ContextValue::StyledStrs(tips))) if !takes_command => {
            let is_true = |tip: &&StyledStr| !tip.to_string().contains("'-- ");
            tips.iter().filter(is_true).cloned().collect()
        }
        (None, _) => return error,
    };
    error.remove(ContextKind::Suggested);
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = Cli::try_parse_from(["asmp"].into_iter().chain(line.split_whitespace()));
        explain(error.unwrap_err(), &words).to_string()
    }

    #[test]
    fn a_partition_without_cpus_is_asked_for_a_list_or_a_number() {
        for (line, first) in [
            ("plan create rt", "give --cpus LIST or --count N"),
            ("create rt", "give --cpus LIST or --count N"),
            ("create", "give --cpus LIST or --count N, and <NAME>"),
            (
                "plan create rt --near eth0",
                "give --cpus LIST or --count N; --near goes with --count",
            ),
            (
                "run --whole-cores -- ./app --near",
                "give --cpus LIST or --count N; --whole-cores goes with --count",
            ),
        ] {
            let said = said(line);
            assert_eq!(said.lines().next(), Some(&*format!("error: {first}")), "{said}");
            assert!(said.contains("Usage: asmp "), "{said}");
        }
        let resize = said("resize rt");
        let first = "error: missing: --cpus <CPUS>; for example: sudo asmp resize motion --cpus";
        assert!(resize.starts_with(first), "it has no --count: {resize}");
    }

    #[test]
    fn what_is_missing_is_named_with_a_command_line_that_has_it() {
        for (line, says) in [
            ("destroy", "name a partition (`asmp status` lists them), or give --all"),
            ("exec motion", "missing: <COMMAND>...; for example: sudo asmp exec motion -- ./tool"),
            ("add motion", "--pid <PID>|--tid <TID>|--irq <NAME|N>"),
            ("move a --to b", "--pid <PID>|--tid <TID>|--irq <NAME|N>"),
            ("apply", "missing: <FILE>; for example: sudo asmp apply partitions.toml"),
            ("plan add motion", "for example: asmp plan add "),
        ] {
            let said = said(line);
            assert!(said.contains(says), "{line}: {said}");
        }
    }

    #[test]
    fn a_command_without_its_two_hyphens_is_told_to_put_them() {
        for line in ["plan run --cpus 1 ./app", "run --cpus 1 ./app -v", "exec rt ./app"] {
            let said = said(line);
            assert!(said.contains("put `--` before the command: asmp "), "{said}");
            assert!(said.contains(" -- ./app "), "{said}");
        }
    }

    #[test]
    fn a_word_before_two_hyphens_is_not_told_to_put_them() {
        let words = said("run rt --cpus 3 -- ./app");
        assert!(words.contains("by --name") && !words.contains("put `--`"), "{words}");
        assert!(!said("exec rt x -- ./app").contains("put `--`"));
    }

    #[test]
    fn no_tip_makes_an_unknown_option_a_name() {
        for line in [
            "plan create --policy fifo:80",
            "analyze graph --gantt x.svg",
            "create --dry-run rt --cpus 1",
        ] {
            let said = said(line);
            assert!(!said.contains("'-- "), "{said}");
        }
        assert!(said("run --cpus 1 --verbose").contains("'-- --verbose'"), "a command follows");
    }

    #[test]
    fn a_command_that_is_elsewhere_is_named_with_its_place() {
        for (line, tip) in [
            ("measure noise", "write `asmp noise`"),
            ("latency --cpus 3", "write `asmp measure latency`"),
            ("measure budgets", "write `asmp analyze budgets`"),
        ] {
            let said = said(line);
            assert!(said.contains("unrecognized subcommand") && said.contains(tip), "{said}");
        }
    }

    #[test]
    fn noise_without_a_partition_is_asked_for_one_or_for_cpus() {
        let said = said("noise");
        assert!(said.starts_with("error: name a partition, or give --cpus LIST"), "{said}");
        assert!(said.contains("asmp noise [OPTIONS] --cpus <LIST>"), "{said}");
    }

    #[test]
    fn a_number_below_0_is_no_unknown_option() {
        for (line, says) in [
            (
                "measure latency --limit -5us",
                "invalid value '-5us' for '--limit': it must be above 0",
            ),
            ("measure latency --samples -5", "invalid value '-5' for '--samples'"),
            ("measure latency --limit=-5us", "the duration must be above 0"),
        ] {
            let said = said(line);
            assert!(said.contains(says), "{said}");
        }
        assert!(said("measure latency -5").contains("unexpected argument"), "no option takes it");
    }

    #[test]
    fn a_dry_run_of_a_change_is_its_plan() {
        let said = said("create rt --cpus 1 --dry-run");
        assert!(said.contains("`asmp plan create` shows the steps"), "{said}");
    }

    #[test]
    fn a_word_in_place_of_a_number_is_answered_in_plain_words() {
        for line in ["add rt --pid x", "create rt --cpus 1 --irq-priority high"] {
            let said = said(line);
            assert!(said.contains("use a whole number") && !said.contains("digit"), "{said}");
        }
    }
}
