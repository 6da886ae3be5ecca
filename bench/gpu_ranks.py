#!/usr/bin/env python3
"""Several ranks on one GPU: the same weights as one process, and a killed rank.

usage: gpu_ranks.py --results FOLDER [--program FILE] [--device cuda:0] [--steps 8] [--limit 60] [--strategies] [--only NAME,…]

A small BERT learns made-up text by SGD, whose steps do not magnify rounding: in one process, and on ranks that exchange gradients by each transport. The largest
difference of a weight is printed beside the largest change of a weight by the training, and with --deterministic whether the bytes
are equal. NCCL refuses two ranks on one card unless they seem to be two hosts: each rank gets an NCCL_HOSTID of its own, and
they talk through the loopback interface. Each run is printed and written when it ends. Then rank 1 is killed (kill -9) while two ranks train by NCCL: seconds until it is named,
and until a step is done again. --only also takes "stopped" (kill -STOP), "killed staged" and "stopped staged". A run that lasts longer than --limit seconds is ended and counts as failed. The exit code is 1 if any
run failed or differs by more than a thousandth of the change (in bf16: a tenth; with --deterministic: by any bit), or a rank that was
killed was not named, or no step was done afterwards.

With --device cpu and FUNICULAR_NCCL set to the tests' stand-in, everything but the card is tested.
"""
import argparse
import array
import contextlib
import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

from kill_ranks import last_step, make_inputs, ranks_of, read
from peer_sides import ROOT, write_json

# name: ranks, transport, further options of `pretrain`
RUNS = {
    "single": (1, "", []),
    "nccl 2": (2, "nccl", []),
    "staged 2": (2, "staged", []),
    "nccl 4": (4, "nccl", []),
    "single bf16": (1, "", ["--precision", "bf16"]),
    "nccl 2 bf16": (2, "nccl", ["--precision", "bf16"]),
    "single deterministic": (1, "", ["--deterministic"]),
    "staged 2 deterministic": (2, "staged", ["--deterministic"]),
}
# The other strategies, with --strategies. `funicular prove` compares them through pinned memory.
STRATEGIES = {
    "single": RUNS["single"],
    **{f"nccl {strategy} {ranks}": (ranks, "nccl", ["--strategy", strategy, *options])
       for strategy, ranks, options in (("zero2", 2, []), ("zero3", 4, []), ("pipeline", 4, ["--schedule", "zb-h1"]), ("tensor", 2, []),
                                        ("zero1", 2, []), ("ps-sync", 3, []))},
}
ON_CPU = "processor"
# Ends of rank 1 while two ranks train: the transport, and the signal.
FAULTS = {"killed": ("nccl", signal.SIGKILL), "stopped": ("nccl", signal.SIGSTOP), "killed staged": ("staged", signal.SIGKILL),
          "stopped staged": ("staged", signal.SIGSTOP)}


