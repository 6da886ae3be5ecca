"""What the options of pretrain and finetune do: batches, optimisation, evaluation and saving."""

from .lab import *

BATCHES, OPTIMISATION, SAVING = Table(), Table(), Table()
COUNT, TOKENS = len(LENGTHS), [length + SPECIAL for length in LENGTHS]
EPOCH = {"max_steps": None, "num_train_epochs": 1}


def sums(values, size):
    return [sum(values[begin:begin + size]) for begin in range(0, len(values), size)]


# ---- batches


@BATCHES.row("--batch-size", "so many sequences go into a step")
def batch_size(lab):
    lab.assertEqual(lab.train(**EPOCH).tokens, sums(TOKENS, 4))
    lab.assertEqual(lab.train(batch_size=5, **EPOCH).tokens, sums(TOKENS, 5))


@BATCHES.row("--micro-batch-size", "with --gradient-accumulation-steps it implies the batch; the gradient is the whole batch's")
def micro_batch_size(lab):
    run = lab.train(batch_size=None, micro_batch_size=3, gradient_accumulation_steps=2, **EPOCH)
    lab.assertEqual(run.tokens, sums(TOKENS, 6))
    whole, cut = lab.train(optim="sgd").weights, lab.train(optim="sgd", micro_batch_size=1).weights
    lab.assertTrue(0 < distance(whole, cut) < 1e-12, "sums in another order")


@BATCHES.row("--gradient-accumulation-steps", "the batch is computed in so many parts of one size")
def gradient_accumulation_steps(lab):
    for parts in lab.few((2, 1)):
        run = lab.train(batch_size=None, micro_batch_size=3, gradient_accumulation_steps=parts, **EPOCH)
        lab.assertEqual(run.tokens, sums(TOKENS, 3 * parts))
    cut = lab.train(optim="sgd", gradient_accumulation_steps=4).weights
    lab.assertEqual(cut, lab.train(optim="sgd", micro_batch_size=1).weights)


@BATCHES.row("--micro-batch-tokens", "a pass has no more tokens than that; the result is that of passes cut by sequences")
def micro_batch_tokens(lab):
    one_each = lab.train(optim="sgd", micro_batch_tokens=1).weights
    lab.assertEqual(one_each, lab.train(optim="sgd", micro_batch_size=1).weights)
    lab.assertEqual(lab.train(optim="sgd", micro_batch_tokens=sum(TOKENS[:4])).weights, lab.train(optim="sgd").weights)


def cut_in_order(fits):
    """Tokens of each step: it takes the next rows, epoch after epoch, while fits(step, rows, tokens) holds."""
    steps, place = [], 0
    for step in range(6):
        rows, tokens = 0, 0
        while rows == 0 or fits(step, rows + 1, tokens + TOKENS[place % COUNT]):
            rows, tokens, place = rows + 1, tokens + TOKENS[place % COUNT], place + 1
        steps.append(tokens)
    return steps


@BATCHES.row("--tokens-per-batch", "a step takes sequences while they have no more tokens; the gradient is that of such a batch")
def tokens_per_batch(lab):
    run = lab.train(batch_size=None, tokens_per_batch=40, max_steps=6)
    lab.assertEqual(run.tokens, cut_in_order(lambda step, rows, tokens: tokens <= 40))
    lab.assertEqual(lab.train(batch_size=None, tokens_per_batch=sum(TOKENS[:4]), optim="sgd").weights, lab.train(optim="sgd").weights)
    lab.refuses_to_train("--tokens-per-batch", "--batch-size", tokens_per_batch=40)
    lab.refuses_to_train("--gradient-accumulation-steps 2", "--micro-batch-tokens", batch_size=None, tokens_per_batch=40, gradient_accumulation_steps=2)


