#!/usr/bin/env python3
"""The first 100 steps of fine-tuning MRPC, with Hugging Face's Trainer and with funicular: the same loss each step?

Both start from the same directory (head included), see the same rows in the file's order, without dropout, in fp32:
batches of 32, learning rate 5e-5, 60 warm-up steps of a schedule that ends at step 100, AdamW, clipping at norm 1.
Prints the largest difference; exit code 0 if it is at most --tolerance.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / "bench/peers/hf_finetune.py"


def run(command: list) -> None:
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with exit code {done.returncode}:\n{done.stderr[-3000:]}")


def peer_losses(args, initial: Path) -> list[float]:
    log = args.output / "hf-losses.txt"
    if not log.exists():
        recipe = [environment.python_with("torch", "transformers"), PEER, "--task", "mrpc", "--data", args.data, "--dropout", 0]
        run([*recipe, "--save-initial", initial, "--max-steps", 0])
        run([*recipe, "--init", initial, "--no-shuffle", "--max-steps", args.steps, "--log-losses", log,
             "--output", args.output / "hf"])
    return [float(line) for line in log.read_text().splitlines()]


def funicular_losses(args, initial: Path) -> list[float]:
    output = args.output / "funicular"
    run([args.program, "finetune", "--model", initial, "--task", "mrpc", "--train", args.data / "train.tsv",
         "--output", output, "--max-steps", args.steps, "--batch-size", 32, "--learning-rate", 5e-5,
         "--warmup-steps", 60, "--max-length", 128, "--max-grad-norm", 1, "--weight-decay", 0, "--no-shuffle",
         "--logging-steps", 1, "--save-steps", 0, "--resume", "never", "--precision", "fp32"])
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with MRPC's train.tsv and dev.tsv")
    parser.add_argument("--output", type=Path, default=ROOT / "build/bench/mrpc_100_steps")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    initial = args.output / "initial"
    peer, ours = peer_losses(args, initial), funicular_losses(args, initial)
    if not len(peer) == len(ours) == args.steps:
        sys.exit(f"expected {args.steps} losses of each, found {len(peer)} of HF and {len(ours)} of funicular")
    differences = [abs(a - b) for a, b in zip(peer, ours)]
    worst = max(range(args.steps), key=differences.__getitem__)
    print(f"{args.steps} steps: loss {peer[0]:.6f} to {peer[-1]:.6f}; largest difference {differences[worst]:.2e} at step "
          f"{worst + 1} (HF {peer[worst]:.8f}, funicular {ours[worst]:.8f}); mean {sum(differences) / args.steps:.2e}")
    return 0 if differences[worst] <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
