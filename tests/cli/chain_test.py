"""funicular chain with real commands: what is done stays done, what changed is done again, and a kill loses nothing."""

import os
import re
import shutil
import time

from harness import *

CHAIN = """[store]
command = "tokenize"
tokenizer = "model"
input = "texts.txt"
output = "texts.tokens"

[adapted]
command = "pretrain"
model = "model"
train = "texts.tokens"
output = "runs/adapted"
max-steps = 4
batch-size = 4
max-length = 16
logging-steps = 1
save-steps = 1
precision = "fp32"

[labels]
command = "finetune"
model = "runs/adapted/model"
task = "custom"
train = "train.tsv"
eval = "eval.tsv"
output = "runs/labels"
max-steps = 3
batch-size = 8
max-length = 16
save-steps = 1
learning-rate = 0.005
precision = "fp32"

[tested]
command = "evaluate"
model = "runs/labels/model"
input = "eval.tsv"
predictions = "answers.jsonl"
precision = "fp32"
"""
STEPS = ["store", "adapted", "labels", "tested"]
PRODUCTS = ["texts.tokens/tokens.bin", "runs/adapted/model/model.safetensors", "runs/labels/model/model.safetensors", "answers.jsonl"]


class ChainTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.model()
        source = random.Random(5)
        (self.folder / "texts.txt").write_text("\n\n".join(" ".join(source.choice(WORDS) for _ in range(12)) for _ in range(30)))
        self.custom_files(train=24, held_out=8)
        self.file = self.folder / "chain.toml"
        self.file.write_text(CHAIN)

    def change(self, old, new):
        text = self.file.read_text()
        self.assertEqual(text.count(old), 1, old)
        self.file.write_text(text.replace(old, new))

    def plan(self):
        """step -> (what would happen, why)"""
        lines = self.succeeds("chain", self.file, "--dry-run").out.splitlines()
        return {line[8:28].strip(): (line[:8].strip(), line[28:].strip()) for line in lines}

    def started(self, result):
        """The steps whose commands a call has started, by their commands."""
        return re.findall(r"\$ funicular (?:launch -n \d+ -- \S+ )?([a-z]+) ", result.err)

    def products(self):
        return {name: (self.folder / name).read_bytes() for name in PRODUCTS}


