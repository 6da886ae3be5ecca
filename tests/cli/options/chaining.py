"""What the options of chain and report do."""

import re
import tomllib

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


# ---- chain --template

SENTENCES = [("contra", "dull film"), ("pro", "fine film"), ("contra", "bad book"), ("pro", "good book")] * 3


def soft_files(lab):
    """Rows with shares, and rows with labels, of which no text is among the first."""
    shares = {"contra": ("0.9", "0.1"), "pro": ("0.2", "0.8")}
    rows = lab.once("soft-rows.csv", lambda path: path.write_text("review,q_contra,q_pro\n" + "".join(
        f"{text} {number},{','.join(shares[label])}\n" for number, (label, text) in enumerate(SENTENCES))) and path)
    gold = lab.once("gold.csv", lambda path: path.write_text("review,mood\n" + "".join(f"the {text} {number},{label}\n" for number, (label, text) in enumerate(SENTENCES))) and path)
    return rows, gold


def template_words(lab, output):
    rows, gold = soft_files(lab)
    return ["chain", "--template", "llm-labels", "--model", lab.plain_model(), "--train", rows, "--eval", gold, "--test", gold, "--output", output,
            "--text-column", "review", "--soft-columns", "q_*", "--label-column", "mood"]


def templated(lab):
    """What the chain has made, and its steps."""
    def make(path):
        lab.succeeds(*template_words(lab, path))
        return path
    path = lab.once("templated", make)
    return path, tomllib.loads((path / "chain.toml").read_text())


@CHAIN.row("--template", "from rows with shares to a small calibrated model, with a report and an abstention table")
def chain_template(lab):
    path, steps = templated(lab)
    lab.assertEqual(list(steps), ["teacher", "student", "calibrated", "test", "test-teacher", "page"])
    lab.assertIn("temperature", json.loads((path / "model" / "config.json").read_text())["funicular"]["calibration"])
    table = [line.split("\t") for line in (path / "tested" / "student" / "abstention.tsv").read_text().splitlines()]
    lab.assertEqual((table[0], table[1][0]), (["coverage", "accuracy", "threshold"], "1.0000"))
    coverage = json.loads((path / "tested" / "student" / "evaluation.json").read_text())["reliability"]["coverage"]
    lab.assertAlmostEqual(float(table[1][1]), coverage[-1]["accuracy"], places=4)
    lab.assertFalse((path / "abstention.tsv").exists())
    lab.assertTrue((path / "report.html").exists())
    again = lab.succeeds(*template_words(lab, path))
    lab.assertNotIn("teacher: run", again.err)
    (path / "chain.toml").write_text((path / "chain.toml").read_text() + "\n# mine\n")
    lab.refuses(template_words(lab, path), "differs from what --template would write")
    lab.refuses(["chain", "--template", "llm-labels", "--model", lab.plain_model()], "expects --train")
    lab.refuses(["chain", chain_file(lab), "--train", soft_files(lab)[0]], "--train works only with --template")
    mistakes(lab)
    of_objects(lab)


def mistakes(lab):
    """A mistake in the options leaves nothing that stops its correction, and --dry-run writes nothing."""
    output = lab.folder / "mistaken"
    words = template_words(lab, output)
    at = words.index("--soft-columns")
    lab.refuses(words[:at] + words[at + 2:], 'there is no column "p_*"; the columns are review, q_contra, q_pro. Name another one with --soft-columns')
    at = words.index("--label-column")
    lab.refuses(words[:at] + words[at + 2:], 'there is no column "label"', "--label-column")
    at = words.index("--train") + 1
    lab.refuses([*words[:at], lab.folder / "nothing.csv", *words[at + 1:]], "nothing.csv")
    lab.assertFalse(output.exists())
    told = lab.succeeds(*words, "--dry-run").out.splitlines()
    lab.assertEqual([line.split()[1] for line in told], ["teacher", "student", "calibrated", "test", "test-teacher", "page"])
    lab.assertFalse(output.exists())
    output.mkdir()
    (output / "chain.toml").write_text("# of an earlier attempt\n")
    lab.succeeds(*words, "--dry-run")
    lab.assertEqual([one.name for one in output.iterdir()], ["chain.toml"])
    lab.succeeds(*words)
    lab.assertEqual((output / "chain.toml.old").read_text(), "# of an earlier attempt\n")


def of_objects(lab):
    """JSON lines in the default form of --soft-labels, and with the key shares, make the same model."""
    _, gold = soft_files(lab)
    made = []
    for key in ("mood", "shares"):
        rows = lab.folder / f"{key}.jsonl"
        rows.write_text("".join(json.dumps({"review": f"{text} {number}", key: {"contra": 0.9, "pro": 0.1} if label == "contra" else {"contra": 0.2, "pro": 0.8}}) + "\n"
                                for number, (label, text) in enumerate(SENTENCES)))
        output = lab.folder / f"of-{key}"
        lab.succeeds("chain", "--template", "llm-labels", "--model", lab.plain_model(), "--train", rows, "--eval", gold, "--test", gold, "--output", output,
                     "--text-column", "review", "--label-column", "mood")
        lab.assertEqual(tomllib.loads((output / "chain.toml").read_text())["teacher"]["label-column"], key)
        made.append((output / "student" / "model" / "model.safetensors").read_bytes())
    lab.assertEqual(made[0], made[1])


@CHAIN.row("--model", "the teacher begins with it")
def template_model(lab):
    lab.assertEqual(templated(lab)[1]["teacher"]["model"], str(lab.plain_model()))


@CHAIN.row("--train", "teacher and student learn them")
def template_rows(lab):
    steps = templated(lab)[1]
    lab.assertEqual({steps[name]["train"] for name in ("teacher", "student")}, {str(soft_files(lab)[0])})


@CHAIN.row("--eval", "models are chosen by these rows, and the student is calibrated with them")
def template_eval(lab):
    steps = templated(lab)[1]
    lab.assertEqual({steps["teacher"]["eval"], steps["student"]["eval"], steps["calibrated"]["input"]}, {str(soft_files(lab)[1])})


@CHAIN.row("--test", "both models are measured on these rows")
def template_test(lab):
    steps = templated(lab)[1]
    lab.assertEqual({steps["test"]["input"], steps["test-teacher"]["input"]}, {str(soft_files(lab)[1])})


@CHAIN.row("--output", "all that is made lies there")
def template_output(lab):
    path, _ = templated(lab)
    lab.assertEqual({one.name for one in path.iterdir()} & {"chain.toml", "teacher", "student", "model", "tested"}, {"chain.toml", "teacher", "student", "model", "tested"})


@CHAIN.row("--text-column", "the texts stand there")
def template_text(lab):
    lab.assertEqual(templated(lab)[1]["teacher"]["text-column"], ["review"])


@CHAIN.row("--soft-columns", "the shares stand there")
def template_shares(lab):
    lab.assertEqual(templated(lab)[1]["teacher"]["soft-columns"], ["q_*"])


@CHAIN.row("--label-column", "the labels to measure by stand there")
def template_label(lab):
    steps = templated(lab)[1]
    lab.assertEqual({steps["teacher"]["eval-label-column"], steps["test"]["label-column"]}, {"mood"})


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
