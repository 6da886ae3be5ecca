"""What the options of launch, prove and plan do."""

import os

from harness import PROGRAM, SANITIZED, environment, in_forks, json, pathlib, run, subprocess

from .lab import *

LAUNCH, PROVE, PLAN = Table(), Table(), Table()

for table in (LAUNCH, PROVE, PLAN):
    table.row("--help", "the options are listed")(shows_help)


# ---- launch

PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


def places(lab, *words):
    """What each rank is told."""
    script = "echo " + " ".join(f"{name}=${name}" for name in PLACE)
    out = lab.succeeds("launch", *words, "--", "sh", "-c", script).out
    found = [dict(word.split("=") for word in line.split() if "=" in word) for line in out.splitlines()]
    return sorted(found, key=lambda place: int(place["RANK"]))


def told(lab, name, *words):
    return [place[name] for place in places(lab, *words)]


@LAUNCH.row("--ranks", "so many processes start")
def ranks(lab):
    for count in (1, 3):
        lab.assertEqual(told(lab, "RANK", "--ranks", count), [str(rank) for rank in range(count)])
        lab.assertEqual(told(lab, "WORLD_SIZE", "-n", count), [str(count)] * count)


def remote_shell(lab):
    path = lab.folder / "remote"
    path.write_text('#!/bin/sh\necho "$1" >> "$0.called"\nexec sh -c "$2"\n')
    path.chmod(0o755)
    return path


@LAUNCH.row("--hosts", "each host has so many ranks")
def hosts(lab):
    found = places(lab, "--hosts", "a:1,b:2", "--remote-shell", remote_shell(lab))
    lab.assertEqual([(place["RANK"], place["GROUP_RANK"], place["LOCAL_WORLD_SIZE"]) for place in found],
                    [("0", "0", "1"), ("1", "1", "2"), ("2", "1", "2")])


@LAUNCH.row("--hostfile", "each host of the file has so many ranks; of fewer ranks the first hosts have theirs")
def hostfile(lab):
    path = lab.folder / "hosts"
    path.write_text("# two hosts\na slots=2\n\nb slots=2  # the second\n")
    words = ["--hostfile", path, "--remote-shell", remote_shell(lab)]
    sizes = lambda *more: [(place["RANK"], place["GROUP_RANK"], place["LOCAL_WORLD_SIZE"]) for place in places(lab, *words, *more)]
    lab.assertEqual(sizes(), [("0", "0", "2"), ("1", "0", "2"), ("2", "1", "2"), ("3", "1", "2")])
    lab.assertEqual(sizes("-np", 3), [("0", "0", "2"), ("1", "0", "2"), ("2", "1", "1")])
    lab.assertEqual(sizes("-np", 2), [("0", "0", "2"), ("1", "0", "2")])
    lab.refuses(["launch", *words, "-np", 5, "--", "true"], "5 ranks are asked for, and the hosts have 4")
    lab.refuses(["launch", *words, "-H", "a:1", "--", "true"], "--hosts and --hostfile are both given")
    lab.refuses(["launch", *words, "--nnodes", 2, "--", "true"], "--hostfile tells how many ranks each host has; leave out --nnodes")
    path.write_text("a slots=2\nb 2\n")
    lab.refuses(["launch", *words, "--", "true"], f"{path}:2: expected HOST slots=RANKS")


@LAUNCH.row("--remote-shell", "it is called with each host and what to run there")
def shell(lab):
    path = remote_shell(lab)
    places(lab, "--hosts", "a:1,b:1", "--remote-shell", path)
    lab.assertEqual(set(pathlib.Path(f"{path}.called").read_text().split()), {"a", "b"})


TWO_HOSTS = ["--ranks", 2, "--nnodes", 2, "--rendezvous", "first.example:4321"]


@LAUNCH.row("--nnodes", "so many hosts have as many ranks each")
def nnodes(lab):
    for count in (2, 3):
        lab.assertEqual(set(told(lab, "WORLD_SIZE", *TWO_HOSTS[:2], "--nnodes", count, *TWO_HOSTS[4:])), {str(2 * count)})


