"""What the options of chain and report do."""

import re

from harness import json

from .lab import *

CHAIN, REPORT = Table(), Table()

for table in (CHAIN, REPORT):
    table.row("--help", "the options are listed")(shows_help)


def chain_file(lab):
    """Of one step, which makes a store."""
    (lab.folder / "in.txt").write_text("film book\n")
    path = lab.folder / "c.toml"
    path.write_text(f'[store]\ncommand = "tokenize"\ntokenizer = "{lab.plain_model()}"\ninput = "in.txt"\noutput = "out.tokens"\n')
    return path


@CHAIN.row("--dry-run", "tells what would be run, and does nothing")
def dry_run(lab):
    path = chain_file(lab)
    lab.assertEqual(lab.succeeds("chain", path, "--dry-run").out.split(), "run store it was never run".split())
    lab.assertFalse((lab.folder / "out.tokens").exists())
    lab.assertFalse((lab.folder / "c.state").exists())
    lab.succeeds("chain", path, "--no-dry-run")
    lab.assertTrue((lab.folder / "out.tokens").is_dir())


@CHAIN.row("--options", "tells which options of a command change its result")
def options(lab):
    told = dict(line.split(maxsplit=1) for line in lab.succeeds("chain", "--options", "finetune").out.splitlines())
    lab.assertEqual((told["--learning-rate"], told["--threads"], told["--model"], told["--output"]), ("result", "rounding", "input", "output"))
    lab.refuses(["chain", "--options", "finetun"], "finetune?")


@CHAIN.row("--config", "a file's keys are options")
def chain_config(lab):
    path = config_file(lab, 'options = "predict"\n')
    lab.assertEqual(lab.succeeds("chain", "--config", path).out, lab.succeeds("chain", "--options", "predict").out)


def finished(lab):
    """The folder of a training."""
    lab.command = "finetune"
    run = lab.train(**lab.held_out())
    lab.command = "report"
    return run.folder


@REPORT.row("--input", "the folders whose curves and numbers are shown")
def report_input(lab):
    folder = finished(lab)
    page = lab.folder / "page.html"
    lab.succeeds("report", "--input", folder, "--output", page)
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', page.read_text()).group(1))
    loss = next(chart for chart in charts if chart["title"] == "training loss")
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lab.assertEqual(loss["lines"][0]["y"], [record["loss"] for record in records if "loss" in record])
    lab.refuses(["report", "--input", lab.folder, "--output", page], "expected the folder of a run")


@REPORT.row("--output", "the page")
def report_output(lab):
    lab.succeeds("report", "--input", finished(lab), "--output", lab.folder / "other.html")
    lab.assertIn("<html", (lab.folder / "other.html").read_text())
    lab.refuses(["report", "--input", finished(lab), "--output", lab.folder / "none" / "page.html"], "there is no folder")


@REPORT.row("--title", "its heading")
def report_title(lab):
    lab.succeeds("report", "--input", finished(lab), "--output", lab.folder / "titled.html", "--title", "A < B")
    lab.assertIn("<h1>A &lt; B</h1>", (lab.folder / "titled.html").read_text())


@REPORT.row("--config", "a file's keys are options")
def report_config(lab):
    path = config_file(lab, f'input = "{finished(lab)}"\noutput = "{lab.folder}/configured.html"\n')
    lab.succeeds("report", "--config", path)
    lab.assertTrue((lab.folder / "configured.html").exists())
