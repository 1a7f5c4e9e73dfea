//! A folder for each test, programs compiled for it, and the command under test.

#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use faultless_trace::Trace;

/// A folder that is removed when the test ends.
pub struct Place {
    pub folder: PathBuf,
}

impl Place {
    /// Makes an empty folder that any user may write to.
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("faultless-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        Self { folder }
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the path of the usual trace.
    pub fn trace(&self) -> PathBuf {
        self.path("t.trace")
    }

    /// Compiles one of the programs beside these tests.
    pub fn compile(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
        let program = self.path(name);
        let status = Command::new("gcc").args(["-O1", "-w", "-pthread", "-o"]).arg(&program).arg(source).status();
        assert!(status.expect("gcc is installed").success(), "gcc compiles {name}.c");
        program
    }

    /// Returns the names of the files in the folder, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Waits until a recorder of running processes into the usual trace has joined them.
    pub fn await_joined(&self, recorder: u32) {
        let joined = self.path(&format!("t.trace.{recorder}.raw/joined"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !joined.exists() {
            assert!(Instant::now() < deadline, "nobody is joined after a minute");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Records a command into the usual trace with these options.
    pub fn record(&self, options: &[&str], command: &[&str]) -> Output {
        let mut recorder = faultless();
        recorder.arg("record").args(options).arg("-o").arg(self.trace()).arg("--").args(command);
        recorder.current_dir(&self.folder).output().unwrap()
    }

    /// Records a command that must succeed; returns its trace.
    pub fn record_ok(&self, options: &[&str], command: &[&str]) -> Trace {
        let output = self.record(options, command);
        assert!(output.status.success(), "{}: {}", output.status, err(&output));
        self.open()
    }

    /// Reads the usual trace.
    pub fn open(&self) -> Trace {
        Trace::open(&self.trace()).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the command under test.
pub fn faultless() -> Command {
    Command::new(env!("CARGO_BIN_EXE_faultless"))
}

/// Returns the command with interrupts as a terminal gives them: whoever runs the tests in the background has them
/// ignored.
pub fn interruptible() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_faultless")]);
    command
}

/// Returns what the command printed on stdout.
pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns what the command printed on stderr.
pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns whether tracepoints may be watched; says so if not.
pub fn has_tracepoints() -> bool {
    static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
    let refusal = REFUSAL.get_or_init(|| {
        let output = Place::new("probe").record(&["--mode", "privileged"], &["true"]);
        err(&output).contains("is not permitted").then(|| err(&output).trim().to_owned())
    });
    refusal.iter().for_each(|refusal| println!("skipped: {refusal}"));
    refusal.is_none()
}

/// Returns whether the tests run as root; says so if not.
pub fn is_root() -> bool {
    // SAFETY: the call only returns a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        println!("skipped: not root");
    }
    is_root
}

/// Asserts that a replay was faithful; says what the trace tells of the first fault that was not, since a recording is
/// made once only.
pub fn assert_replayed(output: &Output) {
    let told = || surroundings(&err(output)).unwrap_or_default();
    assert!(output.status.success(), "{}{}{}", out(output), err(output), told());
}

/// Returns the events around the first one that a replay's errors name, and all of its page.
fn surroundings(errors: &str) -> Option<String> {
    let (number, rest) = errors.split_once("error: event ")?.1.split_once(':')?;
    let number: usize = number.parse().ok()?;
    let address = rest.split_once(" of 0x")?.1.split(|c: char| !c.is_ascii_hexdigit()).next()?;
    let page = format!("address=0x{}", &address[..address.len().checked_sub(3)?]);
    let trace = errors.split_once("trace dump ")?.1.split('`').next()?;
    let dump = out(&faultless().args(["trace", "dump", trace]).output().ok()?);
    let is_told = |place: usize, line: &str| place.abs_diff(number) <= 20 || line.contains(&page);
    let lines = dump.lines().enumerate().filter(|(place, line)| is_told(*place, line));
    Some(lines.map(|(_, line)| format!("{line}\n")).collect())
}
