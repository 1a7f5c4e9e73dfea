"""What .ci/bugs and .ci/mutation share: a copy of the tree, its programs, and the tests of the core as a judge of the copy."""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = ["platform", "sync", "phys", "vm"]
COPIED = ["Cargo.toml", "Cargo.lock", ".cargo", "crates", "embed", "examples"]
# Whether models miss an ordering is another judge's question (`platform::loom::judge`), and the slowest one.
TEST_ARGUMENTS = ["--skip", "orders::"]
# What a program may take beyond its time on the unchanged code: the machine may be busy.
PATIENCE, LEAST_SECONDS = 5, 60
# A test is slow above so many seconds; tests run together until they take so many; what those may take beyond that.
SLOW, BATCH, TEST_PATIENCE, LEAST_TEST_SECONDS = 1, 5, 10, 20
# Limits count the CPUs' time; on a busy machine that takes longer. And what a program may have of memory.
BUSY, MOST_MEMORY = 20, 4 << 30

# Held by whoever changes results beside others.
LOCK = threading.RLock()

# What is run: the arguments, the folder, and the crate whose tests it holds, if it does.
Program = collections.namedtuple("Program", "arguments folder crate")


def fail(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {message}")


def git_apply(tree, patch, *more):
    """Applies a patch with one line of context, wherever that stands by now; says what went wrong."""
    command = ["git", "apply", "-p1", "-C1", "--recount", *more, "-"]
    environment = dict(os.environ, GIT_CEILING_DIRECTORIES=str(tree.resolve().parent))
    done = subprocess.run(command, cwd=tree, input=patch, text=True, capture_output=True, env=environment)
    return done.stderr.strip() if done.returncode else None


def copy_tree(tree):
    """Copies what is built."""
    leave_out = lambda folder, names: [name for name in names if name == "target"]
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=leave_out)
        else:
            shutil.copy2(source, tree / name)


def bring_up_to_date(tree, fresh):
    """Makes `tree` what `fresh` is without touching files that are as they should be, so that little is built anew."""
    wanted = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    for name in wanted:
        content, target = (fresh / name).read_bytes(), tree / name
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(fresh / name, target)
    for path in [path for path in tree.rglob("*") if path.is_file() and path.relative_to(tree) not in wanted]:
        path.unlink()


def cargo(tree, arguments, **more):
    """Runs cargo in a copy; returns the executables that it made, with the folders of their packages, or none if it fails."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(tree.parent / "build"), CARGO_TERM_PROGRESS_WHEN="never", **more)
    # FAULTLESS_BUILD may name a command that takes turns with other builds of this machine.
    command = os.environ.get("FAULTLESS_BUILD", "").split() + ["cargo", *arguments, "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return None
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    made = [message for message in messages if message.get("executable")]
    return [(message["executable"], os.path.dirname(message["manifest_path"])) for message in made]


def build_tests(tree, crates, **more):
    """Builds the tests of crates of the core; returns their programs, or none if they don't build."""
    packages = [part for name in crates for part in ("-p", f"faultless-{name}")]
    made = cargo(tree, ["test", "--release", "--lib", "--tests", "--no-run", *packages], **more)
    return made and [Program([path, *TEST_ARGUMENTS], folder, pathlib.Path(folder).name) for path, folder in made]


def key(program):
    """Names a program in results; programs of tests by their crate, too, because two may have one name."""
    name = " ".join(re.sub(r"-[0-9a-f]{16}$", "", pathlib.Path(part).name) for part in program.arguments)
    return f"{program.crate}/{name}" if program.crate else name


def run(program, limit, **more):
    """Runs a program until it ends or one of its tests fails; returns (exit code, or none after `limit` seconds; what it printed;
    seconds). A program that sleeps for a third of the limit has come to a standstill."""
    environment = dict(os.environ, RUST_BACKTRACE="0", **more)
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            program.arguments,
            cwd=program.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = wait(child, output, begin, limit)
        finally:
            # Its own children too, and also when we are interrupted.
            kill_group(child)
        # A failing program may print without end.
        printed = os.pread(output.fileno(), 4 << 20, 0).decode(errors="replace")
    return code, printed, time.monotonic() - begin


