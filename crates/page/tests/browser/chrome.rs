//! A real browser without a window, driven through its own protocol.
//!
//! # Guarantee
//! The browser ends with the value, its profile with it. It has no network: what a page tried to load is told.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The names that the browser goes by.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// How long an answer may take, on a machine that builds meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page.
pub struct Chrome {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    /// What came while something else was waited for.
    events: VecDeque<Value>,
    folder: PathBuf,
    session: String,
    last_id: u64,
}

/// Returns the browser's program, if this machine has one.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name))).find(|file| file.is_file())
}

impl Chrome {
    /// Starts the browser.
    pub fn start(program: &Path, name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("faultless-browser-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let pipes = ["commands", "answers"].map(|name| folder.join(name));
        let made = Command::new("mkfifo").args(&pipes).status().expect("mkfifo runs");
        assert!(made.success(), "mkfifo failed");
        // The browser reads its commands at descriptor 3 and answers at descriptor 4; opened both ways, neither end
        // waits.
        let script = "exec 3<>\"$1\" 4<>\"$2\"; shift 2; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(&pipes).arg(program);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]);
        command.args(["--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking"]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the browser starts");
        let commands = OpenOptions::new().read(true).write(true).open(&pipes[0]).expect("commands");
        let answers = OpenOptions::new().read(true).write(true).open(&pipes[1]).expect("answers");
        let (send, messages) = channel();
        // The thread ends with the test's process: this end of the pipe is open for writing too, so it has no end.
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(Ok(value)) = message.map(|message| serde_json::from_slice::<Value>(&message)) else { break };
                if send.send(value).is_err() {
                    break;
                }
            }
        });
        let events = VecDeque::new();
        let mut chrome = Self { child, commands, messages, events, folder, session: String::new(), last_id: 0 };
        let target = chrome.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        chrome.session = chrome.call("Target.attachToTarget", attach)["sessionId"].as_str().expect("a session").into();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            chrome.call(domain, json!({}));
        }
        chrome
    }

    /// Calls a method; returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() && !method.starts_with("Target.") {
            message["sessionId"] = json!(self.session);
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        self.commands.write_all(&text).expect("the browser listens");
        let until = Instant::now() + PATIENCE;
        loop {
            let message = self.next(until).unwrap_or_else(|| panic!("{method}: no answer"));
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    fn next(&mut self, until: Instant) -> Option<Value> {
        match self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the browser has gone away"),
        }
    }

    /// Waits for an event of that name.
    fn wait_for(&mut self, name: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.events.iter().any(|event| event["method"] == name) {
            let message = self.next(until).unwrap_or_else(|| panic!("{name} never came"));
            self.events.push_back(message);
        }
    }

    /// Opens a file in a window of that size and colour scheme; returns what went wrong meanwhile: errors, and loads.
    pub fn open(&mut self, file: &Path, (across, down): (u32, u32), scheme: &str) -> Vec<String> {
        let size = json!({ "width": across, "height": down, "deviceScaleFactor": 1, "mobile": across < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
        self.events.clear();
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({ "url": url }));
        self.wait_for("Page.loadEventFired");
        self.complaints(&url)
    }

    /// Returns errors and loads since the page was opened.
    pub fn complaints(&self, url: &str) -> Vec<String> {
        let found = self.events.iter().filter_map(|event| {
            let said = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" | "Log.entryAdded" => Some(said.to_string()),
                "Runtime.consoleAPICalled" => Some(said.to_string()),
                "Network.requestWillBeSent" => {
                    let asked = said["request"]["url"].as_str().unwrap_or("?");
                    (asked != url && !asked.starts_with("data:")).then(|| format!("it loads {asked}"))
                }
                _ => None,
            }
        });
        found.collect()
    }

    /// Evaluates an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", asked);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Presses a key and lets it go, as a hand would.
    pub fn press(&mut self, key: &str) {
        let (code, number, text) = match key {
            "Tab" => ("Tab", 9, ""),
            "Enter" => ("Enter", 13, "\r"),
            "ArrowLeft" => ("ArrowLeft", 37, ""),
            "ArrowRight" => ("ArrowRight", 39, ""),
            other => panic!("no such key: {other}"),
        };
        let event = |kind: &str, text: &str| json!({ "type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number, "text": text });
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        self.call("Input.dispatchKeyEvent", event(down, text));
        self.call("Input.dispatchKeyEvent", event("keyUp", ""));
    }

    /// Returns a picture of the whole page, as base64 of a PNG.
    pub fn picture(&mut self) -> String {
        let asked = json!({ "format": "png", "captureBeyondViewport": true });
        let metrics = self.call("Page.getLayoutMetrics", json!({}));
        let size = &metrics["cssContentSize"];
        let mut asked = asked;
        asked["clip"] = json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        self.call("Page.captureScreenshot", asked)["data"].as_str().expect("a picture").to_owned()
    }
}

impl Drop for Chrome {
    fn drop(&mut self) {
        // It ends by itself when asked; if it does not, it is killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
