#!/bin/bash
# Runs real programs without the preload and with it, and says what happened, as a table.
#
#   crates/refpage-preload/programs.sh             all that are installed
#   crates/refpage-preload/programs.sh gcc sort    some
#   crates/refpage-preload/programs.sh --list      their names
#   PRELOAD=FILE crates/refpage-preload/programs.sh     a preload that was built elsewhere
#
# Each program runs in an empty folder of its own: without the preload, with it as it is by default, and once more with
# a pattern of 12 bytes, a threshold of 4 KiB and small allocations filled. Exit status, standard output, standard error
# and every file that it leaves must be the same. Exit code: 0, or 1 if a program behaved otherwise under the preload.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
STRICT=(FAULTLESS_PATTERN=0xDEADBEEF0102030405060708 FAULTLESS_THRESHOLD=4K FAULTLESS_SMALL=fill)

# ---- The programs: `program NAME NEEDS WHAT <<'SCRIPT'`. Scripts print nothing that differs from run to run. ----
names=() && declare -A needs what script
program() {
    names+=("$1")
    needs[$1]=$2 what[$1]=$3 script[$1]=$(cat)
}

program gcc gcc '300 C functions, `-O2 -g`' <<'EOS'
{ printf '#include <stdio.h>\n#include <stdlib.h>\n'
for i in $(seq 300); do echo "int f$i(int a, char *b) { char c[64]; snprintf(c, 64, \"%d %s\", a * $i, b);
for (int i = 0; i < a; i++) a += abs(c[i % 64]) * i; return a; }"; done; } >big.c
gcc -O2 -g -c big.c -o big.o && gcc -O1 -S big.c -o big.s
EOS
program g++ g++ 'C++ with maps, strings and regular expressions, `-O2`; and the program that comes out' <<'EOS'
cat >a.cc <<'CC'
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() {
    std::map<std::string, std::vector<int>> m;
    for (int i = 0; i < 100000; i++) m[std::to_string(i * 7919 % 1000)].push_back(i);
    std::vector<int> v;
    for (auto &p : m) v.insert(v.end(), p.second.begin(), p.second.end());
    std::sort(v.begin(), v.end(), std::greater<int>());
    std::cout << v[5] << ' ' << std::regex_replace(std::string("a1b2"), std::regex("[0-9]"), "-") << '\n';
}
CC
g++ -O2 a.cc -o a && ./a
EOS
program rustc rustc 'Rust with generics and threads, `-O` (the compiler has its own allocator); and the program that comes out' <<'EOS'
cat >a.rs <<'RS'
use std::collections::{BTreeMap, HashMap};
fn main() {
    let parts: Vec<_> = (0..4).map(|t| std::thread::spawn(move || {
        let mut m: HashMap<String, Vec<u64>> = HashMap::new();
        for i in 0..50_000u64 { m.entry(format!("{}", i * 31 % 997)).or_default().push(i * t); }
        m.into_iter().map(|(k, v)| (k, v.iter().sum::<u64>())).collect::<BTreeMap<_, _>>()
    })).collect();
    let all: Vec<_> = parts.into_iter().map(|p| p.join().unwrap()).collect();
    println!("{:?}", all.iter().map(|m| m["5"]).collect::<Vec<_>>());
}
RS
rustc --edition 2021 -O a.rs -o a && ./a
EOS
program go go 'builds and runs a program with goroutines (its own allocator, C through cgo)' <<'EOS'
export GOCACHE=$PWD/../go-cache GOPATH=$PWD/../go GOFLAGS=-mod=mod GO111MODULE=off CGO_ENABLED=1
cat >a.go <<'GO'
package main

// #include <stdlib.h>
// #include <string.h>
// static long grow(void) { long sum = 0; for (int i = 1; i < 50; i++) { char *p = malloc(i * 100000);
//     memset(p, i, i * 100000); sum += p[i * 99999]; free(p); } return sum; }
import "C"
import "fmt"

