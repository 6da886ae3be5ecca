"""bench/families_step.py and bench/from_scratch.py: attention's operations, equal tokens, finished runs that stay, tables."""
import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "bench")]
import families_step
import make_batches

# In place of funicular and of the peer's Python. Ours takes 2 s a step, the peer 5 s, and 3 s with its head at masked tokens.
STUB = """#!{python}
import json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
with open(here / "calls.txt", "a") as calls:
    calls.write(" ".join(words) + "\\n")
if words[0] == "tokenize":
    pathlib.Path(value("--output")).mkdir()
if words[0] == "pretrain":
    output, steps, every = pathlib.Path(value("--output")), int(value("--max-steps")), int(value("--eval-steps"))
    output.mkdir(parents=True)
    tokens = 50 if "modernbert" in value("--model") else 100
    (output / "run.json").write_text(json.dumps({{"result": {{"tokens": steps * tokens, "seconds": 1}}}}))
    lines = [json.dumps({{"step": step, "eval_loss": 5 - step / steps + int(value("--seed")) / 10}}) for step in range(every, steps + 1, every)]
    (output / "metrics.jsonl").write_text("\\n".join(lines) + "\\n")
if words[0] == "bench":
    print(json.dumps({{"tokens_per_second": 500, "tokens_per_step": 1000,
                      "floor": {{"share": 0.8, "seconds": 1.6, "flops_per_second": 1e9}}}}))
if words[0].endswith("hf_step.py"):
    print(json.dumps({{"tokens_per_second": 1000 / (3 if value("--head") == "masked" else 5), "step_seconds_best": 1}}))
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.stub = self.folder / "stub"
        self.stub.write_text(STUB.format(python=sys.executable))
        self.stub.chmod(self.stub.stat().st_mode | stat.S_IXUSR)

    def run_script(self, name, *words):
        done = subprocess.run([sys.executable, "-B", ROOT / "bench" / name, "--results", self.folder / "results", "--program", self.stub, *words],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def calls(self):
        return (self.folder / "calls.txt").read_text().splitlines()

    def test_a_table_has_both_peers_and_the_limit_with_and_without_attention(self):
        words = ["families_step.py", "--python", self.stub, "--only", "xlm-roberta", "modernbert-1024", "--steps", "1", "--repetitions", "2"]
        self.run_script(*words)
        lines = (self.folder / "results/families_step.md").read_text().splitlines()
        for line, start in zip(lines[2:], ("| xlm-roberta | 128 | 16 | 1000 | 500 | 80 |", "| modernbert | 1024 | 2 | 1000 | 500 | 80 |"), strict=True):
            self.assertTrue(line.startswith(start), line)
            self.assertIn("| 200 | 2.50 | 333 | 1.50 |", line)
        self.assertEqual(len(self.calls()), 2 * (3 + 2))
        self.run_script(*words)
        self.assertEqual(len(self.calls()), 2 * (3 + 2), "finished runs are not repeated")
        model = json.loads((self.folder / "results/xlm-roberta/model/config.json").read_text())
        self.assertEqual((model["model_type"], model["vocab_size"], model["num_hidden_layers"]), ("xlm-roberta", 250002, 12))

    def test_the_peer_that_is_tuned_takes_the_fastest_of_four_ways(self):
        self.run_script("families_step.py", "--python", self.stub, "--only", "bert", "--steps", "1", "--repetitions", "1", "--tune")
        self.assertEqual(len(self.calls()), 4 + 3)

    def test_both_models_read_as_many_tokens_and_the_table_has_their_means(self):
        (self.folder / "wikitext2").mkdir()
        article = " = Article = \n \n The river is long . It is green ! Is it deep ? A fourth sentence . \n"
        documents = 20 * article
        (self.folder / "wikitext2/valid.txt").write_text(documents)
        printed = self.run_script("from_scratch.py", "--data", self.folder, "--tokens", "6000", "--seeds", "2")
        runs = [line for line in self.calls() if "/run " in line]
        self.assertEqual([line.split("--max-steps ")[1].split()[0] for line in runs], ["60", "120"] * 2)
        self.assertIn("| bert | 4.983 ± 0.636 |", printed)
        self.assertIn("| 4.150 ± 0.636 | 60 | 2 | 1 |", printed)


class Attention(unittest.TestCase):
    def test_pairs_of_tokens_are_counted_one_by_one(self):
        row = make_batches.make_row(1, 0, 0, "full", 50368, 200)
        config = {"num_hidden_layers": 4, "hidden_size": 8, "local_attention": 20, "global_attn_every_n_layers": 3}
        pairs = 0
        for layer in range(4):
            for i in row["masked_positions"] if layer == 3 else range(200):
                pairs += sum(1 for j in range(200) if layer in (0, 3) or abs(i - j) <= 10)
        self.assertEqual(families_step.attention_flops(config, [row]), 12 * 8 * pairs)
        plain = {"n_layers": 2, "dim": 8}
        self.assertEqual(families_step.attention_flops(plain, [row]), 12 * 8 * (200 * 200 + 200 * len(row["masked_positions"])))


class Rows(unittest.TestCase):
    def test_longer_rows_have_from_a_quarter_of_the_longest_on(self):
        lengths = {make_batches.row_length(1, 0, row, "ragged", 1024) for row in range(20000)}
        self.assertEqual((min(lengths), max(lengths)), (256, 1024))
        self.assertEqual(len(make_batches.make_row(1, 0, 0, "full", 50368, 4096)["token_ids"]), 4096)


if __name__ == "__main__":
    unittest.main()
