"""What the options of pretrain and finetune do: machine and randomness, ranks."""

from harness import PROGRAM, environment, json, read_safetensors

from .lab import *

MACHINE, RANKS = Table(), Table()
MEGABYTE = 1 << 20


# ---- machine and randomness


@MACHINE.row("--precision", "the number format of weights and products")
def precision(lab):
    runs = {name: lab.train(precision=name, optim="sgd") for name in ("fp64", "fp32", "bf16")}
    runs["fp16"] = lab.train(precision="fp16", optim="sgd", initial_loss_scale=8)
    for name, run in runs.items():
        path = run.folder / "checkpoints" / "step-000001" / "model.safetensors"
        sizes = {len(raw) // math.prod(shape) for shape, raw in read_safetensors(path).values()}
        lab.assertEqual(sizes, {8 if name == "fp64" else 4}, name)
    gradient = {name: run.state("momentum_buffer")["bert.encoder.layer.0.output.dense.weight"] for name, run in runs.items()}
    error = {name: norm(less(values, gradient["fp64"])) / norm(gradient["fp64"]) for name, values in gradient.items()}
    lab.assertTrue(0 < error["fp32"] < 1e-4, error)
    lab.assertTrue(error["fp32"] < error["fp16"] < 2e-2, error)  # 11 bits
    lab.assertTrue(error["fp16"] < error["bf16"] < 1e-1, error)  # 8 bits
    lab.refuses_to_train("--precision tf32 is for NVIDIA GPUs", "--device cuda", "--precision fp32", precision="tf32")
    # auto: what the processor multiplies, and what the run that goes on has.
    for isa, chosen in (("avx2", "fp32"), (None, fastest_precision("native"))):
        other, output = "avx512_bf16" if isa else "avx2", lab.folder / f"auto-{isa}"
        words = lab.words(output, {"precision": "auto", "max_steps": 1, "learning_rate": NOTHING})
        for steps, limit in ((1, isa), (2, other)):
            words[words.index("--max-steps") + 1] = str(steps)
            without = {name: value for name, value in environment().items() if name != "FUNICULAR_ISA"}
            result = lab.run_with({**without, **({"FUNICULAR_ISA": limit} if limit else {})}, *words)
            lab.assertIn(f"precision: {chosen}, {'as the run began' if steps > 1 else 'this processor'}", result.err)
            lab.assertEqual(json.loads((output / "run.json").read_text())["precision"], chosen)
    lab.assertTrue("loss_scale" in runs["fp16"].records[0] and "loss_scale" not in runs["bf16"].records[0])


OVERFLOWS = {"precision": "fp16", "initial_loss_scale": 2 ** 24, "max_steps": 4}  # gradients, at first
FITS = {"precision": "fp16", "initial_loss_scale": 8, "max_steps": 4}


def scales(run):
    """After each step."""
    return [math.log2(scale) for scale in run.each("loss_scale")]


@MACHINE.row("--loss-scale", "the scale is that one throughout; where gradients overflow the steps are left out")
def loss_scale(lab):
    lab.assertEqual(scales(lab.train(loss_scale=128, loss_scale_window=1, **FITS)), [7] * 4)
    huge = lab.trains_without_update(loss_scale=2 ** 40, precision="fp16", max_steps=4)
    lab.assertEqual((scales(huge), huge.each("skipped_steps")), ([40] * 4, [1, 2, 3, 4]))


@MACHINE.row("--initial-loss-scale", "the scale of the first step")
def initial_loss_scale(lab):
    lab.assertEqual(scales(lab.train(**FITS)), [3] * 4)
    lab.assertEqual(lab.train(precision="fp16", max_steps=30).file["loss_scale"].split(",")[0], "dynamic from 65536", "the default")


@MACHINE.row("--min-loss-scale", "the scale does not fall below it")
def min_loss_scale(lab):
    lab.assertEqual(scales(lab.trains_without_update(hysteresis=1, min_loss_scale=2 ** 23, **OVERFLOWS)), [23] * 4)


@MACHINE.row("--loss-scale-window", "the scale doubles after so many steps without overflow")
def loss_scale_window(lab):
    lab.assertEqual(scales(lab.train(loss_scale_window=2, **FITS)), [3, 4, 4, 5])
    lab.assertEqual(scales(lab.train(**FITS)), [3, 3, 3, 3])


@MACHINE.row("--hysteresis", "the scale is halved from that overflow on")
def hysteresis(lab):
    for count, found in lab.few(((3, [24, 24, 23, 22]), (1, [23, 22, 21, 20]))):
        lab.assertEqual(scales(lab.trains_without_update(hysteresis=count, **OVERFLOWS)), found)


@MACHINE.row("--recompute", "less memory, and the same bits")
def recompute(lab):
    rows = lab.data("many", lab.texts([LONGEST - SPECIAL] * 1000))
    shape = {"train": rows, "batch_size": 1000, "micro_batch_tokens": 0, "precision": "fp32"}
    plain = lab.measured_training(recompute="none", **shape)
    for name, saved in lab.few((("full", 8), ("selective", 4), ("sqrt", 8))):
        run = lab.measured_training(recompute=name, **shape)
        lab.assertEqual(run.weights, plain.weights, name)
        lab.assert_larger(plain.peak, run.peak + saved * MEGABYTE)


@MACHINE.row("--seed", "new weights, order, masks and dropout follow from it alone")
def seed(lab):
    shuffled = {"shuffle": True, "batch_size": 1, "max_steps": 12, "learning_rate": NOTHING}
    one, same, other = (lab.train(seed=number, save_total_limit=keep, **shuffled) for number, keep in ((1, 2), (1, 1), (2, 2)))
    lab.assertEqual((one.tokens, one.weights), (same.tokens, same.weights))
    lab.assertNotEqual(one.tokens, other.tokens)
    new = "cls.predictions.transform.dense.weight" if lab.command == "pretrain" else "classifier.weight"
    lab.assertGreater(max(map(abs, less(one.weights[new], other.weights[new]))), 1e-3)
    whole = one.folder / "model"  # with a head, and with dropout
    drops = lab.once("drops", lambda path: lab.copy_model(whole, path, hidden_dropout_prob=0.5))
    for model in [drops] + [whole] * (lab.command == "pretrain"):  # masks differ without dropout
        gradients = [lab.train(model=model, optim="sgd", seed=number).state("momentum_buffer") for number in (1, 2)]
        lab.assertGreater(distance(*gradients), 1e-4, model)


@MACHINE.row("--num-workers", "so many threads prepare batches, and the result is the same")
def num_workers(lab):
    found = {count: lab.alive(num_workers=count) for count in (0, 3)}
    lab.assertEqual(found[3].threads - found[0].threads, 3)
    weights = [lab.train(num_workers=count, max_steps=4).weights for count in (0, 3)]
    lab.assertEqual(*weights)


@MACHINE.row("--device", "cpu computes here; cuda is refused where there is none")
def device(lab):
    lab.assertEqual(lab.train(device="cpu").weights, lab.train().weights)
    if lab.has_gpu():
        lab.assertGreater(distance(lab.train(device="cuda").weights, lab.train().weights), 0)
    else:
        lab.refuses_to_train("--device cuda", device="cuda")
        lab.refuses_to_train("--device cuda", device="cuda:1")
    for wrong in ("cudo", "cuda:", "cuda:x", "cuda:-1", "cuda:01", "cuda:1000"):
        lab.refuses_to_train(f'--device expects cpu, cuda, or cuda:N with the number of a GPU, found "{wrong}"', device=wrong)


@MACHINE.row("--share-device", "refused on the CPU, which ranks share anyway")
def share_device(lab):
    lab.refuses_to_train("--share-device is for GPUs", share_device=True)


@MACHINE.row("--threads", "LibTorch computes with so many threads")
def threads(lab):
    lab.assertEqual(lab.train().file["threads"], 1, "OMP_NUM_THREADS")
    lab.assertEqual(lab.train(threads=3).file["threads"], 3)


@MACHINE.row("--config", "a file's keys are options")
def config(lab):
    lab.assertEqual(lab.train(config=config_file(lab, "max-steps = 3\n"), max_steps=None).each("step"), [1, 2, 3])


@MACHINE.row("--help", "the options are listed, and nothing is done")
def help_text(lab):
    shows_help(lab)
    lab.succeeds(lab.command, "--output", lab.folder / "none", "--help")
    lab.assertFalse((lab.folder / "none").exists())


# ---- ranks


@RANKS.row("--strategy", "the ranks train by it, to the weights of one process")
def strategy(lab):
    alone = lab.train(optim="sgd")
    lab.assertEqual(alone.file["strategy"], "single")
    for name, ranks in lab.few((("zero1", 2), ("dp", 1), ("single", 1), ("auto", 2))):
        run = lab.train(ranks=ranks, strategy=name, optim="sgd")
        lab.assertEqual((run.file["strategy"], run.file["ranks"]), ("ddp" if name == "auto" else name, ranks))
        lab.assertLess(distance(run.weights, alone.weights), 1e-12, name)
    lab.refuses_to_train('"single" is for one process', ranks=2, strategy="single")


@RANKS.row("--devices", "a batch is computed on so many replicas, or by so many stages, each with threads of its own")
def devices(lab):
    staged = lab.train(strategy="pipeline", devices=2, optim="sgd")
    lab.assertEqual((staged.file["strategy"], staged.file["ranks"]), ("pipeline", 1))
    lab.assertLess(distance(staged.weights, lab.train(optim="sgd").weights), 1e-12)
    lab.assertEqual(lab.train(strategy="dp", devices=4).file["batch"]["micro_batch_size"], 1)
    found = {count: lab.alive(strategy="dp", devices=count) for count in (2, 4)}
    lab.assertEqual(found[4].threads - found[2].threads, 2)


def orders(folder):
    """The lines of each server."""
    return [path.read_text().splitlines() for path in sorted(folder.glob("server-*.txt"))]


def asynchronous(lab, name, **options):
    return lab.train(ranks=3, strategy="ps-async", logging_steps=0, max_steps=6, **{name: lab.folder / "order"}, **options)


@RANKS.row("--pipeline-parallel", "so many ranks share the model, to the weights of one process")
def pipeline_parallel(lab):
    alone = lab.train(optim="sgd")
    run = lab.train(ranks=2, pipeline_parallel=2, optim="sgd")
    lab.assertEqual((run.file["strategy"], run.file["ranks"]), ("pipeline", 2))
    # A student stands behind its teacher, whose segments come first.
    lab.assertIn("1f1b with 2 stages: " + ("" if lab.command == "distill" else "embeddings to layer.0 on rank 0, layer.1 to"), run.err)
    lab.assertLess(distance(run.weights, alone.weights), 1e-12)
    lab.refuses_to_train("3 ranks cannot be divided into pipelines of 2", ranks=3, pipeline_parallel=2)
    lab.refuses_to_train("contradict each other", ranks=2, pipeline_parallel=2, strategy="ddp")


@RANKS.row("--tensor-parallel", "so many ranks have slices of the weights, to the weights of one process")
def tensor_parallel(lab):
    alone = lab.train(optim="sgd")
    run = lab.train(ranks=2, tensor_parallel=2, optim="sgd")
    lab.assertEqual((run.file["strategy"], run.file["ranks"]), ("tensor", 2))
    lab.assertIn("weights are cut into slices on 2 ranks", run.err)
    lab.assertLess(distance(run.weights, alone.weights), 1e-12)
    lab.refuses_to_train("3 ranks cannot be divided into tensor groups of 2", ranks=3, tensor_parallel=2)
    lab.refuses_to_train("cannot train a model that is cut into slices", ranks=2, tensor_parallel=2, strategy="ps-sync")
    if lab.cuts_its_own_model:
        slices_of_stages(lab, alone)


def slices_of_stages(lab, alone):
    both = lab.train(ranks=4, tensor_parallel=2, pipeline_parallel=2, optim="sgd")
    lab.assertEqual((both.file["strategy"], both.file["ranks"]), ("pipeline", 4))
    lab.assertLess(distance(both.weights, alone.weights), 1e-12)
    if lab.thorough:
        layouts_with_slices(lab, both)


def layouts_with_slices(lab, both):
    named = lab.train(ranks=4, strategy="tensor", pipeline_parallel=2, optim="sgd")
    lab.assertEqual((named.file["strategy"], named.weights), ("pipeline", both.weights), "the same under the other name")
    lab.refuses_to_train("6 ranks cannot be divided into pipelines of 2 with tensor groups of 2", ranks=6, tensor_parallel=2,
                         pipeline_parallel=2)
    stale = [lab.train(ranks=2 * slices, tensor_parallel=slices, pipeline_parallel=2, schedule="pipedream", optim="sgd", max_steps=4)
             for slices in (1, 2)]
    lab.assertLess(distance(stale[0].weights, stale[1].weights), 1e-12)


@RANKS.row("--sequence-parallel", "the rows between the slices are divided, to the weights of one process")
def sequence_parallel(lab):
    run = lab.train(ranks=2, tensor_parallel=2, sequence_parallel=True, optim="sgd")
    lab.assertIn("the rows between them are divided", run.err)
    lab.assertLess(distance(run.weights, lab.train(optim="sgd").weights), 1e-12)
    lab.refuses_to_train("expected --tensor-parallel of at least 2", sequence_parallel=True)


@RANKS.row("--data-parallel", "so many pipelines share the data")
def data_parallel(lab):
    run = lab.train(ranks=4, pipeline_parallel=2, data_parallel=2, optim="sgd")
    lab.assertIn("2 pipelines beside each other", run.err)
    lab.assertLess(distance(run.weights, lab.train(optim="sgd").weights), 1e-12)
    lab.refuses_to_train("take 6 ranks, and there are 4", ranks=4, pipeline_parallel=2, data_parallel=3)


@RANKS.row("--zero", "what replicas divide, to the weights of one process")
def zero(lab):
    alone = lab.train(optim="sgd")
    for stage, name, more in lab.few(((3, "pipeline-zero3", {"ranks": 4, "pipeline_parallel": 2}), (2, "zero2", {"ranks": 2}),
                                      (2, "pipeline-zero2", {"ranks": 4, "pipeline_parallel": 2}))):
        run = lab.train(zero=stage, optim="sgd", **more)
        lab.assertEqual(run.file["strategy"], name)
        lab.assertLess(distance(run.weights, alone.weights), 1e-12, name)
    lab.refuses_to_train("--zero 2 and the strategy zero1 contradict each other", ranks=2, zero=2, strategy="zero1")
    lab.assertEqual(lab.train(ranks=2, pipeline_parallel=2, zero=1).err.count(
        "--pipeline-parallel 2 --zero 1: ZeRO divides what replicas have in common"), 1)


@RANKS.row("--schedule", "passes are in the order of that schedule, or of a file's rows")
def schedule(lab):
    alone = lab.train(optim="sgd")
    rows = lab.folder / "rows.txt"
    rows.write_text("0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n")
    for name in [*lab.few(("zb-v", "gpipe")), rows]:
        run = lab.train(ranks=2, pipeline_parallel=2, schedule=name, optim="sgd")
        lab.assertIn(f"[pipeline] {name} with", run.err)
        lab.assertLess(distance(run.weights, alone.weights), 1e-12, name)
    lab.refuses_to_train("has 2 micro-batches, and this step has 1", ranks=2, pipeline_parallel=2, schedule=rows, batch_size=1)
    alone = lab.train(optim="sgd", max_steps=4)
    for name in lab.few(("pipedream-2bw", "pipedream", "pipedream-vertical-sync")):
        run = lab.train(ranks=2, pipeline_parallel=2, schedule=name, optim="sgd", max_steps=4)
        lab.assertIn(f"[pipeline] {name} with 2 stages", run.err)
        # The same rows with weights that are an update older: near, and not the same.
        lab.assertLess(1e-12, distance(run.weights, alone.weights))
        lab.assertLess(distance(run.weights, alone.weights), 1e-2)
    lab.refuses_to_train("unknown schedule", ranks=2, pipeline_parallel=2, schedule="1f2b")
    if lab.thorough:
        schedules_that_update(lab, alone)


def schedules_that_update(lab, alone):
    run = lab.train(ranks=2, pipeline_parallel=2, schedule="pipedream", optim="sgd", max_steps=4, precision="fp16", loss_scale=1024)
    lab.assertLess(distance(run.weights, alone.weights), 1e-2)
    own = lab.folder / "own.txt"
    own.write_text("0F0@0 0B0@0 0U1\n1F0@0 1B0@0 1U1\n")  # each update waits for the last, as in one process
    run = lab.train(ranks=2, pipeline_parallel=2, schedule=own, optim="sgd", max_steps=4)
    lab.assertIn(f"[pipeline] {own} with 2 stages", run.err)
    lab.assertLess(distance(run.weights, alone.weights), 1e-12)
    lab.refuses_to_train("has 1 micro-batches in each update, and this step has 2", ranks=2, pipeline_parallel=2, schedule=own, micro_batch_size=2)


@RANKS.row("--stages-per-rank", "each rank has so many stages")
def stages_per_rank(lab):
    run = lab.train(ranks=2, pipeline_parallel=2, schedule="interleaved", stages_per_rank=1)
    lab.assertIn("interleaved with 2 stages", run.err)
    lab.assertIn("interleaved with 4 stages", lab.train(ranks=2, pipeline_parallel=2, schedule="interleaved").err)


@RANKS.row("--stages", "the stages begin at these segments, or where their measured cost has it")
def stages(lab):
    run = lab.train(ranks=2, pipeline_parallel=2, stages="cost")
    lab.assertIn("the cut by measured cost begins its stages at the segments 0, ", run.err)
    begins = run.file["stages"]["begins"]
    lab.assertEqual((len(begins), begins[0]), (2, 0))
    lab.assertGreater(min(run.file["stages"]["segment_seconds"]), 0)
    run = lab.train(ranks=2, pipeline_parallel=2, stages="0,1")
    lab.assertIn("teacher.embeddings on rank 0, " if lab.command == "distill" else "embeddings on rank 0, layer.0 to", run.err)
    lab.refuses_to_train("--stages expects", ranks=2, pipeline_parallel=2, stages="0,x")
    lab.refuses_to_train("ascend from 0 and are below ", ranks=2, pipeline_parallel=2, stages="0,9")
    if lab.cuts_its_own_model:
        replicated_stages(lab)


def replicated_stages(lab):
    alone = lab.train(optim="sgd")
    # The student of distill stands in the second stage.
    cut, told = ("0,1x2", " on ranks 1 and 2") if lab.command == "distill" else ("0x2,1", "embeddings on ranks 0 and 1, ")
    run = lab.train(ranks=3, strategy="pipeline", stages=cut, optim="sgd")
    lab.assertIn(told, run.err)
    lab.assertLess(distance(run.weights, alone.weights), 1e-12)
    if lab.thorough:
        layouts_with_replicated_stages(lab, alone)


def layouts_with_replicated_stages(lab, alone):
    run = lab.train(ranks=2, pipeline_parallel=2, stages="cost-replicated", optim="sgd")
    lab.assertIn("the cut by measured cost has segments 0 to ", run.err)
    lab.assertEqual(sum(run.file["stages"]["replicas"]), 2)
    lab.assertGreater(run.file["stages"]["bytes_per_second"], 0)
    lab.assertLess(distance(run.weights, alone.weights), 1e-12)
    lab.refuses_to_train("stages on 2, 1 ranks (--stages) take 3 in a pipeline, and it has 2", ranks=2, pipeline_parallel=2,
                         stages="0x2,1")
    lab.refuses_to_train("zb-v has one rank a stage, found stages on 2, 1 ranks", ranks=3, pipeline_parallel=3, stages="0x2,1",
                         schedule="zb-v")
    run = lab.train(ranks=3, pipeline_parallel=3, stages="0x2,1", schedule="pipedream-2bw", optim="sgd")
    lab.assertIn("pipedream-2bw with 2 stages: ", run.err)


@RANKS.row("--servers", "so many ranks serve, the others compute")
def servers(lab):
    for count in lab.few((2, 1)):
        folder = lab.folder / f"servers-{count}"
        lab.train(ranks=3, strategy="ps-async", servers=count, record_interleaving=folder)
        lab.assertEqual([lines[0].split(": ")[1] for lines in orders(folder)],
                        [f"server {number}, {3 - count} workers, staleness 3" for number in range(count)])


@RANKS.row("--record-passes", "when the passes of the last step ran is written down, and read by plan")
def record_passes(lab):
    kinds = {"zb-h1": ("F", "I", "W"), "pipedream": ("F", "B", "U")}
    for name in lab.few(tuple(kinds)):
        path = lab.folder / f"passes-{name}.json"
        lab.train(ranks=2, pipeline_parallel=2, schedule=name, record_passes=path, optim="sgd", max_steps=3)
        found = json.loads(path.read_text())
        passes = [[word for word in row.split() if word[1] in kinds[name]] for row in found["rows"]]
        for rank, row in enumerate(passes):
            times = [(word, start, end) for of, word, start, end in found["milliseconds"] if of == rank]
            lab.assertEqual([word for word, _, _ in times], row)  # each once, in the order of the row
            lab.assertEqual({word[1] for word in row}, set(kinds[name]))
            ends = [time for _, start, end in times for time in (start, end)]
            lab.assertEqual(ends, sorted(ends))  # one after the other
        lab.assertEqual(min(start for *_, start, _ in found["milliseconds"]), 0)
        plain = lambda word: word.split("@")[0]
        ends = {plain(word): end for _, word, _, end in found["milliseconds"]}
        begins = {plain(word): start for _, word, start, _ in found["milliseconds"]}
        first = plain(next(word for word in passes[1] if word[1] == "F"))
        lab.assertLess(ends["0" + first[1:]] - 20, begins[first])  # on one clock, up to what a busy machine makes of barriers
        plan = json.loads(lab.succeeds("plan", "--measured", path, "--json").out)
        lab.assertEqual((plan["schedule"], len(plan["measured"]["ranks"])), (name, 2))
        lab.assertAlmostEqual(plan["measured"]["time"], max(ends.values()), places=3)
    lab.refuses_to_train("--record-passes", "there is no folder", ranks=2, pipeline_parallel=2, record_passes=lab.folder / "none" / "a.json")


@RANKS.row("--record-interleaving", "each server writes down every push and read")
def record_interleaving(lab):
    asynchronous(lab, "record_interleaving", staleness=4)
    lines, = orders(lab.folder / "order")
    for kind in ("push", "read"):
        lab.assertEqual({line for line in lines if line.startswith(kind)},
                        {f"{kind} {worker} {step}" for worker in (0, 1) for step in range(1, 7)})


@RANKS.row("--replay-interleaving", "the servers take pushes in the order of a recording: the same bits")
def replay_interleaving(lab):
    recorded = asynchronous(lab, "record_interleaving", staleness=4)
    lab.assertEqual(asynchronous(lab, "replay_interleaving", staleness=4).weights, recorded.weights)


@RANKS.row("--staleness", "a worker may be so many steps ahead, and no more")
def staleness(lab):
    # Worker 0 goes on as far as it may before worker 1 does anything.
    ahead = [f"{kind} 0 {step}" for step in range(1, 5) for kind in ("push", "read")] + ["push 0 5"]
    behind = [f"{kind} 1 {step}" for step in range(1, 7) for kind in ("push", "read")]
    rest = ["read 0 5", "push 0 6", "read 0 6"]
    folder = lab.folder / "order"
    folder.mkdir(exist_ok=True)
    (folder / "server-0.txt").write_text("\n".join(
        ["funicular interleaving 1: server 0, 2 workers, staleness 4", *ahead, *behind[:2], *rest[:1], *behind[2:4], *rest[1:],
         *behind[4:], "meet 0 6"]) + "\n")
    run = asynchronous(lab, "replay_interleaving", staleness=4, save_total_limit=1)
    lab.assertEqual(len(run.file["result"]["staleness"]) - 1, 5, "worker 1's first gradient is five pushes old")
    if lab.thorough:
        workers_in_lockstep(lab)


def workers_in_lockstep(lab):
    lockstep = lab.train(ranks=3, strategy="ps-async", staleness=0, max_steps=6, record_interleaving=lab.folder / "lockstep")
    lines = [line.split() for line in orders(lab.folder / "lockstep")[0][1:]]
    for at, (kind, _, step) in enumerate(lines):
        if kind == "read":
            pushes = {worker for before, worker, of in lines[:at] if (before, of) == ("push", step)}
            lab.assertEqual(pushes, {"0", "1"}, "a worker goes on when all are there")
    lab.assertLessEqual(len(lockstep.file["result"]["staleness"]) - 1, 2)


@RANKS.row("--deterministic", "two ranks give the bits of one")
def deterministic(lab):
    words = {"micro_batch_size": 1, "max_steps": 3}
    one, two = (lab.train(ranks=ranks, deterministic=True, **words).weights for ranks in (1, 2))
    lab.assertEqual(one, two)
    lab.assertGreater(distance(one, lab.train(**words).weights), 0, "sums in another order")


@RANKS.row("--cuda-graphs", "refused where passes cannot be repeated: on the CPU, on several ranks, with recomputation")
def cuda_graphs(lab):
    for words in ({}, {"ranks": 2}, {"strategy": "zero1"}):
        lab.refuses_to_train("--cuda-graphs is for one process with a GPU", "--device cuda", cuda_graphs=True, **words)
    lab.refuses_to_train("--cuda-graphs does not go with --recompute", device="cuda", cuda_graphs=True, recompute="full")


@RANKS.row("--reduce-precision", "matrices' gradients travel rounded; what is lost is kept for the next step")
def reduce_precision(lab):
    exact = lab.train(ranks=2, optim="sgd")
    matrix, error = "bert.encoder.layer.0.output.dense.weight", {}
    for name in lab.few(("bf16", "fp16")):
        run = lab.train(ranks=2, optim="sgd", reduce_precision=name)
        gradient = run.state("momentum_buffer")[matrix]
        error[name] = norm(less(gradient, exact.state("momentum_buffer")[matrix])) / norm(gradient)
        lab.assertTrue(any(key.startswith("residual-") for key in run.read("optimizer")), name)
    lab.assertFalse(any(key.startswith("residual-") for key in exact.read("optimizer")))
    lab.assertTrue(2 ** -12 < error["bf16"] < 2 ** -8, error)  # 8 bits
    lab.assertTrue(2 ** -15 < error.get("fp16", 2 ** -14) < 2 ** -9, error)  # 11, fewer of the smallest numbers


@RANKS.row("--offload-optimizer", "the state lies in mapped files in that folder")
def offload_optimizer(lab):
    folder = lab.folder / "offload"
    lab.assertNotIn(str(folder), lab.alive(num_workers=0).maps)
    lab.assertIn(str(folder), lab.alive(offload_optimizer=folder).maps)
    lab.refuses_to_train('--offload-optimizer expects a folder on a disk, found "cpu"', offload_optimizer="cpu")
    lab.assertEqual(lab.train(offload_optimizer=folder, max_steps=4).weights, lab.train(num_workers=0, max_steps=4).weights)


@RANKS.row("--debug-collectives", "ranks that do different things are told which, before they do them")
def debug_collectives(lab):
    words = lab.words(lab.folder / "differ", {"max_steps": 4, "debug_collectives": True, "logging_steps": None})
    script = 'exec timeout 60 "$@" --logging-steps $((1 + 2 * RANK))'  # from the first step on the two differ
    result = lab.refuses(["launch", "-n", 2, "--grace", 1, "--", "sh", "-c", script, "sh", PROGRAM, *words], code=1)
    lab.assertIn("the ranks call different collectives: rank 0 calls", result.err)
    lab.train(ranks=2, debug_collectives=True)


@RANKS.row("--interface", "the ranks connect over that one")
def interface(lab):
    lab.train(ranks=2, interface="lo")
    lab.refuses_to_train('no network interface "none-such"', ranks=2, interface="none-such")
