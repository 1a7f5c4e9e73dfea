"""The programs of the corpus, each a shell script in an empty folder of its own.

A script ends by itself within some ten seconds, exits with 0 if its program ran well, binds to 127.0.0.1 alone, and
leaves no process behind. `needs` are the commands that must be there; `packages` install them on Debian.
"""

import shutil
from dataclasses import dataclass

KINDS = ["server", "runtime", "database", "stress", "compiler", "browser", "tool"]


@dataclass(frozen=True)
class Program:
    name: str
    kind: str
    needs: tuple
    packages: tuple
    script: str

    def is_there(self):
        path = "/usr/sbin:/usr/local/go/bin:/root/.cargo/bin:/usr/bin:/bin:/usr/local/bin"
        return all(shutil.which(command) or shutil.which(command, path=path) for command in self.needs)


PROGRAMS = []


def add(kind, name, needs, packages, script):
    prologue = 'export PATH="$PATH:/usr/sbin:/usr/local/go/bin:$HOME/.cargo/bin" LC_ALL=C\n'
    PROGRAMS.append(Program(name, kind, tuple(needs.split()), tuple(packages.split()), prologue + script.strip()))


# A server is up when its port answers; on a busy machine that takes its time.
WAIT = """
up() { for _ in $(seq 6000); do (exec 3<>/dev/tcp/127.0.0.1/$1) 2>/dev/null && return; sleep 0.05; done; exit 9; }
"""
PAGE = "mkdir -p www; head -c 20000 /dev/urandom | base64 > www/index.html; head -c 300000 /dev/zero > www/large\n"

add("server", "redis", "redis-server redis-benchmark redis-cli", "redis-server redis-tools", WAIT + """
redis-server --bind 127.0.0.1 --port 16379 --save '' --dir . >log & up 16379
redis-benchmark -p 16379 -n 4000 -c 10 -r 3000 -t set,get,lpush,hset -q >/dev/null
redis-cli -p 16379 bgsave >/dev/null; redis-benchmark -p 16379 -n 4000 -r 3000 -t set -q >/dev/null
redis-cli -p 16379 shutdown nosave; wait""")
add("server", "nginx", "nginx ab", "nginx-light apache2-utils", WAIT + PAGE + """
cat > conf <<END
daemon off; pid $PWD/pid; error_log $PWD/errors; worker_processes 2; user root;
events { worker_connections 64; }
http { access_log off; client_body_temp_path $PWD/b; proxy_temp_path $PWD/p;
  fastcgi_temp_path $PWD/f; uwsgi_temp_path $PWD/u;
  scgi_temp_path $PWD/s; gzip on; gzip_types *; server { listen 127.0.0.1:18080; root $PWD/www; } }
END
nginx -c $PWD/conf & up 18080
ab -q -n 2000 -c 8 http://127.0.0.1:18080/index.html >/dev/null
ab -q -n 300 -c 8 -H 'Accept-Encoding: gzip' http://127.0.0.1:18080/large >/dev/null
nginx -c $PWD/conf -s quit; wait""")
add("server", "memcached", "memcached python3", "memcached python3", WAIT + """
memcached -u root -l 127.0.0.1 -p 21211 -t 4 -m 32 & server=$!; up 21211
cat > client.py <<END
import socket
s = socket.create_connection(('127.0.0.1', 21211)); f = s.makefile('rb')
for i in range(8000):
    value = b'x' * (i * 37 % 3000)
    s.sendall(b'set k%d 0 0 %d\\r\\n%s\\r\\n' % (i % 7000, len(value), value)); assert f.readline() == b'STORED\\r\\n'
END
python3 client.py & first=$!; python3 client.py && wait $first; status=$?; kill $server; wait $server; exit $status""")
add("server", "lighttpd", "lighttpd ab", "lighttpd apache2-utils", WAIT + PAGE + """
echo "server.document-root = \\"$PWD/www\\"" > conf
echo 'server.port = 18081' >> conf
echo 'server.bind = "127.0.0.1"' >> conf
lighttpd -D -f conf & server=$!; up 18081
ab -q -n 2000 -c 8 http://127.0.0.1:18081/index.html >/dev/null; status=$?; kill -INT $server; wait; exit $status""")
add("server", "apache", "apache2 ab", "apache2-bin apache2-utils", WAIT + PAGE + """
modules=/usr/lib/apache2/modules
cat > conf <<END
ServerRoot $PWD
ServerName localhost
PidFile $PWD/pid
ErrorLog $PWD/errors
Listen 127.0.0.1:18082
LoadModule mpm_event_module $modules/mod_mpm_event.so
LoadModule authz_core_module $modules/mod_authz_core.so
DocumentRoot $PWD/www
StartServers 2
END
chmod 755 . www; apache2 -f $PWD/conf -DFOREGROUND & server=$!; up 18082
ab -q -n 2000 -c 8 http://127.0.0.1:18082/index.html >/dev/null; status=$?; kill $server; wait; exit $status""")
add("server", "python-http", "python3 ab", "python3 apache2-utils", WAIT + PAGE + """
python3 -m http.server --bind 127.0.0.1 --directory www 18083 2>/dev/null & server=$!; up 18083
ab -q -n 300 -c 8 http://127.0.0.1:18083/index.html >/dev/null; status=$?; kill $server; wait; exit $status""")

