#!/usr/bin/env python3
"""Trains a BERT that is too large for one process's limit, cut into stages, as the error of the uncut run says.

Runs the model in one process and as pipelines of --stages ranks (two) and of one less without a limit, and notes the most data
(VmData) of each rank. Then the limit (ulimit -d) of every such process is halfway between the two pipelines' (of two
ranks: one process's and the pipeline's). All but the longest pipeline must end with an error; that of one process must name a
pipeline of --stages ranks; and the pipeline must end with a model.

It prints one line of JSON. The exit code is 0 if all of that was so, else 1. Python's standard library alone. Example:
bench/limited_memory.py --program build/release/funicular
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kill_ranks import make_inputs, ranks_of


def run(command: list, folder: Path, program: str, kilobytes: int = 0) -> tuple[int, str, list[int]]:
    """The exit code, what was said, and by rank the most kilobytes of data."""
    limit = f"ulimit -d {kilobytes}; " if kilobytes else ""
    at = command.index(program, 1) if "launch" in command else 0
    # Small stacks: what threads reserve and never touch counts as data.
    command = [*command[:at], "sh", "-c", f'ulimit -s 1024; {limit}exec "$@"', "sh", *command[at:]]
    most = {}
    with open(folder / "said", "w+b") as said:
        process = subprocess.Popen(list(map(str, command)), stdout=said, stderr=said,
                                   env={**os.environ, "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"})
        while process.poll() is None:
            for trainer in ranks_of(process.pid) if "launch" in command else [process.pid]:
                try:
                    status = Path(f"/proc/{trainer}/status").read_text()
                except OSError:
                    continue
                rank = rank_of(trainer)
                most[rank] = max([most.get(rank, 0), *map(int, re.findall(r"VmData:\s*(\d+)", status))])
            time.sleep(0.01)
        said.seek(0)
        return process.returncode, said.read().decode(), [most[rank] for rank in sorted(most)]


def rank_of(process: int) -> int:
    try:
        words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return 0
    return next((int(word[5:]) for word in words if word.startswith(b"RANK=")), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/funicular")
    parser.add_argument("--stages", type=int, default=2, help="at least 2")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden-size", type=int, default=512)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, store = make_inputs(a.program, folder)
        config = json.loads((model / "config.json").read_text())
        config.update(hidden_size=a.hidden_size, num_hidden_layers=a.layers, num_attention_heads=a.hidden_size // 64,
                      intermediate_size=4 * a.hidden_size)
        (model / "config.json").write_text(json.dumps(config))
        words = [a.program, "pretrain", "--model", model, "--train", store, "--output", folder / "run", "--max-length", "48",
                 "--max-steps", "2", "--batch-size", "4", "--micro-batch-size", "2", "--precision", "fp32", "--save-steps", "0",
                 "--num-workers", "0"]
        commands = {ranks: words if ranks == 1 else [a.program, "launch", "-n", ranks, "--", *words, "--pipeline-parallel", ranks]
                    for ranks in sorted({1, a.stages - 1, a.stages})}
        result, said = {"layers": a.layers, "hidden_size": a.hidden_size}, {}
        free, codes = {}, {}
        for ranks, command in commands.items():
            code, said[ranks], free[ranks] = run(command, folder, a.program)
            shutil.rmtree(folder / "run", ignore_errors=True)
            if code != 0:
                print(said[ranks], file=sys.stderr)
                return 1
        limit = (max(free[a.stages - 1]) + max(free[a.stages])) // 2
        for ranks, command in commands.items():
            shutil.rmtree(folder / "run", ignore_errors=True)
            codes[ranks], said[ranks], limited = run(command, folder, a.program, limit)
        result |= {"kilobytes_by_rank": free, "kilobytes_by_rank_within_the_limit": limited, "limit_kilobytes": limit, "exit_codes": codes,
                   "error": next((line for line in said[1].splitlines() if "[memory]" in line), "")}
        trained = (folder / "run" / "model" / "model.safetensors").exists()
    print(json.dumps(result))
    good = (all(codes[ranks] == (1 if ranks < a.stages else 0) for ranks in codes)
            and f"A pipeline of {a.stages} ranks divides them" in result["error"] and trained)
    if not good:
        print(*said.values(), sep="\n", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
