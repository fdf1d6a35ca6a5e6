// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page in a headless Chromium, by its keyboard. Where there is no Chromium these tests are
//! skipped, in CI they fail.
//!
//! Chromium is spoken to by its protocol for developers over two pipes
//! (`--remote-debugging-pipe`): JSON messages that end with a 0.

mod common;

use asmp_web::{Event, Partition, Task};
use common::Page;
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn main() {
    let arguments = Arguments::from_args();
    let is_ci = std::env::var_os("ASMP_CI").is_some_and(|value| !value.is_empty());
    let none = program().is_none() && !is_ci;
    let trial = |name: &str, test: fn()| {
        if none {
            println!("skipped: {name}: no Chromium on this machine");
        }
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(none)
    };
    let trials = vec![
        trial("a cpu is shielded and given back by the keyboard, and the map shows it", shielded),
        trial("texts of others are text, and a report runs no script", others),
        trial("without its token the page says what to do, and keeps none", without),
        trial("what is not of now is called old, and another server is not believed", stale),
        trial("on 400 pixels nothing is cut, on light and on dark", narrow),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn program() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let quiet = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    })
}

/// A window of one page.
struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    last: u64,
    _dir: TempDir,
}

impl Browser {
    fn open(url: &str) -> Self {
        // Not in a TMPDIR of whatever length: its socket's path has room for 107 bytes.
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let [to, from, profile] = ["to", "from", "profile"].map(|name| dir.path().join(name));
        for pipe in [&to, &from] {
            let fifo = rustix::fs::FileType::Fifo;
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, pipe, fifo, mode, 0).unwrap();
        }
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$TO\" 4>\"$FROM\""])
            .arg(program().expect("Chromium (`make setup` installs it)"))
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .envs([("TO", &to), ("FROM", &from), ("TMPDIR", &dir.path().to_owned())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(to).unwrap();
        let from = BufReader::new(File::open(from).unwrap());
        let mut browser = Self { child, to, from, session: None, last: 0, _dir: dir };
        let made = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = browser.ask("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.ask("Page.navigate", json!({"url": url}));
        browser
    }

    /// Its answer to a command. What it tells meanwhile is dropped.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "Chromium has ended");
            let told: Value = serde_json::from_slice(&bytes).unwrap();
            if told["id"] == self.last {
                assert!(told["error"].is_null(), "{method}: {told}");
                return told["result"].clone();
            }
        }
    }

    /// The value of an expression.
    fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let told = self.ask("Runtime.evaluate", asked);
        assert!(told["exceptionDetails"].is_null(), "{expression}: {told}");
        told["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    fn until(&mut self, expression: &str) {
        let end = Instant::now() + Duration::from_secs(120);
        // The page may not be there yet, and its parts neither.
        let tried =
            format!("(() => {{ try {{ return {expression} }} catch {{ return false }} }})()");
        while self.value(&tried) != json!(true) {
            let page = self.value("document.body?.innerText ?? ''");
            assert!(Instant::now() < end, "{expression}: {page}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn press(&mut self, key: &str, code: u32, text: &str) {
        let key = json!({"type": "keyDown", "key": key, "code": key, "text": text,
            "windowsVirtualKeyCode": code});
        self.ask("Input.dispatchKeyEvent", key.clone());
        let mut up = key;
        up["type"] = json!("keyUp");
        self.ask("Input.dispatchKeyEvent", up);
    }

    fn enter(&mut self) {
        self.press("Enter", 13, "\r");
    }

    /// By the tabulator alone: what has no place in its order cannot be used without a mouse.
    fn go_to(&mut self, selector: &str) {
        for _ in 0..100 {
            if self.value(&format!("document.activeElement.matches({selector:?})")) == json!(true) {
                return;
            }
            self.press("Tab", 9, "");
        }
        panic!("the keyboard does not get to {selector}");
    }

    /// Kept where ASMP_SCREENSHOTS names a directory.
    fn screenshot(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("ASMP_SCREENSHOTS") else { return };
        let told = self.ask("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        // In base64, as it came.
        let path = std::path::Path::new(&dir).join(format!("{name}.png.base64"));
        fs::write(path, told["data"].as_str().unwrap()).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(page: &Page) -> String {
    format!("{}#token={}", page.url, page.token)
}

fn shielded() {
    let page = Page::serve(None);
    let mut browser = Browser::open(&address(&page));
    browser.until("document.getElementById('map').innerText.includes('CPU 3')");
    // The token stays in no address bar (Chromium's history has it all the same).
    assert_eq!(browser.value("location.href"), json!(page.url));
    let state = browser.value("document.getElementById('state').innerText");
    assert_eq!(state, "2026-01-02 03:04:05 UTC, held by asmpd: 2 repaired");
    let map = |browser: &mut Browser| {
        let all = browser.value("[...document.querySelectorAll('.cpu')].map(one => one.innerText)");
        let all = all.as_array().unwrap().clone();
        all.iter().map(|one| one.as_str().unwrap().replace('\n', " ")).collect::<Vec<_>>()
    };
    assert_eq!(map(&mut browser), ["CPU 0 system", "CPU 1 system", "CPU 2 system", "CPU 3 system"]);
    // What cannot be is refused in words.
    browser.go_to("[data-key=cpu0]");
    browser.enter();
    browser.go_to("#name");
    browser.ask("Input.insertText", json!({"text": "motion"}));
    browser.enter();
    let refused = "refused: motion: CPU 0 stays with the system";
    browser.until(&format!("document.getElementById('said').innerText === '{refused}'"));
    browser.value("document.activeElement.blur()");
    browser.go_to("[data-key=cpu0]");
    browser.enter();
    browser.go_to("[data-key=cpu3]");
    browser.enter();
    assert_eq!(browser.value("document.getElementById('cpus').value"), "3");
    let pressed = "document.querySelector('[data-key=cpu3]').getAttribute('aria-pressed')";
    assert_eq!(browser.value(pressed), "true");
    browser.go_to("#name");
    browser.enter();
    browser.until("document.querySelector('.cpu.shielded').innerText.includes('motion')");
    assert_eq!(map(&mut browser)[3], "CPU 3 motion shielded");
    assert_eq!(page.machine.partitions.lock().unwrap()[0].cpus, "3");
    browser.screenshot("shielded");
    // While asmpd cannot look, nothing is said to hold.
    for (blind, word) in [(true, "unknown"), (false, "holds")] {
        page.machine.blind.store(blind, SeqCst);
        let seen = "document.getElementById('partitions').innerText";
        browser.until(&format!("{seen}.includes('{word}')"));
    }
    browser.go_to("[data-key='end motion']");
    browser.enter();
    let button = "document.querySelector('[data-key=\"end motion\"]').innerText";
    assert_eq!(browser.value(button), "Press again to end motion");
    assert_eq!(page.machine.partitions.lock().unwrap().len(), 1);
    // A task that comes meanwhile, and the partition that is drawn anew, change nothing of that.
    let task = Task { tid: 812, command: "app".into(), policy: "fifo:80".into() };
    {
        let mut partitions = page.machine.partitions.lock().unwrap();
        (partitions[0].tasks, partitions[0].more_tasks) = (vec![task], 7);
    }
    browser.until("document.getElementById('partitions').innerText.includes('and 7 more')");
    assert_eq!(browser.value(button), "Press again to end motion");
    browser.enter();
    browser.until("document.getElementById('partitions').innerText === 'there are none'");
    assert_eq!(map(&mut browser)[3], "CPU 3 system");
    assert!(page.machine.partitions.lock().unwrap().is_empty());
}

const HOSTILE: &str = "<img src=x onerror=\"document.title='broken'\">";

fn others() {
    let dir = tempfile::tempdir().unwrap();
    let report = "<h1>latency</h1><script>top.document.title='broken'</script>\
                  <style>h1 { color: rgb(1, 2, 3) }</style>";
    fs::write(dir.path().join("run.html"), report).unwrap();
    let page = Page::serve(Some(dir.path()));
    *page.machine.partitions.lock().unwrap() = vec![Partition {
        name: HOSTILE.to_owned(),
        cpus: "2".to_owned(),
        by: HOSTILE.to_owned(),
        violations: vec![HOSTILE.to_owned()],
        latency: Some("latency: worst 7.000 us in 1 s".to_owned()),
        ..Partition::default()
    }];
    let mut browser = Browser::open(&address(&page));
    browser.until("document.getElementById('partitions').innerText.includes('violated: 1')");
    let seen = "document.getElementById('partitions').innerText";
    let text = browser.value(seen);
    assert_eq!(text.as_str().unwrap().matches(HOSTILE).count(), 4, "{text}");
    assert!(text.as_str().unwrap().contains("latency: worst 7.000 us in 1 s"));
    let Event { text, .. } = Event { text: "<b>IRQ 24</b>".to_owned(), ..Event::default() };
    browser.until(&format!("document.getElementById('events').innerText.includes({text:?})"));
    assert_eq!(browser.value("document.querySelectorAll('img, #events b').length"), 0);
    browser.until("document.querySelector('#reports button').innerText === 'run.html'");
    browser.go_to("#reports button");
    browser.enter();
    browser.until("document.querySelector('iframe').srcdoc.includes('latency')");
    assert_eq!(browser.value("document.querySelector('iframe').getAttribute('sandbox')"), "");
    // A script in the page itself is not run either.
    browser.value(
        "document.body.append(Object.assign(document.createElement('script'), \
         {textContent: \"document.title='broken'\"}))",
    );
    browser.value("new Promise(done => setTimeout(done, 500))");
    assert_eq!(browser.value("document.title"), "violated: asmp");
    browser.screenshot("others");
}

fn stale() {
    let page = Page::serve(None);
    *page.machine.violations.lock().unwrap() = vec!["a change was interrupted".to_owned()];
    let mut browser = Browser::open(&address(&page));
    browser.until("document.getElementById('map').innerText.includes('CPU 3')");
    let of_none = "document.getElementById('violations').innerText";
    assert_eq!(browser.value(of_none), "violated: a change was interrupted");
    assert_eq!(browser.value("document.title"), "violated: asmp");
    page.machine.violations.lock().unwrap().clear();
    browser.until("document.title === 'asmp'");
    let says = |words: &str| format!("document.getElementById('state').innerText === '{words}'");
    // The machine is not read.
    page.machine.hangs.store(true, SeqCst);
    let words = "the machine cannot be read: it takes longer than 5 s: what is below is old";
    browser.until(&says(words));
    assert_eq!(browser.value("document.title"), "old: asmp");
    assert_eq!(browser.value("document.body.className"), "old");
    browser.value("change({ change: 'create', name: 'motion', cpus: '3' })");
    let said = browser.value("document.getElementById('said').innerText");
    assert_eq!(said, "not asked: what is shown is old");
    page.machine.hangs.store(false, SeqCst);
    browser.until("document.title === 'asmp' && document.body.className === ''");
    // The page is not looked at.
    let hide = |browser: &mut Browser, hidden: bool| {
        browser.value(&format!(
            "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        ))
    };
    hide(&mut browser, true);
    browser.until(&says("not looked at: what is below is old"));
    page.machine.until_unread();
    hide(&mut browser, false);
    browser.until("document.title === 'asmp'");
    // Another program at the same address, and one that ends.
    let answers = |browser: &mut Browser, text: &str| {
        browser.value(&format!("window.fetch = async () => new Response({text:?}); true"));
        hide(browser, false);
    };
    let words = "the connection is lost (another program has its address: close this page): what \
                 is below is old";
    let seen = "data: {\"seen\":{\"host\":\"forged\"}}\n\n";
    for begin in ["data: {\"server\":\"0\"}\n\n", ""] {
        answers(&mut browser, &format!("{begin}{seen}"));
        browser.until(&says(words));
        answers(&mut browser, "");
        browser.until(&says("asmp web has ended: what is below is old"));
    }
    let host = browser.value("document.getElementById('host').innerText");
    assert_eq!(host, "lathe, Linux 7.2-rt");
    // The address of the next one, in the same tab.
    let next = Page::serve(None);
    browser.value(&format!("location.hash = '#token={}'", next.token));
    browser.until(&says("open the address that asmp web printed: what is below is old"));
    let kept = browser.value("sessionStorage.getItem('token')");
    assert_eq!((kept, browser.value("location.hash")), (json!(next.token), json!("")));
}

fn without() {
    let page = Page::serve(None);
    let root = page.url.clone();
    let says = |browser: &mut Browser| {
        let words = "open the address that asmp web printed";
        browser.until(&format!("document.getElementById('state').innerText.startsWith('{words}')"));
        assert_eq!(
            browser.value("document.querySelectorAll('.cpu, form:not([hidden])').length"),
            0
        );
    };
    let mut browser = Browser::open(&root);
    says(&mut browser);
    assert_eq!(browser.value("sessionStorage.length"), 0);
    // A wrong one.
    let mut browser = Browser::open(&format!("{root}#token={}", "0".repeat(64)));
    says(&mut browser);
    let mut browser = Browser::open(&format!("{root}#token=<script>"));
    says(&mut browser);
    assert_eq!(browser.value("sessionStorage.length"), 0);
    assert_eq!(browser.value("document.cookie"), "");
}

fn narrow() {
    let page = Page::serve(None);
    *page.machine.partitions.lock().unwrap() = vec![Partition {
        name: "a-name-that-is-as-long-as-names-of-partitions-can-ever-be-here-ok".to_owned(),
        cpus: "3".to_owned(),
        by: "root: asmp create a-name --cpus 3 --irq 24,25,26,27 --irq-priority 70".to_owned(),
        violations: vec!["/proc/irq/24/smp_affinity_list: is \"0-3\", must be \"3\"".to_owned()],
        ..Partition::default()
    }];
    let mut browser = Browser::open(&address(&page));
    for (width, scheme) in [(400, "light"), (400, "dark"), (1280, "dark")] {
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        browser.ask("Emulation.setDeviceMetricsOverride", metrics);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.ask("Emulation.setEmulatedMedia", media);
        browser.until("document.querySelectorAll('.cpu').length === 4");
        let wide = browser.value("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= width, "{wide} of {width}");
        let colours = browser
            .value("['backgroundColor', 'color'].map(key => getComputedStyle(document.body)[key])");
        let expected = match scheme {
            "light" => ["rgb(255, 255, 255)", "rgb(27, 27, 27)"],
            _ => ["rgb(22, 22, 22)", "rgb(238, 238, 238)"],
        };
        assert_eq!(colours, json!(expected));
        browser.screenshot(&format!("{width}-{scheme}"));
    }
}