add("database", "postgres", "postgres initdb pgbench setpriv", "postgresql util-linux", WAIT + """
chown nobody . && export HOME=$PWD; as="setpriv --reuid nobody --clear-groups"
$as initdb -D data -A trust -U me >/dev/null
$as postgres -D data -p 15432 -c listen_addresses=127.0.0.1 \\
  -c unix_socket_directories=$PWD -c shared_buffers=32MB 2>log & up 15432
export PGHOST=127.0.0.1 PGPORT=15432 PGUSER=me PGDATABASE=postgres
pgbench -q -i -s 1 2>/dev/null >/dev/null && pgbench -c 4 -t 200 >/dev/null 2>&1; status=$?
kill -INT $(head -1 data/postmaster.pid); wait; exit $status""")
add("database", "mariadb", "mariadbd mariadb-install-db mariadb-slap", "mariadb-server mariadb-client", WAIT + """
mariadb-install-db --no-defaults --user=root --datadir=$PWD/data --auth-root-authentication-method=normal >log 2>&1
mariadbd --no-defaults --user=root --datadir=$PWD/data --bind-address=127.0.0.1 --port=13306 --socket=$PWD/s \\
  --innodb-buffer-pool-size=32M --innodb-log-file-size=8M 2>log & up 13306
mariadb-slap --no-defaults -uroot --socket=$PWD/s --concurrency=4 --number-of-queries=800 --auto-generate-sql >log2
status=$?; mariadb-admin --no-defaults -uroot --socket=$PWD/s shutdown; wait; exit $status""")
add("database", "sqlite", "sqlite3", "sqlite3", """
cat > sql <<END
pragma mmap_size=64000000; create table t(a integer primary key, b text); begin;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
insert into t select i, hex(randomblob(20)) from n;
commit; create index x on t(b); select count(*), max(b) from t where b like 'A%'; delete from t where a % 3 = 0; vacuum;
END
sqlite3 db < sql >/dev/null""")
add("database", "python-dbm", "python3", "python3", """
python3 -c "
import dbm.dumb, sqlite3, shelve
with shelve.open('s') as s:
    for i in range(3000): s[str(i)] = list(range(i % 50))
    assert sum(len(s[str(i)]) for i in range(3000)) > 0
" """)