@BATCHES.row("--batch-warmup-steps", "the batch grows to its full size in so many steps")
def batch_warmup_steps(lab):
    run = lab.train(batch_size=6, batch_warmup_steps=4, batch_warmup_start=2, max_steps=6)
    lab.assertEqual(run.tokens, cut_in_order(lambda step, rows, tokens: rows <= min(6, 2 + step)))
    run = lab.train(batch_size=None, tokens_per_batch=50, batch_warmup_steps=5, batch_warmup_start=25, max_steps=6)
    lab.assertEqual(run.tokens, cut_in_order(lambda step, rows, tokens: tokens <= min(50, 25 + 5 * step)))
    lab.assertIn("no batch reaches the full size", lab.train(batch_warmup_steps=2, batch_warmup_start=1, max_steps=2).err)
    lab.refuses_to_train("--batch-warmup-steps and --batch-warmup-start", batch_warmup_steps=4)


@BATCHES.row("--batch-warmup-start", "the first batch has that size")
def batch_warmup_start(lab):
    for start in lab.few((1, 3)):
        run = lab.train(batch_size=4, batch_warmup_steps=1, batch_warmup_start=start, max_steps=2)
        lab.assertEqual(run.tokens, [sum(TOKENS[:start]), sum(TOKENS[start:start + 4])])
    growing = lab.train(optim="sgd", batch_warmup_steps=5, batch_warmup_start=3)
    lab.assertEqual(growing.weights, lab.train(optim="sgd", batch_size=3).weights, "the mean is over the rows that the batch has")
    lab.refuses_to_train("a batch of 5; expected 1 to 4", batch_warmup_steps=4, batch_warmup_start=5)
    lab.refuses_to_train("--batch-warmup-steps and --batch-warmup-start", batch_warmup_start=2)


@BATCHES.row("--eval-batch-size", "so many sequences go into a pass of an evaluation, whose loss is rounded once")
def eval_batch_size(lab):
    def loss(**options):
        run = lab.train(precision="fp32", learning_rate=1e-30, **lab.held_out(40), **options)
        return run.evaluations[-1]["eval_loss"]
    found = {size: loss(eval_batch_size=size) for size in (1, 40)}
    found[4] = loss()  # as in training
    if lab.thorough:
        lab.assertEqual(loss(eval_batch_size=4), found[4])
    lab.assertGreater(len(set(found.values())), 1)
    lab.assertLess(max(found.values()) - min(found.values()), 1e-5)


@BATCHES.row("--max-steps", "training ends after so many steps")
def max_steps(lab):
    for steps in (1, 4):
        run = lab.train(max_steps=steps)
        lab.assertEqual((run.each("step"), run.result["steps"]), (list(range(1, steps + 1)), steps))


@BATCHES.row("--num-train-epochs", "training ends after so many passes over the data")
def num_train_epochs(lab):
    each = sums(TOKENS, 4)
    for epochs, tokens in ((1, each), (1.5, each + each[:2])):
        lab.assertEqual(lab.train(max_steps=None, num_train_epochs=epochs).tokens, tokens)
    if lab.thorough:
        lab.assertEqual(lab.train(max_steps=None, num_train_epochs=None).tokens, 3 * each, "the default")


@BATCHES.row("--shuffle", "each epoch has an order of its own; without it, that of the data")
def shuffle(lab):
    two = {"max_steps": None, "num_train_epochs": 2, "batch_size": 1}
    lab.assertEqual(lab.train(**two).tokens, TOKENS + TOKENS)
    tokens = lab.train(shuffle=True, **two).tokens
    first, second = tokens[:COUNT], tokens[COUNT:]
    lab.assertEqual(sorted(first), sorted(TOKENS))
    lab.assertEqual(sorted(second), sorted(TOKENS))
    lab.assertTrue(first != TOKENS and second != TOKENS and first != second)
    if lab.thorough:
        lab.assertEqual(lab.train(shuffle=None, **two).tokens, tokens, "the default")


@BATCHES.row("--drop-last", "the last, shorter batch of an epoch is left out")
def drop_last(lab):
    two = {"max_steps": None, "num_train_epochs": 2, "batch_size": 5}
    each = sums(TOKENS, 5)
    lab.assertEqual(lab.train(**two).tokens, 2 * each)
    lab.assertEqual(lab.train(drop_last=True, **two).tokens, 2 * each[:-1])


