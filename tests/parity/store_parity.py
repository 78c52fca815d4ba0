"""Tests this project's client of the store with PyTorch's TCPStore server, and
PyTorch's client with this project's server, with all their commands.

    python3 tests/parity/store_parity.py BUILD
"""

import datetime
import os
import re
import shutil
import socket
import subprocess
import sys
import threading

try:
    from torch.distributed import PrefixStore, TCPStore
except ImportError:
    print("1..0 # SKIP no torch")
    sys.exit(0)

program = sys.argv[1] + "/tests/parity/store_client"
count = failures = 0


def is_same(got, want, what):
    global count, failures
    count += 1
    if got == want:
        print(f"ok {count} - {what}")
    else:
        failures += 1
        print(f"not ok {count} - {what}\n# got {got!r}, want {want!r}")


class Client:
    def __init__(self, port, world, rank):
        self.process = subprocess.Popen(
            [program, "127.0.0.1", str(port), str(world), str(rank)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, line):
        print(line, file=self.process.stdin, flush=True)

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def __call__(self, line):
        self.send(line)
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


def our_clients(server, kind):
    a, b = Client(server.port, 2, 0), Client(server.port, 2, 1)
    prefix = "gpt/parity/"
    # torch's own client puts "/" before every key, ours does not
    is_same(a("check x"), "0", f"{kind}: no such key")
    is_same(a("set x hello world"), "ok", "set")
    is_same(b("get x"), "hello world", "get")
    is_same(b("check x"), "1", "check")
    is_same(a("add n 40"), "40", "add")
    is_same(b("add n 2"), "42", "add by another")
    a.send("barrier start")
    is_same(b("barrier start"), "ok", "barrier")
    is_same(a.answer(), "ok", "barrier of the other")
    a.send("get later")
    b("set later now")
    is_same(a.answer(), "now", "get waits for set")
    is_same(b("failed -"), "-1 nobody", "no failure")
    is_same(a("fail 0 no memory"), "ok", "a failure")
    is_same(b("fail 1 rank 0 is gone"), "ok", "another")
    is_same(b("failed -"), "0 no memory", "the first one is seen")
    is_same(server.num_keys() >= 5, True, "number of keys of " + prefix)
    a.close()
    b.close()


def torch_clients(port):
    timeout = datetime.timedelta(seconds=60)
    a = TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    b = TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    a.set("k", b"\x00bytes\xff")
    is_same(b.get("k"), b"\x00bytes\xff", "torch: set, get")
    is_same(b.check(["k"]), True, "check")
    is_same(b.check(["k", "none"]), False, "check of two")
    is_same(a.add("n", 3), 3, "add")
    is_same(b.add("n", -5), -2, "add")
    is_same(b.get("n"), b"-2", "a counter is text")
    is_same(a.compare_set("c", "no", "v"), b"no", "compare_set, missing")
    is_same(a.compare_set("c", "", "v"), b"v", "compare_set, new")
    is_same(b.compare_set("c", "w", "x"), b"v", "compare_set, other")
    is_same(b.compare_set("c", "v", "x"), b"x", "compare_set, same")
    a.append("c", "yz")
    is_same(b.get("c"), b"xyz", "append")
    a.multi_set(["m1", "m2"], [b"one", b""])
    is_same(b.multi_get(["m2", "m1", "k"]), [b"", b"one", b"\x00bytes\xff"],
            "multi_set, multi_get")
    keys = a.num_keys()
    is_same(b.delete_key("m1"), True, "delete_key")
    is_same(b.delete_key("m1"), False, "delete_key again")
    is_same(a.num_keys(), keys - 1, "num_keys")

    timer = threading.Timer(0.2, lambda: b.set("late", "here"))
    timer.start()
    a.wait(["k", "late"])
    is_same(a.get("late"), b"here", "wait")
    timer.join()
    try:
        a.wait(["never"], datetime.timedelta(milliseconds=200))
        is_same("returned", "an exception", "wait with a timeout")
    except Exception as e:
        is_same("wait timeout" in str(e).lower(), True,
                "wait with a timeout: " + type(e).__name__)
    is_same(a.get("k"), b"\x00bytes\xff", "and the connection is good")
    big = bytes(range(256)) * 16384
    a.set("big", big)
    is_same(b.get("big") == big, True, "4 MiB")
    p = PrefixStore("p", PrefixStore("q", b))
    p.set("k", "nested")
    is_same(p.get("k"), b"nested", "PrefixStore")


TORCH_PROGRAM = """
import torch.distributed as d, torch
d.init_process_group("gloo")
x = torch.ones(1) * (d.get_rank() + 1)
d.all_reduce(x)
print("sum", int(x.item()))
d.destroy_process_group()
"""


def ranks_meet(command, name, env=None):
    done = subprocess.run(command + [program, "meet"], capture_output=True,
                          text=True, timeout=60, env=env)
    lines = sorted(re.findall(r"(\w+ rank \d of \d, sum \d+)", done.stdout))
    is_same(lines, [f"{name} rank {r} of 2, sum 3" for r in range(2)],
            "ranks of " + " ".join(map(os.path.basename, command[:2])))


def slurm_like(port):
    """Two processes with the variables that srun sets."""
    children = []
    for rank in range(2):
        env = dict(os.environ, SLURM_PROCID=str(rank), SLURM_NTASKS="2",
                   SLURM_LOCALID="0", SLURM_NODEID=str(rank),
                   SLURM_JOB_ID="4711", SLURM_JOB_NODELIST="localhost,other",
                   MASTER_PORT=str(port))
        children.append(subprocess.Popen([program, "meet"], env=env, text=True,
                                         stdout=subprocess.PIPE))
    lines = [c.communicate(timeout=120)[0].strip() for c in children]
    is_same(lines, [f"slurm rank {r} of 2, sum 3" for r in range(2)],
            "ranks of a Slurm-like environment")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launchers():
    torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
    if os.path.exists(torchrun):
        for mode in (["--standalone"], ["--master-port", str(free_port())]):
            ranks_meet([torchrun, *mode, "--no-python", "--nproc-per-node",
                        "2"], "torchrun")
    launch = [sys.argv[1] + "/gpt-launch", "--standalone", "--nproc-per-node",
              "2"]
    ranks_meet(launch, "torchrun")
    slurm_like(free_port())
    if shutil.which("mpirun"):
        ranks_meet(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n",
                    "2"], "openmpi", dict(os.environ,
                                          MASTER_PORT=str(free_port())))
    done = subprocess.run(launch + [sys.executable, "-c", TORCH_PROGRAM],
                          capture_output=True, text=True, timeout=60)
    is_same(sorted(done.stdout.split("\n")),
            ["", "[rank 0] sum 3", "[rank 1] sum 3"],
            "a program of torch under gpt-launch")


def main():
    for libuv in (True, False):
        server = TCPStore("127.0.0.1", 0, is_master=True,
                          wait_for_workers=False, use_libuv=libuv)
        our_clients(server, "libuv" if libuv else "threads")

    serve = subprocess.Popen([program, "serve"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    port = int(serve.stdout.readline())
    torch_clients(port)
    # a world that waits for its workers, as init_process_group does
    timeout = datetime.timedelta(seconds=60)
    workers = [threading.Thread(target=TCPStore, args=(
        "127.0.0.1", port, 3, False, timeout)) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(15)
    is_same(any(w.is_alive() for w in workers), False, "three workers meet")
    serve.stdin.close()
    is_same(serve.wait(60), 0, "our server ends")
    launchers()
    print(f"1..{count}")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
