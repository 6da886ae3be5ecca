"""What funicular doctor says of a machine, a model folder and an output folder."""

import math
import os

from harness import *


class Doctor(ProgramTest):
    def test_lines_are_ok_warn_or_fail(self):
        result = self.succeeds("doctor", "--output", self.folder, "--model", self.model())
        lines = result.out.splitlines()
        for line in lines:
            self.assertRegex(line, r"^(ok  |warn|FAIL) \w+ ")
        self.assertLessEqual({"processor", "memory", "disk", "writing", "tokeniser", "weights"}, {line.split()[1] for line in lines})
        self.assertEqual(list(self.folder.glob(".funicular*")), [])

    def lines(self, *words, code=0):
        """check -> its verdict and text"""
        result = run("doctor", *words, "--output", self.folder)
        self.assertEqual(result.code, code, result.out)
        found = [line.split(maxsplit=2) for line in result.out.splitlines()]
        return {check: f"{verdict} {text}" for verdict, check, text in found}

    def test_a_folder_is_shown_with_its_parameters_tokeniser_and_uses(self):
        count = sum(math.prod(shape) for shape in encoder_shapes().values())
        model = self.model("classifier", architectures=["BertForSequenceClassification"],
                           extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        found = self.lines(model)
        self.assertRegex(found["config"], f"^ok BERT, 2 layers, .*; {count} parameters without a head$")
        self.assertIn(f"ok WordPiece, {len(VOCABULARY)} tokens, lower-cased; ", found["tokeniser"])
        self.assertRegex(found["uses"], r"^ok one class per text \(predict, evaluate\); a vector per text \(embed\); .*\(finetune, distill\)")
        self.assertNotIn("masked words", found["uses"])
        self.assertIn("guesses for masked words (evaluate --task mlm", self.lines(self.model("words", architectures=["BertForMaskedLM"]))["uses"])
        self.assertRegex(self.lines(self.model("bare"))["uses"], "^ok a vector per text")
        self.assertEqual(self.lines(model / "config.json")["uses"], "ok training on raw texts from random weights (pretrain)")
        self.assertEqual(found["config"], self.lines("--model", model)["config"])

    def test_an_unsupported_family_is_told_once_and_its_tokeniser_is_read(self):
        found = self.lines(self.model(model_type="xlnet"), code=1)
        failed = [check for check, text in found.items() if text.startswith("FAIL")]
        self.assertEqual(failed, ["config"])
        self.assertIn('found "xlnet"', found["config"])
        self.assertIn("ok WordPiece", found["tokeniser"])
        self.assertEqual(found["uses"], "ok token stores (tokenize) only")
        self.assertNotIn("step", found)

    def test_options_of_a_step_without_a_model_are_refused(self):
        for option, value in (("--ranks", 2), ("--batch-size", 8), ("--max-length", 64), ("--precision", "bf16"), ("--recompute", "full")):
            self.refuses(["doctor", "--output", self.folder, option, value],
                         f"{option} only changes the predicted memory of a step, which needs a model; give --model DIR")

    def test_damaged_weights_fail(self):
        model = self.model()
        (model / "model.safetensors").write_bytes(b"12345678")
        result = run("doctor", "--output", self.folder, "--model", model)
        self.assertEqual(result.code, 1)
        self.assertRegex(result.out, r"(?m)^FAIL weights .*model\.safetensors")

    def test_folder_that_cannot_be_written_fails(self):
        result = run("doctor", "--output", "/proc/self/fd")
        self.assertEqual(result.code, 1)
        self.assertRegex(result.out, r"(?m)^FAIL writing ")

    def test_folder_yet_to_be_made_is_judged_by_the_one_above(self):
        result = self.succeeds("doctor", "--output", self.folder / "runs" / "first")
        self.assertIn("reads back", result.out)
        self.assertIn(str(self.folder), result.out)
        self.assertFalse((self.folder / "runs").exists())

    def test_nccl_is_named_with_its_path_and_variables(self):
        library = pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"]) / "tests/libnccl_stand_in.so"

        def told(path):
            return run("doctor", "--output", self.folder, env={**environment(), "FUNICULAR_NCCL": str(path), "NCCL_NET": "Socket"}).out

        self.assertRegex(told(library), rf"(?m)^ok   nccl +NCCL 2\.28\.9 in {library}, with .*NCCL_NET=Socket")
        self.assertRegex(told("/nowhere/libnccl.so.2"), r"(?m)^warn nccl .*/nowhere/libnccl\.so\.2")


if __name__ == "__main__":
    unittest.main()
