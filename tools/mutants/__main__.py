"""usage: ./run mutants [--sample N [--seed TEXT]] [--only PATTERN] [--list] …

Plants small bugs, one at a time, and sees whether the tests notice; docs/project/testing.md tells how it works and what came out.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import report
from build import Build
from catalogue import Invalid, choose, load, problems
from judge import Judge, Verdict
from kept import Kept

ROOT = Path(__file__).resolve().parents[2]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run mutants", description="Plants small bugs, one at a time, and sees whether the tests "
                                     "notice. Without options: all, and the table in docs/project/testing.md is written anew.")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="only N of them, chosen by the seed")
    parser.add_argument("--seed", default="", help="what chooses the sample (default: the hash of the commit)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only those whose LAYER/NAME or file matches")
    parser.add_argument("--list", action="store_true", help="print the names and numbers, and run nothing")
    parser.add_argument("--anew", action="store_true", help="judge again what an earlier run has judged (build/mutants.jsonl)")
    parser.add_argument("--widen", action="store_true", help="try survivors on the whole test program of their layer too")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="an ordinary build (default: build/release)")
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="compilers and tests at once (default: %(default)s)")
    return parser.parse_args()


def default_jobs() -> int:
    """As tools/common.sh: one compiler of LibTorch's headers needs up to 2 GB."""
    available = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"))
    compilers = int(available[1]) // 2_000_000 if available else 1
    return int(os.environ.get("FUNICULAR_JOBS") or max(1, min(len(os.sched_getaffinity(0)), compilers)))


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()[:12] or "0"


def say(verdict: Verdict):
    state = verdict.state.upper() if verdict.state in ("survived", "broken") and not verdict.mutant.explained else verdict.state
    print(f"{state:8}  {verdict.mutant.layer}/{verdict.mutant.name}" + (f"  ({verdict.by})" if verdict.by else ""), flush=True)


def conclude(verdicts: list[Verdict], out: Path) -> int:
    status = 0
    for verdict in verdicts:
        mutant = verdict.mutant
        if verdict.state == "survived" and not mutant.explained:
            print(f"{mutant.layer}/{mutant.name} survives: write a test that notices it. By hand: FUNICULAR_MUTANT={mutant.number} "
                  f"LD_LIBRARY_PATH={out / 'all/lib'}, then {'; '.join(mutant.tests)}")
            status = 1
        if verdict.state == "broken":
            status = 1
        if verdict.state == "killed" and mutant.survives:
            print(f"{mutant.layer}/{mutant.name} is killed now: remove its 'survives' in tests/mutants/{mutant.layer}.toml")
            status = 1
    print(report.summary(verdicts))
    return status


def main() -> int:
    options = arguments()
    everything = load(ROOT)
    if found := problems(ROOT, everything):
        raise Invalid("\n".join(found))
    seed = options.seed or commit()
    mutants = choose(everything, options.only, options.sample, seed)
    if options.list:
        print("\n".join(f"{mutant.number:10}  {mutant.layer}/{mutant.name}  {mutant.file}" for mutant in mutants))
        return 0
    if not mutants:
        raise Invalid(f"no mutant matches '{options.only}'")
    if options.sample:
        print(f"{len(mutants)} of {len(everything)} mutants, chosen by the seed {seed} (again: ./run mutants --sample "
              f"{options.sample} --seed {seed})", flush=True)
    start = time.monotonic()
    out = ROOT / "build/mutants"
    build = Build(ROOT, options.build.resolve(), options.jobs)
    kept = Kept(ROOT, ROOT / "build/mutants.jsonl", build.isa)
    known = {} if options.anew else {one.name: verdict for one in mutants if (verdict := kept.verdict(one))}
    if known:
        print(f"{len(known)} of {len(mutants)} were judged by an earlier run, and nothing that concerns them has changed", flush=True)
    left = [mutant for mutant in mutants if mutant.name not in known]
    if left:
        judge = Judge(build, out, left, options.widen)
        judge.prepare()
        print(f"built, and {len(judge.unmutated)} tests run without a mutant ({time.monotonic() - start:.0f} s)", flush=True)
        judge.judge_all(lambda verdict: (known.update({verdict.mutant.name: verdict}), kept.add(verdict), say(verdict)))
    verdicts = [known[mutant.name] for mutant in mutants]
    status = conclude(verdicts, out)
    print(f"took {time.monotonic() - start:.0f} s", flush=True)
    if len(mutants) == len(everything) and not any(verdict.state == "broken" for verdict in verdicts):
        report.write(ROOT / "docs/project/testing.md", report.table(verdicts, build.isa))
        print("the table in docs/project/testing.md is written anew")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Invalid as error:
        print(f"./run mutants: {error}", file=sys.stderr)
        sys.exit(2)
