"""What funicular doctor says of a machine, a model folder and an output folder."""

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
