"""What the program says about itself, and to wrong usage."""

import os
import pty
import re
import select
import shlex
import shutil
import time
import tomllib

from harness import *

# Those whose help must be found, and more are found in the overview.
COMMANDS = {"tokenize", "pretrain", "finetune", "distill", "augment", "evaluate", "predict", "chain", "launch", "prove", "bench", "doctor"}


def terminals():
    """Both ends of a terminal."""
    try:
        return pty.openpty()
    except OSError as error:
        raise unittest.SkipTest(f"no terminal can be made, so nothing is typed on one: {error}")


def read_until(descriptor, condition, seconds=60):
    """Takes what is written to a terminal until then, so that its writer does not wait."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.05)[0]:
            os.read(descriptor, 1 << 16)


class Help(ProgramTest):
    def test_level_of_messages_that_does_not_exist_is_told(self):
        with_level = {**os.environ, "FUNICULAR_LOG": "loud"}
        done = subprocess.run([PROGRAM, "finetune", "--model", "none"], env=with_level, capture_output=True, text=True, check=False)
        self.assertIn('FUNICULAR_LOG expects one of debug, info, warning, error, found "loud"', done.stderr)

    def commands(self):
        found = re.findall(r"^  ([a-z]+)  +[A-Z]", self.succeeds("--help").out, re.MULTILINE)
        self.assertLessEqual(COMMANDS, set(found))
        return found

    def test_overview_lists_the_commands_and_exit_codes(self):
        self.assertEqual(len(set(self.commands())), len(self.commands()))
        self.assertIn("75", self.succeeds("--help").out)

    def test_every_command_has_help_on_standard_output(self):
        for command in self.commands():
            text = self.succeeds(command, "--help").out
            self.assertIn("Usage: funicular " + command, text)
            self.assertIn("--config FILE", text)
            self.assertEqual(self.succeeds("help", command).out, text)

    def test_help_states_defaults_units_choices_and_aliases(self):
        text = " ".join(self.succeeds("finetune", "--help-all").out.split())
        for phrase in ("--learning-rate RATE", "[5e-05]", "--batch-size SEQUENCES", "[32]", "auto | fp32 | fp64 | bf16 | fp16",
                       "--per-device-train-batch-size", "--eval-steps STEPS", "cola | sst2 | mrpc | stsb | rte | qnli | qqp | mnli | wnli | custom"):
            self.assertIn(phrase, text)

    def test_help_fits_a_hundred_columns(self):
        for command in self.commands():
            for line in (self.succeeds(command, "--help").out + self.succeeds(command, "--help-all").out).splitlines():
                self.assertLessEqual(len(line), 100, line)

    def test_help_shows_the_options_that_a_first_user_needs_and_help_all_shows_all(self):
        for command in self.commands():
            short, whole = (self.succeeds(command, words).out for words in ("--help", "--help-all"))
            shown, every = (re.findall(r"^  (?:-\w+, )*(--[a-z][a-z0-9-]*)", text, re.M) for text in (short, whole))
            self.assertLessEqual(set(shown), set(every), command)
            self.assertLessEqual(len(shown), 20, f"{command}: about 15, --config and --help twice")
            for words in ([command, "--help=all"], [command, "--help", "all"], ["help", command, "all"]):
                self.assertEqual(self.succeeds(*words).out, whole)
            left_out = len(every) - len(shown)
            if left_out:
                self.assertRegex(short, rf"--help \[all\] +Show the common options; --help all shows {left_out} more\n")
        self.assertIn("--learning-rate", self.succeeds("finetune", "--help").out)
        self.assertNotIn("--hysteresis", self.succeeds("finetune", "--help").out)

    def test_help_ends_with_examples_that_the_command_understands(self):
        for command in self.commands():
            text = self.succeeds(command, "--help").out
            examples = re.findall(r"^  # .*\n  (.*)$", text.split("\nExamples:\n")[1], re.M)
            self.assertTrue(2 <= len(examples) <= 3, command)
            without_name = {"finetune": ["--train"], "evaluate": ["--model", "--input"], "predict": ["--model"], "average": ["--models"],
                            "label-errors": ["--predictions"]}.get(command, [])
            required = re.findall(r"^  (?:-\w+, )*(--[a-z-]+) (?:[^-]|\n  )*?\(required\)", text, re.M)
            for example in examples:
                words = shlex.split(example.removeprefix("source <(").removesuffix(")"))
                self.assertEqual(words[:2], ["funicular", command])
                end = words.index("--") if "--" in words else len(words)
                self.succeeds(*words[1:end], "--help", *words[end:])
                self.assertEqual([option for option in required if option not in [*words, *without_name]], [], example)

    def test_commands_stand_in_groups_and_variables_on_a_page_of_their_own(self):
        text = self.succeeds("--help").out
        groups = re.findall(r"^([A-Z].*):\n((?:  [a-z]+ +[A-Z].*\n)+)", text, re.M)
        self.assertEqual([title for title, _ in groups], ["Learn from rows with labels", "Learn from texts", "Vectors of texts", "Run", "This machine"])
        self.assertNotIn("FUNICULAR_", text)
        variables = self.succeeds("help", "environment").out
        for name in ("FUNICULAR_LOG=", "FUNICULAR_LOG_TIMES=", "FUNICULAR_ALLOCATOR=", "FUNICULAR_VERIFY_FIRST=", "FUNICULAR_ISA=", "FUNICULAR_SECRET=",
                     "FUNICULAR_RESTART", "FUNICULAR_PROGRAM=", "HF_HUB_CACHE"):
            self.assertIn(name, variables)

    def test_help_of_all_lists_the_commands_and_says_where_all_options_are(self):
        text = self.succeeds("help", "all").out
        self.assertEqual(text, self.succeeds("--help").out)
        self.assertIn("COMMAND --help all", text)
        self.assertRegex(text, r"\n  finetune +Train a model for classes, labels, numbers, tags, spans, embeddings or rankings\n")

    def test_every_command_has_a_manual_page(self):
        pages = {command: self.succeeds("help", "--man", command).out for command in self.commands()}
        pages[""] = self.succeeds("help", "--man").out
        for command, page in pages.items():
            self.assertTrue(page.startswith(f".TH FUNICULAR{command and chr(92) + '-' + command.upper()} 1 "), page[:60])
            for section in ("NAME", "SYNOPSIS", "EXIT STATUS"):
                self.assertIn(f"\n.SH {section}\n", page)
            self.assertNotRegex(page, r"(?m)^\\&\.(TH|SH|SS|TP|nf|fi)\b", command)
            self.assertEqual(page.count(".nf\n"), page.count("\n.fi\n"), command)
            self.assertNotIn("(also ", page, "the names of an option stand in its heading")
            # A line is a request that is meant, or text that cannot be one.
            for line in page.splitlines():
                self.assertRegex(line, r"^(\.(TH|SH|SS|TP|nf|fi)\b|\\|[0-9a-z]+)", f"{command}: {line}")
            if command:
                options = {name.replace("-", chr(92) + "-") for name in re.findall(r"^  (?:-\w+, )*(--[a-z][a-z0-9-]*)", self.succeeds(command, "--help", "all").out, re.M)}
                self.assertEqual([name for name in options - {chr(92) + "-" + chr(92) + "-help", chr(92) + "-" + chr(92) + "-config"} if name not in page], [], command)
            if shutil.which("man"):
                done = subprocess.run(["man", "--warnings", "-l", "-"], input=page, capture_output=True, text=True, check=False,
                                      env={**os.environ, "MANROFFSEQ": "", "LC_ALL": "C.UTF-8"})
                self.assertEqual((done.returncode, done.stderr), (0, ""), command)

    def test_reference_in_the_docs_is_what_the_program_prints(self):
        page = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/options.md"
        self.assertEqual(page.read_text(encoding="utf-8"), self.succeeds("help", "--markdown").out,
                         "docs/reference/options.md is generated: funicular help --markdown > docs/reference/options.md")

    def test_help_wins_over_missing_options(self):
        self.succeeds("finetune", "--model", "nowhere", "--help")

    def test_version_names_libtorch(self):
        self.assertRegex(self.succeeds("--version").out, r"^funicular \d+\.\d+\.\d+ \(LibTorch \d+\.\d+")

    def test_nothing_at_all_is_wrong_usage_and_shows_the_overview(self):
        self.refuses([], "Usage: funicular COMMAND")


class LibTorch(ProgramTest):
    """Loading it takes longer than most of what the program does without it."""

    def loads_it(self, *words):
        said = self.folder / "loader"
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False,
                              env={**environment(), "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(said)})
        self.assertEqual(done.returncode, 0, done.stderr)
        files = list(self.folder.glob("loader.*"))
        self.assertTrue(files)
        found = any("libtorch_cpu.so" in file.read_text(errors="replace") for file in files)
        for file in files:
            file.unlink()
        return found

    def test_is_loaded_for_the_commands_that_need_it_and_for_no_others(self):
        model = self.model()
        (self.folder / "a.txt").write_text("the old book is fine\n")
        rows = write_rows(self.folder / "dev.tsv", (), [("gj04", "1", "", "the song is short")])
        tokenize = ["tokenize", "--tokenizer", model, "--threads", 2, "--input"]
        (self.folder / "steps.toml").write_text('[words]\ncommand = "tokenize"\ntokenizer = "model"\ninput = "a.txt"\noutput = "c.tokens"\n')
        for words in (["--help"], ["--version"], ["tokenize", "--help"], [*tokenize, self.folder / "a.txt", "--output", self.folder / "a.tokens"],
                      [*tokenize, rows, "--task", "cola", "--output", self.folder / "b.tokens"], ["tokenize", "--verify", self.folder / "a.tokens"],
                      ["chain", self.folder / "steps.toml"], ["plan", "--schedule", "1f1b"], ["launch", "-n", 1, "--", "true"],
                      ["vocabulary", "propose", "--model", model, "--input", self.folder / "a.txt"], ["completion", "zsh", "vocabulary"],
                      ["report", "--help"], ["completion", "bash"], ["completion", "bash", "tokenize"]):
            self.assertFalse(self.loads_it(*words), words)
        (self.folder / "words.txt").write_text("abc\n")
        for words in (["pretrain", "--help"], ["completion", "bash", "pretrain"], ["mask", "--tokenizer", model, "--input", self.folder / "a.txt"],
                      ["vocabulary", "extend", "--model", model, "--words", self.folder / "words.txt", "--output", self.folder / "extended"]):
            self.assertTrue(self.loads_it(*words), words)

    def test_where_its_commands_are_missing_the_others_work(self):
        plain = (pathlib.Path(PROGRAM).parent / "libfunicular_plain.so").resolve()
        (self.folder / plain.name).symlink_to(plain)
        elsewhere = {**environment(), "LD_LIBRARY_PATH": str(self.folder)}
        self.assertEqual(run("tokenize", "--help", env=elsewhere).code, 0)
        self.refuses(["doctor"], "the commands that need LibTorch cannot be loaded", "libfunicular_commands.so", code=1, env=elsewhere)


class Usage(ProgramTest):
    def test_unknown_command_suggests_the_nearest(self):
        self.refuses(["finetun"], 'unknown command "finetun"', "did you mean finetune?")
        self.refuses(["--verion"], 'unknown option "--verion"')

    def test_words_from_elsewhere_are_answered_by_what_there_is(self):
        for words, answer in {("finetune", "--task", "squad2"): "write --task spans", ("finetune", "--task", "NER"): "write --task tags",
                              ("distill", "--task", "ner"): "a tag for each word is for finetune, evaluate and predict",
                              ("evaluate", "--task", "question_answering"): "expected one of cola, sst2", ("encode",): "funicular embed makes vectors of texts",
                              ("rerank", "x"): "funicular finetune --task reranker trains a reranker", ("train",): "did you mean finetune, which learns from rows with labels, or pretrain",
                              ("embed", "--stride", "128"): "read a long text in windows",
                              ("finetune", "--pos-weight", "3"): "write --positive-weight X, with --task reranker and --loss bce",
                              ("vocabulary", "learn", "--model", "m"): "write funicular vocabulary train"}.items():
            self.refuses(list(words), answer)

    def test_unknown_option_suggests_the_nearest(self):
        self.refuses(["finetune", "--learning-rat", "1"], "unknown option --learning-rat", "did you mean --learning-rate?")
        self.refuses(["finetune", "--learning_rat", "1"], "did you mean --learning-rate?")

    def test_option_without_its_value(self):
        self.refuses(["evaluate", "--model"], "--model expects RUN")
        self.refuses(["evaluate", "--model", "--task", "cola"], "--model expects RUN")

    def test_required_option_missing(self):
        self.refuses(["finetune", "--model", "m"], "--train FILE is required")

    def test_option_of_several_values_that_took_the_file_is_told(self):
        rows = write_rows(self.folder / "new.tsv", ("id", "text"), [("7", "film")])
        told = self.refuses(["predict", "--text", "hello", self.folder], "--model RUN is required", f'--text took "{self.folder}"; put files before options')
        self.assertEqual(told.err.count("took"), 1)
        self.refuses(["predict", "--model", "nowhere", "--keep", "id", rows], f'--input is not given, and --keep took "{rows}"; put files before options')
        for words in (["predict", "--text", "hello", "nowhere"], ["predict", "nowhere", rows, "--keep", "id", "text"]):
            self.assertNotIn("took", self.refuses(words).err)

    def test_option_given_twice(self):
        self.refuses(["evaluate", "--model", "a", "--model", "b"], "--model is given twice")
        self.refuses(["evaluate", "--model=a", "--model=b"], "--model is given twice")

    def test_word_that_belongs_to_no_option(self):
        self.refuses(["tokenize", "stray"], 'unexpected argument "stray"')
        self.refuses(["launch", "-N", "2", "--", "true"], 'unexpected argument "-N"', "options begin with --")

    def test_numbers_are_read_strictly(self):
        for value in ("ten", "1.5", "5x", ""):
            self.refuses(["finetune", f"--batch-size={value}"], "--batch-size expects a whole number (SEQUENCES)", f'"{value}"')
        for value in ("nan", "inf", "1e", "0,1"):
            self.refuses(["finetune", "--learning-rate", value], "--learning-rate expects a finite number", value)
        self.refuses(["finetune", "--batch-size", "99999999999999999999"], "expects a whole number")

    def test_numbers_out_of_range(self):
        self.refuses(["finetune", "--learning-rate", "0"], "--learning-rate must be above 0, found 0")
        self.refuses(["finetune", "--warmup-ratio", "1.5"], "must be at least 0 and at most 1, found 1.5")
        self.refuses(["finetune", "--batch-size", "-4"], "must be at least 1, found -4")

    def test_value_that_is_no_choice_suggests_the_nearest(self):
        self.refuses(["finetune", "--task", "colla"], "expects one of cola, sst2", "did you mean cola?")

    def test_device_that_is_not_there_says_so(self):
        self.refuses(self.finetune_words(self.model()) + ["--device", "cuda"], "--device cuda")

    def test_batch_sizes_in_contradiction(self):
        words = self.finetune_words(self.model(), micro_batch_size=3, gradient_accumulation_steps=2)
        self.refuses(words, "batch size 8, micro-batch size 3 and gradient accumulation 2 contradict", "give any two")

    def test_batch_smaller_than_its_parts(self):
        self.refuses(self.finetune_words(self.model(), micro_batch_size=9), "micro-batch of 9", "batch of 8")

    def test_steps_and_epochs_together(self):
        self.refuses(self.finetune_words(self.model(), max_steps=5), "--max-steps 5 and --num-train-epochs 3")

    def test_custom_columns_for_a_task_with_its_own_layout(self):
        words = self.finetune_words(self.model(), task="cola", text_column="x")
        self.refuses(words, "--text-column is for --task custom")

    def test_a_seed_keeps_all_its_digits(self):
        seed = 2**53 + 1  # which no double holds
        self.succeeds(*self.finetune_words(self.model(), num_train_epochs=None, max_steps=1, seed=seed))
        self.assertEqual(json.loads((self.folder / "run" / "run.json").read_text())["seed"], seed)

    def test_unknown_metric_for_the_best_model(self):
        words = self.finetune_words(self.model(), metric_for_best_model="bleu")
        self.refuses(words, "accuracy, macro_f1, loss", '"bleu"')


class ConfigFile(ProgramTest):
    def write(self, text):
        path = self.folder / "run.toml"
        path.write_text(text)
        return path

    def settings(self, *words):
        """run.json of a short fine-tuning with these words."""
        self.succeeds(*self.finetune_words(self.model(), num_train_epochs=None, learning_rate=None), "--max-steps", "2", *words)
        return json.loads((self.folder / "run" / "run.json").read_text())

    def test_keys_are_the_options_in_either_spelling(self):
        run_file = self.settings("--config", self.write("learning_rate = 2e-3\nper_device_eval_batch_size = 4\nlogging-steps = 1\n"))
        self.assertEqual(run_file["optimizer"]["learning_rate"], 2e-3)
        self.assertEqual(run_file["options"]["logging_steps"], 1)

    def test_command_line_wins(self):
        run_file = self.settings("--learning-rate", "0.25", "--config", self.write("learning-rate = 2e-3\n"))
        self.assertEqual(run_file["optimizer"]["learning_rate"], 0.25)

    def test_table_of_the_command_wins_over_the_top_and_others_are_left_alone(self):
        run_file = self.settings("--config", self.write("seed = 1\n[finetune]\nseed = 2\n[pretrain]\nmlm-probability = 0.4\n"))
        self.assertEqual(run_file["seed"], 2)

    def test_required_options_may_stand_in_the_file(self):
        path = self.write('model = "nowhere"\ntask = "cola"\ndata = "nothing"\n')
        self.refuses(["evaluate", "--config", path], "--model nowhere: no such folder")

    def test_unknown_key_names_file_line_and_the_nearest(self):
        path = self.write("seed = 1\nlearning-rat = 2\n")
        self.refuses(["finetune", "--config", path], f"{path}:2", "unknown option --learning-rat", "did you mean --learning-rate?")

    def test_the_negation_of_a_toggle_is_no_name(self):
        path = self.write("no-shuffle = true\n")
        self.refuses(["finetune", "--config", path], f"{path}:1", "write shuffle = false")

    def test_wrong_value_names_file_and_line(self):
        path = self.write('\n\nseed = "x"\n')
        self.refuses(["finetune", "--config", path], f"{path}:3", "--seed expects a whole number")
        path = self.write("batch-size = [1, 2]\n")
        self.refuses(["finetune", "--config", path], f"{path}:1", "--batch-size expects one value, found 2")
        path = self.write("drop-last = 3\n")
        self.refuses(["finetune", "--config", path], f"{path}:1", "--drop-last expects true or false")

    def test_broken_toml_names_file_and_line(self):
        path = self.write("seed = 1\nx = = 2\n")
        self.refuses(["finetune", "--config", path], f"{path}:2", "not valid TOML")

    def test_table_of_no_command(self):
        path = self.write("[finetunee]\nseed = 1\n")
        self.refuses(["finetune", "--config", path], "[finetunee] is not the name of a command", "did you mean [finetune]?")

    def test_damaged_files_are_refused_and_never_crash(self):
        source = random.Random(17)
        whole = b'seed = 1\nlearning-rate = 2e-3\n[finetune]\ntext-column = ["a", "b"]\nheader = false\nresume = "never"\n'
        for _ in range(25):
            raw = bytearray(whole)
            for _ in range(source.randint(1, 4)):
                at = source.randrange(len(raw))
                raw[at:at + source.randint(0, 3)] = bytes(source.randrange(256) for _ in range(source.randint(0, 3)))
            (self.folder / "run.toml").write_bytes(raw)
            said = self.refuses(["finetune", "--config", self.folder / "run.toml"], "error: [").err
            try:
                tomllib.loads(raw.decode())
            except ValueError:  # what is no TOML or no UTF-8 is; the file is refused, not the options that are missing
                self.assertIn("run.toml", said)

    def test_missing_file(self):
        self.refuses(["finetune", "--config", self.folder / "none.toml"], "none.toml", "No such file")


class Aliases(ProgramTest):
    def test_names_of_training_arguments_mean_the_same(self):
        model = self.model()
        train, held_out = self.custom_files()
        self.succeeds("finetune", "--model_name_or_path", model, "--task_name", "custom", "--train_file", train,
                      "--validation_file", held_out, "--output_dir", self.folder / "run", "--per_device_train_batch_size", "4",
                      "--gradient_accumulation_steps", "2", "--max_steps", "3", "--lr_scheduler_type", "cosine",
                      "--optim", "adamw_torch", "--warmup_steps", "1", "--max_seq_length", "16", "--dataloader_num_workers", "0")
        run_file = json.loads((self.folder / "run" / "run.json").read_text())
        self.assertEqual(run_file["batch"]["batch_size"], 8)
        self.assertEqual(run_file["batch"]["micro_batch_size"], 4)
        self.assertEqual(run_file["schedule"], {"name": "cosine", "warmup_steps": 1, "cycles": 0.5})


class Completion(ProgramTest):
    def complete(self, *words):
        script = self.succeeds("completion", "bash").out
        line = "; ".join([f"COMP_WORDS=({' '.join(words)})", f"COMP_CWORD={len(words) - 1}", "_funicular",
                          'printf "%s\\n" "${COMPREPLY[@]}"'])
        done = subprocess.run(["bash", "-c", script + "\n" + line], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def test_commands_options_and_values(self):
        self.assertEqual(self.complete(PROGRAM, "pre"), ["pretrain", "predict"])
        self.assertEqual(self.complete(PROGRAM, "finetune", "--learning"), ["--learning-rate"])
        self.assertEqual(self.complete(PROGRAM, "finetune", "--task", "c"), ["cola", "custom"])
        self.assertEqual(self.complete(PROGRAM, "completion", "b"), ["bash"])
        self.assertEqual(self.complete(PROGRAM, "completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.complete(PROGRAM, "absent", "--"), [])

    def test_the_program_is_asked_once_a_shell(self):
        asked = self.folder / "asked"
        program = self.folder / "funicular"
        program.write_text(f"#!/bin/sh\necho x >> {asked}\nexec {PROGRAM} \"$@\"\n")
        program.chmod(0o755)
        line = f"COMP_WORDS=({program} finetune --learning); COMP_CWORD=2; _funicular; _funicular; echo ${{COMPREPLY[@]}}"
        script = self.succeeds("completion", "bash").out
        done = subprocess.run(["bash", "-c", script + "\n" + line], capture_output=True, text=True, check=True)
        self.assertEqual((done.stdout, asked.read_text()), ("--learning-rate\n", "x\n"))

    def test_what_follows_a_command_is_written_as_each_shell_reads_it(self):
        bash, zsh, fish = (self.succeeds("completion", shell, "finetune").out for shell in ("bash", "zsh", "fish"))
        self.assertIn('_funicular_words[finetune:--task]="cola sst2 mrpc stsb rte qnli qqp mnli wnli custom tags spans pairs triplets scores vectors reranker"\n', bash)
        self.assertEqual(zsh, bash)
        self.assertIn("set -g _funicular_words_finetune___task cola sst2 mrpc stsb rte qnli qqp mnli wnli custom tags spans pairs triplets scores vectors reranker\n", fish)
        self.assertEqual(fish.count("\n"), bash.count("\n"))

    def recorder(self):
        """A folder with a program `funicular` that writes down what it is called with; it asks the real one for completions."""
        folder = self.folder / "bin"
        folder.mkdir()
        (folder / "funicular").write_text(f'#!/bin/sh\n[ "$1" = completion ] && [ "$2" != z ] && {{ echo "$*" >> {self.folder}/asked; exec {PROGRAM} "$@"; }}\n'
                                          f'echo "$*" >> {self.folder}/called\n')
        (folder / "funicular").chmod(0o755)
        (self.folder / "lines.txt").touch()
        return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(self.folder)}

    def test_zsh_completes_what_is_typed(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed, so its completion is not tried")
        variables, called = self.recorder(), self.folder / "called"
        asking, terminal = terminals()
        with subprocess.Popen(["zsh", "-f", "-i"], stdin=terminal, stdout=terminal, stderr=terminal, cwd=self.folder, env=variables,
                              start_new_session=True) as shell:
            os.close(terminal)
            try:
                os.write(asking, b"autoload -Uz compinit; compinit -u -D; source <(funicular completion zsh)\n")
                for number, (typed, expected) in enumerate((("fin", "finetune"), ("finetune --learning", "finetune --learning-rate"),
                                                            ("finetune --task col", "finetune --task cola"), ("finetune --no-such", "finetune --no-such"),
                                                            ("predict --input li", "predict --input lines.txt"), ("absent --le", "absent --le"),
                                                            ("finetune --eval-st", "finetune --eval-steps")), 1):
                    os.write(asking, f"funicular {typed}\t\n".encode())
                    read_until(asking, lambda: called.exists() and called.read_text().count("\n") == number)
                    self.assertEqual(called.read_text().splitlines()[-1].rstrip(), expected)
            finally:
                shell.kill()
                os.close(asking)
        self.assertEqual((self.folder / "asked").read_text().split("\n").count("completion zsh finetune"), 1, "the program is asked once a shell")

    def test_zsh_finds_the_script_in_a_folder_of_functions(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed, so its completion is not tried")
        functions = self.folder / "functions"
        functions.mkdir()
        (functions / "_funicular").write_text(self.succeeds("completion", "zsh").out)
        script = (f"fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -D; compadd() {{ print -l -- $@ }}; "
                  f"words=({PROGRAM} finetune --task c); CURRENT=4; _funicular")
        done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split(), ["--", "cola", "sst2", "mrpc", "stsb", "rte", "qnli", "qqp", "mnli", "wnli", "custom", "tags"])

    def test_fish_completes_what_is_typed(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed, so its completion is not tried")
        script = "funicular completion fish | source\n"
        typed = {"funicular pre": ["predict", "pretrain"], "funicular finetune --learning": ["--learning-rate"],
                 "funicular finetune --task c": ["cola", "custom"], "funicular finetune --task cola --learning": ["--learning-rate"],
                 "funicular completion ": ["bash", "fish", "zsh"], "funicular absent --": [], "funicular predict --input li": ["lines.txt"]}
        for line in typed:
            script += f"echo '== {line}'; complete -C '{line}'\n"
        done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True, cwd=self.folder, env=self.recorder())
        found = {part.splitlines()[0]: sorted(part.splitlines()[1:]) for part in done.stdout.split("== ")[1:]}
        self.assertEqual(found, typed, done.stderr)
        self.assertEqual((self.folder / "asked").read_text().split("\n").count("completion fish finetune"), 1, "the program is asked once a shell")

    def test_other_shells_are_refused(self):
        for words in (["tcsh"], [], ["zsh", "finetune", "more"]):
            self.refuses(["completion", *words], "expects one shell: bash, zsh or fish; found \"" + " ".join(words))
        for shell in ("bash", "zsh", "fish"):
            self.refuses(["completion", shell, "absent"], f'completion {shell}: there is no command "absent"')



class PlacesAndFiles(ProgramTest):
    def test_a_file_that_nests_tables_too_deep_is_refused_with_its_line(self):
        file = self.folder / "deep.toml"
        for text in ("\n" + "a." * 100_000 + "a = 1\n", "\n[" + "a." * 100_000 + "a]\n", "\na = " + "[" * 100_000, "\na = " + "{b = " * 100_000):
            file.write_text(text)
            for words in (["plan", "--config", file], ["chain", file]):
                self.refuses(words, f"{file}:2: tables, arrays and dotted keys are nested more than 128 deep")
        file.write_text("".join(f"k{number}.a = 1\n" for number in range(100_000)))
        self.refuses(["plan", "--config", file], f"{file}:1: [k0] is not the name of a command")

    def test_help_is_no_key_of_a_file(self):
        file = self.folder / "run.toml"
        file.write_text("\nhelp = true\n")
        self.refuses(["plan", "--config", file], f"{file}:2: help is no key of a file; for help run funicular plan --help")

    def test_names_of_files_that_are_not_utf8_are_no_obstacle(self):
        folder = os.fsencode(self.folder) + b"/m\xff"
        os.rename(self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}), folder)
        rows = write_rows(self.folder / "rows.tsv", ("label", "text"), [("LABEL_0", "good"), ("LABEL_1", "bad")] * 4)
        model = os.fsdecode(folder)
        for words in (["finetune", "--model", model, "--task", "custom", "--train", rows, "--output", self.folder / "run", "--max-steps", 1,
                       "--max-length", 16],
                      ["evaluate", "--model", model, "--task", "custom", "--data", rows, "--output", self.folder / "evaluated"]):
            done = subprocess.run([PROGRAM, *map(str, exact(words))], capture_output=True, check=False, env=environment())
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("/m\ufffd", json.loads((self.folder / "run" / "run.json").read_text())["source_model"])

    def test_a_folder_for_temporary_files_that_is_not_there_is_named(self):
        self.refuses(["mask", "--tokenizer", self.model(), "--input", self.folder / "model/vocab.txt"],
                     "TMPDIR=/none/such, does not exist; set TMPDIR to a folder", env={**environment(), "TMPDIR": "/none/such"})


if __name__ == "__main__":
    unittest.main()