# ---- optimisation


def signs(gradient, rate, epsilon=1e-8):
    """The first step of Adam, corrected for its bias."""
    return {name: [-rate * g / (abs(g) + epsilon) for g in values] for name, values in gradient.items()}


@OPTIMISATION.row("--optim", "the first step follows the rule of the optimiser")
def optim(lab):
    gradient, start = lab.gradient(), lab.start()
    lab.assert_near(lab.moved(optim="sgd"), scaled(gradient, -0.01))
    for options in ({}, {"optim": "adamw"}, {"optim": "adam"}):
        lab.assert_near(lab.moved(**options), signs(gradient, 0.01))
    for name, share in (("lamb", 1), ("lars", 0.001)):  # the weight's norm times the rate and LARS's coefficient
        moved = lab.moved(optim=name)
        for parameter in filter(is_matrix, start):
            lab.assertAlmostEqual(norm(moved[parameter]) / norm(start[parameter]) / 0.01 / share, 1, delta=1e-2, msg=parameter)
    lab.assert_near(lab.moved(optim="stable_adamw"), signs(gradient, 0.01, 1e-6))
    moved = lab.moved(optim="lion")
    for name, values in gradient.items():
        found = [abs(m + math.copysign(0.01, g)) for m, g in zip(moved[name], values) if abs(g) > 1e-9]
        lab.assertLess(max(found, default=0), 1e-12)
    lab.assert_near(lab.train(weight_decay=0.5).state("exp_avg"), scaled(gradient, 0.1))
    with_decay = {name: [g + 0.5 * w * is_matrix(name) for g, w in zip(values, start[name])] for name, values in gradient.items()}
    lab.assert_near(lab.train(optim="adam", weight_decay=0.5).state("exp_avg"), scaled(with_decay, 0.1))


@OPTIMISATION.row("--learning-rate", "a step of plain descent is that long")
def learning_rate(lab):
    lab.assert_near(lab.moved(optim="sgd"), scaled(lab.gradient(), -0.01))
    lab.assert_near(lab.moved(optim="sgd", learning_rate=0.04), scaled(lab.gradient(), -0.04))
    lab.assertEqual(lab.train(optim="sgd", learning_rate=0.04).each("learning_rate"), [0.04])


@OPTIMISATION.row("--scale-learning-rate", "the rate follows the batch, linearly or by its square root, and every record says so")
def scale_learning_rate(lab):
    for rule, power in lab.few((("linear", 1), ("sqrt", 0.5))):
        run = lab.train(optim="sgd", scale_learning_rate=rule, base_batch_size=2)
        batch = run.file["batch"]["batch_size"]
        factor = (batch / 2) ** power
        lab.assert_near(lab.moved(optim="sgd", scale_learning_rate=rule, base_batch_size=2), scaled(lab.gradient(), -0.01 * factor))
        lab.assertAlmostEqual(run.each("learning_rate")[0], 0.01 * factor, places=12)
        lab.assertAlmostEqual(run.file["optimizer"]["learning_rate"], 0.01 * factor, places=12)
        lab.assertEqual(run.file["learning_rate_scaling"], {"rule": rule, "base_batch_size": 2, "batch_size": batch, "factor": factor, "base_learning_rate": 0.01})
        lab.assertIn(f"× {factor:g} ({rule}: a batch of {batch} against 2)", run.err)
    lab.assertNotIn("learning_rate_scaling", lab.train(optim="sgd").file)


@OPTIMISATION.row("--base-batch-size", "the batch that the rate is for; with --scale-learning-rate alone")
def base_batch_size(lab):
    rates = [lab.train(optim="sgd", scale_learning_rate="linear", base_batch_size=size).each("learning_rate")[0] for size in (1, 4)]
    lab.assertAlmostEqual(rates[0], 4 * rates[1], places=12)
    lab.refuses_to_train("give --base-batch-size N", scale_learning_rate="linear")
    lab.refuses_to_train("give both, or neither", base_batch_size=4)