@LAUNCH.row("--node-rank", "the ranks of the hosts before it come first")
def node_rank(lab):
    for number in (0, 1):
        found = places(lab, *TWO_HOSTS, "--node-rank", number)
        lab.assertEqual([(place["RANK"], place["GROUP_RANK"]) for place in found],
                        [(str(2 * number + rank), str(number)) for rank in (0, 1)])


@LAUNCH.row("--first-rank", "the ranks of this host count from it")
def first_rank(lab):
    lab.assertEqual(told(lab, "RANK", *TWO_HOSTS, "--node-rank", 1, "--first-rank", 3, "--world-size", 5), ["3", "4"])


@LAUNCH.row("--world-size", "the ranks are told that there are so many")
def world_size(lab):
    for size in (5, 6):
        words = [*TWO_HOSTS, "--node-rank", 1, "--first-rank", 3, "--world-size", size]
        lab.assertEqual(told(lab, "WORLD_SIZE", *words), [str(size)] * 2)


@LAUNCH.row("--rendezvous", "the ranks are told to meet there")
def rendezvous(lab):
    found, = places(lab, "--rendezvous", "meet.example:4321")
    lab.assertEqual((found["MASTER_ADDR"], found["MASTER_PORT"]), ("meet.example", "4321"))
    lab.assertEqual(told(lab, "MASTER_ADDR"), ["127.0.0.1"])


@LAUNCH.row("--max-restarts", "after a failure all start again, so often")
def max_restarts(lab):
    for count in (0, 2):
        result = run("launch", "--max-restarts", count, "--", "sh", "-c", "echo start; exit 9")
        lab.assertEqual((result.code, result.out.count("start")), (9, 1 + count))


@LAUNCH.row("--grace", "so long the others have to end; then they are killed")
def grace(lab):
    ready = lab.folder / "ready"
    script = (f"if [ $RANK = 0 ]; then until [ -e {ready} ]; do sleep 0.02; done; exit 4; fi\n"
              f"trap 'sleep 0.5; echo saved; exit 0' TERM; touch {ready}; while :; do sleep 0.02; done")
    for seconds, saved in ((30, True), (0.1, False)):
        result = run("launch", "-n", 2, "--grace", seconds, "--", "sh", "-c", script)
        lab.assertEqual((result.code, "[1] saved" in result.out), (4, saved))
        ready.unlink()


@LAUNCH.row("--pin", "each rank has cores of its own; without it, all of them")
def pin(lab):
    cores = os.sched_getaffinity(0)
    script = "grep Cpus_allowed: /proc/self/status"
    masks = {}
    for option in ("--pin", "--no-pin"):
        out = lab.succeeds("launch", "-n", 2, option, "--", "sh", "-c", script).out
        lines = sorted(out.splitlines(), key=lambda line: line.startswith("["))  # rank 0's is as it is
        masks[option] = [int(line.split()[-1].replace(",", ""), 16) for line in lines]
    everything = sum(1 << core for core in cores)
    lab.assertEqual(masks["--no-pin"], [everything] * 2)
    first, second = masks["--pin"]
    lab.assertTrue(first & second == 0 and first | second <= everything if len(cores) > 1 else first == second)


@LAUNCH.row("--config", "a file's keys are options")
def launch_config(lab):
    lab.assertEqual(told(lab, "RANK", "--config", config_file(lab, "ranks = 2\n")), ["0", "1"])


# ---- prove


class Proof:
    """What the one run of comparing "single" with itself leaves."""

    def __init__(self, lab, **options):
        values = {"optim": "sgd", "steps": 2, "batch_size": 4, **options}
        words = [str(word) for name, value in values.items() for word in ("--" + name.replace("_", "-"), value)]
        kept = lab.folder / f"kept-{len(lab.made)}"
        self.folder = lab.once(" ".join(words), lambda _: lab.succeeds("prove", "single", "single", *words, "--keep", kept) and kept)

    def read(self, kind, step):
        return tensors(self.folder / "run-0" / f"{kind}-{step}.safetensors")

    def buffer(self, step):
        """Of sgd."""
        return {name.split("/", 1)[1]: values for name, values in self.read("state", step).items()}

    def longest(self, step=1):
        """Tokens of the longest row: so many positions have a gradient."""
        gradient = self.read("gradient", step)["bert.embeddings.position_embeddings.weight"]
        hidden = len(self.read("gradient", step)["bert.embeddings.LayerNorm.bias"])
        return max(at for at, value in enumerate(gradient) if value) // hidden + 1


