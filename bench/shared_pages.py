#!/usr/bin/env python3
"""What one more rank costs in memory beyond its weights, gradients and optimiser state: ranks on one host share pages.

Starts `funicular pretrain` on several ranks (ddp) with the smallest of batches, so that activations are small, waits until
they train, and reads /proc/PID/smaps: for each rank what it alone holds (private pages, but not the weights, gradients and
state, whose sizes follow from the model), and how much of the token store, the program and its libraries it shares.

Python's standard library alone. Example: bench/shared_pages.py --model MODEL --data STORE
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MB = 1e6


def mappings(pid: int) -> list[dict]:
    found, current = [], None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)", line)
        if head:
            current = {"name": head[1]}
            found.append(current)
        elif current is not None and (value := re.match(r"(\w+):\s+(\d+) kB", line)):
            current[value[1]] = int(value[2]) * 1024
    return found


def ranks_of(launcher: int) -> list[int]:
    listing = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(launcher)], capture_output=True, text=True, check=True)
    return [int(line.split(None, 1)[0]) for line in listing.stdout.splitlines() if "pretrain" in line and " launch " not in line]


def parameters(folder: Path) -> int:
    raw = (folder / "model.safetensors").read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    header.pop("__metadata__", None)
    return sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values()) // 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="a token store of the model's tokeniser")
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        launcher = subprocess.Popen(
            [args.program, "launch", "-n", str(args.ranks), "--", args.program, "pretrain", "--model", args.model, "--train",
             args.data, "--output", run, "--strategy", "ddp", "--batch-size", str(args.ranks), "--max-length", "8",
             "--max-steps", "100000", "--save-steps", "0", "--logging-steps", "1", "--precision", "fp32"], stdout=subprocess.DEVNULL)
        try:
            metrics = run / "metrics.jsonl"
            while not (metrics.exists() and metrics.read_text().count("\n") >= 10):
                if launcher.poll() is not None:
                    sys.exit(f"the ranks ended with exit code {launcher.returncode}")
                time.sleep(0.2)
            ranks = ranks_of(launcher.pid)
            seen = [mappings(pid) for pid in ranks]
        finally:
            launcher.terminate()
            launcher.wait()
        count = parameters(run / "model") if (run / "model" / "model.safetensors").exists() else parameters(args.model)
    trained = count * 4 * 4  # fp32: weight, gradient, two moments
    print(f"{args.ranks} ranks, {count / 1e6:.1f} M parameters: {trained / MB:.0f} MB of weights, gradients and state in each")
    for rank, maps in enumerate(seen):
        private = sum(m.get("Private_Clean", 0) + m.get("Private_Dirty", 0) for m in maps)
        shared = sum(m.get("Shared_Clean", 0) + m.get("Shared_Dirty", 0) for m in maps)
        print(f"rank {rank}: {private / MB:.0f} MB of its own, {(private - trained) / MB:.0f} MB beyond those; {shared / MB:.0f} MB shared")
    largest = sorted(seen[-1], key=lambda m: -m.get("Private_Dirty", 0))[:5]
    print("largest of the last rank's own: " +
          ", ".join(f"{m['name'] or 'anonymous'} {m.get('Private_Dirty', 0) / MB:.0f} MB" for m in largest))
    for name in (str(args.data.resolve()), "libtorch_cpu.so", "libfunicular.so"):
        own = [m for maps in seen for m in maps if name in m["name"]]
        resident, part = sum(m["Rss"] for m in own), sum(m["Pss"] for m in own)
        print(f"{Path(name).name}: {resident / MB:.1f} MB resident in all ranks together, {part / MB:.1f} MB of memory")


if __name__ == "__main__":
    main()
