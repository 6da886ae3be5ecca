"""Two hosts: network namespaces joined by a veth pair, with process numbers of their own. Needs root and iproute2."""

import ipaddress
import os
import shlex
import sys
import time

from harness import PROGRAM, ProgramTest, environment, read_safetensors, shutil, subprocess, unittest


def ip(*words, check=True):
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


def namespaces_work():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"funicular-{os.getpid()}"
    worked = ip("netns", "add", name, check=False).returncode == 0
    ip("netns", "del", name, check=False)
    return worked


def listening_addresses(host):
    """At which anything listens in a network namespace."""
    found = set()
    for table in ("tcp", "tcp6"):
        text = subprocess.run(["ip", "netns", "exec", host, "cat", f"/proc/net/{table}"], check=True, capture_output=True,
                              text=True).stdout
        for words in map(str.split, text.splitlines()[1:]):
            if words[3] == "0A":
                address = words[1].split(":")[0]
                found.add(str(ipaddress.ip_address(int(address, 16).to_bytes(4, sys.byteorder))) if len(address) == 8 else address)
    return found


@unittest.skipUnless(namespaces_work(), "network namespaces need root and iproute2")
class TwoHosts(ProgramTest):
    def setUp(self):
        super().setUp()
        self.hosts = [f"funicular-{os.getpid()}-{side}" for side in "ab"]
        self.links = [f"fn{os.getpid()}{side}"[:15] for side in "ab"]
        self.addCleanup(lambda: [ip("netns", "del", host, check=False) for host in self.hosts])
        for host in self.hosts:
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
        ip("link", "add", self.links[0], "netns", self.hosts[0], "type", "veth", "peer", "name", self.links[1],
           "netns", self.hosts[1])
        for number, (host, link) in enumerate(zip(self.hosts, self.links)):
            ip("-n", host, "address", "add", f"10.77.0.{number + 1}/24", "dev", link)
            ip("-n", host, "link", "set", link, "up")
        self.shell = self.folder / "remote"
        self.shell.write_text('#!/bin/sh\nexec ip netns exec "$1" unshare --pid --fork --kill-child sh -c "$2"\n')
        self.shell.chmod(0o755)
        self.data = self.store(self.model())

    def words(self, output, **options):
        values = {"max_length": 32, "max_steps": 12, "batch_size": 8, "save_steps": 4, "precision": "fp64", **options}
        words = ["pretrain", "--model", self.folder / "model", "--train", self.data, "--output", self.folder / output]
        for name, value in values.items():
            words += ["--" + name.replace("_", "-"), value]
        return list(map(str, words))

    def launch(self, ranks, words):
        hosts = ",".join(f"{host}:{count}" for host, count in zip(self.hosts, ranks))
        return subprocess.Popen([PROGRAM, "launch", "-H", hosts, "--remote-shell", str(self.shell), "--grace", "40",
                                 "--rendezvous", "10.77.0.1:23456", "--", PROGRAM, *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=environment(), text=True)

    def test_ranks_of_two_hosts_train_as_one(self):
        self.succeeds(*self.words("one"))
        for strategy, ranks in (("ddp", (2, 1)), ("zero3", (1, 1))):
            launched = self.launch(ranks, self.words(strategy, strategy=strategy))
            _, err = launched.communicate(timeout=300)
            self.assertEqual(launched.returncode, 0, err)
            self.assertIn("connections only", err, "the two do not share memory")
            self.assertIn(f"{sum(ranks)} ranks on 2 hosts: {strategy}, connections, cpu\n", err)
            self.assertIn("what the ranks send is not encrypted", err)
            one, two = (read_safetensors(self.folder / run / "checkpoints/step-000012/model.safetensors")
                        for run in ("one", strategy))
            for name, (_, data) in one.items():
                a, b = memoryview(data).cast("d"), memoryview(two[name][1]).cast("d")
                self.assertLess(max(map(lambda x, y: abs(x - y), a, b)), 1e-9, f"{strategy} {name}")

    def start_cyclic(self, words, world=4):
        """Rank r on host r % 2, as mpirun --map-by node and srun --distribution=cyclic deal them."""
        shared = {**environment(), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world // 2), "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "23456"}
        started = []
        for side, host in enumerate(self.hosts):
            script = " & ".join(f"RANK={rank} LOCAL_RANK={rank // 2} {shlex.join([PROGRAM, *words])} 2>{self.folder}/err-{rank}"
                                for rank in range(side, world, 2))
            own = ["unshare", "--pid", "--fork", "--kill-child"] if side else []
            started.append(subprocess.Popen(["ip", "netns", "exec", host, *own, "bash", "-c", f"{script}; code=$?; wait $!; exit $((code + $?))"],
                                            stdout=subprocess.PIPE, env=shared, text=True))
            self.addCleanup(started[-1].kill)
        for process in started:
            process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, [(self.folder / f"err-{rank}").read_text()[-800:] for rank in range(world)])
        return (self.folder / "err-0").read_text()

    def test_the_ranks_of_a_tensor_group_are_on_one_host_however_they_are_dealt(self):
        self.succeeds(*self.words("one"))
        err = self.start_cyclic(self.words("sliced", tensor_parallel=2))
        self.assertIn("ranks 0, 2, 1, 3 take the places 0 to 3, so that tensor groups of 2 are on one host each", err)
        one, two = (read_safetensors(self.folder / run / "checkpoints/step-000012/model.safetensors") for run in ("one", "sliced"))
        for name, (_, data) in one.items():
            a, b = memoryview(data).cast("d"), memoryview(two[name][1]).cast("d")
            self.assertLess(max(map(lambda x, y: abs(x - y), a, b)), 1e-9, name)

    def test_uneven_slices_of_several_replicas_are_refused(self):
        launched = self.launch((2, 4), self.words("uneven", tensor_parallel=2))
        _, err = launched.communicate(timeout=300)
        self.assertEqual(launched.returncode, 2, err)
        self.assertIn("3 replicas on several hosts would add their gradients in different orders", err)

    def test_a_tensor_group_that_no_order_puts_on_one_host_is_told(self):
        launched = self.launch((1, 3), self.words("apart", tensor_parallel=2))
        _, err = launched.communicate(timeout=300)
        self.assertEqual(launched.returncode, 0, err)
        self.assertIn("expected a multiple of 2 ranks per host, found hosts 0, 1, 1, 1 by rank", err)

    def test_the_first_host_is_known_by_its_address_on_the_way_to_the_second(self):
        shell = self.folder / "by-address"
        shell.write_text(f'#!/bin/sh\nexec "{self.shell}" {self.hosts[1]} "$2"\n')
        shell.chmod(0o755)
        words = self.words("towards")
        launched = subprocess.run(["ip", "netns", "exec", self.hosts[0], PROGRAM, "launch", "-H", "localhost:1,10.77.0.2:1",
                                   "--remote-shell", str(shell), "--", PROGRAM, *words], env=environment(),
                                  capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(launched.returncode, 0, launched.stderr)
        self.assertIn("10.77.0.1", launched.stderr)

    def test_both_sides_say_why_when_an_interface_goes_down(self):
        launched = self.launch((1, 1), self.words("down", max_steps=100000, logging_steps=1))
        metrics = self.folder / "down" / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_text().count("\n") > 6):
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(launched.poll())
            time.sleep(0.1)
        for number, host in enumerate(self.hosts):  # each has loopback and one more interface
            self.assertEqual(listening_addresses(host), {f"10.77.0.{number + 1}"})
        ip("-n", self.hosts[1], "link", "set", self.links[1], "down")
        began = time.monotonic()
        _, err = launched.communicate(timeout=200)
        self.assertLess(time.monotonic() - began, 90, err)
        self.assertNotEqual(launched.returncode, 0)
        for rank in (0, 1):
            said = [line for line in err.splitlines() if line.startswith(f"[{rank}] ") and "error" in line]
            self.assertTrue(any(f"rank {1 - rank}" in line for line in said), f"rank {rank} does not say why:\n{err}")
        self.assertTrue(list((self.folder / "down" / "checkpoints").glob("step-*")), "what was saved stays")


if __name__ == "__main__":
    unittest.main()