add("runtime", "node", "node", "nodejs", """
cat > n.js <<'END'
const { Worker, isMainThread } = require('worker_threads');
const m = new Map(); for (let i = 0; i < 150000; i++) m.set('k' + i, { a: i, b: [i, i + 1] });
let s = 0; for (const [k, v] of m) s += v.b[1];
if (isMainThread) for (let i = 0; i < 4; i++) new Worker(__filename);
END
node n.js""")
JAVA = """
cat > Main.java <<'END'
import java.util.*; import java.util.stream.*;
class Main { public static void main(String[] a) { Map<String, int[]> m = new HashMap<>();
  for (int i = 0; i < 300000; i++) m.put("k" + i, new int[i % 40]);
  System.out.println(IntStream.range(0, 2000000).parallel().mapToLong(i -> i * 31L % 7).sum() + m.size()); } }
END
"""
add("runtime", "java", "java javac", "default-jdk-headless", JAVA + "javac Main.java && java -Xmx256m Main >/dev/null")
add("runtime", "java-zgc", "java javac", "default-jdk-headless", JAVA + """
javac Main.java && java -XX:+UseZGC -Xmx256m Main >/dev/null""")
GO = """
export GOCACHE=$PWD/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local GO111MODULE=off
cat > main.go <<'END'
package main
import ("fmt"; "sync")
func main() { var w sync.WaitGroup; r := make([]int, 16)
  for t := 0; t < 16; t++ { w.Add(1); go func(t int) { defer w.Done(); m := map[int][]int{}
    for i := 0; i < 20000; i++ { m[i%3000] = make([]int, i%200); r[t] += len(m[i%3000]) } }(t) }
  w.Wait(); fmt.Println(r) }
END
"""
add("runtime", "go", "go", "golang-go", GO + "go build -o main main.go && ./main >/dev/null")
add("runtime", "python", "python3", "python3", """
python3 -c "
d = {i: [i] * (i % 30) for i in range(200000)}; s = sorted(d, key=lambda k: -len(d[k])); t = ''.join(map(str, s))
import json, re; json.loads(json.dumps(d)); re.findall('[0-9]7+', t)" """)
add("runtime", "python-threads", "python3", "python3", """
python3 -c "
import threading, zlib, os
def work(): [zlib.decompress(zlib.compress(os.urandom(30000) * 3)) for _ in range(20)]
all = [threading.Thread(target=work) for _ in range(40)]; [t.start() for t in all]; [t.join() for t in all]" """)
add("runtime", "python-fork", "python3", "python3", """
python3 -c "
import multiprocessing as m
with m.Pool(4) as p: print(sum(p.map(abs, range(-20000, 0))))" >/dev/null""")
add("runtime", "ruby", "ruby", "ruby", """
ruby -e 'h = {}; 100000.times { |i| h["k#{i}"] = [i] * (i % 9) }; GC.start; 
GC.compact rescue 0; puts h.size' >/dev/null""")
add("runtime", "ruby-threads", "ruby", "ruby", """
ruby -rzlib -e 'work = proc { 20.times { Zlib.inflate(Zlib.deflate(Random.bytes(30000) * 3)) } }
40.times.map { Thread.new(&work) }.each(&:join)'""")
add("runtime", "php", "php", "php-cli", """
php -r '$a = []; for ($i = 0; $i < 300000; $i++) $a["k$i"] = [$i, str_repeat("x", $i % 50)];
ksort($a); echo count($a);' >/dev/null""")
add("runtime", "lua", "lua5.4", "lua5.4", """
lua5.4 -e 'local t = {} for i = 1, 200000 do t[i] = {i, tostring(i)} end collectgarbage()
table.sort(t, function(a, b) return a[2] < b[2] end)'""")
add("runtime", "guile", "guile", "guile-3.0", """
guile --no-auto-compile -c '(define (f n) (if (< n 2) n (+ (f (- n 1)) (f (- n 2))))) (f 22)
(length (map (lambda (i) (make-vector 50 i)) (iota 50000)))'""")
add("runtime", "perl", "perl", "perl", """
perl -e 'for $i (1 .. 200000) { $h{"k$i"} = [$i, "x" x ($i % 40)] }
@s = sort { $h{$a}[1] cmp $h{$b}[1] } keys %h; print scalar @s' >/dev/null""")

STRESS = "stress-ng --timeout 15 --metrics-brief --quiet "
for name, arguments in {
    "vm": "--vm 2 --vm-bytes 32M --vm-ops 3000",
    "vm-rw": "--vm-rw 1 --vm-rw-ops 200 --vm-rw-bytes 16M",
    "mmap": "--mmap 2 --mmap-bytes 8M --mmap-ops 40",
    "mremap": "--mremap 2 --mremap-bytes 8M --mremap-ops 200",
    "brk": "--brk 2 --brk-ops 5000 --stack 1 --stack-ops 5000",
    "fork": "--fork 2 --fork-ops 200 --vfork 1 --vfork-ops 200",
    "madvise": "--madvise 1 --madvise-ops 20",
    "mlock": "--mlock 1 --mlock-ops 2000",
    "shm": "--shm 1 --shm-bytes 4M --shm-ops 20 --shm-sysv 1 --shm-sysv-bytes 4M --shm-sysv-ops 20",
    "malloc": "--malloc 2 --malloc-bytes 32M --malloc-ops 20000 --malloc-pthreads 2",
    "mmapfork": "--mmapfork 1 --mmapfork-ops 2",
    "fault": "--fault 2 --fault-ops 3000 --userfaultfd 0",
}.items():
    add("stress", f"stress-{name}", "stress-ng", "stress-ng", STRESS + arguments)
