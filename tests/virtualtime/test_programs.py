"""The machine's own programs under the clock, unmodified: shells, interpreters, clients, servers."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from clocked import clocked, needs_clock, python

pytestmark = needs_clock

GO = """
package main

import (
	"context"
	"fmt"
	"time"
)

func main() {
	began := time.Now()
	fmt.Println(began.UTC().Format(time.RFC3339))
	ctx, cancel := context.WithTimeout(context.Background(), 36*time.Hour)
	defer cancel()
	late := time.Duration(0)
	for i := 1; i <= 3; i++ {
		period := time.Duration(i) * 10 * time.Minute
		go func() {
			due := began.Add(period)
			for now := range time.Tick(period) {
				if now.Before(due) {
					fmt.Println("early", now, due)
				}
				late = max(late, now.Sub(due))
				due = due.Add(period)
			}
		}()
	}
	<-ctx.Done()
	fmt.Println(time.Since(began) >= 36*time.Hour, time.Since(began) < 36*time.Hour+time.Millisecond, late < time.Millisecond)
}
"""
JAVA = """
public class Waits {
    public static void main(String[] arguments) throws Exception {
        long began = System.currentTimeMillis();
        Thread.sleep(60_000);
        System.out.println(System.currentTimeMillis() - began);
        var timer = java.util.concurrent.Executors.newScheduledThreadPool(1);
        timer.schedule(() -> {}, 30, java.util.concurrent.TimeUnit.SECONDS).get();
        timer.shutdown();
        System.out.println(System.currentTimeMillis() - began);
    }
}
"""
NODE = """
const began = Date.now()
setTimeout(() => console.log('once', Date.now() - began, Math.round(performance.now() / 1000)), 3600e3)
let n = 0
const each = setInterval(() => { if (++n == 5) { clearInterval(each); console.log(n, Date.now() - began) } }, 1000)
"""
ASYNCIO = """
import asyncio
async def slow(seconds):
    await asyncio.sleep(seconds)
    return seconds
async def main():
    print(await asyncio.gather(slow(1), slow(60), slow(3600)), elapsed())
    try:
        await asyncio.wait_for(slow(100), 7)
    except TimeoutError:
        print('timed out', elapsed())
