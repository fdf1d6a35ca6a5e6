// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as a reader sees it: run directories in, one page out, opened in a headless Chromium
//! that measures where everything was drawn. Where there is no Chromium those tests are skipped, in
//! CI they fail.

mod runs;

use asmp_measure::histogram::Latencies;
use asmp_measure::load::Load;
use asmp_measure::run::{self, Kind, Provenance};
use asmp_measure::sample::Sample;
use asmp_measure::{Outlier, hlog};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

fn main() {
    let arguments = Arguments::from_args();
    let is_ci = std::env::var_os("ASMP_CI").is_some_and(|value| !value.is_empty());
    let none = browser().is_none() && !is_ci;
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let drawn = |name: &str, test: fn()| {
        if none {
            println!("skipped: {name}: no Chromium on this machine");
        }
        trial(name, test).with_ignored_flag(none)
    };
    let trials = vec![
        drawn("a browser draws every figure whole, with axes and labels", drawn_whole),
        drawn("on a page of 400 pixels all text can be read", narrow),
        drawn("the page reads on light and on dark", light_and_dark),
        drawn("columns of an import and rounds of a kind are told apart", told_apart),
        trial("what is no run, cut short, newer or of another kernel is refused", refusals),
        trial("an import says what is not known of it, and overwrites nothing", imports),
        trial("names of tasks and runs reach no terminal as control characters", names_are_shown),
        trial("a run without its samples says when the worst were, and marks them", marked),
        trial("a thousand million instants are reported in little memory", thousand_million),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let version = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    })
}

const SAMPLES: u64 = 3000;
/// Planted: a single sample far above all others must be in the picture.
const WORST_NS: u64 = 7_654_321;

fn write_run(dir: &Path, kernel: &str, load: Load, kind: Kind) {
    let value = |turn| if turn == 1234 { WORST_NS } else { 1000 + turn * 7919 % 5000 };
    let run = runs::provenance(kernel, load, kind);
    runs::write(dir, run, (0..SAMPLES).map(value));
}

fn asmp(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_asmp")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
}