FIO = "fio --name=x --size=16M --numjobs=2 --directory=. --runtime=3 --output=out "
add("stress", "fio-mmap", "fio", "fio", FIO + "--ioengine=mmap --rw=randrw")
add("stress", "fio-psync", "fio", "fio", FIO + "--ioengine=psync --rw=randrw --thread")
add("stress", "sysbench-memory", "sysbench", "sysbench", """
sysbench memory --threads=4 --memory-total-size=200M run >/dev/null""")
add("stress", "sysbench-threads", "sysbench", "sysbench", "sysbench threads --threads=8 --time=1 run >/dev/null")

C = """
{ echo '#include <stdio.h>'; for i in $(seq 400); do
  echo "int f$i(int a, int *b) { for (int i = 0; i < a; i++) b[i] += i * $i; return b[a / 2]; }"; done
  echo 'int main(void) { int b[9] = {0}; printf("%d", f7(9, b)); }'; } > m.c
"""
CPP = """
cat > m.cc <<'END'
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() { std::map<std::string, std::vector<int>> m; m["a"].push_back(1); std::regex r("a+");
  std::cout << m.size() << std::regex_match("aa", r); }
END
"""
add("compiler", "gcc", "gcc", "gcc", C + "gcc -O2 m.c -o m && ./m >/dev/null")
add("compiler", "gcc-lto", "gcc", "gcc", C + "gcc -O2 -flto=2 m.c -o m && ./m >/dev/null")
add("compiler", "g++", "g++", "g++", CPP + "g++ -O1 m.cc -o m && ./m >/dev/null")
add("compiler", "clang", "clang", "clang", C + "clang -O2 m.c -o m && ./m >/dev/null")
add("compiler", "tcc", "tcc", "tcc", C + "tcc m.c -o m && ./m >/dev/null")
add("compiler", "rustc", "rustc", "rustc", """
echo 'use std::collections::HashMap;
fn main() { let m: HashMap<u32, Vec<u32>> = (0..9).map(|i| (i, vec![i; 9])).collect(); println!("{m:?}"); }' > m.rs
rustc -O m.rs && ./m >/dev/null""")
add("compiler", "javac", "javac", "default-jdk-headless", JAVA + "javac -J-Xmx256m Main.java")
add("compiler", "go-build", "go", "golang-go", GO + "go vet main.go && go build -o main main.go")

add("browser", "chromium", "chromium", "chromium", """
echo '<html><canvas id=c></canvas><script>let a = []; for (let i = 0; i < 200000; i++) a.push({i, s: "x" + i});
document.title = a.length;
document.getElementById("c").getContext("2d").fillRect(0, 0, 50, 50)</script><p>text</html>' > p.html
chromium --headless=new --no-sandbox --disable-gpu \\
  --user-data-dir=$PWD/profile --dump-dom file://$PWD/p.html 2>/dev/null | grep -q text""")

DATA = "seq 300000 | awk '{ print ($1 * 7919) % 1000003, $1 }' > data\n"
add("tool", "sort", "sort", "coreutils", DATA + "sort --parallel=4 -S 8M -n data > sorted")
add("tool", "xz", "xz", "xz-utils", DATA + "xz -T2 -1 data && xz -d data.xz")
add("tool", "zstd", "zstd", "zstd", DATA + "zstd -q -T2 data && zstd -q -f -d data.zst")
add("tool", "gawk", "gawk", "gawk", DATA + """
gawk '{ n[$1 % 50000] += $2 } END { for (i in n) s += n[i]; print s }' data >/dev/null""")
add("tool", "git", "git", "git", DATA + """
export HOME=$PWD; git init -q r && cd r && split -n 40 ../data && git add .
git -c user.name=n -c user.email=e commit -qm m && git gc -q""")
add("tool", "openssl", "openssl", "openssl", "openssl speed -multi 2 -seconds 1 sha256 >/dev/null 2>&1")
add("tool", "tar", "tar gzip", "tar gzip", DATA + "split -n 100 data p. && tar czf all.tgz p.* && tar xzf all.tgz")
add("tool", "rsync", "rsync", "rsync", DATA + """
mkdir a && split -n 100 data a/p. && rsync -a a/ b/ && rsync -a --checksum a/ b/""")
add("tool", "gdb", "gdb gcc", "gdb gcc", C + """
gcc -g m.c -o m && gdb -batch -ex 'break main' -ex run -ex bt -ex continue ./m >/dev/null 2>&1""")
add("tool", "bc", "bc", "bc", "echo 'scale=600; 4*a(1)' | bc -l >/dev/null")