asyncio.run(main())
"""
# Every process here is under the clock, and so is the certificate: it begins in January.
TLS = """
cd "$1"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out cert -days 2 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
openssl s_server -accept 127.0.0.1:$2 -key key -cert cert -www -quiet >/dev/null 2>&1 &
server=$!
sleep 1
ask() { curl -s -o page --max-time 5 --cacert cert https://localhost:$2/; echo $? $(date +%dT%T); }
ask "$@"
sleep 36000
ask "$@"
sleep 200000
ask "$@"
kill $server
"""


# A server with nodes and controllers of its own, live: its leases are renewed in virtual time.
CLUSTER = """
cd "$1"
"$2" -m dralab up --plain --data :memory: --listen 127.0.0.1:$3 --kubeconfig k --nodes 2 >log 2>&1 &
server=$!
until grep -qs ready: log; do sleep 1; done
for i in 1 2; do
    sleep 600
    curl -s --max-time 5 http://127.0.0.1:$3/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases |
        tr -d ' \\n' | grep -o '"renewTime":"[^.]*' | sort | head -n 1
done
kill $server
wait $server
"""


def test_a_shell_loops_through_a_month():
    result = clocked(
        ["sh", "-c", "for i in 1 2 3; do date -u +%F; sleep 864000; done; date -u +%F"]
    )
    assert result.lines == ["2026-01-01", "2026-01-11", "2026-01-21", "2026-01-31"]
    assert (result.code, result.passed, result.left) == (0, 2592000, [])


def test_timeout_ends_a_program_after_its_time():
    result = clocked(["timeout", "50", "sleep", "100"])
    assert (result.code, result.passed) == (124, 50)


def test_a_shell_waits_for_jobs_and_traps():
    script = (
        "trap 'echo trapped; date -u +%T' USR1; (sleep 10; kill -USR1 $$) & "
        "sleep 30 & wait; wait; date -u +%T"
    )
    result = clocked(["sh", "-c", script])
    assert result.lines == ["trapped", "00:00:10", "00:00:30"]


def test_asyncio():
    assert python(ASYNCIO).lines == ["[1, 60, 3600] 3600.0", "timed out 3607.0"]


def test_a_pipe_is_not_outrun_by_the_clock():
    # The reader's time-out of 1 ms never ends before the writer, which only computes, has written.
    writer = "import time; [sum(range(20000)) for _ in range(50)]; print('done', flush=True)"
    code = (
        "import subprocess\n"
        f"p = subprocess.Popen([sys.executable, '-I', '-S', '-c', {writer!r}], stdout=-1)\n"
        "print(select.select([p.stdout], [], [], 0.001)[0] == [p.stdout], p.stdout.read(), elapsed())"
    )
    assert python(code).lines == ["True b'done\\n' 0.0"]


def test_a_local_connection_is_not_outrun_by_the_clock():
    code = """
server = socket.create_server(('127.0.0.1', 0))
def serve():
    line, _ = server.accept()
    while data := line.recv(100):
        sum(range(100000))
        line.sendall(data)
threading.Thread(target=serve, daemon=True).start()
client = socket.create_connection(server.getsockname(), timeout=0.001)
answers = 0
for _ in range(50):
    client.sendall(b'x')
    answers += client.recv(100) == b'x'
    time.sleep(60)
print(answers, elapsed())
"""
    assert python(code).lines == ["50 3000.0"]


@pytest.mark.skipif(not shutil.which("node"), reason="no Node.js here")
def test_node():
    result = clocked(["node", "-e", NODE])
    assert result.lines == ["5 5000", "once 3600000 3600"]


@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("openssl")), reason="no curl, openssl"
)
def test_certificates_age_on_the_clock(tmp_path):
    result = clocked(["sh", "-c", TLS, "sh", str(tmp_path), str(free_port())])
    # 60: curl could not verify the certificate, which has expired.
    assert result.lines == ["0 01T00:00:01", "0 01T10:00:01", "60 03T17:33:21"], result


@pytest.mark.conformance
@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_a_live_cluster_renews_its_leases_in_virtual_time(tmp_path):
    words = [str(tmp_path), sys.executable, str(free_port())]
    result = clocked(["sh", "-c", CLUSTER, "sh", *words])
    # Nodes renew every 10 s; the oldest lease that we see is younger than that.
    assert [line[:29] for line in result.lines] == [
        '"renewTime":"2026-01-01T00:10',
        '"renewTime":"2026-01-01T00:20',
    ], result


@pytest.mark.conformance
@pytest.mark.skipif(not shutil.which("go"), reason="no Go here")
def test_a_static_go_program_has_exact_tickers_for_36_hours(tmp_path):
    (tmp_path / "main.go").write_text(GO)
    command = ["go", "build", "-o", str(tmp_path / "ticks"), str(tmp_path / "main.go")]
    subprocess.run(command, check=True, env={**os.environ, "CGO_ENABLED": "0"})
    result = clocked([str(tmp_path / "ticks")])
    assert result.lines == ["2026-01-01T00:00:00Z", "true true true"]
    assert 129600 <= result.passed < 129601
    assert result.jumps < 2200  # one for each minute: its monitor thread makes none of its own


@pytest.mark.conformance
@pytest.mark.skipif(not shutil.which("javac"), reason="no JDK here")
def test_a_java_virtual_machine(tmp_path):
    (tmp_path / "Waits.java").write_text(JAVA)
    subprocess.run(["javac", "-d", str(tmp_path), str(tmp_path / "Waits.java")], check=True)
    result = clocked(["java", "-XX:-UsePerfData", "-cp", str(tmp_path), "Waits"])
    assert result.lines == ["60000", "90000"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]