def given(lab, lengths):
    """Options that give a model, and documents of these lengths."""
    name = "proof-" + "-".join(map(str, lengths))
    return {"model": lab.plain_model(), "data": lab.tokenized(name, lab.texts(lengths))}


@PROVE.row("--all", "one strategy after another is compared with single")
def all_pairs(lab):
    words = [PROGRAM, "prove", "--all", "--steps", "1", "--batch-size", "4"]
    process = subprocess.Popen(words if SANITIZED else in_forks(words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment())
    lab.addCleanup(process.stdout.close)
    head, *lines = (process.stdout.readline() for _ in range(5))
    process.terminate()
    process.wait(timeout=60)
    lab.assertIn("promised", head)
    for line, layout in zip(lines, ("reference  =  single   (masked-lm)", "reference  =  single   (classification)",
                                    "reference  =  single   (electra)", "reference  =  single   (macbert)"), strict=True):
        lab.assertTrue(line.startswith("ok") and layout in line, line)


@PROVE.row("--objective", "the model has the weights of that head")
def proved_objective(lab):
    heads = {name: set(Proof(lab, steps=1, objective=name).read("weight", 1)) for name in ("masked-lm", "classification")}
    lab.assertEqual({name for name in heads["masked-lm"] - heads["classification"] if not name.startswith("cls.")}, set())
    lab.assertIn("classifier.weight", heads["classification"] - heads["masked-lm"])
    words = ["prove", "single --micro-batch-size 3", "single", "--steps", 1, "--batch-size", 4, "--json", "--objective"]
    compared = {name: json.loads(lab.succeeds(*words, name).out)["tensors"] for name in ("electra", "masked-lm")}
    lab.assertGreater(compared["electra"], compared["masked-lm"])
    kept = lab.folder / "macbert"
    lab.succeeds(*words, "macbert", "--keep", kept)
    losses = json.loads((kept / "run-0" / "losses.json").read_text())
    lab.assertEqual(set(losses[0]), {"total", "mlm", "sentence_order"})
    words[1:3] = ["reference", "single"]
    for name, terms in (("tags", {"tags"}), ("multi-label", {"multi_label"}), ("electra", {"mlm", "replaced"}),
                        ("distillation", {"attention", "hidden", "soft", "hard", "patient", "relations", "cosine"}),
                        ("distillation-tokens", {"mlm", "tokens"}), ("distillation-all-tokens", {"mlm", "all-tokens"})):
        lab.succeeds(*words, name, "--keep", lab.folder / name)
        losses = json.loads((lab.folder / name / "run-0" / "losses.json").read_text())
        lab.assertEqual(set(losses[0]), {"total"} | terms, name)


@PROVE.row("--model", "it is what is trained")
def proved_model(lab):
    start = tensors(lab.plain_model() / "model.safetensors")
    found = Proof(lab, **given(lab, [7] * 4), learning_rate=NOTHING).read("weight", 1)
    for name in ("embeddings.LayerNorm.weight", "encoder.layer.0.output.dense.weight"):
        lab.assertLess(max(map(abs, less(found["bert." + name], start[name]))), 1e-200, name)


@PROVE.row("--layers", "the small BERT has so many")
def proved_layers(lab):
    for layers in (2, 5):
        names = set(Proof(lab, steps=1, layers=layers).read("weight", 1))
        found = {int(name.split(".")[3]) for name in names if name.startswith("bert.encoder.layer.")}
        lab.assertEqual(found, set(range(layers)))
    lab.assertEqual(Proof(lab, steps=1).read("weight", 1).keys(), Proof(lab, steps=1, layers=3).read("weight", 1).keys())
    lab.refuses(["prove", "single", "single", "--layers", 2, "--model", lab.plain_model()], "--layers sets the layers of the small BERT")


@PROVE.row("--data", "it is what is trained on")
def proved_data(lab):
    for length in (7, 30):
        lab.assertEqual(Proof(lab, **given(lab, [length] * 4), learning_rate=NOTHING).longest(), length + SPECIAL)


@PROVE.row("--device", "layouts compute there; cuda is refused where there is none, and in 16 bits unless layouts are deterministic")
def proved_device(lab):
    lab.assertEqual(Proof(lab, device="cpu", steps=1).read("weight", 1), Proof(lab, steps=1).read("weight", 1))
    expected = "deterministic" if lab.has_gpu() else "no CUDA device is visible"
    lab.refuses(["prove", "single", "single", "--precision", "bf16", "--device", "cuda"], "--device cuda", expected)
    if not lab.has_gpu():
        lab.refuses(["prove", "reference", "single", "--steps", 1, "--device", "cuda"], "--device cuda", expected)


@PROVE.row("--share-device", "refused on the CPU, which ranks share anyway")
def share_device(lab):
    lab.refuses(["prove", "single", "single", "--share-device"], "--share-device is for GPUs")


@PROVE.row("--steps", "so many steps are compared")
def proved_steps(lab):
    for count in (2, 1):
        lab.assertEqual(len(list((Proof(lab, steps=count).folder / "run-0").glob("weight-*"))), count)


@PROVE.row("--batch-size", "so many sequences go into a step")
def proved_batch(lab):
    for size, steps in ((4, 1), (1, 4)):  # an epoch
        proof = Proof(lab, **given(lab, [3, 3, 3, 30]), batch_size=size, steps=steps)
        lab.assertEqual(sorted(proof.longest(step + 1) for step in range(steps)), [5] * (steps - 1) + [32])


@PROVE.row("--max-length", "no row has more tokens; without it 64, or the model's positions if they are fewer")
def proved_length(lab):
    for length in (8, 62):
        lab.assertEqual(Proof(lab, **given(lab, [60] * 4), steps=1, max_length=length).longest(), length)
    config = lab.folder / "short.json"
    config.write_text(json.dumps({**json.loads((lab.plain_model() / "config.json").read_text()), "max_position_embeddings": 20}))
    lab.assertIn(Proof(lab, steps=1, model=config).longest(), range(15, 21))
    for objective in lab.few(("masked-lm", "classification", "electra", "macbert", "tags", "related-texts", "ranked-texts")):
        Proof(lab, steps=1, objective=objective, max_length=8)
    lab.refuses(["prove", "single", "single", "--model", config, "--max-length", 21], "--max-length 21 is more than the model's 20 positions")
    lab.refuses(["prove", "single", "single", "--max-length", 7], "--max-length")


@PROVE.row("--precision", "the number format of weights and products")
def proved_precision(lab):
    matrix = "bert.encoder.layer.0.output.dense.weight"
    proofs = {"fp64": Proof(lab), "fp32": Proof(lab, precision="fp32"), "bf16": Proof(lab, precision="bf16")}
    for name, kind in (("fp64", "d"), ("fp32", "f"), ("bf16", "f")):
        lab.assertEqual({values.typecode for values in proofs[name].read("weight", 1).values()}, {kind})
    gradient = {name: proof.read("gradient", 1)[matrix] for name, proof in proofs.items()}
    error = {name: norm(less(values, gradient["fp64"])) / norm(gradient["fp64"]) for name, values in gradient.items()}
    lab.assertTrue(0 < error["fp32"] < 1e-4 < error["bf16"] < 0.1, error)


@PROVE.row("--optim", "the optimiser has its state")
def proved_optimizer(lab):
    for proof, states in ((Proof(lab), {"momentum_buffer"}), (Proof(lab, optim="adamw"), {"exp_avg", "exp_avg_sq"})):
        lab.assertEqual({key.split("/")[0] for key in proof.read("state", 1)}, states)


@PROVE.row("--learning-rate", "a step of plain descent is that long")
def proved_rate(lab):
    for proof, rate in ((Proof(lab), 1e-3), (Proof(lab, learning_rate=0.1), 0.1)):
        after, before = proof.read("weight", 2), proof.read("weight", 1)
        lab.assert_near({name: less(after[name], before[name]) for name in before}, scaled(proof.buffer(2), -rate))


@PROVE.row("--max-grad-norm", "a longer gradient is cut to that length; 0: none is")
def proved_norm(lab):
    for proof, limit in ((Proof(lab), 1), (Proof(lab, max_grad_norm=0.01), 0.01), (Proof(lab, max_grad_norm=0), 1e300)):
        gradient = proof.read("gradient", 1)
        cut = min(1, limit / math.hypot(*map(norm, gradient.values())))
        biases = {name: values for name, values in proof.buffer(1).items() if not is_matrix(name)}  # matrices decay
        lab.assert_near(biases, scaled({name: gradient[name] for name in biases}, cut), 1e-4)


@PROVE.row("--seed", "weights and rows follow from it, and by default it is 42")
def proved_seed(lab):
    one, other = (Proof(lab, steps=1, batch_size=1, seed=number) for number in (1, 2))
    lab.assertEqual([one.longest(), other.longest()], [33, 56], "the rule's rows")
    lab.assertGreater(distance(one.read("weight", 1), other.read("weight", 1)), 1e-2)
    lab.assertEqual(Proof(lab, seed=42).read("gradient", 1), Proof(lab).read("gradient", 1))


@PROVE.row("--keep", "what the runs leave is there")
def kept(lab):
    lab.assertLessEqual({"losses.json", "weight-1.safetensors"}, {path.name for path in (Proof(lab).folder / "run-0").iterdir()})


@PROVE.row("--json", "the comparison is one JSON object")
def proved_json(lab):
    words = ["prove", "single", "single", "--steps", 1, "--batch-size", 2]
    found = json.loads(lab.succeeds(*words, "--json").out)
    lab.assertTrue(found["holds"] and found["bit_identical"])
    lab.assertIn("promised: bit-identical", lab.succeeds(*words).out)


@PROVE.row("--config", "a file's keys are options")
def proved_config(lab):
    proof = Proof(lab, steps=1, config=config_file(lab, 'precision = "fp32"\n'))
    lab.assertEqual({values.typecode for values in proof.read("weight", 1).values()}, {"f"})


# ---- plan


def planned(lab, *words):
    return json.loads(lab.succeeds("plan", *words, "--json").out)


def rows_of(lab, *words):
    return [line.split() for line in lab.succeeds("plan", *words).out.splitlines() if not line.startswith("#")]


@PLAN.row("--schedule", "its rows are those of the schedule of this name, or of the file")
def planned_schedule(lab):
    peaks = {name: [rank["peak_in_flight"] for rank in planned(lab, "--schedule", name)["ranks"]]
             for name in ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v")}
    lab.assertEqual(peaks, {"naive": [1] * 4, "gpipe": [8] * 4, "1f1b": [4, 3, 2, 1], "interleaved": [11, 9, 7, 5],
                            "zb-h1": [4] * 4, "zb-v": [8] * 4})
    versions = [rank["versions"] for rank in planned(lab, "--schedule", "pipedream")["ranks"]]
    lab.assertEqual(versions, [4, 3, 2, 1])
    path = lab.folder / "mine.txt"
    path.write_text(lab.succeeds("plan", "--schedule", "1f1b", "-p", "2", "-m", "3").out)
    lab.assertEqual(rows_of(lab, "--schedule", path), rows_of(lab, "--schedule", "1f1b", "-p", "2", "-m", "3"))
    lab.refuses(["plan", "--schedule", path, "-p", "2"], "--pipeline-parallel is told by the rows")
    lab.refuses(["plan", "--schedule", "1f2b"], 'unknown schedule "1f2b"', "zb-v")
    lab.refuses(["plan", "--schedule", "own/1f1b.txt"], "there is no file own/1f1b.txt", "zb-v")
    path.write_text("0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1\n")
    lab.refuses(["plan", "--schedule", path], "rank 0 sends in 0SF1 to rank 1, rank 1 sends in 1SB0 to rank 0")
    path.write_text("0F0 0B0\n1F0 1X0\n")
    lab.refuses(["plan", "--schedule", path], f"{path}:2", '"1X0"')


@PLAN.row("--measured", "the plan is that of a run with the times of its passes, and the run stands beside it")
def planned_measured(lab):
    path, trace = lab.folder / "measured.json", lab.folder / "measured-trace.json"
    # Passes take 2, 4 and 3 ms; rank 1 begins late by 1 ms.
    path.write_text(json.dumps({"schedule": "mine", "rows": ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"], "milliseconds": [
        [0, "0F0", 0, 2], [0, "0F1", 2, 4], [1, "1F0", 3, 5], [1, "1F1", 5, 7], [1, "1B0", 7, 11], [0, "0B0", 11, 14],
        [1, "1B1", 11, 15], [0, "0B1", 15, 18]]}))
    found = planned(lab, "--measured", path)
    lab.assertEqual((found["schedule"], found["time"], found["measured"]["time"]), ("mine", 17, 18))
    lab.assertEqual([[ranks["bubble"] for ranks in of["ranks"]] for of in (found, found["measured"])], [[7, 5], [8, 6]])
    text = lab.succeeds("plan", "--measured", path, "--draw", trace).out
    lab.assertIn("time 17, measured 18", text)
    lab.assertIn("rank 0: bubble 7 (41.2 %), measured 8 (44.4 %), peak in flight 2", text)
    lab.assertEqual(sum(event["ph"] == "X" for event in json.loads(trace.read_text())["traceEvents"]), 2 * 8)
    lab.refuses(["plan", "--measured", path, "-m", 3], "--micro-batches is told by --measured")
    lab.refuses(["plan", "--measured", path, "--schedule", "gpipe"], "--schedule is told by --measured")
    lab.refuses(["plan"], "needs --schedule NAME|FILE, or --measured FILE")
    path.write_text('{"rows": ["0F0 0B0"], "milliseconds": []}')
    lab.refuses(["plan", "--measured", path], str(path), "it has no pass", "--record-passes")


@PLAN.row("--pipeline-parallel", "so many ranks have rows")
def planned_ranks(lab):
    for count in (1, 3):
        lab.assertEqual(len(rows_of(lab, "--schedule", "gpipe", "--pipeline-parallel", count)), count)


@PLAN.row("--micro-batches", "each stage runs so many")
def planned_micro_batches(lab):
    for count in (1, 5):
        lab.assertEqual(len(rows_of(lab, "--schedule", "gpipe", "--micro-batches", count)[0]), 2 * count)


@PLAN.row("--stages-per-rank", "the model is cut into so many a rank")
def planned_chunks(lab):
    for count in (2, 3):
        lab.assertEqual(planned(lab, "--schedule", "interleaved", "--stages-per-rank", count)["stages"], 4 * count)
    lab.refuses(["plan", "--schedule", "1f1b", "-v", "2"], "expected 1 stages a rank, found 2")


@PLAN.row("--ranks-per-stage", "each stage lies on so many ranks")
def planned_replicas(lab):
    rows = rows_of(lab, "--schedule", "gpipe", "--ranks-per-stage", "2,1", "-m", 3)
    lab.assertEqual(rows, ["0F0 0F2 0B0 0B2".split(), "0F1 0B1".split(), "1F0 1F1 1F2 1B0 1B1 1B2".split()])
    peaks = [rank["peak_in_flight"] for rank in planned(lab, "--schedule", "1f1b", "--ranks-per-stage", "1,2,1", "-m", 12)["ranks"]]
    lab.assertEqual(peaks, [5, 2, 2, 1])
    lab.assertEqual(planned(lab, "--schedule", "gpipe", "--ranks-per-stage", "2,2", "-p", 4)["stages"], 2)
    lab.refuses(["plan", "--schedule", "gpipe", "--ranks-per-stage", "2,1", "-p", 4], "--ranks-per-stage 2,1 are 3 ranks, and --pipeline-parallel says 4")
    lab.refuses(["plan", "--schedule", "gpipe", "--ranks-per-stage", "2,0.5"], "--ranks-per-stage expects whole numbers from 1 to 4096", '"2,0.5"')
    lab.refuses(["plan", "--schedule", "zb-v", "--ranks-per-stage", "2,1"], "zb-v has one rank a stage")
    path = lab.folder / "replicated.txt"
    path.write_text("0F0 0B0\n0F1 0B0\n1F0 1B0 1F1 1B1\n")
    lab.refuses(["plan", "--schedule", path], f"{path}:2, rank 1: 0B0 stands here")


@PLAN.row("--forward-time", "forward passes take so long")
def planned_forward(lab):
    lab.assertEqual(planned(lab, "--schedule", "gpipe", "-p", 2, "-m", 2, "--forward-time", "1,3", "--input-time", "1,2", "--weight-time", "1,2",
                            "--message-time", 0.5)["time"], 18)
    lab.refuses(["plan", "--schedule", "gpipe", "--forward-time", "1,x"], '--forward-time expects numbers', '"1,x"')


@PLAN.row("--input-time", "the gradients of inputs take so long")
def planned_input(lab):
    lab.assertEqual(planned(lab, "--schedule", "zb-h1", "--input-time", 2, "--forward-time", 2, "--weight-time", 1)["ranks"][0]["busy"], 8 * 5)


@PLAN.row("--weight-time", "the gradients of weights take so long")
def planned_weight(lab):
    lab.assertEqual(planned(lab, "--schedule", "gpipe", "-p", 1, "-m", 3, "--weight-time", 4)["time"], 3 * 6)


@PLAN.row("--update-time", "updates in the rows take so long")
def planned_update(lab):
    path = lab.folder / "updates.txt"
    path.write_text("0F0@0 0B0@0 0U1 0F1@1 0B1@1 0U2\n1F0@0 1B0@0 1U1 1F1@1 1B1@1 1U2\n")
    lab.assertEqual(planned(lab, "--schedule", path, "--update-time", "5,1")["time"], 2 * (6 + 5))
    lab.assertEqual(planned(lab, "--schedule", "gpipe", "-p", 1, "-m", 3, "--update-time", 4)["time"], 3 * 3)


def planned_memory(lab, *words):
    return [rank["peak_memory"] for rank in planned(lab, "--schedule", "pipedream", "-p", 2, "-m", 4, *words)["ranks"]]


@PLAN.row("--activation-memory", "what is held of a micro-batch on its way")
def planned_activations(lab):
    lab.assertEqual(planned_memory(lab, "--activation-memory", "3,5"), [2 * 3, 5])
    lab.assertIn("rank 0: bubble 0 (0.0 %), peak in flight 1, memory 7",
                 lab.succeeds("plan", "--schedule", "gpipe", "-p", 1, "-m", 1, "--activation-memory", 7).out)
    lab.refuses(["plan", "--schedule", "gpipe", "-p", 2, "--activation-memory", "1,2,3"], "one for each of 2, found 3")


@PLAN.row("--weight-memory", "each version of the weights")
def planned_weights(lab):
    lab.assertEqual(planned_memory(lab, "--weight-memory", "3,5"), [2 * 3, 5])


@PLAN.row("--state-memory", "what is there once, whatever the schedule")
def planned_state(lab):
    lab.assertEqual(planned_memory(lab, "--state-memory", "3,5"), [3, 5])


@PLAN.row("--message-time", "messages take so long")
def planned_message(lab):
    lab.assertEqual(planned(lab, "--schedule", "gpipe", "-p", 2, "-m", 1, "--message-time", 5)["time"], 6 + 10)


@PLAN.row("--messages", "rows have sends and receives")
def planned_messages(lab):
    lab.assertEqual(rows_of(lab, "--schedule", "1f1b", "-p", 2, "-m", 1, "--messages"), ["0F0 0SF0 0RB0 0B0".split(), "1RF0 1F0 1B0 1SB0".split()])


@PLAN.row("--draw", "an image and a trace are drawn")
def planned_drawing(lab):
    image, trace = lab.folder / "a.svg", lab.folder / "a.json"
    lab.succeeds("plan", "--schedule", "zb-v", "--draw", image, trace)
    lab.assertEqual(image.read_text().count("<title>"), 4 * 2 * 8 * 3)
    lab.assertEqual(sum(event["ph"] == "X" for event in json.loads(trace.read_text())["traceEvents"]), 4 * 2 * 8 * 3)
    lab.refuses(["plan", "--schedule", "gpipe", "--draw", lab.folder / "a.png"], "expected a name that ends in .svg or .json")


@PLAN.row("--json", "bubbles and peaks as JSON")
def planned_json(lab):
    found = planned(lab, "--schedule", "zb-h1")
    lab.assertEqual([rank["bubble"] for rank in found["ranks"]], [3] * 4)


@PLAN.row("--config", "options are read from the file")
def planned_config(lab):
    path = lab.folder / "plan.toml"
    path.write_text('schedule = "gpipe"\nmicro-batches = 3\n')
    lab.assertEqual(planned(lab, "--config", path)["micro_batches"], 3)