/// The report of two loads and two kinds, with a script that says what was drawn where.
fn page(dir: &Path) -> String {
    let runs = dir.join("runs");
    for load in [Load::Idle, Load::Mixed] {
        for kind in [Kind::Normal, Kind::Partition] {
            write_run(&runs.join(format!("{load}-{kind}")), "7.2.13", load, kind);
        }
    }
    let page = dir.join("report.html");
    let (code, said) =
        asmp(&["measure", "report", runs.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("7654.321"), "{said}");
    std::fs::read_to_string(page).unwrap()
}

/// Says what was drawn where, in the page or around its frame.
const LOOK: &str = r#"<script>
const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const top_of = path => {
  let [y, top] = [0, 1e9];
  for (const [, c, a, b] of path.getAttribute('d').matchAll(/([a-zA-Z])(-?\d+)(?: (-?\d+))?/g)) {
    y = c === 'M' ? +b : c === 'm' ? y + +b : c === 'v' ? y + +a : y;
    top = Math.min(top, y);
  }
  return top;
};
const figures = [...document.querySelectorAll('figure')].map(f => {
  const drawn = [...f.querySelectorAll('svg')].filter(s => box(s)[2] > box(s)[0]);
  const svg = drawn[0], frame = box(svg);
  const inside = b => b[0] >= frame[0] - 1 && b[1] >= frame[1] - 1 && b[2] <= frame[2] + 1 && b[3] <= frame[3] + 1;
  const meet = (a, b) => a[0] < b[2] - 1 && b[0] < a[2] - 1 && a[1] < b[3] - 3 && b[1] < a[3] - 3;
  const texts = [...svg.querySelectorAll('text')], use = svg.querySelector('use');
  const scale = (frame[2] - frame[0]) / svg.viewBox.baseVal.width;
  const number = (e, name) => parseFloat(e.getAttribute(name));
  const top = Math.min(...[...f.querySelector('symbol').querySelectorAll('path')].map(top_of));
  return { title: f.querySelector('h3').textContent, layouts: drawn.length,
    texts: texts.map(t => t.textContent),
    smallest: scale * Math.min(...texts.map(t => parseFloat(getComputedStyle(t).fontSize))),
    outside: texts.filter(t => !inside(box(t))).map(t => t.textContent),
    covered: texts.flatMap((t, at) => texts.slice(at + 1).filter(o => meet(box(t), box(o))).map(o => t.textContent + ' on ' + o.textContent)),
    ticks: texts.filter(t => t.getAttribute('text-anchor') === 'end' && /^[\d,]+$/.test(t.textContent))
      .map(t => [parseFloat(t.textContent.replaceAll(',', '')), number(t, 'y') - number(svg, 'font-size') * 0.35]),
    top: number(use, 'y') + top / 500 * number(use, 'height'),
    caption: f.querySelector('figcaption').textContent };
});
const style = getComputedStyle(document.body);
const ink = getComputedStyle(document.querySelector('figure text')).fill;
const cells = [...document.querySelectorAll('p, dd, td, th, li, h1, h2, h3, summary')].filter(e => box(e)[2] > box(e)[0]);
// For readers that do not see: the heading of a table whose rows are cards.
const is_hidden = e => e.closest('thead') && getComputedStyle(e.closest('thead')).position === 'absolute';
const out = document.createElement('pre');
out.id = 'seen';
out.textContent = JSON.stringify({ figures, page: style.backgroundColor, ink, scheme: matchMedia('(prefers-color-scheme: dark)').matches,
  width: innerWidth, wide: document.documentElement.scrollWidth,
  smallest: Math.min(...cells.map(e => parseFloat(getComputedStyle(e).fontSize))),
  cut: cells.filter(e => box(e)[2] > innerWidth + 1 && !is_hidden(e)).map(e => e.textContent.slice(0, 60)),
  outer: document.documentElement.outerHTML.match(/(src|href)=.http/g) });
parent.document.body.appendChild(out);
</script></main></body>"#;

/// The page in a window of 1200 pixels, or in a frame: a window has at least 500.
fn look(html: &str, frame: Option<u32>, arguments: &[&str]) -> Value {
    // Not in a TMPDIR of whatever length: its socket's path has room for 107 bytes.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let path = dir.path().join("page.html");
    let mut html = html.replace("</main></body>", LOOK);
    if let Some(pixels) = frame {
        let inner = html.replace('&', "&amp;").replace('"', "&quot;");
        html = format!("<iframe width=\"{pixels}\" height=\"900\" srcdoc=\"{inner}\"></iframe>");
    }
    std::fs::write(&path, html).unwrap();
    let profile = format!("--user-data-dir={}", dir.path().join("profile").display());
    let output = Command::new(browser().expect("Chromium (`make setup` installs it)"))
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1200,900",
            "--dump-dom",
            &profile,
        ])
        .args(arguments)
        .arg(format!("file://{}", path.display()))
        // It leaves a directory behind there.
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let says = || {
        format!("the script ran: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))
    };
    let start =
        dom.find("id=\"seen\">").unwrap_or_else(|| panic!("{}", says())) + "id=\"seen\">".len();
    let json = dom[start..].split("</pre>").next().unwrap();
    serde_json::from_str(&json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        .unwrap()
}

/// What holds for each figure, on wide and on narrow pages.
fn figures(seen: &Value) -> Vec<&Value> {
    let figures: Vec<&Value> = seen["figures"].as_array().unwrap().iter().collect();
    // At a glance; for each of two loads percentiles, a histogram, all over time, the largest of
    // each second.
    assert_eq!(figures.len(), 1 + 2 * 4);
    for figure in &figures {
        let title = figure["title"].as_str().unwrap();
        assert_eq!(figure["layouts"], 1, "{title}");
        for wrong in ["outside", "covered"] {
            assert_eq!(figure[wrong].as_array().unwrap().len(), 0, "{title}: {}", figure[wrong]);
        }
        assert!(figure["smallest"].as_f64().unwrap() >= 11.0, "{title}: {}", figure["smallest"]);
        let texts: Vec<&str> =
            figure["texts"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let has = |word: &str| texts.iter().any(|text| text.contains(word));
        let kinds = [Kind::Normal, Kind::Partition].map(|kind| kind.to_string());
        assert!(has(", us") && kinds.iter().all(|kind| has(kind)), "{title}: {texts:?}");
        let numbers = texts.iter().filter(|text| text.parse::<f64>().is_ok()).count();
        assert!(numbers >= 2, "{title}: axes in {texts:?}");
        let caption = figure["caption"].as_str().unwrap();
        for word in ["7.2.13", "a <model> & more", "not the times of real hardware"] {
            assert!(caption.contains(word), "{title}: no {word:?} in {caption}");
        }
    }
    assert!(seen["cut"].as_array().unwrap().is_empty(), "{}", seen["cut"]);
    assert!(seen["wide"].as_u64() <= seen["width"].as_u64(), "nothing reaches out of the page");
    assert!(seen["smallest"].as_f64().unwrap() >= 11.0);
    figures
}

fn drawn_whole() {
    let dir = tempfile::tempdir().unwrap();
    let seen = look(&page(dir.path()), None, &[]);
    assert!(seen["outer"].is_null(), "nothing is fetched: {}", seen["outer"]);
    let mut read = 0;
    for figure in figures(&seen) {
        let title = figure["title"].as_str().unwrap();
        if !title.ends_with("percentiles") && !title.ends_with("over time") {
            continue;
        }
        // Read off the axis, the highest point is the worst sample.
        let ticks: Vec<(f64, f64)> = serde_json::from_value(figure["ticks"].clone()).unwrap();
        let ((low, low_y), (high, high_y)) = (ticks[0], ticks[1]);
        let part = (figure["top"].as_f64().unwrap() - low_y) / (high_y - low_y);
        let worst_us = low * (high / low).powf(part);
        let off = worst_us / (WORST_NS as f64 / 1e3) - 1.0;
        assert!(off.abs() < 0.03, "{title}: the highest point stands at {worst_us:.0} us");
        read += 1;
    }
    assert_eq!(read, 4);
}

fn narrow() {
    let dir = tempfile::tempdir().unwrap();
    let seen = look(&page(dir.path()), Some(400), &[]);
    assert_eq!(seen["width"], 400);
    figures(&seen);
}

/// What `rtla timerlat hist -E 256` prints, and six rounds of one kind; on wide and narrow pages.
fn told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let name = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut text =
        String::from("# Time unit is microseconds (us)\nIndex IRQ-003 Thr-003 Usr-003\n");
    (3..256).for_each(|us| text += &format!("{us} {} {} {}\n", us % 3 + 1, us % 5 + 1, us % 7 + 1));
    text += "over: 128 180 207\nmin: 3 3 3\navg: 391 452 483\nmax: 9605 9680 9713\n";
    std::fs::write(name("rtla.txt"), text).unwrap();
    let (file, out) = (name("rtla.txt"), name("theirs"));
    let words = ["measure", "import", &file, "--from", "rtla", "-o", &out, "--kernel", "6.12"];
    let (code, said) = asmp(&[&words[..], &["--kind", "partition", "--load", "mixed"]].concat());
    assert_eq!(code, 0, "{said}");
    for round in 1..=6 {
        let run = runs::provenance("6.12", Load::Mixed, Kind::PartitionTick);
        let values = (0..SAMPLES).map(|turn| 1000 + round * 900 + turn * 7919 % 5000);
        runs::write(&dir.path().join(format!("rounds/{round}/mixed-partition-tick")), run, values);
    }
    for (dirs, figures, labels) in [
        (out, 3, ["IRQ-003", "Thr-003", "Usr-003"]),
        (name("rounds"), 5, ["rounds/1", "rounds/3", "rounds/6"]),
    ] {
        let page = name("page.html");
        let (code, said) = asmp(&["measure", "report", &dirs, "--limit", "100us", "-o", &page]);
        assert_eq!(code, 0, "{said}");
        let html = std::fs::read_to_string(&page).unwrap();
        for frame in [None, Some(400)] {
            let seen = look(&html, frame, &[]);
            let all = seen["figures"].as_array().unwrap();
            assert_eq!(all.len(), figures);
            for figure in all {
                let title = figure["title"].as_str().unwrap();
                for wrong in ["outside", "covered"] {
                    let found = figure[wrong].as_array().unwrap();
                    assert!(found.is_empty(), "{title} {frame:?}: {wrong}: {found:?}");
                }
                let texts = figure["texts"].to_string();
                assert!(labels.iter().all(|label| texts.contains(label)), "{title}: {texts}");
            }
        }
    }
}

/// Relative luminance of `rgb(r, g, b)` (WCAG 2.1).
fn luminance(colour: &str) -> f64 {
    let numbers = colour.trim_start_matches(|c: char| !c.is_ascii_digit()).trim_end_matches(')');
    let linear = |text: &str| {
        let part = text.trim().parse::<f64>().unwrap() / 255.0;
        if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    numbers
        .split(',')
        .zip([0.2126, 0.7152, 0.0722])
        .map(|(part, weight)| linear(part) * weight)
        .sum()
}

fn light_and_dark() {
    let dir = tempfile::tempdir().unwrap();
    let html = page(dir.path());
    let mut pages = Vec::new();
    for (dark, arguments) in
        [(false, &[][..]), (true, &["--blink-settings=preferredColorScheme=0"][..])]
    {
        let seen = look(&html, None, arguments);
        assert_eq!(seen["scheme"], dark);
        let (page, ink) =
            (luminance(seen["page"].as_str().unwrap()), luminance(seen["ink"].as_str().unwrap()));
        let contrast = (page.max(ink) + 0.05) / (page.min(ink) + 0.05);
        assert!(contrast >= 7.0, "contrast {contrast:.1}, dark {dark}");
        pages.push(page);
    }
    assert!(pages[0] > 0.8 && pages[1] < 0.2, "{pages:?}");
}

/// Any user of the machine chooses names of tasks, and the maker of a run those of its files.
fn names_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("a\x1b[2J");
    let worst = Outlier {
        index: 0,
        at_ns: None,
        value_ns: 1000,
        handler_ns: None,
        cause: "\x1b]0;x\x07/7 took 1.0 us".into(),
        records: vec!["+0.5 us switch to \x1b[8m/7".into()],
    };
    let plain = runs::provenance("7.2.13", Load::Idle, Kind::Normal);
    let made = |name: &str, worst: Vec<Outlier>| {
        let provenance = Provenance { worst, ..plain.clone() };
        runs::write(&run.join(name), provenance, [1000u64].into_iter());
    };
    made("one", vec![worst]);
    made("two", vec![]);
    std::fs::create_dir(run.join("notes")).unwrap();
    let (code, said) = asmp(&["measure", "report", run.to_str().unwrap(), "--explain", "1"]);
    assert!(code == 0 && !said.contains(['\x1b', '\x07']), "{said:?}");
    for name in ["]0;x\\u{7}/7 took", "switch to \\u{1b}[8m/7", "\\u{1b}[2J/notes holds no run"] {
        assert!(said.contains(name), "{name}: {said}");
    }
}

fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let refused = |arguments: &[&str], code: i32, word: &str| {
        let (got, said) = asmp(arguments);
        assert!(got == code && said.contains(word), "{arguments:?}: {got}: {said}");
        assert_eq!(said.lines().count(), 1, "one line: {said}");
    };
    let name = |name: &str| path(name).to_str().unwrap().to_owned();
    write_run(&path("old"), "6.12", Load::Idle, Kind::Normal);
    write_run(&path("new"), "7.2.13", Load::Idle, Kind::Normal);
    let (old, new) = (name("old"), name("new"));
    refused(&["measure", "report", &name("nothing")], 50, "nothing");
    let provenance = name("old/run.json");
    refused(&["measure", "report", &old, "-o", &provenance], 2, "name another file");
    refused(&["measure", "report", &old, &new], 52, "6.12 and 7.2.13");
    refused(&["measure", "compare", &old, &new], 52, "--across kernel");
    let (code, said) = asmp(&["measure", "compare", &old, &new, "--across", "kernel"]);
    assert!(code == 0 && said.contains("worst +0.000 us (one run each)"), "{said}");
    let short = runs::provenance("7.2.13", Load::Idle, Kind::Normal);
    runs::write(&path("short"), short, std::iter::repeat_n(1000, 300));
    let (_, said) = asmp(&["measure", "compare", &new, &name("short")]);
    assert!(said.contains("worst not compared: rounds differ in length"), "{said}");
    assert!(said.contains("p99.9 not compared: not every round"), "{said}");
    // Kinds of one directory, and what has no partner.
    for (round, kind) in [(0, Kind::Normal), (1, Kind::Normal), (0, Kind::Fifo), (1, Kind::Fifo)] {
        write_run(&path(&format!("kinds/{round}/idle-{kind}")), "7.2.13", Load::Idle, kind);
    }
    let kinds = name("kinds");
    refused(
        &["measure", "compare", &kinds, "--kinds", "normal,partition"],
        2,
        "no run of partition",
    );
    let (code, said) = asmp(&["measure", "compare", &kinds, "--kinds", "normal,fifo"]);
    assert!(code == 0 && said.contains("kind normal and fifo: 2 rounds and 2 rounds"), "{said}");
    let (code, said) = asmp(&["measure", "compare", &kinds, &name("kinds/0/idle-fifo")]);
    let says = "kinds/0/idle-normal (idle/normal, 2 rounds)";
    assert!(code == 0 && said.contains("without a partner on the other side: "), "{said}");
    assert!(said.contains(says), "{said}");
    // Only samples: no provenance, no report.
    std::fs::create_dir(path("bare")).unwrap();
    std::fs::copy(path("new").join("samples.bin"), path("bare").join("samples.bin")).unwrap();
    refused(&["measure", "report", &name("bare")], 50, "run.json");
    let text = std::fs::read_to_string(path("new").join("run.json")).unwrap();
    let with = |text: &str| std::fs::write(path("new").join("run.json"), text).unwrap();
    with(&text.replace("\"schema\": 3", "\"schema\": 4"));
    refused(&["measure", "report", &new], 50, "schema 4");
    with(&text.replace("\"lost\": 0,", ""));
    refused(&["measure", "report", &new], 50, "lost");
    with("{}");
    refused(&["measure", "report", &new], 50, "schema");
    let (code, said) = asmp(&["measure", "report", &old, &new, "-o", &name("new/run.json")]);
    assert!(code == 2 && said.contains("name another file"), "{said}");
    with(&text);
    let samples = std::fs::read(path("new").join("samples.bin")).unwrap();
    std::fs::write(path("new").join("samples.bin"), &samples[..samples.len() - 1]).unwrap();
    refused(&["measure", "report", &new], 50, "2999 whole samples of 3000");
    // A run that is named twice is one run.
    std::os::unix::fs::symlink(path("old"), path("link")).unwrap();
    let (_, said) = asmp(&["measure", "report", &old, &old, &name("link")]);
    assert_eq!(said.lines().filter(|line| line.starts_with("normal ")).count(), 1, "{said}");
    // The others of a directory are reported all the same.
    std::fs::create_dir(path("mixed")).unwrap();
    std::fs::create_dir(path("mixed/notes")).unwrap();
    write_run(&path("mixed/idle-normal"), "7.2.13", Load::Idle, Kind::Normal);
    let (code, said) = asmp(&["measure", "report", &name("mixed")]);
    assert!(code == 0 && said.contains("left out: ") && said.contains("mixed/notes"), "{said}");
    std::fs::rename(path("new"), path("mixed/new")).unwrap();
    let (code, said) = asmp(&["measure", "report", &name("mixed")]);
    assert!(code == 50 && said.contains("left out: ") && said.contains("7654.321"), "{said}");
    // Import and export: a histogram of cyclictest comes back as it went.
    let text = name("cyclictest.txt");
    let export = |run: &str, to: &str| {
        let words = ["measure", "export", run, "--to", to];
        let output = Command::new(env!("CARGO_BIN_EXE_asmp")).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let exported = export(&old, "cyclictest");
    std::fs::write(&text, &exported).unwrap();
    // An import does not know what the first line says: that missed instants are counted.
    let (note, histogram) = exported.split_once('\n').unwrap();
    assert!(note.starts_with("# asmp: "), "{note}");
    let import = |output: &str| {
        asmp(&[
            "measure",
            "import",
            &text,
            "--from",
            "cyclictest",
            "-o",
            output,
            "--kernel",
            "6.12",
            "--kind",
            "N",
        ])
    };
    assert_eq!(import(&name("imported")).0, 0);
    assert_eq!(export(&name("imported"), "cyclictest"), histogram);
    refused(&["measure", "export", &name("imported"), "--to", "csv"], 2, "has no samples: use");
    // JSON has the figures, and buckets that have all instants.
    let all: Value = serde_json::from_str(&export(&name("imported"), "json")).unwrap();
    let [run] = all["runs"].as_array().unwrap().as_slice() else { panic!("{all}") };
    let buckets = run["buckets"].as_array().unwrap();
    let instants: u64 = buckets.iter().map(|one| one["instants"].as_u64().unwrap()).sum();
    assert!(instants >= SAMPLES && run["summary"]["instants"] == instants, "{instants}");
    assert_eq!(run["provenance"]["kind"], "normal");
    // What a run keeps is a log of HdrHistogram.
    let (log, out) = (name("imported/thread-0/hist.hlog"), name("from-log"));
    let words = ["measure", "import", &log, "--from", "hdr", "-o", &out, "--kernel", "6.12"];
    assert_eq!(asmp(&[&words[..], &["--kind", "normal"]].concat()).0, 0);
    assert_eq!(export(&out, "cyclictest"), histogram);
    // A column's heading names no place outside; a count of any size takes no memory.
    for (from, written, word) in [
        ("rtla", "Index   ../escaped\n1 2\n".to_owned(), "../escaped"),
        ("rtla", format!("Index   {}\n1 2\n", name("absolute")), "absolute"),
        ("cyclictest", "000001 99999999999\n".to_owned(), "1 run in"),
    ] {
        std::fs::write(path("other.txt"), written).unwrap();
        let (file, out) = (name("other.txt"), name("other"));
        let words = ["measure", "import", &file, "--from", from, "-o", &out, "--kernel", "6.12"];
        let (code, said) = asmp(&[&words[..], &["--kind", "N"]].concat());
        assert!(said.contains(word), "{said}");
        let is_cut = word == "1 run in";
        assert_eq!(
            (code, said.contains("marked as partial")),
            (if is_cut { 54 } else { 50 }, is_cut)
        );
        assert!(!path("escaped").exists() && !path("absolute").exists(), "{said}");
    }
    let (code, said) = asmp(&["measure", "report", &name("other")]);
    assert!(code == 0 && said.contains("99999999999"), "{said}");
    std::fs::write(&text, "garbage\n").unwrap();
    let (code, said) = import(&name("garbage"));
    assert!(code == 50 && said.contains("garbage"), "{said}");
    assert!(!path("garbage").exists(), "nothing half done");
}

fn imports() {
    let dir = tempfile::tempdir().unwrap();
    let name = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let text = name("cyclictest.txt");
    std::fs::write(&text, "000001 5\n000002 3\n").unwrap();
    let import = |output: &str, from: &str, kernel: &str| {
        let words = ["measure", "import", &text, "-o", output, "--from", from, "--kernel", kernel];
        asmp(&[&words[..], &["--kind", "normal"]].concat())
    };
    let out = name("theirs");
    for kernel in ["", " "] {
        let (code, said) = import(&out, "cyclictest", kernel);
        assert!(code == 2 && said.contains("a kernel has a release"), "{code}: {said}");
    }
    for from in ["cyclic", "csv"] {
        let (code, said) = import(&out, from, "6.12");
        let says = format!("invalid format {from:?}: expected cyclictest, rtla or hdr\n");
        assert!(code == 2 && said.contains(&says), "{code}: {said}");
    }
    let (code, said) = import(&name("none/theirs"), "cyclictest", "6.12");
    assert!(code == 40 && said.contains("none: make that first"), "{code}: {said}");
    assert_eq!(import(&out, "cyclictest", "6.12").0, 54);
    let (code, said) = import(&out, "cyclictest", "6.12");
    let says = "theirs: it exists, and nothing is overwritten: name another directory";
    assert!(code == 40 && said.contains(says), "{code}: {said}");
    // The unit is the caller's where rtla does not say it. A mark of Windows is no part of a text.
    std::fs::write(&text, "\u{feff}Index a\n7 2\ncount: 2\nmax: 7\n").unwrap();
    let other = name("other");
    let (code, said) = import(&other, "rtla", "6.12");
    assert!(code == 50 && said.contains("say --unit us"), "{code}: {said}");
    let words = ["measure", "import", &text, "-o", &other, "--from", "rtla", "--kernel", "6.12"];
    assert_eq!(asmp(&[&words[..], &["--kind", "normal", "--unit", "ns"]].concat()).0, 0);
    // Neither a policy nor a period is in such a file.
    let json = std::fs::read_to_string(format!("{out}/thread-0/run.json")).unwrap();
    let run: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&run["schedule"], &run["period_ns"]), (&Value::Null, &Value::Null));
    let compare = ["measure", "compare", &out, &out, "--across", "completeness"];
    let (code, said) = asmp(&compare);
    let says = "period not known, priority not known, kernel 6.12, machine not known";
    assert!(code == 0 && said.contains(says), "{code}: {said}");
    let (_, said) = asmp(&[&compare[..], &["--json"]].concat());
    let all: Value = serde_json::from_str(&said).unwrap();
    let pair = &all["pairs"][0];
    assert_eq!((&all["schema"], &pair["settings"]["priority"]), (&1.into(), &"not known".into()));
    assert_eq!(pair["across"]["completeness"], pair["settings"]["completeness"]);
}

