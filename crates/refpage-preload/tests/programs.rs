//! Real programs give the same bytes with and without the preload.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use support::{folder, has, run_with, seen};

const SETTINGS: [&[(&str, &str)]; 3] = [
    &[],
    &[("FAULTLESS_PATTERN", "0xDEADBEEF0102030405060708"), ("FAULTLESS_THRESHOLD", "4K"), ("FAULTLESS_SMALL", "fill")],
    &[("FAULTLESS_THRESHOLD", "64K"), ("FAULTLESS_CACHE", "0")],
];

/// Runs a shell script in an empty folder, without and with the preload, and compares exit status,
/// both outputs and every file that it leaves.
#[track_caller]
fn same_bytes(name: &str, script: &str) {
    let plain = run_script(name, script, None);
    assert!(plain.0.starts_with("exit status: 0"), "{}", plain.0);
    for settings in SETTINGS {
        let with = run_script(name, script, Some(settings));
        assert_eq!(with.0, plain.0, "{name} {settings:?}");
        assert!(with.1 == plain.1, "{name} {settings:?}: the files differ");
    }
}

type Files = Vec<(String, Vec<u8>)>;

fn run_script(name: &str, script: &str, settings: Option<&[(&str, &str)]>) -> (String, Files) {
    let here = folder(&format!("program-{name}"));
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(&here).env("LC_ALL", "C").env("HOME", &here);
    command.env("PYTHONHASHSEED", "0").env("PERL_HASH_SEED", "0");
    let output = match settings {
        Some(settings) => run_with(&mut command, settings),
        None => command.output().unwrap(),
    };
    let mut files = Files::new();
    collect(&here, &mut files);
    files.sort();
    (seen(&output), files)
}

fn collect(folder: &Path, files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        // git's own index holds times and inode numbers.
        if path.ends_with(".git/index") {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn gcc() {
    if !has("gcc", "--version") {
        return;
    }
    let mut source = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for number in 0..300 {
        source += &format!(
            "int f{number}(int a, char *b) {{ char c[64]; snprintf(c, 64, \"%d %s\", a * {number}, b); \
             for (int i = 0; i < a; i++) a += strlen(c) * i + abs(a); return a; }}\n"
        );
    }
    fs::write(folder("gcc-source").join("big.c"), source).unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gcc-source/big.c");
    same_bytes("gcc", &format!("gcc -O2 -g -c {0} -o big.o && gcc -O1 -S {0} -o big.s && cat big.s", path.display()));
}

#[test]
fn python3() {
    if !has("python3", "--version") {
        return;
    }
    same_bytes(
        "python3",
        r#"python3 -S -c '
import zlib, json, hashlib, re
data = bytes(range(256)) * 20000
print(hashlib.sha256(zlib.compress(data, 9)).hexdigest())
words = {str(i): [i, i * i, str(i) * 3] for i in range(60000)}
text = json.dumps(words, sort_keys=True)
print(len(text), hashlib.md5(text.encode()).hexdigest(), len(re.findall("1.3", text)))
big = list(range(2000000)); big.reverse(); print(sum(big[::7]), 3 ** 20000 % 10 ** 30)
print(bytearray(5000000).count(0), (bytearray(3000000) + b"x" * 100)[-1])
open("out.bin", "wb").write(data[::3])
'"#,
    );
}

#[test]
fn perl() {
    if !has("perl", "-v") {
        return;
    }
    same_bytes(
        "perl",
        r#"perl -e '
my %h; $h{$_ * 7919 % 100003} .= "v$_" for 1..150000;
my $s = join ",", map { "$_=$h{$_}" } sort { $a <=> $b } keys %h;
print length($s), " ", unpack("%32C*", $s), "\n";
$s =~ s/v(\d)/w$1$1/g; print length($s), "\n";
my @a = reverse 1..500000; @a = sort { $a <=> $b } @a; print "$a[0] $a[-1]\n"; print substr($s x 3, -50), "\n";
'"#,
    );
}

#[test]
fn git() {
    if !has("git", "--version") {
        return;
    }
    same_bytes(
        "git",
        r#"
export GIT_AUTHOR_DATE='1600000000 +0000' GIT_COMMITTER_DATE='1600000000 +0000'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git -c init.defaultBranch=main init -q . && for i in 1 2 3 4 5; do
  seq $((i * 1000)) 60000 > numbers; seq $i > file$i; git add . && git commit -q -m "commit $i" || exit 1
done
git log --stat --format='%H %s' && git -c pack.threads=1 gc -q && git fsck && git diff HEAD~3 HEAD | tail -n 20
git blame numbers | tail -n 3 && git rev-list --all --objects | sort"#,
    );
}

#[test]
fn sort() {
    if !has("sort", "--version") {
        return;
    }
    same_bytes(
        "sort",
        "seq 300000 | sort --parallel=2 -S 8M -k1,1r > sorted && tail -n 3 sorted && \
        seq 200000 | sort -R --random-source=/usr/bin/sort | tail -n 2",
    );
}

#[test]
fn sqlite3() {
    if !has("sqlite3", "--version") {
        return;
    }
    same_bytes(
        "sqlite3",
        r#"sqlite3 data.db "
PRAGMA cache_size=4000; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 60000)
INSERT INTO t SELECT i, hex(i*7919), zeroblob(i%50) FROM n;
CREATE INDEX tb ON t(b); SELECT count(*), max(b), min(b), sum(length(c)) FROM t;
SELECT b, count(*) FROM t GROUP BY substr(b, -2) ORDER BY 2 DESC, 1 LIMIT 5;
DELETE FROM t WHERE a % 3 = 0; VACUUM; PRAGMA integrity_check; SELECT length(group_concat(b)) FROM t;""#,
    );
}

#[test]
fn java() {
    if !has("java", "-version") {
        return;
    }
    let source = folder("java-source").join("Main.java");
    fs::write(
        &source,
        "import java.util.*; public class Main { public static void main(String[] x) throws Exception {\n\
         var map = new TreeMap<String, Integer>(); for (int i = 0; i < 100000; i++) map.put(\"k\" + i * 31 % 9973, i);\n\
         var out = new java.util.zip.Deflater(); byte[] data = map.toString().getBytes(); byte[] buffer = new byte[data.length];\n\
         out.setInput(data); out.finish(); System.out.println(map.size() + \" \" + out.deflate(buffer) + \" \" + Arrays.hashCode(buffer));\n\
         var direct = java.nio.ByteBuffer.allocateDirect(5000000); int sum = 0; while (direct.hasRemaining()) sum += direct.get();\n\
         System.out.println(sum); var threads = new ArrayList<Thread>(); for (int i = 0; i < 4; i++) { var t = new Thread(() -> {}); t.start(); threads.add(t); }\n\
         for (var t : threads) t.join(); } }\n",
    )
    .unwrap();
    // Times in its own files differ from run to run, with or without.
    same_bytes("java", &format!("java -XX:-UsePerfData -Xshare:auto {}", source.display()));
}

#[test]
fn pdftoppm() {
    if !has("pdftoppm", "-v") {
        return;
    }
    same_bytes(
        "pdftoppm",
        "cat > p.pdf <<'EOF'\n%PDF-1.1\n\
        1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
        3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 400]/Contents 4 0 R>>endobj\n\
        4 0 obj<</Length 60>>stream\n1 0 0 rg 20 20 200 300 re f 5 w 0 0 m 390 380 l S           \nendstream endobj\n\
        trailer<</Root 1 0 R>>\nEOF\npdftoppm -r 200 p.pdf page 2>/dev/null; ls && cat page*",
    );
}