def wait(child, output, begin, limit):
    """Waits until a child ends (its exit code), one of its tests fails (1), it has taken too much memory (as if killed), or too
    long (none)."""
    used, since, pause, read = cpu_seconds(child), begin, 0.002, 0
    while True:
        try:
            return child.wait(timeout=pause)
        except subprocess.TimeoutExpired:
            pass
        pause, now, more = min(2 * pause, 0.2), time.monotonic(), cpu_seconds(child)
        if more > used:
            used, since = more, now
        if resident_bytes(child) > MOST_MEMORY:
            return -signal.SIGKILL
        if more > limit or now - since > limit / 3 or now - begin > BUSY * limit:
            return None
        printed = os.pread(output.fileno(), 1 << 20, read)
        if re.search(rb"^test \S+(?: - should panic)? \.\.\. FAILED", printed, re.M):
            return 1
        read += printed.rfind(b"\n") + 1


def resident_bytes(child):
    try:
        return int(pathlib.Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def cpu_seconds(child):
    """Returns the time that a child has had CPUs for: a machine that is busy does not make it hang."""
    try:
        fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def failed_tests(printed):
    return re.findall(r"^test (\S+)(?: - should panic)? \.\.\. FAILED", printed, re.M)


def cause(program, code, printed):
    """Says in a few words what failed."""
    where = key(program).split()[0]
    if code is None:
        stuck = re.findall(r"^test (\S+) has been running", printed, re.M)
        return f"{where}: {stuck[0] if stuck else 'hang'}"
    failed = failed_tests(printed)
    if failed:
        return f"{where}: {failed[0]}"
    return f"{where}: signal {-code}" if code < 0 else f"{where}: exit code {code}"


def test_order(programs, crate, times):
    """Returns the test programs that hold a crate's code: its own first, the quickest first, but that on costs last, which notices
    a missing store without knowing what it was for."""
    above = [program for program in programs if CORE.index(program.crate) >= CORE.index(crate)]
    is_cost = lambda program: key(program).startswith("vm/cost ")
    return sorted(above, key=lambda program: (program.crate != crate, is_cost(program), times[key(program)]))


def judge(programs, times, is_unchanged_fine, **environment):
    """Runs programs until one fails that passes on the unchanged code, asked now; returns the verdict."""
    begin = time.monotonic()
    verdict, by = "survived", ""
    for program in programs:
        limit = max(LEAST_SECONDS, PATIENCE * times[key(program)])
        code, printed, _ = run(program, limit, **environment)
        if code == 0:
            continue
        by = cause(program, code, printed)
        if is_unchanged_fine(program, limit):
            verdict = "hang" if code is None else "found"
            break
        print(f"{by}: fails now and then on the unchanged code, too: not counted", file=sys.stderr, flush=True)
        by = ""
    return {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - begin, 1)}