@OPTIMISATION.row("--weight-decay", "matrices shrink by that share of the rate, biases and normalisations do not")
def weight_decay(lab):
    start, without, with_decay = lab.start(), lab.moved(), lab.moved(weight_decay=0.5)
    for name, before in start.items():
        shrunk = less(with_decay[name], without[name])
        expected = [-0.01 * 0.5 * value if is_matrix(name) else 0 for value in before]
        lab.assertLess(max(map(abs, less(shrunk, expected))), 1e-12, name)


@OPTIMISATION.row("--adam-beta1", "after a step the mean of gradients is (1 - B) g")
def adam_beta1(lab):
    lab.assert_near(lab.train().state("exp_avg"), scaled(lab.gradient(), 1 - 0.9))
    lab.assert_near(lab.train(adam_beta1=0.5).state("exp_avg"), scaled(lab.gradient(), 1 - 0.5))


@OPTIMISATION.row("--adam-beta2", "after a step the mean of squares is (1 - B) g^2")
def adam_beta2(lab):
    squares = {name: [g * g for g in values] for name, values in lab.gradient().items()}
    lab.assert_near(lab.train().state("exp_avg_sq"), scaled(squares, 1 - 0.999))
    lab.assert_near(lab.train(adam_beta2=0.5).state("exp_avg_sq"), scaled(squares, 1 - 0.5))


@OPTIMISATION.row("--adam-epsilon", "the first step is rate g / (|g| + E)")
def adam_epsilon(lab):
    for name in lab.few(("adam", "adamw")):
        lab.assert_near(lab.moved(optim=name, adam_epsilon=0.1), signs(lab.gradient(), 0.01, 0.1))
    start, gradient, moved = lab.start(), lab.gradient(), lab.moved(optim="lars", adam_epsilon=100)
    for name in filter(is_matrix, start):
        expected = 0.01 * 0.001 * norm(start[name]) * norm(gradient[name]) / (norm(gradient[name]) + 100)
        lab.assertAlmostEqual(norm(moved[name]), expected, delta=1e-6 * expected, msg=name)


@OPTIMISATION.row("--bias-correction", "without it the first step is (1 - B1) / sqrt(1 - B2) times as long")
def bias_correction(lab):
    lab.assert_near(lab.moved(), signs(lab.gradient(), 0.01))
    for name in lab.few(("adamw", "adam")):
        found = lab.moved(optim=name, bias_correction=False, adam_beta2=0.75)
        lab.assert_near(found, signs(lab.gradient(), 0.01 * 0.1 / 0.5, 1e-8 / 0.5))


@OPTIMISATION.row("--momentum", "the second step has M times the first gradient in it")
def momentum(lab):
    for name in lab.few(("sgd", "lars")):
        first = lab.train(optim=name).state("momentum_buffer")
        steps = {"optim": name, "max_steps": 2, "lr_scheduler_type": "constant"}
        much, little = (lab.train(momentum=share, **steps).state("momentum_buffer") for share in (0.9, 0.5))
        lab.assert_near({key: less(much[key], little[key]) for key in first}, scaled(first, 0.9 - 0.5))


@OPTIMISATION.row("--nesterov", "the first step is 1 + M times as long")
def nesterov(lab):
    for name in lab.few(("lars", "sgd")):
        plain = lab.moved(optim=name)  # whatever the momentum
        lab.assert_near(lab.moved(optim=name, momentum=0.5, nesterov=True), scaled(plain, 1.5))


