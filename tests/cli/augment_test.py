"""funicular augment and vectors as people use them: files of every kind, several threads and ranks, kills, wrong input."""

import re
import struct
import time

from harness import *

HEAD = {"cls.predictions.bias": [len(VOCABULARY)], "cls.predictions.transform.dense.weight": [HIDDEN, HIDDEN],
        "cls.predictions.transform.dense.bias": [HIDDEN], "cls.predictions.transform.LayerNorm.weight": [HIDDEN],
        "cls.predictions.transform.LayerNorm.bias": [HIDDEN]}
PIECE = b".journl1"  # what begins each block of the unfinished work
HEADER = struct.Struct("<8sqQQQ")  # those bytes, the block's number, the bytes of its note and of its text, a hash; note and text follow


def pieces(folder):
    """Whole blocks in the unfinished work. The program removes the files when it is done, also while this reads them."""
    count = 0
    for path in folder.glob(".tmp-part-*"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        while len(data) >= HEADER.size:
            magic, _, note, text, _ = HEADER.unpack_from(data)
            if magic != PIECE:
                raise AssertionError(f"{path}: {magic}")
            size = HEADER.size + note + text
            count += len(data) >= size
            data = data[size:]
    return count


class AugmentTest(ProgramTest):
    def guesser(self, name="guesser", **changes):
        return write_model(self.folder / name, **{"extra_shapes": HEAD, **changes})

    def words(self, model, source, output="out.tsv", **options):
        values = {"model": model, "input": source, "output": self.folder / output, "task": "custom", "variants": 3, **options}
        return ["augment"] + [word for name, value in values.items() if value is not None
                              for word in ("--" + name.replace("_", "-"), *map(str, value if isinstance(value, list) else [value]))]

    def augmented(self, model, source, output="out.tsv", **options):
        counts = self.succeeds(*self.words(model, source, output, **options)).json()
        return counts, (self.folder / output).read_text()


class Files(AugmentTest):
    def test_of_every_format_keep_their_columns_and_labels_and_hold_the_same_variants(self):
        model, rows = self.guesser(), [("1", "good film, very long", "pro"), ("2", "the old song", "contra")]
        tsv = write_rows(self.folder / "in.tsv", ("id", "text", "label"), rows)
        counts, table = self.augmented(model, tsv)
        lines = [line.split("\t") for line in table.splitlines()]
        self.assertEqual(lines[0], ["id", "text", "label"])
        self.assertEqual((counts["rows"], len(lines) - 1), (2, 2 + counts["variants"]))
        self.assertEqual([lines[1], lines[5]], [list(row) for row in rows])
        self.assertEqual({(line[0], line[2]) for line in lines[1:]}, {("1", "pro"), ("2", "contra")})
        texts = [line[1] for line in lines[1:]]
        self.assertEqual(len(set(texts)), len(texts))
        (self.folder / "in.csv").write_text('id,text,label\n1,"good film, very long",pro\n2,the old song,contra\n')
        found = self.augmented(model, self.folder / "in.csv", "out.csv")[1].splitlines()
        self.assertEqual(found[1:], [",".join((line[0], f'"{line[1]}"' if "," in line[1] else line[1], line[2])) for line in lines[1:]])
        (self.folder / "in.jsonl").write_text("".join(json.dumps({"id": int(a), "text": b, "label": c}) + "\n" for a, b, c in rows))
        found = [json.loads(line) for line in self.augmented(model, self.folder / "in.jsonl", "out.jsonl")[1].splitlines()]
        self.assertEqual(found, [{"id": int(a), "text": b, "label": c} for a, b, c in lines[1:]])

    def test_of_named_tasks_are_read_and_what_is_written_trains(self):
        model = self.guesser()
        cola = write_rows(self.folder / "cola.tsv", None, [("s", str(i % 2), "*", f"the {word} is good") for i, word in enumerate(WORDS)])
        counts, table = self.augmented(model, cola, "cola-more.tsv", task="cola", variants=None)
        self.assertEqual({tuple(line.split("\t")[:3]) for line in table.splitlines()}, {("s", "0", "*"), ("s", "1", "*")})
        self.assertGreater(counts["variants"], 20 * len(WORDS))  # 30 of each are asked for
        mrpc = write_rows(self.folder / "mrpc.tsv", ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), [("1", "7", "8", 'a "good" film', "fine book")])
        lines = self.augmented(model, mrpc, "mrpc-more.tsv", task="mrpc", variants=2)[1].splitlines()
        self.assertEqual(len(lines), 2 + 4)
        for line in lines[2:4]:
            self.assertEqual(line.split("\t")[4], "fine book")
        for line in lines[4:]:
            self.assertEqual(line.split("\t")[3], 'a "good" film')
        sizes = {"qnli": (("index", "question", "sentence", "label"), ("0", "good film", "fine book", "entailment"), 20),
                 "qqp": (("id", "qid1", "qid2", "question1", "question2", "is_duplicate"), ("0", "1", "2", "good film", "fine book", "1"), 10),
                 "mnli": (("index", "sentence1", "sentence2", "label1", "gold_label"), ("0", "good film", "fine book", "neutral", "neutral"), 10),
                 "wnli": (("index", "sentence1", "sentence2", "label"), ("0", "good film", "fine book", "1"), 30)}
        for task, (header, row, variants) in sizes.items():  # as TinyBERT's authors have it; of wnli they say nothing
            path = write_rows(self.folder / f"{task}.tsv", header, [row])
            _, table = self.augmented(model, path, f"{task}-more.tsv", task=task, variants=None)
            self.assertEqual({len(line.split("\t")) for line in table.splitlines()}, {len(row)})
            self.assertEqual(json.loads((self.folder / f"{task}-more.tsv.made.json").read_text())["made_of"]["variants"], variants, task)
        self.succeeds("finetune", "--model", model, "--task", "mrpc", "--train", self.folder / "mrpc-more.tsv", "--output",
                      self.folder / "run", "--max-steps", "1", "--max-length", "16")