class Tests:
    """The tests of the core in one copy, one by one: how long each takes, and by which switches it comes. A test that does not come
    by a switch can't notice what is behind it."""

    def __init__(self, programs, known, jobs, save):
        """Goes on with what is `known` of tests, by program, which `save` keeps."""
        self.programs = {key(program): program for program in programs}
        self.known, self.jobs, self.save = known, jobs, save
        for name in self.programs:
            known.setdefault(name, {})

    def measure(self, names, **environment):
        """Runs the tests that are not known on the unchanged code; `names` has the switches' by what they report."""
        asked = [(name, test) for name, program in self.programs.items() for test in tests_of(program)]
        new = [(name, test) for name, test in asked if test not in self.known[name]]
        side_by_side(self.jobs, lambda each: self.measure_one(*each, names, environment), new)
        self.seconds = {name: sum(test["seconds"] for test in self.known[name].values()) for name in self.programs}
        print(f"{len(asked)} tests take {sum(self.seconds.values()):.0f} s one by one", file=sys.stderr, flush=True)

    def measure_one(self, name, test, names, environment):
        with tempfile.NamedTemporaryFile() as reached:
            for _ in range(3):
                program = only(self.programs[name], [test])
                code, printed, seconds = run(program, 3600, FAULTLESS_REACHED=reached.name, **environment)
                if code == 0:
                    break
            else:
                print(f"{cause(program, code, printed)}: fails on the unchanged code: left out", file=sys.stderr, flush=True)
                return
            lines = {line.lstrip(b"0").decode() or "0" for line in reached.read().split()}
        with LOCK:
            self.known[name][test] = {"seconds": round(seconds, 3), "reached": sorted(names[line] for line in lines)}
        self.save()

    def batches(self, name, crate):
        """Returns which tests of which programs come by a switch: the quick ones first."""
        quick, slow = [], []
        for program in test_order(self.programs.values(), crate, self.seconds):
            known = self.known[key(program)]
            tests = sorted((known[test]["seconds"], test) for test in known if name in known[test]["reached"])
            quick += batches_of(program, [test for test in tests if test[0] <= SLOW])
            slow += batches_of(program, [test for test in tests if test[0] > SLOW])
        return quick + slow

    def ask(self, name, crate, **on):
        """Asks the tests that come by a switch, with that on. A failure counts if the same tests pass on the unchanged code."""
        batches, begin = self.batches(name, crate), time.monotonic()
        verdict = {"verdict": "survived", "by": "" if batches else "no test calls its function"}
        while batches:
            program, tests, seconds = batches.pop(0)
            limit = max(LEAST_TEST_SECONDS, TEST_PATIENCE * seconds)
            code, printed, _ = run(only(program, tests), limit, **on)
            if code == 0:
                continue
            by, failed = cause(program, code, printed), failed_tests(printed) or tests
            if run(only(program, failed), limit, **{variable: "" for variable in on})[0] == 0:
                verdict = {"verdict": "hang" if code is None else "found", "by": by}
                break
            print(f"{by}: fails now and then on the unchanged code, too: not counted", file=sys.stderr, flush=True)
            # The others once more: each by itself if nobody knows which one failed.
            rest = [test for test in tests if test not in failed] or (tests if len(tests) > 1 else [])
            batches[:0] = [(program, [test], seconds) for test in rest]
        return {**verdict, "seconds": round(time.monotonic() - begin, 1)}


def batches_of(program, tests):
    """Cuts tests, with their seconds, into parts that run together: (program, names, seconds)."""
    batches = []
    for seconds, test in tests:
        if not batches or batches[-1][2] + seconds > BATCH:
            batches.append((program, [], 0))
        batches[-1] = (program, batches[-1][1] + [test], batches[-1][2] + seconds)
    return batches


def only(program, tests):
    """Returns a program of tests that runs those alone."""
    return program._replace(arguments=[program.arguments[0], "--exact", *tests])


def tests_of(program):
    """Returns the names of the tests that a program runs if it is not told which."""
    listed = []
    for more in ([], ["--ignored"]):
        command = [*program.arguments, "--list", "--format", "terse", *more]
        done = subprocess.run(command, cwd=program.folder, stdout=subprocess.PIPE, text=True, check=True)
        listed.append(re.findall(r"^(.*): test$", done.stdout, re.M))
    return [test for test in listed[0] if test not in listed[1]]


def side_by_side(jobs, work, items):
    """Runs `work` on all items, so many at a time; what one raises ends all."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def measure(programs, times, save, **environment):
    """Runs every program on the unchanged code: each must pass, and its time is the measure of a hang."""
    for program in [program for program in programs if key(program) not in times]:
        code, printed, seconds = run(program, 3600, **environment)
        if code != 0:
            fail(f"fails on the unchanged code: {cause(program, code, printed)}\n{printed[-2000:]}")
        times[key(program)] = seconds
        save()


def save(path, results):
    """Writes results down; those who change them meanwhile hold the lock."""
    with LOCK:
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(results, indent=1, sort_keys=True))
        partial.replace(path)


def load(path, fingerprint, empty):
    """Returns earlier results if they are of the same code; any, if that is not asked."""
    if path.exists():
        results = json.loads(path.read_text())
        if fingerprint in (None, results["fingerprint"]):
            return results
    return {"fingerprint": fingerprint, **empty}