class Chain(ChainTest):
    def test_does_what_its_commands_do_one_by_one_and_each_once(self):
        self.assertEqual({step: kind for step, (kind, _) in self.plan().items()}, dict.fromkeys(STEPS, "run"))
        first = self.succeeds("chain", self.file)
        self.assertEqual(self.started(first), ["tokenize", "pretrain", "finetune", "evaluate"])
        self.assertEqual(list(self.plan()), STEPS)
        made = self.products()
        answers = [json.loads(line) for line in first.out.splitlines()]
        self.assertIn("accuracy", answers[-1])
        self.assertEqual((self.folder / "chain.state" / "tested.out").read_text(), json.dumps(answers[-1], separators=(",", ":")) + "\n")
        again = self.succeeds("chain", self.file)
        self.assertEqual((self.started(again), again.out), ([], ""))
        self.assertNotIn(PROGRAM, (self.folder / "chain.state" / "state.json").read_text())

        (self.folder / "by-hand").mkdir()
        for line in re.findall(r"\$ funicular (.*)", first.err):
            words = [word.replace("=runs/", "=by-hand/").replace("=texts.tokens", "=by-hand/texts.tokens").replace("=answers", "=by-hand/answers")
                     for word in line.split()]
            self.assertEqual(run(*words, cwd=self.folder).code, 0)
        for name, contents in made.items():
            self.assertEqual((self.folder / "by-hand" / name.removeprefix("runs/")).read_bytes(), contents, name)

    def test_runs_again_what_a_change_concerns_and_says_why(self):
        self.succeeds("chain", self.file)
        before = self.products()
        # What changes nothing: times, the folder that it is called from, speed, how often something is told or saved.
        os.utime(self.folder / "train.tsv", (1, 1))
        self.change("save-steps = 1\nlearning-rate", "save-steps = 0\nlogging-steps = 1\nthreads = 2\nnum-workers = 3\nlearning-rate")
        self.assertEqual({kind for kind, _ in self.plan().values()}, {"done"})
        # An option that changes a sum's rounding leaves the step done, and is told.
        self.assertRegex(self.plan()["labels"][1], r"^--threads was .*, is 2 \(the same up to rounding\)$")
        self.change("threads = 2", "micro-batch-tokens = 4096\nranks = 2")
        self.assertEqual(self.plan()["labels"], ("done", "--micro-batch-tokens was 8192, is 4096 (the same up to rounding); "
                                                         "ranks was 1, is 2 (the same up to rounding)"))
        # As it stands by default.
        self.change("save-steps = 0\n", "save-steps = 0\nweight-decay = 0\nseed = 42\n")
        self.assertEqual({kind for kind, _ in self.plan().values()}, {"done"})

        self.change("learning-rate = 0.005", "learning-rate = 5e-4")
        plan = self.plan()
        self.assertEqual(plan["labels"], ("rerun", "--learning-rate was 0.005, is 0.0005"))
        self.assertEqual(plan["adapted"], ("done", ""))
        self.assertEqual(plan["tested"][0], "perhaps")
        result = self.succeeds("chain", self.file)
        self.assertEqual(self.started(result), ["finetune", "evaluate"])
        self.assertIn("labels: rerun: --learning-rate was 0.005, is 0.0005", result.err)
        self.assertRegex(result.err, r"tested: rerun: input runs/labels/model changed")
        self.assertNotEqual(self.products(), before)
        self.assertFalse((self.folder / "runs" / "labels.replaced").exists())

        write_rows(self.folder / "eval.tsv", ("label", "text"), sentiment_rows(10, 5))
        plan = self.plan()
        self.assertEqual(plan["labels"], ("rerun", "input eval.tsv changed"))
        self.assertEqual(plan["tested"], ("rerun", "input eval.tsv changed"))
        self.assertEqual(self.started(self.succeeds("chain", self.file)), ["finetune", "evaluate"])

    def test_shares_a_step_among_ranks_and_takes_a_file_of_options(self):
        (self.folder / "more.toml").write_text("learning-rate = 0.5\nmax-steps = 2\n")
        self.file.write_text(CHAIN.split("[tested]")[0].split("[adapted]")[1].join(["[adapted]", ""]).replace(
            "train = \"texts.tokens\"", "train = \"t.tokens\"").replace(
            "command = \"finetune\"", "command = \"finetune\"\nranks = 2\ndeterministic = true\nmicro-batch-size = 4\nconfig = \"more.toml\"").replace(
            "max-steps = 3\n", ""))
        self.succeeds("tokenize", "--tokenizer", self.folder / "model", "--input", self.folder / "texts.txt", "--output", self.folder / "t.tokens")
        result = self.succeeds("chain", self.file)
        self.assertEqual(self.started(result), ["pretrain", "finetune"])
        found = json.loads((self.folder / "runs/labels/run.json").read_text())
        self.assertEqual((found["ranks"], found["max_steps"], found["optimizer"]["learning_rate"]), (2, 2, 0.005))
        (self.folder / "more.toml").write_text("learning-rate = 0.5\nmax-steps = 4\n")
        self.change("ranks = 2", "ranks = 1")
        self.assertEqual(self.plan()["labels"], ("rerun", "--max-steps was 2, is 4"))


    def test_runs_again_what_is_saved_at_other_steps_where_that_changes_the_weights(self):
        self.file.write_text(CHAIN.split("[labels]")[0].replace("save-steps = 1", 'save-steps = 1\nranks = 2\nmicro-batch-size = 2\n'
                             'pipeline-parallel = 2\nschedule = "pipedream"'))
        self.succeeds("chain", self.file)
        self.change("save-steps = 1", "save-steps = 2")
        self.assertEqual(self.plan()["adapted"], ("rerun", "--save-steps was 1, is 2"))

    def test_runs_again_what_a_cache_of_the_teacher_is_added_to_or_taken_from(self):
        layers = CHAIN.split("[labels]")[1].split("[tested]")[0].replace("runs/adapted/model", "teacher").replace("runs/labels", "runs/layers")
        write_model(self.folder / "teacher")
        self.file.write_text("[layers]" + layers.replace('"finetune"', '"distill"\nstage = "intermediate"\nstudent = "1-layer"\nlogging-steps = 1').replace(
            "model =", "teacher =").replace('eval = "eval.tsv"\n', ""))
        self.succeeds("chain", self.file)
        weights = (self.folder / "runs/layers/model/model.safetensors").read_bytes()
        self.change("save-steps = 1", 'save-steps = 1\ncache-teacher = "cache"')
        self.assertEqual(self.plan()["layers"], ("rerun", "--cache-teacher was not given, is given"))
        self.succeeds("chain", self.file)
        self.assertNotEqual((self.folder / "runs/layers/model/model.safetensors").read_bytes(), weights)
        self.change('"cache"', '"elsewhere"')
        self.assertEqual(self.plan()["layers"], ("done", ""))

        # Interrupted with a cache, and given again without: this run starts from the beginning, and is not refused as another run's continuation.
        self.change("max-steps = 3", "max-steps = 3000")
        self.change('"runs/layers"', '"runs/others"')
        result = run_and_interrupt(self.folder / "runs/others/metrics.jsonl", 2, signal.SIGTERM, "chain", self.file)
        self.assertEqual(result.code, 75, result.err)
        self.assertEqual(self.plan()["layers"][0], "resume")
        self.change('cache-teacher = "elsewhere"\n', "")
        self.change("max-steps = 3000", "max-steps = 3")
        self.assertIn("--cache-teacher was given, is not given", self.plan()["layers"][1])
        self.succeeds("chain", self.file)
        self.assertEqual((self.folder / "runs/others/model/model.safetensors").read_bytes(), weights)