@OPTIMISATION.row("--trust-ratio", "paper: biases and normalisations have a trust ratio, too")
def trust_ratio(lab):
    start, gradient = lab.start(), lab.gradient()
    name = "bert.encoder.layer.0.output.LayerNorm.weight"  # its norm is not 0
    for optimiser, ratio in lab.few((("lamb", 1), ("lars", 0.001))):
        paper = lab.moved(optim=optimiser, trust_ratio="paper")[name]
        lab.assertAlmostEqual(norm(paper), 0.01 * ratio * norm(start[name]), delta=1e-6)
        apex = lab.moved(optim=optimiser)[name]
        plain = signs(gradient, 0.01, 1e-6)[name] if optimiser == "lamb" else scaled(gradient, -0.01)[name]
        lab.assertLess(max(map(abs, less(apex, plain))), 1e-6)


@OPTIMISATION.row("--trust-coefficient", "a step of LARS on a matrix is that share of rate and norm")
def trust_coefficient(lab):
    start = lab.start()
    for share, moved in ((0.001, lab.moved(optim="lars")), (0.25, lab.moved(optim="lars", trust_coefficient=0.25))):
        for name in filter(is_matrix, start):
            lab.assertAlmostEqual(norm(moved[name]) / norm(start[name]) / 0.01 / share, 1, delta=1e-2, msg=name)


@OPTIMISATION.row("--epsilon-placement", "inside: the first step is rate g / sqrt(g^2 + E)")
def epsilon_placement(lab):
    gradient, moved = lab.gradient(), lab.moved(optim="lamb", adam_epsilon=0.5, epsilon_placement="inside")
    outside = lab.moved(optim="lamb", adam_epsilon=0.5)
    for name in filter(lambda name: not is_matrix(name), gradient):  # which have no trust ratio
        inside = [-0.01 * g / math.sqrt(g * g + 0.5) for g in gradient[name]]
        lab.assertLess(max(map(abs, less(moved[name], inside))), 1e-9, name)
        lab.assertLess(max(map(abs, less(outside[name], signs(gradient, 0.01, 0.5)[name]))), 1e-9, name)


@OPTIMISATION.row("--trust-bounds", "a trust ratio outside of the bounds is the nearer one of them")
def trust_bounds(lab):
    gradient = lab.gradient()
    bounded = {"lamb": signs(gradient, 0.01 * 100, 1e-6), "lars": scaled(gradient, -0.01 * 100)}
    for name, expected in lab.few(tuple(bounded.items())):
        moved = lab.moved(optim=name, trust_bounds="100,inf")
        for parameter in filter(is_matrix, moved):
            lab.assertAlmostEqual(norm(moved[parameter]) / norm(expected[parameter]), 1, delta=1e-2, msg=parameter)
    lab.refuses(lab.words(lab.folder / "wrong", {"optim": "lamb", "trust_bounds": "10"}), "--trust-bounds expects LOWEST,HIGHEST")


@OPTIMISATION.row("--weight-norm-bounds", "a step of LAMB on a matrix is as long as if its norm lay within the bounds")
def weight_norm_bounds(lab):
    moved = lab.moved(optim="lamb", weight_norm_bounds="7,7")
    for name in filter(is_matrix, moved):
        lab.assertAlmostEqual(norm(moved[name]), 0.01 * 7, delta=1e-3, msg=name)


@OPTIMISATION.row("--rate-in-momentum", "without it the momentum of LARS does not hold the rate")
def rate_in_momentum(lab):
    with_rate, without = (lab.train(optim="lars", rate_in_momentum=on).state("momentum_buffer") for on in (True, False))
    lab.assert_near(scaled(without, 0.01), with_rate)


@OPTIMISATION.row("--trust-clip", "no layer moves faster than at the plain rate")
def trust_clip(lab):
    moved = lab.moved(optim="lars", trust_clip=True, trust_coefficient=1000)
    lab.assert_near(moved, scaled(lab.gradient(), -0.01))