func main() {
	c := make(chan int)
	for i := 0; i < 8; i++ {
		go func(i int) { s := make([]int, 1000000); for j := range s { s[j] = i * j }; c <- s[999] }(i)
	}
	sum := 0
	for i := 0; i < 8; i++ { sum += <-c }
	fmt.Println(sum, C.grow())
}
GO
go build -o a a.go && ./a; rm -rf a .config
EOS
program python3 python3 'zlib, JSON, regular expressions, long lists and numbers' <<'EOS'
PYTHONHASHSEED=0 python3 -c '
import zlib, json, hashlib, re
data = bytes(range(256)) * 20000
print(hashlib.sha256(zlib.compress(data, 9)).hexdigest())
text = json.dumps({str(i): [i, i * i, str(i) * 3] for i in range(60000)}, sort_keys=True)
print(len(text), hashlib.md5(text.encode()).hexdigest(), len(re.findall("1.3", text)))
big = list(range(2000000)); big.reverse(); print(sum(big[::7]), 3 ** 20000 % 10 ** 30)
print(bytearray(5000000).count(0), (bytearray(3000000) + b"x" * 100)[-1])'
EOS
program python3-malloc python3 'the same interpreter without its own pools (`PYTHONMALLOC=malloc`)' <<'EOS'
PYTHONMALLOC=malloc PYTHONHASHSEED=0 python3 -c '
import pickle, collections
d = collections.OrderedDict((str(i), [i] * (i % 50)) for i in range(60000))
s = pickle.dumps(d); print(len(s), sum(map(len, pickle.loads(s).values())))'
EOS
program perl perl 'hashes, sorting, strings of megabytes' <<'EOS'
PERL_HASH_SEED=0 perl -e '
my %h; $h{$_ * 7919 % 100003} .= "v$_" for 1..150000;
my $s = join ",", map { "$_=$h{$_}" } sort { $a <=> $b } keys %h;
print length($s), " ", unpack("%32C*", $s), "\n";
my @a = reverse 1..500000; @a = sort { $a <=> $b } @a; print "$a[0] $a[-1] ", substr($s x 3, -50), "\n";'
EOS
program node node 'JSON, buffers, worker threads, zlib' <<'EOS'
cat >a.js <<'JS'
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (!isMainThread) { parentPort.postMessage(Buffer.alloc(5e6, 7).reduce((a, b) => a + b)); return; }
const o = {}; for (let i = 0; i < 100000; i++) o['k' + i] = [i, String(i)];
const s = JSON.stringify(o), z = require('zlib').gzipSync(s, { level: 6 });
console.log(s.length, require('zlib').gunzipSync(z).toString() === s, Buffer.alloc(3e6).indexOf(1));
new Worker(__filename).on('message', (m) => console.log(m));
JS
node a.js
EOS
program java java 'maps, deflate, direct buffers, threads' <<'EOS'
cat >Main.java <<'JAVA'
import java.util.*;
public class Main { public static void main(String[] x) throws Exception {
    var map = new TreeMap<String, Integer>(); for (int i = 0; i < 100000; i++) map.put("k" + i * 31 % 9973, i);
    var out = new java.util.zip.Deflater(); byte[] data = map.toString().getBytes(), buffer = new byte[data.length];
    out.setInput(data); out.finish(); System.out.println(out.deflate(buffer) + " " + Arrays.hashCode(buffer));
    var direct = java.nio.ByteBuffer.allocateDirect(5000000); int sum = 0;
    while (direct.hasRemaining()) sum += direct.get();
    var threads = new ArrayList<Thread>();
    for (int i = 0; i < 4; i++) { var t = new Thread(() -> {}); t.start(); threads.add(t); }
    for (var t : threads) t.join(); System.out.println(sum); } }
JAVA
java -XX:-UsePerfData -Xshare:auto Main.java
EOS
program git git 'commits, gc, fsck, blame' <<'EOS'
export GIT_AUTHOR_DATE='1600000000 +0000' GIT_COMMITTER_DATE='1600000000 +0000'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git -c init.defaultBranch=main init -q . && for i in 1 2 3 4 5; do
  seq $((i * 1000)) 60000 >numbers; git add . && git commit -q -m "commit $i" || exit 1
