"""How long `dralab driver check` takes.

    python -m benchmarks.driver_check            # the built-in driver gpu
    python -m benchmarks.driver_check -- ./driver --node-name={node} ...

For the CPU time of all its processes, run it in a cgroup and read cpuacct.usage (cpu.stat in
version 2): a process forks the drivers, so that the parent's own count leaves them out.
"""

import os
import subprocess
import sys
import time


def main():
    command = [sys.executable, "-m", "dralab", "driver", "check", *(sys.argv[1:] or ["gpu"])]
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - begin
    print(*done.stdout.splitlines()[-1:])
    print(f"{seconds:.1f} s in all, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