class Kills(ChainTest):
    def kill_after(self, seconds, everything, *words):
        """Starts the chain and kills it after a while, or lets it end; returns what it said, its exit code and how
        many processes of steps were killed with it."""
        process = subprocess.Popen([PROGRAM, *map(str, words or ("chain", self.file))], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=environment(), text=True, start_new_session=True)
        time.sleep(seconds)
        # And the step's own process, at once.
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() if everything else []
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        process.kill()
        process.wait()
        return process.communicate()[1], process.returncode, len(children)

    def seconds_of(self, *words):
        """The time of the whole command, which is started as those that are killed: in a fork it takes a fraction."""
        begin = time.monotonic()
        subprocess.run([PROGRAM, *map(str, words)], capture_output=True, check=True, env=environment())
        return time.monotonic() - begin

    def test_at_any_moment_lose_nothing_and_nothing_done_is_done_twice(self):
        whole, expected = self.seconds_of("chain", self.file), self.products()
        for path in (*[self.folder / name for name in ("texts.tokens", "runs", "chain.state")], self.folder / "answers.jsonl"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        source, done, kills, of_steps = random.Random(3), set(), 0, 0
        for number in range(4):
            said, code, children = self.kill_after(source.uniform(0.1, 0.6) * whole, everything=number % 2 == 0)
            of_steps += children
            kills += code == -signal.SIGKILL
            for step in re.findall(r"\d of \d: (\w+): (?:run|resume|rerun)", said):
                self.assertNotIn(step, done, said)
            self.assertNotIn("rerun", said)
            done |= set(re.findall(r"(\w+): done in", said))
        self.assertGreater(kills, 0)
        self.assertGreater(of_steps, 0)
        self.assertTrue(done, "every kill came before a step was done")
        said = self.succeeds("chain", self.file).err
        for step in done:
            self.assertRegex(said, rf"\d of 4: {step}: done")
        self.assertEqual(self.products(), expected)

    def test_of_a_chain_from_a_template_lose_nothing(self):
        shares = {"contra": "0.9\t0.1", "pro": "0.2\t0.8"}
        rows = write_rows(self.folder / "shares.tsv", ("text", "p_contra", "p_pro"), [(text, shares[label]) for label, text in sentiment_rows(12, 3)])
        gold = write_rows(self.folder / "gold.tsv", ("label", "text"), [(label, f"{text} not") for label, text in sentiment_rows(12, 4)])
        words = lambda name: ["chain", "--template", "llm-labels", "--model", self.folder / "model", "--train", rows, "--eval", gold, "--test", gold,
                              "--output", self.folder / name]
        whole = self.seconds_of(*words("whole"))
        for part, everything in ((0.1, False), (0.3, True)):
            self.assertEqual(self.kill_after(part * whole, everything, *words("killed"))[1], -signal.SIGKILL)
        self.succeeds(*words("killed"))
        for name in ("teacher/model/model.safetensors", "model/model.safetensors", "tested/teacher/predictions.jsonl", "tested/student/predictions.jsonl"):
            self.assertEqual(*[(self.folder / run / name).read_bytes() for run in ("whole", "killed")], name)
        self.assertEqual(sorted((self.folder / "killed").glob("**/.tmp-*")), [])

    def test_that_ask_it_to_stop_let_it_save_and_go_on(self):
        self.change("max-steps = 4", "max-steps = 3000")
        metrics = self.folder / "runs" / "adapted" / "metrics.jsonl"
        result = run_and_interrupt(metrics, 2, signal.SIGTERM, "chain", self.file)
        self.assertEqual(result.code, 75, result.err)
        self.assertIn("adapted (chain.toml:7) was interrupted; to resume, repeat the command".replace("chain.toml", str(self.file)), result.err)
        self.assertEqual(self.plan()["adapted"][0], "resume")
        self.assertEqual(self.plan()["store"][0], "done")
        self.change("max-steps = 3000", "max-steps = 5")
        self.assertEqual(self.plan()["adapted"], ("rerun", "--max-steps was 3000, is 5"))
        self.succeeds("chain", self.file)
        self.assertEqual(len(metrics.read_text().splitlines()), 5)


class ManySteps(ProgramTest):
    def test_a_thousand_are_planned_in_moments(self):
        (self.folder / "texts.txt").write_text("a film\n")
        write_model(self.folder / "model")
        steps = [f'[s{number}]\ncommand = "tokenize"\ntokenizer = "model"\ninput = "texts.txt"\noutput = "t{number}.tokens"\n' for number in range(1000)]
        reads = ", ".join(f'"t{number}.tokens"' for number in range(1000))
        (self.folder / "chain.toml").write_text("".join(steps) + f'[all]\ncommand = "report"\ninput = [{reads}]\noutput = "all.html"\n')
        begin = time.monotonic()
        lines = self.succeeds("chain", self.folder / "chain.toml", "--dry-run").out.splitlines()
        self.assertLess(time.monotonic() - begin, 20)  # about half a second; seconds for each hundred if every pair is compared
        self.assertEqual(len(lines), 1001)
        # As if all were done under other names, and one had changed.
        inputs = {"tokenizer": [{"path": "model", "hash": ""}], "input": [{"path": "texts.txt", "hash": ""}]}
        state = {"format": 1, "files": {}, "steps": {f"old{number}": {
            "done": True, "command": "tokenize", "options": {"output": [f"t{number}.tokens"]}, "inputs": inputs, "made": {f"t{number}.tokens": ""},
            "seconds": 0, "version": "", "place": number} for number in range(1000)}}
        (self.folder / "chain.state").mkdir()
        (self.folder / "chain.state" / "state.json").write_text(json.dumps(state))
        begin = time.monotonic()
        self.succeeds("chain", self.folder / "chain.toml", "--dry-run")
        self.assertLess(time.monotonic() - begin, 20)


class WrongChains(ChainTest):
    def refuses_chain(self, old, new, *phrases, line=None):
        self.file.write_text(CHAIN)
        self.change(old, new)
        more = [f"{self.file}:{line}"] if line else []
        result = self.refuses(["chain", self.file], *phrases, *more)
        self.assertFalse((self.folder / "chain.state" / "state.json").exists(), "nothing was begun")
        return result

    def test_are_refused_with_their_line_and_what_to_do(self):
        self.refuses_chain('train = "texts.tokens"', 'train = "other.tokens"', "--train other.tokens", "no step makes it", line=10)
        self.refuses_chain('model = "model"\ntrain', 'modle = "model"\ntrain', "unknown option --modle", "--model?", line=9)
        self.refuses_chain('max-steps = 4', 'max-steps = "many"', "--max-steps expects a whole number", line=12)
        self.refuses_chain('command = "pretrain"', 'command = "pre-train"', 'unknown command "pre-train"', "pretrain?", line=7)
        self.refuses_chain('model = "model"\ntrain', 'train', "--model", "is required", line=7)
        self.refuses_chain('output = "runs/labels"', 'output = "runs/adapted"', "already an output of adapted", line=25)
        self.refuses_chain('model = "runs/adapted/model"', 'model = "runs/adapted/modle"', "leaves model, run.json, metrics.jsonl there", line=21)
        self.refuses_chain('tokenizer = "model"', 'tokenizer = "runs/labels/model"', "circle", "store", "adapted", "labels", line=1)
        self.refuses_chain('command = "evaluate"', 'command = "doctor"', "doctor is no step of a chain", line=33)
        self.refuses_chain('command = "evaluate"', 'command = "launch"', "ranks = N", line=33)
        self.refuses_chain('[store]', 'seed = 3\n[store]', "outside of the steps", line=1)
        self.refuses(["chain"], "expects one FILE")
        self.refuses(["chain", self.folder / "none.toml"], "none.toml")

    def test_are_refused_where_they_would_replace_what_is_not_theirs(self):
        (self.folder / "answers.jsonl").write_text("precious")
        result = self.refuses(["chain", self.file], "--predictions answers.jsonl exists", "move it away", f"{self.file}:37")
        self.assertEqual(self.started(result), [])
        self.assertEqual((self.folder / "answers.jsonl").read_text(), "precious")

    def test_whose_step_is_refused_end_with_its_reason_and_go_on_when_it_is_corrected(self):
        self.change('max-length = 16\nlogging', 'max-length = 4096\nlogging')
        result = self.refuses(["chain", self.file], f"adapted ({self.file}:7) was refused", "4096", "correct it")
        self.assertEqual(self.started(result), ["tokenize", "pretrain"])
        self.change('max-length = 4096\nlogging', 'max-length = 16\nlogging')
        self.assertEqual(self.started(self.succeeds("chain", self.file)), ["pretrain", "finetune", "evaluate"])

    def test_with_a_damaged_state_are_refused(self):
        (self.folder / "chain.state").mkdir()
        (self.folder / "chain.state" / "state.json").write_text('{"format": 1, "st')
        self.refuses(["chain", self.file], "chain.state/state.json is damaged", "remove it")


class EveryOption(ProgramTest):
    def test_of_every_step_is_told_whether_it_changes_the_result(self):
        commands = re.findall(r"^  ([a-z]+)  ", self.succeeds("--help").out, re.M)
        completed = [re.search(r"^_funicular_words\[([a-z]+)\]=\"(.*)\"$", self.succeeds("completion", "bash", command).out, re.M).groups()
                     for command in commands]
        steps = []
        for command, options in completed:
            found = run("chain", "--options", command)
            if found.code != 0:
                self.assertIn("is no step of a chain", found.err)
                continue
            steps.append(command)
            effects = dict(re.split(r" +", line, maxsplit=1) for line in found.out.splitlines())
            self.assertLessEqual(set(options.split()) - {"--help", "--help-all", "--config"}, set(effects), command)
        self.assertLessEqual({"tokenize", "pretrain", "finetune", "distill", "evaluate", "predict"}, set(steps))


if __name__ == "__main__":
    unittest.main()
