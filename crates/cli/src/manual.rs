//! asmp(8), from the definitions that parse the command line and from the table of exit codes.

use crate::args::Cli;
use crate::exit;
use anyhow::Result;
use clap::CommandFactory;
use std::io::Write;

/// The page as roff.
pub fn page() -> Result<Vec<u8>> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    // clap fills in names and values only when it builds.
    command.build();
    let man = clap_mangen::Man::new(command.clone()).section("8").manual("System Administration");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    writeln!(page, ".SH COMMANDS")?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        describe(&mut page, "asmp", sub)?;
    }
    writeln!(page, ".SH EXIT STATUS")?;
    for (code, meaning) in exit::TABLE {
        writeln!(page, ".TP\n.B {code}\n{}", escape(meaning))?;
    }
    writeln!(page, ".PP\n.B run\nand\n.B exec\nreturn the command's own status, or 128 + its signal.")?;
    writeln!(page, ".SH FILES\n.TP\n.I /run/asmp/state.json\nwhat is in force, and every original\n.TP")?;
    writeln!(page, ".I /run/asmp/journal\nthe way back of a change under way")?;
    Ok(page)
}

fn describe(page: &mut Vec<u8>, path: &str, command: &clap::Command) -> Result<()> {
    let path = format!("{path} {}", command.get_name());
    let usage = command.clone().bin_name(&path).render_usage().to_string();
    writeln!(page, ".SS \"{}\"", escape(usage.trim_start_matches("Usage: ")))?;
    if let Some(about) = command.get_about() {
        writeln!(page, "{}", escape(&about.to_string()))?;
    }
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let Some(help) = argument.get_help() else { continue };
        writeln!(page, ".TP\n.B {}\n{}", escape(&argument.to_string()), escape(&help.to_string()))?;
    }
    if path == "asmp plan" {
        return Ok(());
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        describe(page, &path, sub)?;
    }
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_command_and_every_exit_code() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        for command in ["create", "run", "noise", "restore", "boot enable"] {
            assert!(page.contains(&format!("asmp {command}")), "{command}");
        }
        for (code, meaning) in exit::TABLE {
            assert!(page.contains(&format!(".B {code}\n{}", escape(meaning))), "{code}");
        }
        assert!(!page.contains("completions"), "hidden commands stay hidden");
    }
}