class Resuming(AugmentTest):
    def rows(self, count=500, longest=10):
        source = random.Random(3)
        rows = [(str(i), " ".join(source.choice(WORDS) for _ in range(source.randint(longest - 8, longest)))) for i in range(count)]
        return write_rows(self.folder / "in.tsv", ("label", "text"), rows)

    def test_after_kills_and_interruptions_gives_the_same_file_and_does_nothing_twice(self):
        model, source = self.guesser(), self.rows(1000, longest=16)
        expected = self.augmented(model, source, "whole.tsv")
        words, output, parts = self.words(model, source), self.folder / "out.tsv", self.folder / "out.tsv.parts"
        blocks, done, stopped, numbers = set(), 0, 0, (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
        for number in numbers:
            process = subprocess.Popen([PROGRAM, *exact(words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            while process.poll() is None and pieces(parts) <= done:
                time.sleep(0.001)
            process.send_signal(number)
            error = process.communicate(timeout=60)[1].decode()
            if process.returncode == 0 or output.exists():  # it was quicker
                break
            self.assertEqual(process.returncode, -number if number == signal.SIGKILL else 75, error)
            told = re.search(rf"{done} of (\d+) blocks", error)
            self.assertEqual(told is not None, done > 0, f"{done}: {error}")
            blocks |= {int(told[1])} if told else set()
            done, stopped = pieces(parts), stopped + 1
            self.assertGreater(done, 0)
        self.assertGreater(stopped, 1, "no process was interrupted; are the blocks that are made recognised?")
        self.assertEqual(len(blocks), 1)
        self.assertGreater(min(blocks), 5)
        result = self.succeeds(*words)
        self.assertEqual((result.json(), output.read_text()), expected)
        self.assertFalse((self.folder / "out.tsv.parts").exists())
        self.assertEqual([path for path in self.folder.iterdir() if path.name.startswith(".tmp")], [])
        left = self.folder / ".tmp-out.tsv.parts-0123456789abcdef"  # as of a process that was killed while it removed them
        left.mkdir()
        again = self.succeeds(*words)
        self.assertFalse(left.exists())
        self.assertIn("is complete already", again.err)
        self.assertEqual(again.json(), expected[0])

    def test_begins_anew_where_the_options_or_the_output_are_others(self):
        model, source = self.guesser(), self.rows(70)
        first = self.augmented(model, source)[1]
        self.assertNotEqual(self.augmented(model, source, seed=1)[1], first)
        self.assertEqual(self.augmented(model, source)[1], first)
        (self.folder / "out.tsv").write_text("label\ttext\n")
        self.assertEqual(self.augmented(model, source)[1], first)
        (self.folder / "out.tsv.parts").mkdir()
        (self.folder / "out.tsv.parts" / "job.json").write_text("{}")
        (self.folder / "out.tsv").unlink()
        result = self.succeeds(*self.words(model, source))
        self.assertIn("starts from the beginning", result.err)

    def test_threads_and_ranks_do_not_change_the_file(self):
        model, source = self.guesser(), self.rows(300)
        expected = self.augmented(model, source, threads=1)
        self.assertEqual(self.augmented(model, source, "threads.tsv", threads=2), expected)
        for ranks in (2, 3):
            output = self.folder / f"ranks-{ranks}.tsv"
            done = self.succeeds("launch", "-n", ranks, "--", PROGRAM, *exact(self.words(model, source, output.name)))
            self.assertEqual((done.json(), output.read_text()), expected)


class Memory(AugmentTest):
    def own_memory(self, words):
        """The most that the process had of its own, in bytes: without pages of files, which the system can take back."""
        process = subprocess.Popen([PROGRAM, *exact(words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment())
        found = [0]
        while process.poll() is None:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            found += [1024 * int(size) for size in re.findall(r"^RssAnon:\s*(\d+)", status, re.MULTILINE)]
            time.sleep(0.005)
        self.assertEqual(process.returncode, 0, process.stderr.read())
        process.stderr.close()
        return max(found)

    def test_of_a_large_file_is_that_of_a_small_one(self):
        model = self.guesser()
        peaks = []
        for count in (1000, 8000):
            rows = [(f"{i} " + "x" * 3000, f"the {WORDS[i % len(WORDS)]} is good") for i in range(count)]
            source = write_rows(self.folder / f"{count}.tsv", ("note", "text"), rows)
            peaks.append(self.own_memory(self.words(model, source, f"more-{count}.tsv", text_column="text", threads=2)))
        written = (self.folder / "more-8000.tsv").stat().st_size
        self.assertGreater(written, 80e6)
        if not SANITIZED:
            self.assertLess(peaks[1] - peaks[0], written / 4, peaks)

    def test_of_a_long_text_does_not_hold_all_its_sequences(self):
        model = self.guesser()
        peaks, source = [], random.Random(4)
        for count in (400, 40000):  # each word is a sequence of 64 tokens, of which a batch has three numbers of 8 bytes
            path = write_rows(self.folder / f"{count}.tsv", ("text",), [(" ".join(source.choice(WORDS) for _ in range(count)),)])
            peaks.append(self.own_memory(self.words(model, path, f"more-{count}.tsv", max_length=64, variants=1, candidates=1, threads=2)))
        if not SANITIZED:
            self.assertLess(peaks[1] - peaks[0], 40000 * 64 * 24 / 2, peaks)


class Wrong(AugmentTest):
    def test_input_is_refused_with_what_to_do_and_leaves_nothing(self):
        model, source = self.guesser(), write_rows(self.folder / "in.tsv", ("label", "text"), [("a", "good film")])
        plain = self.model()
        ragged, empty = self.folder / "ragged.txt", self.folder / "empty.tsv"
        ragged.write_text("good 1 2\nbad 1\n")
        empty.write_text("label\ttext\n")
        bad = write_rows(self.folder / "bad.tsv", ("label", "text"), [("a", "good"), ("b",)])
        before = set(self.folder.iterdir())
        for changes, phrases in (({"model": plain}, ("has no complete masked-language-model head", "funicular pretrain --model")),
                                 ({"vectors": ragged}, ("ragged.txt:2: expected a word and 2 numbers",)),
                                 ({"vectors": self.folder / "none.txt"}, ("none.txt",)),
                                 ({"probability": "1.5"}, ("--probability",)),
                                 ({"probability": "nan"}, ("--probability",)),
                                 ({"variants": 0}, ("--variants",)),
                                 ({"candidates": 0}, ("--candidates",)),
                                 ({"max_length": 65}, ("--max-length 65 is more than the model's 64 positions",)),
                                 ({"text_column": "texts"}, ("did you mean \"text\"",)),
                                 ({"task": "cola", "format": "tsv"}, ("--format is for --task custom",)),
                                 ({"source": empty}, ("no rows; expected at least one after the header",)),
                                 ({"source": bad}, ("bad.tsv:3: expected 2 tab-separated columns",)),
                                 ({"source": self.folder / "in.tsv", "output": "in.tsv"}, ("would be replaced",)),
                                 ({"output": "none/out.tsv"}, ("there is no folder",)),
                                 ({"vectors_cache": self.folder / "v.bin"}, ("give both, or neither",)),
                                 ({"stop_words": self.folder / "none.txt"}, ("none.txt",)),
                                 ({"compat": "bert"}, ("--compat",))):
            with self.subTest(changes):
                options = {"model": model, "source": source, **changes}
                self.refuses(self.words(options.pop("model"), options.pop("source"), **options), *phrases)
                self.assertEqual(set(self.folder.iterdir()), before)

    def test_half_a_head_is_refused(self):
        half = dict(list(HEAD.items())[:2])
        model = write_model(self.folder / "half", extra_shapes=half)
        source = write_rows(self.folder / "in.tsv", ("label", "text"), [("a", "good film")])
        self.refuses(self.words(model, source), "has no complete masked-language-model head", "cls.predictions.transform.dense.bias")

    def test_a_model_that_overflows_stops_it(self):
        model = self.guesser()
        weights = random_weights({**encoder_shapes(), **HEAD})
        at = VOCABULARY.index("dull") * HIDDEN
        weights["embeddings.word_embeddings.weight"][1][at:at + HIDDEN] = array.array("f", [3e38, -3e38] * (HIDDEN // 2))
        write_safetensors(model / "model.safetensors", weights)
        source = write_rows(self.folder / "in.tsv", ("text",), [("the good film",)] * 20 + [("the dull film",)] + [("the good film",)] * 20)
        for threads in (1, 2):
            self.refuses(self.words(model, source, threads=threads), "the model answers", code=1)
            self.assertFalse((self.folder / "out.tsv").exists())


class Vectors(AugmentTest):
    def test_of_a_corpus_serve_augment_without_any_download(self):
        source = random.Random(8)
        sentences = [f"the {source.choice(['zither', 'banjo', 'viola'])} plays a {source.choice(['waltz', 'tango', 'polka'])}" for _ in range(300)]
        (self.folder / "corpus.txt").write_text("\n".join(sentences) + "\n")
        outputs = []
        for threads in (1, 2):
            output = self.folder / f"vectors-{threads}.txt"
            found = self.succeeds("vectors", "--input", self.folder / "corpus.txt", "--output", output, "--size", 8, "--window", 1, "--threads", threads).json()
            self.assertEqual((found["words"], found["size"]), (9, 8))
            outputs.append(output.read_bytes())
        self.assertEqual(outputs[0], outputs[1])
        rows = write_rows(self.folder / "in.tsv", ("label", "text"), [("a", "the zither plays")])
        counts, table = self.augmented(self.guesser(), rows, vectors=self.folder / "vectors-1.txt", candidates=2, probability=1)
        self.assertEqual((counts["near_words"], counts["guessed_words"]), (2, 0))  # "plays" is of several pieces, too
        self.assertTrue({line.split()[2] for line in table.splitlines()[2:]} <= {"banjo", "viola"}, table)

    def test_of_chinese_words_make_the_similar_words_of_pretrain_and_vary_rows(self):
        """From raw text to MacBERT's masking: the words of a dictionary, their vectors, similar words, a run."""
        source, cities, animals = random.Random(4), ("北京", "上海", "天津"), ("老虎", "大象", "猴子")
        dictionary, corpus = self.folder / "words.txt", self.folder / "corpus.txt"
        dictionary.write_text("".join(f"{word} 5 n\n" for word in (*cities, *animals, "今天", "下雨", "刮风", "吃草", "睡觉")))
        corpus.write_text("\n\n".join(f"{source.choice(words)}今天{does}" for words, does in [(cities, "下雨刮风"), (animals, "吃草睡觉")] * 300) + "\n")
        characters = sorted(set("".join((*cities, *animals, "今天下雨刮风吃草睡觉"))))
        model = self.guesser(vocabulary=[*VOCABULARY[:5], *characters, *VOCABULARY[5 + len(characters):]])  # in the place of letters
        vectors = self.folder / "vectors.txt"
        self.succeeds("vectors", "--input", corpus, "--output", vectors, "--size", 16, "--epochs", 40, "--word-dictionary", dictionary)
        similar = {"replacement": "similar", "similar-words": vectors, "similar-count": 2, "masking": "whole-word", "word-dictionary": dictionary}
        words = [str(word) for name, value in similar.items() for word in (f"--{name}", value)]
        shown = self.succeeds("mask", "--tokenizer", model, "--input", corpus, "--show", "--json", "--examples", 200, *words).json()
        pairs = [pair for example in shown["examples"] for pair in re.findall(r"\{(.*?)\|(.*?)\}", example)]
        near = [(stood, shows) for stood, shows in pairs if stood in cities + animals and shows in cities + animals and stood != shows]
        self.assertGreater(len(near), 30)
        self.assertEqual([pair for pair in near if (pair[0] in cities) != (pair[1] in cities)], [])
        self.succeeds("tokenize", "--tokenizer", model, "--input", corpus, "--output", self.folder / "corpus.tokens")
        run = self.succeeds("pretrain", "--model", model, "--train", self.folder / "corpus.tokens", "--output", self.folder / "run", "--max-steps", 2,
                            "--max-length", 16, *words)
        self.assertIn("11 words have similar ones of as many pieces", run.err)
        rows = write_rows(self.folder / "in.tsv", ("label", "text"), [("a", "北京今天下雨")])
        _, table = self.augmented(model, rows, vectors=vectors, candidates=2, probability=1, variants=4, word_dictionary=dictionary)
        self.assertTrue({line.split("\t")[1][:2] for line in table.splitlines()[2:]} <= {"上海", "天津"}, table)

    def test_wrong_input_is_refused(self):
        corpus = self.folder / "corpus.txt"
        corpus.write_text("one word each\n")
        words = ["vectors", "--input", corpus, "--output", self.folder / "v.txt"]
        self.refuses(words, "smaller --min-count")
        self.refuses([*words[:3], "--output", corpus], "would be replaced")
        self.refuses([*words, "--size", 0], "--size")
        self.refuses([*words, "--header"], "--header works only with TSV and CSV")
        self.refuses([*words, "--text-column", "a"], "--text-column works only with tables")
        self.refuses(["vectors", "--input", self.folder / "none.txt", "--output", self.folder / "v.txt"], "none.txt")
        self.assertFalse((self.folder / "v.txt").exists())