@OPTIMISATION.row("--lion-beta1", "the sign of B m + (1 - B) g is the direction of a step")
def lion_beta1(lab):
    gradients, steps = {}, {"optim": "lion", "max_steps": 2, "lr_scheduler_type": "constant", "lion_beta2": 0.5}
    first = lab.train(**{**steps, "max_steps": 1})
    second = lab.train(**steps)
    for name, momentum in second.state("exp_avg").items():  # 0.25 g1 + 0.5 g2
        gradients[name] = [2 * (m - m1 / 2) for m, m1 in zip(momentum, first.state("exp_avg")[name])]
    for share, run in lab.few(((0.9, second), (0.0, lab.train(lion_beta1=0, **steps)))):
        for name, after in run.weights.items():
            if name not in gradients:
                continue
            for w2, w1, m, g in zip(after, first.weights[name], first.state("exp_avg")[name], gradients[name]):
                direction = share * m + (1 - share) * g
                if abs(direction) > 1e-9:  # the rest is rounding
                    lab.assertAlmostEqual(w2 - w1, -math.copysign(0.01, direction), places=12, msg=name)


@OPTIMISATION.row("--lion-beta2", "after a step the momentum is (1 - B) g")
def lion_beta2(lab):
    lab.assert_near(lab.train(optim="lion").state("exp_avg"), scaled(lab.gradient(), 1 - 0.99))
    lab.assert_near(lab.train(optim="lion", lion_beta2=0.5).state("exp_avg"), scaled(lab.gradient(), 1 - 0.5))


@OPTIMISATION.row("--decouple-lr", "a step at the peak rate takes the share --weight-decay of each matrix")
def decouple_lr(lab):
    start, without = lab.start(), lab.moved(optim="stable_adamw")
    for decouple, share in ((True, 0.5), (False, 0.01 * 0.5)):
        shrunk = lab.moved(optim="stable_adamw", weight_decay=0.5, decouple_lr=decouple)
        for name, before in start.items():
            expected = [-share * value if is_matrix(name) else 0 for value in before]
            lab.assertLess(max(map(abs, less(less(shrunk[name], without[name]), expected))), 1e-12, name)


def rate_at(schedule, step, warmup, total):
    """Of a peak of 1; steps from 0."""
    if schedule == "constant":
        return 1
    if step < warmup:
        return step / warmup
    progress = (step - warmup) / (total - warmup)
    return {"linear": 1 - progress, "constant_with_warmup": 1, "cosine": (1 + math.cos(math.pi * progress)) / 2,
            "cosine_with_restarts": (1 + math.cos(math.pi * progress)) / 2, "polynomial": 1e-5 + (1 - 1e-5) * (1 - progress),
            "inverse_sqrt": 1 / math.sqrt(1 + (step - warmup) / (warmup or 10000)),
            "wsd": 1 - math.sqrt(max(0, 1 - (total - step) / math.ceil(0.2 * total)))}[schedule]


def assert_rates(lab, run, schedule, warmup, total):
    for step, rate in enumerate(run.each("learning_rate")):
        lab.assertAlmostEqual(rate, 0.01 * rate_at(schedule, step, warmup, total), places=12, msg=f"{schedule}, step {step + 1}")


@OPTIMISATION.row("--lr-scheduler-type", "the rates of the steps have the schedule's shape")
def lr_scheduler_type(lab):
    assert_rates(lab, lab.train(warmup_steps=2, max_steps=6), "linear", 2, 6)
    for name in lab.few(("cosine", "constant", "constant_with_warmup", "cosine_with_restarts", "polynomial", "inverse_sqrt", "wsd")):
        run = lab.train(lr_scheduler_type=name, warmup_steps=2, max_steps=6)
        assert_rates(lab, run, name, 2, 6)
        lab.assertEqual("--warmup-steps has no effect with --lr-scheduler-type constant" in run.err, name == "constant")


@OPTIMISATION.row("--warmup-steps", "the rate rises in so many steps from 0; at 0 no weight moves")
def warmup_steps(lab):
    assert_rates(lab, lab.train(max_steps=6), "linear", 0, 6)
    assert_rates(lab, lab.train(warmup_steps=2, max_steps=6), "linear", 2, 6)
    lab.assertLess(distance(lab.train(warmup_steps=2).weights, lab.start()), 1e-200)


