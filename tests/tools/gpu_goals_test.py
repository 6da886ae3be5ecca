"""bench/gpu_goals.py fills every row of the table of goals from the files of the parts, and says what was not measured."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import gpu_goals  # noqa: E402

# Kernels take 6 of 8 ms of a profiled step: 3 products, 2 attention, 1 AdamW.
STEP = {"tokens_per_second": 900_000, "step_seconds_median": 0.007, "floor": {"share": 0.625},
        "profile": [{"part": "gemm", "share": 0.375, "seconds_per_step": 0.003}, {"part": "between", "share": 0.25, "seconds_per_step": 0.002}],
        "work": [{"kind": "products", "share": 0.375}, {"kind": "attention", "share": 0.25}, {"kind": "normalisation, activation", "share": 0.0},
                 {"kind": "loss", "share": 0.0}, {"kind": "optimiser", "share": 0.125}, {"kind": "rest", "share": 0.25}]}
SHAPES = ("base-ragged", "base-full", "base-full-512", "base-32-rows", "large-ragged-476", "minilm-ragged")


class GpuGoals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, value):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))

    def write_all(self):
        for shape in SHAPES:
            self.write(f"{shape}.json", STEP)
            model, rows = shape.split("-", 1)
            path = self.folder / f"peers/{model}/gpu_step.json"
            found = json.loads(path.read_text())["found"] if path.exists() else {}
            self.write(path.relative_to(self.folder), {"found": found | {f"{model} {rows}": {"layers": {"tokens_per_second": 600_000}}}})
        self.write("finetune/gpu_finetune.json", {"step_seconds": {"plain": 0.018, "recorded": 0.0075}})
        self.write("predict/gpu_predict.json", {"seconds": {"20000": {"funicular": [9], "transformers": [9]},
                                                            "40000": {"funicular": [5, 4], "transformers": [13, 12]}}})
        self.write("distill/distillation_step.json", {"runs": [{side: {"intermediate": {"rows_per_second": speed}}
                                                                for side, speed in (("ours", 300), ("grouped", 200))}]})

    def rows(self):
        return {row[0]: row[2:5] for row in gpu_goals.goal_rows(gpu_goals.Files(self.folder))}

    def test_each_goal_has_its_figure(self):
        self.write_all()
        rows = self.rows()
        self.assertEqual(rows["BERT-base, 256 rows of 32-128 tokens"], ("900,000", "yes", "62 %"))
        self.assertEqual(rows["MiniLM, 256 rows of 32-128"], ("900,000", "no", "62 %"))
        self.assertEqual(rows["fine-tuning BERT-base, 32 rows a step"], ("1.25", "yes", ""))
        self.assertEqual(rows["prediction, BERT-base, whole command"], ("3.00", "yes", ""))
        self.assertEqual(rows["distillation, intermediate stage"], ("1.50", "no", ""))
        self.assertEqual(rows["BERT-large 254, beside the unpadded peer"], ("1.50", "yes", ""))
        self.assertNotIn("not measured", [row[0] for row in rows.values()])

    def test_kernels_by_kind_stand_beside_the_earlier_ones(self):
        self.write_all()
        rows = gpu_goals.kernel_rows(gpu_goals.Files(self.folder))
        self.assertEqual(rows[0][2:], ("12.7", "8.3", "1.0", "38.6", "39.7"))
        self.assertEqual(rows[1], ("base-ragged", "now", "2.0", "0.0", "1.0", "6.0", "7.0"))

    def test_files_that_are_missing_or_cut_off_are_no_figures(self):
        self.write("base-ragged.json", {"tokens_per_second": 900_000})  # without --profile and --floor
        (self.folder / "base-full.json").write_text('{"tokens_per')
        rows = self.rows()
        self.assertEqual(rows.pop("BERT-base, 256 rows of 32-128 tokens"), ("900,000", "yes", ""))
        self.assertEqual({row[0] for row in rows.values()}, {"not measured"})

    def test_each_part_that_a_goal_names_is_in_the_script(self):
        done = subprocess.run(["bash", ROOT / "bench/on_a_gpu.sh", "--dry-run"], text=True, capture_output=True, check=True)
        named = {part for goal in gpu_goals.GOALS for part in goal[-1].split(", ")}
        self.assertLessEqual(named, {line.split()[0] for line in done.stdout.splitlines()})


if __name__ == "__main__":
    unittest.main()
