// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file of grants means, and what is wrong with it.

use super::*;
use std::os::unix::fs::PermissionsExt;

const FIFO_50: Schedule = Schedule::Fifo { priority: 50 };

/// Files of a machine with the users alice (1000) and bob (1001) and the group audio (29).
fn files(text: &str) -> (tempfile::TempDir, Files) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    };
    let users = "root:x:0:0::/:\nalice:x:1000:100::/:\n\nnonsense\nbob:x:1001:100::/:\n";
    let files = Files {
        policy: write("policy.toml", text),
        users: write("passwd", users),
        groups: write("group", "root:x:0:\naudio:x:29:bob\n"),
        owner: fs::metadata(dir.path()).unwrap().uid(),
    };
    (dir, files)
}

fn peer(uid: u32, groups: &[u32]) -> Peer {
    Peer { pid: 7, uid, groups: groups.iter().copied().collect() }
}

fn grants(text: &str, peer: &Peer) -> Vec<String> {
    let (_dir, files) = files(text);
    let policy = files.read().unwrap_or_else(|why| panic!("{why}"));
    policy.of(peer, 100).iter().map(|one| format!("{one} until {:?}", one.until_s)).collect()
}

#[test]
fn users_and_groups_are_granted_what_their_lines_say() {
    let text = "[[grant]]\nusers = ['alice', 1007]\ncpus = '2-3'\npolicy = 'fifo:50'\ntime = \
                '8h'\npartitions = 2\n[[grant]]\ngroups = ['audio']\ncpus = '1'\n";
    let first = "CPU 2-3 with at most fifo:50, in at most 2 partitions until Some(28900)";
    let second = "CPU 1 with at most other, in one partition until None";
    let user = |uid, what: &str| format!("user {uid} may use {what}");
    assert_eq!(grants(text, &peer(1000, &[100])), [user(1000, first)]);
    assert_eq!(grants(text, &peer(1007, &[])), [user(1007, first)]);
    // By the groups of the process, not by those that a file of groups lists.
    assert!(grants(text, &peer(1001, &[100])).is_empty());
    assert_eq!(grants(text, &peer(1001, &[29])), [user(1001, second)]);
    assert_eq!(grants(text, &peer(1000, &[29])), [user(1000, first), user(1000, second)]);
}

#[test]
fn what_is_wrong_in_it_grants_nothing_and_is_said() {
    let grant = |rest: &str| format!("[[grant]]\n{rest}");
    for (text, why) in [
        (grant("users = ['carol']\ncpus = '1'"), "grant 1: no user \"carol\" in /etc/passwd"),
        (grant("groups = ['dialout']\ncpus = '1'"), "no group \"dialout\" in /etc/group"),
        (grant("cpus = '1'"), "it names no user and no group"),
        ("[[channel]]\nname = 'a'\nowner = 0".into(), "channel 1: it names no user and no group"),
        (
            "[[channel]]\nname = '../a'\nowner = 0\nusers = [1]".into(),
            "channel 1: name: \"../a\" is not the name of a channel",
        ),
        (
            "[[channel]]\nname = 'a'\nowner = 'carol'\nusers = [1]".into(),
            "channel 1: no user \"carol\" in /etc/passwd",
        ),
        (grant("users = [1000]"), "line 1: missing field `cpus`"),
        (grant("users = [1000]\ncpus = '1-'"), "cpus: "),
        (grant("users = [1000]\ncpus = ''"), "cpus: "),
        (grant("users = [1000]\ncpus = '1'\npolicy = 'fifo:100'"), "the priority must be 1 to 99"),
        (
            grant("users = [1000]\ncpus = '1'\npolicy = 'deadline:1ms/2ms/4ms'"),
            "policy: deadline:1ms/2ms/4ms cannot be granted",
        ),
        (grant("users = [1000]\ncpus = '1'\npolicy = 'idle'"), "idle cannot be granted"),
        (grant("users = [1000]\ncpus = '1'\ntime = '8'"), "time: "),
        (grant("users = [1000]\ncpus = '1'\ntime = '1ms'"), "time: 1ms: at least 1 s"),
        (grant("users = [1000]\ncpus = '1'\npartitions = 0"), "partitions: at least 1"),
        (grant("users = [1000]\ncpus = '1'\nirqs = [4]"), "line 4: unknown field `irqs`"),
        (grant("users = [-1]\ncpus = '1'"), "line 2: expected a name, or a number from 0 to"),
        (grant("users = [1000]\ncpus = 'all'"), "cpus: \"all\" is no list such as \"1-3,5\""),
        (grant("users = [1000]\ncpus = '1'\npolicy = 'idle'"), "use other, fifo:N or rr:N"),
        ("grant = 1".to_owned(), "line 1: "),
        ("[[grant".to_owned(), "line 1: "),
    ] {
        let (dir, files) = files(&text);
        let said = files.read().expect_err(&text);
        let place = format!("{}: ", dir.path().join("policy.toml").display());
        assert!(said.starts_with(&place) && said.contains(why), "{text}: {said}");
    }
}