done
git log --stat --format='%H %s' && git -c pack.threads=1 gc -q && git fsck && git blame numbers | tail -n 3
rm -f .git/index
EOS
program sort sort '300,000 lines, two threads, 8 MiB of buffer' <<'EOS'
seq 300000 | sort --parallel=2 -S 8M -k1,1r >sorted && tail -n 3 sorted
EOS
program sqlite3 sqlite3 'a database: insert, index, group, delete, vacuum, integrity check' <<'EOS'
sqlite3 data.db "PRAGMA cache_size=4000; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 60000)
INSERT INTO t SELECT i, hex(i*7919), zeroblob(i%50) FROM n;
CREATE INDEX tb ON t(b); SELECT count(*), max(b), sum(length(c)) FROM t;
SELECT b, count(*) FROM t GROUP BY substr(b, -2) ORDER BY 2 DESC, 1 LIMIT 5;
DELETE FROM t WHERE a % 3 = 0; VACUUM; PRAGMA integrity_check; SELECT length(group_concat(b)) FROM t;"
EOS
program compressors xz 'gzip, bzip2, xz with 64 MiB of dictionary, zstd with two threads; and back' <<'EOS'
seq 2000000 >in
for how in 'gzip -n' bzip2 'xz -T2 --lzma2=dict=64MiB' 'zstd -q -19 -T2'; do
    set -- $how; command -v "$1" >/dev/null || continue
    "$@" -c in >out && "$1" -dc <out | cmp - in && cksum <out
done
EOS
program pdftoppm pdftoppm 'one page at 300 dpi' <<'EOS'
cat >p.pdf <<'PDF'
%PDF-1.1
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 400]/Contents 4 0 R>>endobj
4 0 obj<</Length 60>>stream
1 0 0 rg 20 20 200 300 re f 5 w 0 0 m 390 380 l S           
endstream endobj
trailer<</Root 1 0 R>>
PDF
pdftoppm -r 300 p.pdf page 2>/dev/null; cksum page*
EOS
program gdb gdb 'runs a program to a breakpoint' <<'EOS'
printf 'int f(int a) { return a + 1; }\nint main(void) { return f(41) - 42; }\n' >a.c && gcc -g a.c -o a
gdb -q -nx -batch -ex 'break f' -ex run -ex bt -ex cont a 2>&1 | grep -E '^(#0|Breakpoint 1,)|exited' | sed 's/process [0-9]*/process/'
EOS
program postgres postgres 'a server: create, join, index, stop' <<'EOS'
[ "$(id -u)" = 0 ] && { chmod 777 . && as='setpriv --reuid=65534 --regid=65534 --clear-groups'; }
bin=$(dirname "$(readlink -f "$(command -v postgres)")")
$as "$bin/initdb" -D "$PWD/db" -U me --no-sync >/dev/null 2>&1 || exit 1
$as "$bin/pg_ctl" -D "$PWD/db" -w -o "-k $PWD -c listen_addresses='' -c fsync=off" -l "$PWD/db/log" start >/dev/null
psql -h "$PWD" -U me -At postgres -c 'create table t as select i, md5(i::text) m from generate_series(1, 100000) i' \
    -c 'create index on t(m)' -c 'select count(*), max(a.m) from t a join t b on a.m = b.m' \
    -c "select length(string_agg(m, '')) from t"
