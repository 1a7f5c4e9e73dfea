"""Many mutants in one copy of the tree, each behind a switch, so that one build serves all of them.

A function with mutants gets its body once for each of them and once as it is: `{ if is_on(3) { MUTATED } else if is_on(8) { MUTATED }
else { AS IT IS } }`. A body is type-checked by itself, so that such a branch compiles if and only if the mutant does. The exceptions
can't be switched and need a build each: mutants outside functions, and functions that return `impl Trait`, whose branches would
have two types. The number of a mutant is its place in the list that was given.
"""

import collections
import json
import os
import re
import shutil
import subprocess

import judging
from judging import CORE, ROOT, fail

SWITCH = ROOT / "proofs" / "mutation" / "switch.rs"
FEATURES = "#![feature(core_intrinsics, const_eval_select)]\n#![allow(internal_features)]\n"
# What may stand before a body without being one: comments, literals, lifetimes; then what opens and closes.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|r#*"|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'|\'\w+|[()\[\]{}]', re.S)

# A function with mutants: where it begins and ends in its file, where its body begins, and its mutants by number.
Function = collections.namedtuple("Function", "begin end body mutants")
# A branch in the copy: the lines it takes in a file, and the number of its mutant; or the function's own body, with all of them.
Branch = collections.namedtuple("Branch", "first last numbers is_mutant")


class Lines:
    """A text in which places are told by line and column."""

    def __init__(self, text):
        self.text = text
        self.begins = [0] + [match.end() for match in re.finditer("\n", text)]

    def at(self, place):
        return self.begins[place["line"] - 1] + place["column"] - 1

    def span(self, span):
        return self.at(span["start"]), self.at(span["end"])


def body_of(text, begin, end):
    """Returns where the braces of a function open, or none if that can't be told."""
    depth, place = 0, begin
    while match := TOKEN.search(text, place, end):
        token, place = match[0], match.end()
        if token.startswith("r") and token.endswith('"'):
            place = text.index('"' + "#" * token.count("#"), place) + 1
        elif token == "{" and not depth:
            return match.start()
        elif token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
    return None


def returns_impl(head):
    """Says whether a function, of which this stands before the body, returns `impl Trait`; arguments may be of such a type."""
    place = re.search(r"\bfn\s+\w+\s*", head).end()
    depth = 0
    for match in re.finditer(r"->|[<>()]", head[place:]):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1, "->": 0}[match[0]]
        if match[0] == ")" and not depth:
            return re.search(r"->.*\bimpl\b", head[place + match.end() :], re.S) is not None
    return False


def is_const(text, function):
    return re.search(r"\bconst\s+(unsafe\s+)?fn\b", text[function.begin : function.body]) is not None


def functions_of(lines, mutants):
    """Groups a file's mutants by the outermost function that has any; returns (functions, numbers that need a build each)."""
    own, found = [], []
    spans = {number: lines.span(mutant["function"]["span"]) for number, mutant in mutants.items() if mutant.get("function")}
    own += [number for number in mutants if number not in spans]
    outermost = [span for span in set(spans.values()) if not any(a <= span[0] and span[1] <= b and (a, b) != span for a, b in spans.values())]
    for begin, end in sorted(outermost):
        body = body_of(lines.text, begin, end)
        numbers = [number for number, span in spans.items() if begin <= span[0] and span[1] <= end]
        if body is None or returns_impl(lines.text[begin:body]):
            own += numbers
        else:
            found.append(Function(begin, end, body, {number: mutants[number] for number in numbers}))
    return found, own


def switched(lines, function, first_line, path):
    """Returns the function's new body and its branches, if that begins in that line."""
    text, branches, line = "{\n", [], first_line + 1
    original = lines.text[function.body : function.end]
    for number, mutant in function.mutants.items():
        begin, end = lines.span(mutant["span"])
        mutated = lines.text[function.body : begin] + mutant["replacement"] + lines.text[end : function.end]
        branch = f"if {path}::switch::is_on({number})\n{mutated}\nelse "
        branches.append(Branch(line, line + branch.count("\n") - 1, [number], True))
        line += branch.count("\n")
        text += branch
    branches.append(Branch(line, line + original.count("\n") + 1, list(function.mutants), False))
    return text + original + "\n}", branches