@OPTIMISATION.row("--warmup-ratio", "the rate rises in that share of all steps, rounded up")
def warmup_ratio(lab):
    assert_rates(lab, lab.train(warmup_ratio=0.6, max_steps=6), "linear", 4, 6)


@OPTIMISATION.row("--lr-cycles", "the cosine has so many waves")
def lr_cycles(lab):
    for name, rate in lab.few((("cosine", lambda share: (1 + math.cos(2 * math.pi * 2 * share)) / 2),
                               ("cosine_with_restarts", lambda share: (1 + math.cos(math.pi * (2 * share % 1))) / 2))):
        run = lab.train(lr_scheduler_type=name, lr_cycles=2, max_steps=6)
        for step, found in enumerate(run.each("learning_rate")):
            lab.assertAlmostEqual(found, 0.01 * rate(step / 6), places=12, msg=f"{name}, step {step + 1}")
        lab.assertEqual(run.file["schedule"], {"name": name, "warmup_steps": 0, "cycles": 2})
    lab.assertIn("--lr-cycles has no effect with --lr-scheduler-type linear; it works only with cosine, cosine_with_restarts",
                 lab.train(lr_cycles=2).err)


@OPTIMISATION.row("--lr-power", "polynomial: the share of steps that are left to that power")
def lr_power(lab):
    run = lab.train(lr_scheduler_type="polynomial", lr_power=2, lr_end=0, max_steps=6)
    for step, found in enumerate(run.each("learning_rate")):
        lab.assertAlmostEqual(found, 0.01 * (1 - step / 6) ** 2, places=12)


@OPTIMISATION.row("--lr-end", "polynomial, wsd: the rate to which it falls")
def lr_end(lab):
    run = lab.train(lr_scheduler_type="polynomial", lr_end=0.004, max_steps=6)
    for step, found in enumerate(run.each("learning_rate")):
        lab.assertAlmostEqual(found, 0.004 + 0.006 * (1 - step / 6), places=12)
    run = lab.train(lr_scheduler_type="polynomial", lr_end=0.004, max_steps=6, scale_learning_rate="linear", base_batch_size=2)
    factor = run.file["batch"]["batch_size"] / 2
    for step, found in enumerate(run.each("learning_rate")):
        lab.assertAlmostEqual(found, (0.004 + 0.006 * (1 - step / 6)) * factor, places=12)
    lab.refuses(lab.words(lab.folder / "wrong", {"lr_scheduler_type": "polynomial", "lr_end": -1}), "--lr-end")
    run = lab.train(lr_scheduler_type="wsd", lr_end=0.004, decay_ratio=0.5, max_steps=4)
    for found, share in zip(run.each("learning_rate"), (1, 1, 1, 1 - math.sqrt(1 / 2)), strict=True):
        lab.assertAlmostEqual(found, 0.004 + 0.006 * share, places=12)
    lab.assertEqual(run.file["schedule"], {"name": "wsd", "warmup_steps": 0, "decay_ratio": 0.5, "final_rate": 0.004})


@OPTIMISATION.row("--decay-ratio", "wsd: the share of the steps in which the rate falls by 1 - sqrt")
def decay_ratio(lab):
    run = lab.train(lr_scheduler_type="wsd", decay_ratio=0.5, max_steps=6)
    for found, share in zip(run.each("learning_rate"), (1, 1, 1, 1, 1 - math.sqrt(1 / 3), 1 - math.sqrt(2 / 3)), strict=True):
        lab.assertAlmostEqual(found, 0.01 * share, places=12)
    lab.refuses(lab.words(lab.folder / "wrong", {"lr_scheduler_type": "wsd", "decay_ratio": 1.5}), "--decay-ratio")
    long = lab.train(lr_scheduler_type="wsd", decay_ratio=0.5, max_steps=8, save_steps=2, save_total_limit=0)
    short = lab.train(lr_scheduler_type="wsd", decay_ratio=0.5, max_steps=4, resume=long.folder / "checkpoints" / "step-000002")
    for found, share in zip(short.each("learning_rate"), (1, 1 - math.sqrt(1 / 2)), strict=True):
        lab.assertAlmostEqual(found, 0.01 * share, places=12)