#[test]
fn no_file_grants_nothing() {
    let (dir, files) = files("");
    assert_eq!(files.read(), Ok(Policy::default()));
    fs::remove_file(dir.path().join("policy.toml")).unwrap();
    assert_eq!(files.read(), Ok(Policy::default()));
}

#[test]
fn a_file_that_others_may_write_is_not_believed() {
    let text = "[[grant]]\nusers = [1000]\ncpus = '1'\n";
    for (name, mode) in [("policy.toml", 0o664), ("policy.toml", 0o646), ("", 0o777)] {
        let (dir, files) = files(text);
        assert!(files.read().is_ok());
        let path = dir.path().join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let said = files.read().unwrap_err();
        assert!(said.contains("users other than root may write to it"), "{name} {mode:o}: {said}");
    }
    let (_dir, files) = files(text);
    let others = Files { owner: files.owner + 1, ..files };
    assert!(others.read().is_err());
}

#[test]
fn a_link_is_not_followed() {
    let (dir, files) = files("");
    let another = dir.path().join("another");
    fs::rename(&files.policy, &another).unwrap();
    std::os::unix::fs::symlink(&another, &files.policy).unwrap();
    assert!(files.read().unwrap_err().contains("a symbolic link is not followed"));
}

#[test]
fn grants_that_cover_cpus_and_policy_count_in_their_order() {
    let grant = |cpus: &str, policy| Grant {
        uid: 1000,
        cpus: cpus.parse().unwrap(),
        policy,
        partitions: 1,
        until_s: None,
    };
    let all = vec![grant("1", FIFO_50), grant("2-3", Schedule::Other { nice: 0 })];
    let of = |cpus: &str, policy: &str| {
        let spec = Spec::of(cpus.parse().unwrap());
        let chosen = choose(all.clone(), 1000, &spec, &policy.parse().unwrap())?;
        Ok(chosen.iter().map(|one| one.cpus.to_string()).collect::<Vec<_>>().join(" or "))
    };
    assert_eq!(of("1", "fifo:50"), Ok("1".to_owned()));
    assert_eq!(of("2", "other"), Ok("2-3".to_owned()));
    // What depends on the machine is left to the shield.
    assert_eq!(of("last", "rr:9"), Ok("1".to_owned()));
    assert_eq!(of("last", "other"), Ok("1 or 2-3".to_owned()));
    let refused = |cpus, policy| match of(cpus, policy) {
        Err(Refusal::NotGranted { what, granted }) => {
            assert!(granted.contains("; "), "all of them are named: {granted}");
            what
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(refused("2", "fifo:1"), "CPU 2 with policy fifo:1");
    assert_eq!(refused("2", "fifo:51"), "policy fifo:51");
    assert_eq!(refused("1-2", "other"), "CPU 1-2");
    let needing = |count| {
        let need = Need { count, near: None, whole_cores: false };
        let spec = Spec::with(Cpus::Needed(need));
        choose(all.clone(), 1000, &spec, &Schedule::Other { nice: 0 })
            .map_err(|why| why.to_string())
    };
    assert_eq!(needing(2).map(|all| all[0].cpus.to_string()), Ok("2-3".to_owned()));
    assert!(needing(3).unwrap_err().starts_with("3 CPUs is not granted: "));
    let none = choose(Vec::new(), 1000, &Spec::of("1".parse().unwrap()), &FIFO_50).unwrap_err();
    assert!(none.to_string().contains("names neither user 1000 nor a group"), "{none}");
}

/// The first example of a page.
fn example(page: &str) -> String {
    let lines = page.lines().skip_while(|line| !line.starts_with("    [["));
    lines
        .take_while(|line| line.starts_with("    "))
        .map(|line| format!("{}\n", &line[4..]))
        .collect()
}

#[test]
fn the_examples_of_the_documents_are_right() {
    let page = include_str!("../../../docs/man/asmp-policy.5.md");
    let guide = include_str!("../../../docs/guide/first-steps.md");
    let (_, guide) = guide.split_once("## Without root").unwrap();
    for text in [example(page), example(guide)] {
        let policy = parse(&text, "alice:x:1000:100::/:", "audio:x:29:").unwrap();
        let grants = policy.of(&peer(7, &[29]), 0);
        let expected = "user 7 may use CPU 2-3 with at most fifo:49, in at most 2 partitions";
        assert_eq!(
            grants.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [expected],
            "{text}"
        );
        assert_eq!(grants[0].until_s, Some(28_800));
    }
}

#[test]
fn each_key_is_documented() {
    let page = include_str!("../../../docs/man/asmp-policy.5.md");
    for key in ["users", "groups", "cpus", "policy", "time", "partitions", "name", "owner"] {
        assert!(page.contains(&format!("\n- {key} = ")), "{key}");
    }
}