/// As `latency` leaves it without `--samples-too`.
fn marked() {
    const MS: u64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("mixed-partition");
    std::fs::create_dir(&run).unwrap();
    let log = BufWriter::new(File::create(run.join("hist.hlog")).unwrap());
    let mut log = hlog::Recorder::new(log, UNIX_EPOCH, Some(MS)).unwrap();
    for turn in 0..SAMPLES {
        let value_ns = if turn == 1234 { 41_000 } else { 1000 + turn };
        log.sample(&Sample { due_ns: turn * MS, value_ns, ..Sample::default() }).unwrap();
    }
    log.finish(0).unwrap();
    let worst = vec![Outlier {
        index: 1234,
        at_ns: Some(1234 * MS),
        value_ns: 41_000,
        handler_ns: None,
        cause: "hog/99 took 40.0 us".into(),
        records: vec![],
    }];
    let kept = runs::provenance("7.2.13", Load::Mixed, Kind::Partition);
    run::write_provenance(&run, &Provenance { samples: SAMPLES, worst, ..kept }).unwrap();
    let page = dir.path().join("page.html");
    let (runs, out) = (dir.path().to_str().unwrap(), page.to_str().unwrap());
    let (code, said) = asmp(&["measure", "report", runs, "--explain", "1", "-o", out]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\nat 1.234000 s: 41.0 us: hog/99 took 40.0 us\n"), "{said}");
    let page = std::fs::read_to_string(page).unwrap();
    let over_time = page.split("<h3>Latency, mixed: over time</h3>").nth(1).unwrap();
    let over_time = over_time.split("</figure>").next().unwrap();
    // One ring in each layout.
    assert_eq!(over_time.matches("<circle").count(), 2, "{over_time}");
    assert!(over_time.contains("Numbers: the worst, see below."), "{over_time}");
    assert!(page.contains("<td data-unit=\"s\" data-name=\"At\">1.234</td>"), "{page}");
}

/// Some six hours at 20 us. Its log has a line for each second.
fn thousand_million() {
    const SECONDS: u64 = 20_000;
    const EACH: u64 = 50_000;
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("mixed-partition");
    std::fs::create_dir(&run).unwrap();
    let log = BufWriter::new(File::create(run.join("hist.hlog")).unwrap());
    let mut log = hlog::Writer::new(log, UNIX_EPOCH).unwrap();
    let of_second = |turn: u64| Latencies::of((0..EACH).map(|at| 1_000 + at * turn % 50_000));
    let seconds: Vec<Latencies> = (1..=50).map(of_second).collect();
    let mut all = Latencies::default();
    for second in 0..SECONDS {
        let of = &seconds[(second % 50) as usize];
        log.second(second, None, of).unwrap();
        all.merge(of);
    }
    log.exact(None, &all).unwrap();
    log.finish().unwrap();
    let kept = runs::provenance("7.2.13", Load::Mixed, Kind::Partition);
    let kept = Provenance { samples: all.samples(), period_ns: Some(20_000), ..kept };
    run::write_provenance(&run, &kept).unwrap();
    // Address space, which is more than memory: 128 MiB.
    let output = Command::new("bash")
        .args(["-c", "ulimit -v 131072; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_asmp")])
        .args(["measure", "report", dir.path().to_str().unwrap(), "--json"])
        .args(["-o", dir.path().join("page.html").to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rows"][0]["summary"]["instants"], SECONDS * EACH);
    assert_eq!(report["rows"][0]["summary"]["max_ns"], all.max_ns().unwrap());
    let page = std::fs::metadata(dir.path().join("page.html")).unwrap().len();
    assert!(page < 300_000, "{page} bytes");
}
