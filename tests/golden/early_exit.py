"""Early exit and probes against transformers: layers run one by one in PyTorch, with the classifiers that the program has trained.

usage: early_exit.py FUNICULAR_PROGRAM

The rule, the losses of the exits and the reading of the probes are written here by their definitions (docs/how_to/early_exit.md).
"""

import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification, BertTokenizerFast

GOOD, BAD, OTHERS = ["fine", "good", "warm"], ["dull", "bad", "cold"], ["film", "book", "song", "the", "a", "is", "very", "old", "not"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *OTHERS]
LAYERS, LENGTH = 4, 24


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], text=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"funicular {' '.join(map(str, words))}\nexit {done.returncode}\n{done.stderr}")
    return done.stdout


def result(text):
    return json.loads(text.strip().splitlines()[-1])


def made_rows(count, seed):
    """A row's class is that of most of its words; "not" turns the word behind it, so that rows differ in how hard they are."""
    source, rows = random.Random(seed), []
    while len(rows) < count:
        words = [source.choice(GOOD + BAD + OTHERS + ["not"] * 4) for _ in range(source.randint(2, LENGTH - 2))]
        signs = [(word in GOOD) - (word in BAD) for word in words]
        balance = sum(-sign if words[at - 1] == "not" and at else sign for at, sign in enumerate(signs))
        if balance:
            rows.append(("pro" if balance > 0 else "contra", " ".join(words)))
    return rows


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.write("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows))


def write_model(folder):
    torch.manual_seed(3)
    config = BertConfig(vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=64,
                        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.02)
    BertForSequenceClassification(config).save_pretrained(folder)
    with open(f"{folder}/vocab.txt", "w") as file:
        file.write("\n".join(VOCABULARY) + "\n")
    BertTokenizerFast(f"{folder}/vocab.txt").save_pretrained(folder)


def opened(folder):
    """The model of a folder, which has neither missing nor unexpected weights for transformers."""
    model, said = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not said["missing_keys"] and not said["unexpected_keys"] and not said["mismatched_keys"], said
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def exit_logits(weights, layer, hidden, pooling):
    """DeeBERT's off-ramp, a pooler and a linear layer: over the first token as published, or over the mean of one text's tokens."""
    read = hidden[:, 0] if pooling == "first" else hidden.mean(1)
    pooled = torch.tanh(read @ weights[f"exits.{layer}.dense.weight"].T + weights[f"exits.{layer}.dense.bias"])
    return pooled @ weights[f"exits.{layer}.output.weight"].T + weights[f"exits.{layer}.output.bias"]


def entropy(logits):
    p = logits.softmax(-1)
    return -(p * p.log()).sum(-1) / math.log(logits.shape[-1])


def states_of(model, tokenizer, text):
    """The hidden states of the embeddings and of each layer."""
    ids = tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt")
    with torch.no_grad():
        return model.base_model(**ids, output_hidden_states=True).hidden_states


def one_by_one(model, tokenizer, weights, text, threshold, pooling):
    """(layer, probabilities, how near an exit was to the threshold): layers run until an exit is sure; the ones behind it never run."""
    ids = tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt")
    nearest = 1.0
    with torch.no_grad():
        hidden = model.bert.embeddings(ids["input_ids"], token_type_ids=ids["token_type_ids"])
        for number, layer in enumerate(model.bert.encoder.layer, 1):
            hidden = layer(hidden)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
            if number == LAYERS:
                return number, model.classifier(model.bert.pooler(hidden)).softmax(-1)[0], nearest
            logits = exit_logits(weights, number, hidden, pooling)
            nearest = min(nearest, abs(float(entropy(logits)[0]) - threshold))
            if entropy(logits)[0] < threshold:
                return number, logits.softmax(-1)[0], nearest


def compare_answers(program, folder, model_folder, texts, *threshold_words, threshold, pooling):
    model, tokenizer = opened(model_folder)
    weights = load_file(f"{model_folder}/exits.safetensors")
    path = f"{folder}/lines.txt"
    with open(path, "w") as file:
        file.write("\n".join(texts) + "\n")
    words = ["predict", "--model", model_folder, "--input", path, "--precision", "fp32"]
    answers = [json.loads(line) for line in run(program, *words, *threshold_words, "--micro-batch-tokens", 300).splitlines()]
    labels, worst, layers = model.config.id2label, 0.0, []
    for text, answer in zip(texts, answers, strict=True):
        layer, probabilities, nearest = one_by_one(model, tokenizer, weights, text, threshold, pooling)
        if nearest < 1e-5:  # rounding decides
            continue
        assert answer["layer"] == layer, (text, answer, layer)
        assert answer["label"] == labels[int(probabilities.argmax())], (text, answer)
        worst = max(worst, max(abs(answer["probabilities"][labels[i]] - float(p)) for i, p in enumerate(probabilities)))
        layers.append(layer)
    assert worst < 2e-5 and len(layers) > 0.9 * len(texts), (worst, len(layers))
    whole = [json.loads(line) for line in run(program, *words).splitlines()]
    for text, answer in zip(texts, whole, strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt")).logits
        assert answer["label"] == labels[int(logits.argmax())] and "layer" not in answer, (text, answer)
    return layers, worst


def compare_step(program, folder, model_folder, training, rows, pooling):
    """One step of SGD on the exits: the gradient of the loss as PyTorch has it."""
    path, weights = f"{folder}/step.tsv", {}
    write_rows(path, rows)
    for rate in (1e-30, 0.5):
        output = f"{folder}/step-{training}-{pooling}-{rate}"
        run(program, "finetune", "--model", model_folder, "--task", "custom", "--train", path, "--output", output, "--early-exit", training,
            "--exits-only", "--optim", "sgd", "--learning-rate", rate, "--max-steps", 1, "--batch-size", len(rows), "--max-length", LENGTH,
            "--max-grad-norm", 0, "--precision", "fp32", "--exit-pooling", pooling)
        weights[rate] = load_file(f"{output}/model/exits.safetensors")
    model, tokenizer = opened(model_folder)
    own = {name: value.clone().requires_grad_() for name, value in weights[1e-30].items()}
    names, loss = {name: number for number, name in model.config.id2label.items()}, 0
    for label, text in rows:
        states = states_of(model, tokenizer, text)
        with torch.no_grad():
            teacher = model.classifier(model.bert.pooler(states[-1])).log_softmax(-1)
        for layer in range(1, LAYERS):
            logits = exit_logits(own, layer, states[layer], pooling)
            if training == "two-stage":
                loss = loss + torch.nn.functional.cross_entropy(logits, torch.tensor([names[label]]))
            else:
                loss = loss + torch.nn.functional.kl_div(logits.log_softmax(-1), teacher, reduction="sum", log_target=True)
    (loss / len(rows)).backward()
    worst = 0.0
    for name, value in own.items():
        moved = (weights[1e-30][name] - weights[0.5][name]) / 0.5
        worst = max(worst, float((moved - value.grad).norm() / value.grad.norm()))
    assert worst < 1e-4, (training, worst)
    return worst


def compare_probes(program, folder, model_folder, states, train, evaluation, pooling):
    """states: of the rows of both files, each one's hidden states."""
    output = f"{folder}/probe-{pooling}"
    found = result(run(program, "probe", "--model", model_folder, "--task", "custom", "--train", f"{folder}/train.tsv", "--eval",
                       f"{folder}/eval.tsv", "--output", output, "--pooling", pooling, "--max-length", LENGTH, "--precision", "fp32",
                       "--num-train-epochs", 10, "--learning-rate", 0.01))["probe"]
    weights, names = load_file(f"{output}/model/probes.safetensors"), sorted({label for label, _ in train})

    def features(states):
        read = (lambda hidden: hidden[0].mean(0)) if pooling == "mean" else (lambda hidden: hidden[0, 0])
        return [torch.stack([read(row[layer]) for row in states]) for layer in range(LAYERS + 1)]
    seen, held_out = map(features, states)
    seen_labels, labels = ([names.index(label) for label, _ in rows] for rows in (train, evaluation))
    difference = 0.0
    for row in found["layers"]:
        layer = row["layer"]
        logits = held_out[layer] @ weights[f"probes.{layer}.output.weight"].T + weights[f"probes.{layer}.output.bias"]
        accuracy = float((logits.argmax(-1) == torch.tensor(labels)).float().mean())
        assert abs(accuracy - row["accuracy"]) < 1.5 / len(labels), (layer, accuracy, row)
        peer = LogisticRegression(C=100, max_iter=2000).fit(seen[layer].numpy(), seen_labels).score(held_out[layer].numpy(), labels)
        difference = max(difference, abs(peer - row["accuracy"]))
        print(f"probe, {pooling}, layer {layer}: {row['accuracy']:.4f}, scikit-learn's logistic regression {peer:.4f}")
    assert difference < 0.05, difference


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        model, train, evaluation = f"{folder}/model", made_rows(800, 1), made_rows(200, 2)
        write_model(model)
        write_rows(f"{folder}/train.tsv", train)
        write_rows(f"{folder}/eval.tsv", evaluation)
        common = ["--task", "custom", "--train", f"{folder}/train.tsv", "--eval", f"{folder}/eval.tsv", "--max-length", LENGTH, "--precision", "fp32",
                  "--learning-rate", 1e-3, "--warmup-ratio", 0.1, "--num-train-epochs", 6, "--save-steps", 0]
        for training, pooling in (("self-distillation", "first"), ("joint", "mean")):
            run_folder = f"{folder}/run-{training}"
            scores = result(run(program, "finetune", "--model", model, "--output", run_folder, "--early-exit", training,
                                "--exit-pooling", pooling, *common))
            texts = [text for _, text in evaluation]
            note = json.load(open(f"{run_folder}/model/config.json"))["funicular"]["early_exit"]
            print(f"{training}: " + ", ".join(f"layer {number} {scores[f'layer_{number}_accuracy']:.4f}" for number in range(1, LAYERS + 1)))
            middle = min(note["entropy"], key=lambda point: abs(point["mean_layers"] - LAYERS / 2))["threshold"]
            layers, worst = compare_answers(program, folder, f"{run_folder}/model", texts, "--exit-threshold", middle, threshold=middle, pooling=pooling)
            assert len(set(layers)) > 2, "rows that all leave at one place show little"
            chosen = max((point for point in note["entropy"] if point["mean_layers"] <= LAYERS / 2), key=lambda point: point["accuracy"])
            fast, _ = compare_answers(program, folder, f"{run_folder}/model", texts, "--speed", 2, threshold=chosen["threshold"], pooling=pooling)
            assert abs(sum(fast) / len(fast) - chosen["mean_layers"]) < 0.02, (chosen, sum(fast) / len(fast))
            print(f"{training}: threshold {middle:.3f}, mean layer {sum(layers) / len(layers):.2f} of {LAYERS}, largest difference of a probability {worst:.1e}")
        for training, pooling in itertools.product(("two-stage", "self-distillation"), ("mean", "first")):
            worst = compare_step(program, folder, f"{folder}/run-self-distillation/encoder/model", training, train[:16], pooling)
            print(f"gradient of {training}, {pooling}: {worst:.1e}")
        probed = f"{folder}/run-joint/model"
        both = opened(probed)
        states = [[states_of(*both, text) for _, text in rows] for rows in (train, evaluation)]
        for pooling in ("mean", "first"):
            compare_probes(program, folder, probed, states, train, evaluation, pooling)


if __name__ == "__main__":
    main(sys.argv[1])