@OPTIMISATION.row("--max-grad-norm", "a longer gradient is cut to that length, a shorter one is not; 0: none is")
def max_grad_norm(lab):
    gradient = lab.gradient()
    length = math.hypot(*map(norm, gradient.values()))
    lab.assertAlmostEqual(lab.train(optim="sgd").each("gradient_norm")[0] / length, 1, places=6)
    lab.assert_near(lab.moved(optim="sgd"), scaled(gradient, -0.01))
    moved = lab.moved(optim="sgd", max_grad_norm=length / 8)
    lab.assert_near(moved, scaled(gradient, -0.01 / 8 / (1 + 1e-6 / length)))
    lab.assertAlmostEqual(math.hypot(*map(norm, moved.values())) / (0.01 * length / 8), 1, places=3)
    for limit in lab.few((2 * length, None)):
        cut = min(1, (limit or 1) / (length + 1e-6))  # 1 is the default
        lab.assert_near(lab.moved(optim="sgd", max_grad_norm=limit), scaled(gradient, -0.01 * cut))


# ---- evaluation and saving


@SAVING.row("--logging-steps", "a record each so many steps; 0: none")
def logging_steps(lab):
    for every, steps in lab.few(((3, [3]), (1, [1, 2, 3, 4]), (0, []))):
        lab.assertEqual(lab.train(logging_steps=every, max_steps=4).each("step"), steps)


@SAVING.row("--eval-steps", "an evaluation each so many steps and at the end; 0: each epoch")
def eval_steps(lab):
    for every, steps in lab.few(((2, [2, 4, 6, 7]), (0, [3, 6, 7]))):
        run = lab.train(eval_steps=every, max_steps=7, **lab.held_out())
        lab.assertEqual([line["step"] for line in run.evaluations], steps)


@SAVING.row("--save-steps", "a checkpoint each so many steps and at the end; 0: none")
def save_steps(lab):
    for every, steps in lab.few(((2, [2, 4, 5]), (0, []))):
        lab.assertEqual(lab.train(save_steps=every, save_total_limit=0, max_steps=5).steps, steps)


@SAVING.row("--save-total-limit", "so many checkpoints are kept, the newest; 0: all")
def save_total_limit(lab):
    for limit, steps in lab.few(((1, [5]), (0, [1, 2, 3, 4, 5]), (None, [4, 5]))):
        lab.assertEqual(lab.train(save_steps=1, save_total_limit=limit, max_steps=5).steps, steps)


@SAVING.row("--patience", "training stops after so many evaluations without a better one; 0: it does not")
def patience(lab):
    for count, steps in lab.few(((2, 3), (0, 4))):
        run = lab.train(patience=count, learning_rate=NOTHING, eval_steps=1, max_steps=4, **lab.held_out())
        lab.assertEqual((run.result["steps"], run.file["result"]["stopped_early"]), (steps, count > 0))


@SAVING.row("--resume", "auto goes on from the newest checkpoint, never does not, a path from that one")
def resume(lab):
    words = {"max_steps": 4, "lr_scheduler_type": "constant"}
    half, whole = lab.train(**{**words, "max_steps": 2}), lab.train(resume="never", **words)
    lab.assertEqual(whole.file["resumed_from"], 0)
    lab.refuses(lab.words(half.folder, {**words, "resume": "never"}), "holds checkpoints of an earlier run")
    elsewhere = lab.train(resume=half.folder / "checkpoints" / "step-000002", **words)
    went_on = lab.train(output=half.folder, resume="auto", **words)
    for run in (elsewhere, went_on):
        lab.assertEqual((run.file["resumed_from"], run.weights), (2, whole.weights))
