"""Programs that draw lots, twice with one seed: every byte that they print is the same."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clocked import clocked, needs_clock, python

pytestmark = needs_clock

# Every way to a random number that Python has, and what is made of process numbers.
LOTS = """
import random, secrets, tempfile, uuid
def draw(n):
    time.sleep(random.random())
    print(n, time.time(), secrets.token_hex(4))
print(os.urandom(4), uuid.uuid4(), hash('a'), set('abcdef'), tempfile.mktemp())
for name in ('/dev/urandom', '/dev/random', '/proc/sys/kernel/random/uuid'):
    print(open(name, 'rb', 0).read(16))
print(os.getpid(), os.getppid(), threading.get_native_id(), id(object()))
threads = [threading.Thread(target=draw, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.stdout.flush()
os.system('echo $$; mktemp -u; shuf -i 1-9 | tr "\\\\n" " "; head -c 8 /dev/urandom | od -t x1')
"""
GO = """
package main

import (
	crand "crypto/rand"
	"fmt"
	"math/rand"
	"os"
	"time"
)

func main() {
	for key := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6} {
		fmt.Print(key)
	}
	bytes := make([]byte, 8)
	crand.Read(bytes)
	fmt.Println(bytes, rand.Perm(8), os.Getpid())
	done := make(chan string)
	for n := range 8 {
		go func() {
			time.Sleep(time.Duration(rand.Intn(1000)) * time.Millisecond)
			done <- fmt.Sprint(n, time.Now().UnixNano())
		}()
	}
	for range 8 {
		fmt.Println(<-done)
	}
}
"""
JAVA = """
import java.util.*;
import java.util.concurrent.*;

public class Lots {
    public static void main(String[] arguments) throws Exception {
        System.out.println(UUID.randomUUID() + " " + new Random().nextLong() + " " + Math.random());
        System.out.println(new Object().hashCode() + " " + Set.of("a", "b", "c", "d", "e"));
        System.out.println(new java.security.SecureRandom().nextLong() + " " + ProcessHandle.current().pid());
        var pool = Executors.newFixedThreadPool(4);
        var done = new LinkedBlockingQueue<String>();
        for (int i = 0; i < 8; i++) {
            int n = i;
            pool.submit(() -> {
                Thread.sleep(ThreadLocalRandom.current().nextInt(1000));
                return done.add(n + " " + System.nanoTime());
            });
        }
        for (int i = 0; i < 8; i++) System.out.println(done.take());
        pool.shutdown();
    }
}
"""
NODE = """
const crypto = require('crypto')
console.log(Math.random(), crypto.randomUUID(), process.pid)
console.log(crypto.generateKeyPairSync('ed25519').publicKey.export({type: 'spki', format: 'pem'}))
for (let i = 0; i < 8; i++) setTimeout(() => console.log(i, performance.now()), Math.random() * 1000)
crypto.pbkdf2('a', crypto.randomBytes(8), 1000, 16, 'sha512', (_, key) => console.log(key.toString('hex')))
"""
RUST = """
use std::hash::{BuildHasher, Hasher, RandomState};
use std::{collections::HashMap, process, sync::mpsc, thread, time::Duration};

fn main() {
    println!("{:?} {}", (0..8).map(|n| (n, n)).collect::<HashMap<_, _>>(), process::id());
    let (sender, receiver) = mpsc::channel();
    for n in 0..8 {
        let sender = sender.clone();
        thread::spawn(move || {
            let lot = RandomState::new().build_hasher().finish() % 1000;
            thread::sleep(Duration::from_millis(lot));
            sender.send((n, lot)).unwrap();
        });
    }
    drop(sender);
    for lot in receiver {
        println!("{:?}", lot);
    }
}
"""
C = """
#include <cpuid.h>
#include <stdio.h>
#include <unistd.h>
#include <x86intrin.h>
int main() {
    unsigned a, b, c, d, processor;
    unsigned long long began = __rdtsc();
    sleep(10);
    printf("%llu", (__rdtscp(&processor) - began) / 1000000000);
    __cpuid(1, a, b, c, d);
    printf(" rdrand %d", !!(c & bit_RDRND));
    __cpuid_count(7, 0, a, b, c, d);
    printf(" rdseed %d\\n", !!(b & bit_RDSEED));
}
"""


@pytest.fixture(autouse=True, scope="module")
def namespace():
    """Skip where processes cannot have numbers of their own: every program here prints its own."""
    if notes := clocked(["true"], seed=1).notes:
        pytest.skip(notes[0])


def twice(arguments):
    """Return what a program prints with seed 1; the second time it has to be the same."""
    first, again = (clocked(arguments, seed=1) for _ in range(2))
    assert (first.code, first.notes) == (0, [])
    assert again.lines == first.lines
    assert first.lines
    assert clocked(arguments, seed=2).lines != first.lines
    return first.lines


def test_python_draws_the_same_lots_again():
    first, again = (python(LOTS, seed=1) for _ in range(2))
    assert first.code == 0
    assert again.lines == first.lines
    assert "2 0 2" in first.lines[4]
    assert len({line.split()[0] for line in first.lines[5:13]}) == 8
    assert not set(python(LOTS, seed=2).lines[:4]) & set(first.lines[:4])


def test_a_device_of_random_bytes_never_ends():
    code = (
        "with open('/dev/urandom', 'rb') as file: print(len(file.read(300_000)))\n"
        "import hashlib; print(hashlib.sha256(open('/dev/urandom', 'rb').read(100_000)).hexdigest())"
    )
    first, again = (python(code, seed=1) for _ in range(2))
    assert first.lines[0] == "300000"
    assert again.lines == first.lines


def test_a_timer_signals_the_thread_that_it_names_by_a_number_of_the_namespace():
    code = (
        "event = struct.pack('QiiI48x', 0, signal.SIGUSR1, 4, threading.get_native_id())\n"
        "on(signal.SIGUSR1, lambda *_: print('signalled', elapsed()))\n"
        "timer = ctypes.c_void_p()\n"
        "call('timer_create', 1, event, ctypes.byref(timer))\n"
        "call('timer_settime', timer, 0, spec(0, 5), None)\n"
        "time.sleep(10); print(elapsed())"
    )
    assert python(code, seed=1).lines == ["signalled 5.0", "10.0"]


def test_programs_that_are_started_one_after_another_have_other_numbers():
    # A daemon of the first one still runs when the second one starts, and is seen there.
    result = clocked(
        ["sh", "-c", "echo $$; sleep 5 & sh -c 'echo $$'; wait; cat /proc/1/comm"], seed=1
    )
    assert result.lines[0] == "2"
    assert result.lines[1] == "4"


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("compiler", "name", "source", "build", "command"),
    [
        ("go", "lots.go", GO, "go build -o lots lots.go", "./lots"),
        ("javac", "Lots.java", JAVA, "javac Lots.java", "java Lots"),
        ("node", "lots.js", NODE, "true", "node lots.js"),
        ("rustc", "lots.rs", RUST, "rustc -o lots lots.rs", "./lots"),
    ],
    ids=["go", "java", "node", "rust"],
)
def test_programs_in_other_languages_draw_the_same_lots_again(
    tmp_path, monkeypatch, compiler, name, source, build, command
):
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(source)
    subprocess.run(build.split(), check=True, env={**os.environ, "CGO_ENABLED": "0"})
    assert len(twice(command.split())) >= 8


@pytest.mark.conformance
def test_the_counter_of_the_processor_is_the_clock_and_rdrand_is_denied(tmp_path):
    if shutil.which("gcc") is None or os.uname().machine != "x86_64":
        pytest.skip("needs gcc on x86-64")
    (tmp_path / "counter.c").write_text(C)
    subprocess.run(["gcc", "-o", "counter", "counter.c"], check=True, cwd=tmp_path)
    shown = int("cpuid_fault" not in Path("/proc/cpuinfo").read_text().split())
    result = clocked([str(tmp_path / "counter")], seed=1)
    assert result.lines == [f"10 rdrand {shown} rdseed {shown}"]
