"""The Python module, in the Python of .deps: what goes in, what comes out, what is said when it goes wrong."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/cli"), str(ROOT / "python")]
import harness  # noqa: E402
import funicular  # noqa: E402
from funicular import _commands, _display, _process, _program, _tables  # noqa: E402

os.environ["FUNICULAR_PROGRAM"] = harness.PROGRAM
os.environ.setdefault("OMP_NUM_THREADS", "1")
SHORT = {"num_train_epochs": 6, "batch_size": 8, "learning_rate": 5e-3, "max_length": 16, "precision": "fp32", "progress": False}
FEW_STEPS = {name: value for name, value in SHORT.items() if name != "num_train_epochs"}


def rows(count, seed):
    return [(text, label) for label, text in harness.sentiment_rows(count, seed)]


class Module(harness.ProgramTest):
    def trained(self, data=None, **options):
        return funicular.finetune(rows(64, 1) if data is None else data, model=self.model(),
                                  **{"eval": rows(32, 2), "output": self.folder / "run", **(FEW_STEPS if "max_steps" in options else SHORT), **options})


class Training(Module):
    def test_a_list_of_rows_becomes_a_model_that_is_evaluated_and_asked(self):
        run = self.trained()
        self.assertTrue((run.model / "model.safetensors").is_file())
        self.assertEqual(run.metrics["steps"], 48)
        self.assertEqual(run.history[-1]["step"], 48)
        self.assertEqual(run.evaluate(rows(32, 2), precision="fp32")["accuracy"], run.metrics["accuracy"])
        answers = run.predict([text for text, _ in rows(32, 2)], precision="fp32")
        right = sum(label == answer for (_, label), answer in zip(rows(32, 2), answers.labels))
        self.assertEqual(right / 32, run.metrics["accuracy"])
        self.assertGreater(right, 16)

    def test_tables_and_files_train_as_rows_do(self):
        texts, labels = zip(*rows(64, 1))
        wanted = self.trained(max_steps=3).metrics["loss"]
        kinds = {"columns": {"text": list(texts), "label": list(labels)},
                 "mappings": [{"label": label, "text": text} for text, label in rows(64, 1)],
                 "file": harness.write_rows(self.folder / "rows.tsv", ("label", "text"), harness.sentiment_rows(64, 1))}
        with contextlib.suppress(ImportError):
            import pandas
            kinds["pandas"] = pandas.DataFrame(kinds["columns"])
        with contextlib.suppress(ImportError):
            import pyarrow
            kinds["pyarrow"] = pyarrow.table(kinds["columns"])
        for name, data in kinds.items():
            with self.subTest(name):
                run = funicular.finetune(data, model=self.folder / "model", eval=rows(32, 2), output=self.folder / name,
                                         max_steps=3, **FEW_STEPS)
                self.assertEqual(run.metrics["loss"], wanted)

    def test_the_same_call_resumes_a_run(self):
        first = self.trained(max_steps=2)
        funicular.finetune(rows(64, 1), model=self.folder / "model", eval=rows(32, 2), output=first, max_steps=4, **FEW_STEPS)
        self.assertEqual([record["step"] for record in first.history if "eval_loss" in record], [2, 4])

    def test_pairs_and_numbers(self):
        data = [(text, text, 0.5) for text, _ in rows(16, 1)]
        run = self.trained(data, eval=None, regression=True, max_steps=1)
        answers = run.predict([("a film", "a book")] * 3)
        self.assertEqual(len(answers.scores), 3)
        with self.assertRaisesRegex(AttributeError, "they have value"):
            answers.labels

    def test_a_store_of_texts_is_pretrained_on(self):
        store = funicular.tokenize([text for text, _ in rows(64, 1)], self.folder / "a.tokens", tokenizer=self.model(), progress=False)
        run = funicular.pretrain(store, model=self.folder / "model", output=self.folder / "pretrained", max_steps=1, batch_size=4,
                                 max_length=16, progress=False)
        self.assertTrue((run.model / "config.json").is_file())

    def test_without_an_output_the_next_folder_of_runs_is_taken(self):
        with contextlib.chdir(self.folder):
            pathlib.Path("runs/finetune-1").mkdir(parents=True)
            self.assertEqual(_commands.new_output("finetune"), pathlib.Path("runs/finetune-2"))


class Answers(unittest.TestCase):
    ROWS = [{"label": "a", "score": 0.75, "probabilities": {"a": 0.75, "b": 0.25}},
            {"label": "b", "score": 0.5, "probabilities": {"a": 0.5, "b": 0.5}}]

    def test_have_columns(self):
        answers = funicular.Answers(self.ROWS)
        self.assertEqual((answers.labels, answers.classes), (["a", "b"], ["a", "b"]))
        self.assertEqual([list(row) for row in answers.probabilities], [[0.75, 0.25], [0.5, 0.5]])
        self.assertEqual(list(answers.scores), [0.75, 0.5])

    def test_are_lists_without_numpy(self):
        with unittest.mock.patch.dict(sys.modules, {"numpy": None}):
            self.assertEqual(funicular.Answers(self.ROWS).scores, [0.75, 0.5])

    def test_are_arrays_with_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        self.assertEqual(funicular.Answers(self.ROWS).probabilities.shape, (2, 2))
        self.assertIsInstance(funicular.Answers(self.ROWS).scores, numpy.ndarray)


class Words(unittest.TestCase):
    def test_options_are_the_commands(self):
        words = _commands.words_of({"learning_rate": 5e-5, "shuffle": False, "eval": None, "text_column": ["a", "b"], "nesterov": True})
        self.assertEqual(words, ["--learning-rate=5e-05", "--shuffle=false", "--text-column", "a", "b", "--nesterov=true"])

    def test_cells_are_what_json_holds(self):
        self.assertEqual(_tables.plain(float("nan")), None)
        self.assertEqual(_tables.plain(("a", 1)), ["a", 1])
        self.assertEqual(_tables.plain(pathlib.PurePosixPath("a")), "a")
        with self.assertRaises(TypeError):
            _tables.plain({"a": 1})

    def test_rows_of_other_lengths_are_refused(self):
        for wrong in ([("a", "b"), ("a",)], [("a", "b", "c", "d")], {"a": [1], "b": []}):
            with self.assertRaises(ValueError):
                _tables.rows_of(wrong, _commands.LABELLED)


class Columnar(unittest.TestCase):
    """Files of Parquet and Arrow."""

    def setUp(self):
        try:
            import pyarrow
        except ImportError:
            self.skipTest("pyarrow is not installed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.columns = pathlib.Path(folder.name), {"text": ["a \u00e9", "film"], "label": [1, 2]}
        self.table = pyarrow.table(self.columns)

    def write(self):
        import pyarrow.feather
        import pyarrow.parquet
        pyarrow.parquet.write_table(self.table, self.folder / "a.parquet")
        pyarrow.feather.write_feather(self.table, self.folder / "b.arrow")
        with pyarrow.ipc.new_stream(self.folder / "c.arrow", self.table.schema) as stream:  # as datasets keeps them
            stream.write_table(self.table)
        return [self.folder / name for name in ("a.parquet", "b.arrow", "c.arrow")]

    def test_are_read_by_the_program_with_this_python(self):
        model = harness.write_model(self.folder / "model", extra_shapes={"classifier.weight": [2, harness.HIDDEN], "classifier.bias": [2]})
        expected = funicular.predict(model, self.columns["text"])
        for path in self.write():
            self.assertEqual(funicular.predict(model, path, text_column="text"), expected, path.name)


class Errors(Module):
    def test_an_exception_carries_the_programs_message(self):
        with self.assertRaises(funicular.InputError) as caught:
            self.trained(learning_rat=1)
        self.assertRegex(str(caught.exception), r"^\[usage\] .*did you mean --learning-rate\?")
        self.assertIsInstance(caught.exception, ValueError)
        self.assertEqual((caught.exception.code, caught.exception.command[0]), (2, "finetune"))

    def test_a_text_is_no_file(self):
        with self.assertRaisesRegex(FileNotFoundError, r"give a list: \['a film'\]"):
            funicular.predict(self.folder, "a film")

    def test_a_program_that_dies_is_told(self):
        program = self.folder / "program"
        program.write_text("#!/bin/sh\necho working >&2\nkill -SEGV $$\n")
        program.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, FUNICULAR_PROGRAM=str(program)), \
                self.assertRaisesRegex(funicular.FunicularError, "ended by SIGSEGV; its last message: working"):
            funicular.run("doctor", progress=False)

    def test_a_program_that_is_not_there_is_named_with_what_to_do(self):
        for variable, program, remedy in (("/nowhere/funicular", "/nowhere/funicular", "check the variable FUNICULAR_PROGRAM"),
                                          ("", "bin/funicular", "set FUNICULAR_PROGRAM to a program such as build/release/funicular")):
            with self.subTest(variable=variable), unittest.mock.patch.dict(os.environ, FUNICULAR_PROGRAM=variable), \
                    unittest.mock.patch("funicular._program.PACKAGE", self.folder), \
                    self.assertRaisesRegex(funicular.FunicularError, f"cannot start .*{program}: No such file or directory; .*{remedy}") as caught:
                funicular.run("doctor", progress=False)
            self.assertIsNone(caught.exception.code)

    def test_an_interrupt_saves_the_run(self):
        begun = self.folder / "run/metrics.jsonl"

        def interrupt():
            while not begun.exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            self.trained(num_train_epochs=10000, logging_steps=1)
        thread.join()
        self.assertTrue(list((self.folder / "run/checkpoints").glob("step-*")))


class Display(unittest.TestCase):
    def shown(self, kind, data):
        stream = io.StringIO()
        display = kind(stream)
        for byte in data:
            display.feed(bytes([byte]))
        display.end()
        return display, stream.getvalue()

    DATA = "one\r\n\r\x1b[Ktrain  1 of 2\r\x1b[Ktrain  2 of 2\r\x1b[Ktwo é\r\n".encode()

    def test_messages_are_kept_without_what_was_drawn(self):
        self.assertEqual(self.shown(_display.Display, self.DATA)[0].log(), "one\ntwo é")

    def test_a_notebook_has_one_line_that_is_overwritten(self):
        text = self.shown(_display.Notebook, self.DATA)[1]
        lines = [line.split("\r")[-1].rstrip() for line in text.split("\n")]
        self.assertEqual(lines, ["one", "two é", ""])
        self.assertIn("\rtrain  1 of 2", text)
        self.assertNotIn("\x1b", text)

    def test_a_terminal_gets_what_the_program_wrote(self):
        self.assertEqual(self.shown(_display.Terminal, self.DATA)[1], self.DATA.decode())

    def test_a_file_gets_lines(self):
        self.assertEqual(self.shown(_display.Lines, b"one\ntwo\n")[1], "one\ntwo\n")

    def test_a_program_at_a_terminal_of_ours_is_read_to_its_end(self):
        program = pathlib.Path(__file__).with_name("draws.sh")
        with unittest.mock.patch.dict(os.environ, FUNICULAR_PROGRAM=str(program)), \
                unittest.mock.patch.object(_process, "display", lambda progress: _display.Notebook(stream)):
            stream = io.StringIO()
            self.assertEqual(_process.run(["x"]), "result\n")
            without = io.StringIO()
            with unittest.mock.patch("pty.openpty", side_effect=OSError("out of pty devices")), \
                    unittest.mock.patch.object(_process, "display", lambda progress: _display.Notebook(without)):
                self.assertEqual(_process.run(["x"]), "result\n")
        self.assertNotIn("100 columns", without.getvalue())
        if can_make_terminals():
            self.assertIn("terminal of 100 columns", stream.getvalue())


def can_make_terminals():
    try:
        for end in os.openpty():
            os.close(end)
        return True
    except OSError:  # as in some containers
        return False


class Embedding(Module):
    def test_texts_become_an_array_of_vectors(self):
        model, texts = self.model(), ["a good film", "old", "a good film"]
        vectors = funicular.embed(model, texts, precision="fp32", progress=False)
        self.assertEqual((len(vectors), len(vectors[0])), (3, harness.HIDDEN))
        self.assertEqual(list(vectors[0]), list(vectors[2]))
        self.assertNotEqual(list(vectors[0]), list(vectors[1]))
        short = funicular.embed(model, {"text": texts}, precision="fp32", truncate_dim=3, progress=False)
        self.assertEqual([list(row) for row in short], [list(row[:3]) for row in vectors])

    def test_without_numpy_they_are_lists(self):
        model = self.model()
        wanted = funicular.embed(model, ["old", "film"], precision="fp32", progress=False)
        with unittest.mock.patch.dict(sys.modules, numpy=None):
            found = funicular.embed(model, ["old", "film"], precision="fp32", progress=False)
        self.assertIsInstance(found, list)
        self.assertEqual(found, [list(row) for row in wanted])

    def test_a_file_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(FileNotFoundError, "to embed one text, give a list"):
            funicular.embed("MODEL", "good film")


class Start(unittest.TestCase):
    def test_the_program_takes_the_place_of_python(self):
        done = subprocess.run([sys.executable, "-B", "-m", "funicular", "--version"], env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                              capture_output=True, text=True, check=False)
        self.assertRegex(done.stdout, r"^funicular \d+\.\d+\.\d+ \(LibTorch")

    def test_needs_neither_torch_nor_tables(self):
        code = "import funicular, sys; print({'torch', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-B", "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "set()\n")

    def test_a_torch_that_lies_elsewhere_is_found(self):
        spec = unittest.mock.Mock(origin="/elsewhere/torch/__init__.py")
        with unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH="/others"), \
                unittest.mock.patch.object(_program.importlib.util, "find_spec", return_value=spec):
            del os.environ["FUNICULAR_PROGRAM"]
            self.assertEqual(_program.environment()["LD_LIBRARY_PATH"], "/elsewhere/torch/lib:/others")


if __name__ == "__main__":
    unittest.main()