$as "$bin/pg_ctl" -D "$PWD/db" -w -m fast stop >/dev/null; rm -rf db
EOS
program chromium chromium 'headless browser (its own allocator): a page with a script and a canvas, as DOM and as a picture' <<'EOS'
cat >page.html <<'HTML'
<html><body><h1>Reference pages</h1><canvas id=c width=800 height=600></canvas><p id=out></p><script>
const g = document.getElementById('c').getContext('2d');
for (let i = 0; i < 200; i++) { g.fillStyle = `hsl(${i * 7}, 80%, 50%)`; g.fillRect(i * 4, i * 3, 90, 60); }
const a = new Float64Array(4e6).map((_, i) => i); let s = 0; for (const x of a) s += x;
document.getElementById('out').textContent = s + ' ' + g.getImageData(5, 5, 1, 1).data.join();
</script></body></html>
HTML
run() { timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$PWD/profile" "$@" "file://$PWD/page.html" 2>/dev/null; }
run --dump-dom && run --screenshot="$PWD/page.png" --window-size=900,800 && cksum <page.png; rm -rf profile .config .cache
EOS

# Stress: programs that exhaust memory on purpose, or allocate as nobody sane does. Their figures differ; what counts is
# that they end well.
stress() {
    program "stress-ng $1" stress-ng "$2" <<<"stress-ng --$1 2 $3 --oomable --no-rand-seed --quiet --temp-path \"\$PWD\" 2>&1"
}
stress malloc 'random malloc, calloc, realloc, free by two processes of two threads, which check their bytes' \
    '--malloc-bytes 400M --malloc-ops 40000 --malloc-pthreads 2 --verify'
stress bigheap 'grows by realloc until memory is gone (an address space of 3 GiB)' \
    '--bigheap-growth 16M --bigheap-ops 4000 --timeout 20'
stress qsort 'sorts, and checks the order' '--qsort-ops 4 --verify'
stress zlib 'compresses, and checks' '--zlib-ops 20 --verify'
stress fork 'forks as fast as it can' '--fork-ops 4000'
program exhaust python3 'allocates 5 MB at a time until MemoryError (1 GiB of address space), frees, goes on' <<'EOS'
ulimit -v 1048576; python3 -c '
a = []
try:
    while True: a.append(bytearray(5000000) + b"x")
except MemoryError: print("MemoryError", len(a) > 20)
a = None; print(sum(bytearray(b"\1") * 9000000))'
EOS

# ---- Running them ----
preload() {
    [ -n "${PRELOAD:-}" ] && { readlink -f "$PRELOAD"; return; }
    cargo build --release -p faultless-refpage-preload --manifest-path "$here/Cargo.toml" \
        --message-format=json-render-diagnostics | grep -o '"[^"]*/libfaultless_refpage_preload.so"' | tr -d '"' | tail -n 1
}

# run NAME WORD...: the script in a fresh folder, with these variables; prints all that it leaves behind.
run() {
    local name=$1
    shift
    rm -rf "$work/run" && mkdir "$work/run" && cd "$work/run" || return
    case $name in *bigheap) ulimit -v 3145728 ;; esac
    env LC_ALL=C HOME="$work/run" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" "$@" \
        bash -c "${script[$name]}" >"$work/out" 2>"$work/err" </dev/null
    echo "exit $?"
    echo "--- stdout" && cat "$work/out"
    echo "--- stderr" && cat "$work/err"
    find . -type f | sort | while read -r file; do echo "--- $file $(cksum <"$file")"; done
}

# The counters of all processes that left by exit: allocated MiB, and which share was patterned.
counters() {
    awk '{ for (i = 1; i <= NF; i++) { split($i, a, "="); n[a[1]] += a[2] } } END { all = n["allocated_bytes"]
        if (all < 1048576) print "- | -"
        else printf "%.0f | %.0f %%\n", all / 1048576, 100 * n["patterned_bytes"] / all }' "$1"
}

# compare NAME FILE: "same", or "differs", with the difference on stderr.
compare() {
    if cmp -s "$work/plain" "$work/$2"; then
        echo same
    else
        echo "$1: without the preload (<) and with it (>), $2:" >&2
        diff -a "$work/plain" "$work/$2" | head -n 20 >&2
        echo "**differs**"
    fi
}

one() {
    local name=$1 default strict
    (run "$name") >"$work/plain"
    (run "$name" LD_PRELOAD="$so") >"$work/default"
    (run "$name" LD_PRELOAD="$so" "${STRICT[@]}") >"$work/strict"
    : >"$work/counters" && chmod 666 "$work/counters"
    (run "$name" LD_PRELOAD="$so" FAULTLESS_STATS="$work/counters") >/dev/null
    default=$(compare "$name" default) strict=$(compare "$name" strict)
    echo "| $name | ${what[$name]} | $(sed -n '1s/exit //p' "$work/plain") | $default | $strict | $(counters "$work/counters") |"
    [ "$default$strict" = samesame ]
}

case "${1:-}" in
-h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0" && exit 0 ;;
--list) printf '%s\n' "${names[@]}" && exit 0 ;;
-*) echo "programs.sh: unknown option $1 (try --help)" >&2 && exit 2 ;;
esac
for name in "$@"; do
    [ -n "${what[$name]:-}" ] || { echo "programs.sh: no program $name (try --list)" >&2; exit 2; }
done
[ $# -gt 0 ] && names=("$@")

so=$(preload)
[ -f "$so" ] || { echo "programs.sh: no preload at '$so'" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A server that gives up root must be able to read it.
chmod 755 "$work" && install -m 755 "$so" "$work/preload.so" && so=$work/preload.so
failed=0
echo '| program | what it did | exit code | by default | all filled | MiB allocated | of it patterned |'
echo '|---|---|---|---|---|--:|--:|'
for name in "${names[@]}"; do
    if command -v "${needs[$name]}" >/dev/null; then
        one "$name" || failed=1
    else
        echo "| $name | ${what[$name]} | not installed | | | | |"
    fi
done
exit $failed