def weights_of(run: Path) -> dict[str, array.array]:
    """The float32 tensors of the trained model."""
    data = (run / "model/model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, tensor in header.items():
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        found[name] = array.array("f", data[begin:end])
    return found


def largest_difference(a: dict[str, array.array], b: dict[str, array.array]) -> float:
    """NaN if a number is none."""
    differences = [abs(x - y) for name in a for x, y in zip(a[name], b[name], strict=True)]
    return math.nan if any(map(math.isnan, differences)) else max(differences)


class Study:
    def __init__(self, args):
        self.args, self.folder = args, args.results / "runs"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model, self.store = make_inputs(args.program, self.folder)

    def command(self, output: Path, device: str, ranks: int, steps: int, options: list[str]) -> list[str]:
        train = [self.args.program, "pretrain", "--model", self.model, "--train", self.store, "--output", output, "--device", device,
                 "--max-length", "48", "--max-steps", steps, "--batch-size", "16", "--micro-batch-size", "4", "--logging-steps", "1",
                 "--optim", "sgd", "--learning-rate", "0.1", "--weight-decay", "0",
                 *(options if "--precision" in options else ["--precision", "fp32", *options])]
        if ranks == 1:
            return [*map(str, train)]
        hosts = ["sh", "-c", 'export NCCL_HOSTID=r$RANK; exec "$@"', "sh"]
        return [*map(str, [self.args.program, "launch", "-n", ranks, "--max-restarts", 1, "--grace", 5, "--", *hosts, *train])]

    def start(self, name: str, device: str, ranks: int, transport: str, steps: int, options: list[str]):
        output, log = self.folder / name.replace(" ", "-"), self.folder / f"{name.replace(' ', '-')}.log"
        variables = dict(os.environ, NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo", NCCL_DEBUG="WARN")
        if transport:
            variables["FUNICULAR_TRANSPORT"] = transport
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(self.command(output, device, ranks, steps, options), stdout=file, stderr=file, env=variables,
                                       start_new_session=True)
        end_with_ranks(process)
        return process, output, log

    def finish(self, process, log: Path, limit: float) -> str:
        """Empty, or why the run counts as failed."""
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"ended after {limit:.0f} s:\n{read(log)[-1500:]}"
        return f"exit code {code}:\n{read(log)[-1500:]}" if code else ""

    def train(self, name: str, device: str, ranks: int, transport: str, options: list[str]) -> dict:
        begin = time.monotonic()
        process, output, log = self.start(name, device, ranks, transport, self.args.steps, options)
        failed = self.finish(process, log, self.args.limit)
        return {"seconds": round(time.monotonic() - begin, 1), "failed": failed, "output": output}

    def strike(self, name: str) -> dict:
        """Seconds from the fault of rank 1 until it is named, and until a step is done again."""
        transport, number = FAULTS[name]
        process, output, log = self.start(f"fault {name}", self.args.device, 2, transport, 300, ["--save-steps", "5"])
        deadline = time.monotonic() + self.args.limit

        def wait_for(condition) -> bool:
            while not condition():
                if process.poll() is not None or time.monotonic() > deadline:
                    return False
                time.sleep(0.01)
            return True

        found: dict = {"failed": "step 12 was not reached, or there are not two ranks"}
        ranks = ranks_of(process.pid) if wait_for(lambda: last_step(output) >= 12) else []
        if len(ranks) == 2:
            os.kill(ranks[1], number)
            begin, size = time.monotonic(), len(read(log))
            found["failed"] = f"the rank that was {name} was not named"
            if wait_for(lambda: "rank 1" in read(log)[size:]):
                found = {"named_seconds": round(time.monotonic() - begin, 2), "failed": "no step was done again"}
                records = len(read(output / "metrics.jsonl"))
                if wait_for(lambda: "resum" in read(log)[size:] and len(read(output / "metrics.jsonl")) != records):
                    found |= {"training_again_seconds": round(time.monotonic() - begin, 2), "failed": ""}
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return found if not found["failed"] else found | {"failed": f"{found['failed']}:\n{read(log)[-1500:]}"}

    def compare(self):
        """Yields each run with its difference from the run that it should equal, which comes before it."""
        start_weights = self.first_weights()
        trained: dict[str, dict] = {}
        rows = STRATEGIES if self.args.strategies else {**RUNS, ON_CPU: (1, "", [])}
        for name, (ranks, transport, options) in rows.items():
            if self.args.only and name not in {*self.args.only, *map(base_of, self.args.only)}:
                continue
            run = self.train(name, "cpu" if name == ON_CPU else self.args.device, ranks, transport, options)
            row = {"ranks": ranks, "transport": transport, "seconds": run["seconds"], "failed": run["failed"]}
            if not run["failed"]:
                trained[name] = weights_of(run["output"])
                row["change"] = largest_difference(start_weights, trained[name])
                if name != base_of(name) and base_of(name) in trained:
                    row["difference"] = largest_difference(trained[name], trained[base_of(name)])
                    row["equal_bytes"] = trained[name] == trained[base_of(name)]
            yield name, row

    def first_weights(self) -> dict[str, array.array]:
        run = self.folder / "first"
        command = self.command(run, "cpu", 1, 1, ["--max-grad-norm", "1e-30"])
        subprocess.run(command, check=True, capture_output=True)
        return weights_of(run)


def base_of(name: str) -> str:
    """The run that this one should equal."""
    return "single" + (" bf16" if "bf16" in name else " deterministic" if "deterministic" in name else "")


def describe(name: str, row: dict) -> str:
    if row["failed"]:
        return f"{name:<24} FAILED {row['failed']}"
    text = f"{name:<24} {row['seconds']:>6.1f} s  change {row['change']:.2e}"
    if "difference" in row:
        text += f"  difference {row['difference']:.2e}{'  equal bytes' if row['equal_bytes'] else ''}"
    return text


def sound(name: str, row: dict) -> bool:
    if row["failed"]:
        return False
    if "deterministic" in name:
        return row.get("equal_bytes", True)
    return row.get("difference", 0) <= (0.1 if "bf16" in name else 1e-3) * row["change"]


def end_with_ranks(process: subprocess.Popen) -> None:
    """Ends the process and its ranks, which have a session of their own, if this script is to end."""
    def end(number, frame):
        with contextlib.suppress(ProcessLookupError):  # it may have ended, and the next has not begun
            os.killpg(process.pid, signal.SIGKILL)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--strategies", action="store_true", help="the other strategies on several ranks, instead of ddp and the kill")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"some of {', '.join([*RUNS, *FAULTS])}")
    args = parser.parse_args()
    if unknown := set(args.only or []) - {*RUNS, *STRATEGIES, *FAULTS, ON_CPU}:
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; expected some of {', '.join([*RUNS, *FAULTS])}, {ON_CPU}")
    args.results, args.program = args.results.absolute(), args.program.absolute()
    study, report, good = Study(args), {}, True
    for name, row in study.compare():
        good = good and sound(name, row)
        report[name] = row
        write_json(args.results / "gpu_ranks.json", report)
        print(describe(name, row), flush=True)
    for name in FAULTS:
        if name in (args.only or ([] if args.strategies else ["killed"])):
            report[name] = study.strike(name)
            print(name, report[name], flush=True)
            good = good and not report[name]["failed"]
            write_json(args.results / "gpu_ranks.json", report)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
