//! The testcases for will-it-scale under `c/`: each compiles without a warning, and does one iteration after the other,
//! in each of two threads by itself and in both at once.
//!
//! How two threads share the work is not asked: a mutex of the C library's may be had by one of them for half a minute
//! on end, because the one that was woken comes too late.

use std::path::Path;
use std::process::Command;

/// What will-it-scale's main does, as far as a testcase can tell: the threads whose numbers are given, and a look at
/// what they have counted in all.
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
int main(int argc, char **argv) {
    unsigned long long sum = 0;
    for (int which = 1; which < argc; which++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, (void *)(argv[which][0] - '0' + 0UL))) return 1;
    }
    for (int wait = 0; wait < 3000 && sum < 6; wait++) {
        usleep(10000);
        sum = counts[0][0] + counts[1][0];
    }
    printf("%s: %llu %llu\n", testcase_description, counts[0][0], counts[1][0]);
    return sum < 6;
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
        for threads in [&["0"][..], &["1"], &["0", "1"]] {
            let output = Command::new(&program).args(threads).output().expect("just made");
            assert!(output.status.success(), "{name} {threads:?}: {}", String::from_utf8_lossy(&output.stdout));
        }
    }
}