def switch_file(text, mutants, path):
    """Returns a file's new text, its branches, the numbers that need a build each, and those of functions that are `const`."""
    lines = Lines(text)
    functions, own = functions_of(lines, mutants)
    made, branches, place = "", [], 0
    for function in functions:
        made += text[place : function.body]
        body, more = switched(lines, function, made.count("\n") + 1, path)
        made, place = made + body, function.end
        branches += more
    constant = [number for function in functions if is_const(text, function) for number in function.mutants]
    return made + text[place:], branches, own, constant


def make_tree(tree, mutants, left_out):
    """Copies what is built with all mutants behind switches, but for those that are left out. Returns the branches by file, the
    numbers that need a build each, and those whose function may also run in the compiler."""
    judging.copy_tree(tree)
    by_file = collections.defaultdict(dict)
    for number, mutant in enumerate(mutants):
        if number not in left_out:
            by_file[mutant["file"]][number] = mutant
    branches, own, constant = {}, [], []
    for name, of_file in by_file.items():
        path = "crate" if name.startswith("crates/platform/") else "faultless_platform"
        text, branches[name], more_own, more_constant = switch_file((tree / name).read_text(), of_file, path)
        (tree / name).write_text(text)
        own, constant = own + more_own, constant + more_constant
    source = tree / "crates" / "platform" / "src"
    shutil.copy2(SWITCH, source / "switch.rs")
    root = source / "lib.rs"
    # Behind everything, so that the lines of errors stay; the features can only stand before everything, in the first line.
    root.write_text(FEATURES.replace("\n", " ") + root.read_text() + "\npub mod switch;\n")
    return branches, own, constant


def compile_errors(tree):
    """Checks the libraries of the core in a copy; returns the places of what does not compile: (file, line), and what was said."""
    features = ["--features", "faultless-platform/std,faultless-platform/loom"]
    packages = [part for name in CORE for part in ("-p", f"faultless-{name}")]
    command = ["cargo", "check", "--release", "--lib", "--keep-going", *packages, *features, "--message-format=json"]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(tree.parent / "build"), RUSTC_BOOTSTRAP="1", CARGO_TERM_PROGRESS_WHEN="never")
    before = os.environ.get("FAULTLESS_BUILD", "").split()
    done = subprocess.run(before + command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    errors = [message["message"] for message in messages if message["reason"] == "compiler-message" and message["message"]["level"] == "error"]
    if done.returncode and not errors:
        fail(f"the copy in {tree} can't be checked:\n{done.stderr[-2000:]}")
    places = {(span["file_name"], span["line_start"]) for error in errors for span in error["spans"] if span["is_primary"]}
    return places, [error["rendered"] for error in errors]


def branch_at(branches, place):
    name, line = place
    return next((branch for branch in branches.get(name, []) if branch.first <= line <= branch.last), None)


def settle(tree, fresh, mutants):
    """Brings the copy to where it compiles. Returns (numbers that do not compile, that need a build each, of `const` functions)."""
    broken, apart = set(), set()
    while True:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        branches, own, constant = make_tree(fresh, mutants, broken | apart)
        judging.bring_up_to_date(tree, fresh)
        shutil.rmtree(fresh)
        places, said = compile_errors(tree)
        if not said:
            return broken, apart | set(own), set(constant)
        failing = [branch for branch in (branch_at(branches, place) for place in places) if branch]
        if not failing:
            fail(f"the copy in {tree} does not compile, and not for a mutant:\n{said[0]}")
        for branch in failing:
            # An error in the function's own body is the switch's.
            (broken if branch.is_mutant else apart).update(branch.numbers)
