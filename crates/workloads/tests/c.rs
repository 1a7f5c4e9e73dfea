//! The testcases for will-it-scale under `c/`: each compiles without a warning, and does one iteration after the other,
//! in two threads at once.

use std::path::Path;
use std::process::Command;

/// What will-it-scale's main does, as far as a testcase can tell: threads, and a look at their counts.
const MAIN: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
extern char *testcase_description;
void testcase(unsigned long long *iterations, unsigned long nr);
static volatile unsigned long long counts[2][16];
static void *work(void *nr) {
    testcase((unsigned long long *)counts[(unsigned long)nr], (unsigned long)nr);
    return 0;
}
int main(void) {
    for (unsigned long nr = 0; nr < 2; nr++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, (void *)nr)) return 1;
    }
    for (int wait = 0; wait < 3000 && !(counts[0][0] > 2 && counts[1][0] > 2); wait++) usleep(10000);
    printf("%s: %llu %llu\n", testcase_description, counts[0][0], counts[1][0]);
    return !(counts[0][0] > 2 && counts[1][0] > 2);
}
"#;

#[test]
fn testcases_for_will_it_scale_compile_and_run() {
    if Command::new("gcc").arg("--version").output().is_err() {
        return println!("skipped: gcc is not installed");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let main = folder.join("main.c");
    std::fs::write(&main, MAIN).expect("room");
    for name in ["mmap_touch1", "mmap_touch2", "mmap_touch3"] {
        let (source, program) = (format!("{}/c/{name}.c", env!("CARGO_MANIFEST_DIR")), folder.join(name));
        let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
        let status = Command::new("gcc").args(flags).arg(&program).arg(&source).arg(&main).status();
        assert!(status.expect("gcc").success(), "{source}");
        let output = Command::new(&program).output().expect("just made");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
