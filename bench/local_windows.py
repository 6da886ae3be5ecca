#!/usr/bin/env python3
"""What layers with a local window cost at rows of 128 to 8,192 tokens, beside layers in which all tokens see each other.

usage: local_windows.py FUNICULAR [--tokens N] [--precision NAME] [--steps N] [--lengths N …]

Each step has the same number of tokens, in rows of one length: with windows its time stays the same, without it grows with
the length. Prints a line a length: seconds a step and peak memory of a ModernBERT whose layers are all local, all full, and
every third full, as published models are.
"""
import argparse
import json
import os
import subprocess
import tempfile

KINDS = {"local": lambda layer: True, "full": lambda layer: False, "published": lambda layer: layer % 3 != 0}


def write_model(folder: str, kind: str, layers: int, width: int) -> None:
    types = ["sliding_attention" if KINDS[kind](layer) else "full_attention" for layer in range(layers)]
    config = {"model_type": "modernbert", "vocab_size": 30522, "pad_token_id": 0, "hidden_size": width, "num_hidden_layers": layers,
              "num_attention_heads": width // 64, "intermediate_size": width * 3 // 2, "max_position_embeddings": 8192, "layer_types": types}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def measure(folder: str, length: int, arguments: argparse.Namespace) -> tuple[float, float]:
    """Seconds of a step, the median, and MB at most."""
    rows = max(1, arguments.tokens // length)
    done = subprocess.run([arguments.funicular, "bench", "--model", folder, "--rows", "full", "--max-length", str(length), "--batch-size", str(rows),
                           "--steps", str(arguments.steps), "--precision", arguments.precision, "--json"],
                          check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return found["step_seconds_median"], found["peak_resident_bytes"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("funicular")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 4096, 8192])
    arguments = parser.parse_args()
    print("| tokens a row | " + " | ".join(f"{kind}, s | {kind}, MB" for kind in KINDS) + " |")
    for length in arguments.lengths:
        cells = []
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as folder:
                write_model(folder, kind, arguments.layers, arguments.width)
                step, peak = measure(folder, length, arguments)
                cells += [f"{step:.3f}", f"{peak:.0f}"]
        print(f"| {length} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
