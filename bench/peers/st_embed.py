#!/usr/bin/env python3
"""What sentence-transformers needs to embed lines of text on the CPU: lines a second, from text to vectors in a file.

encode() sorts the lines by length itself. With several values of --batch-size the fastest on the first --probe lines is taken, and nothing
but its pass is timed; with one value nothing runs before that pass. Prints one JSON object.
"""
import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
import measure

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[32])
    parser.add_argument("--probe", type=int, default=512, help="lines on which batch sizes are tried")
    parser.add_argument("--threads", type=int, default=measure.cores())
    args = parser.parse_args()
    import torch
    from sentence_transformers import SentenceTransformer
    torch.set_num_threads(args.threads)
    kind = torch.bfloat16 if args.precision == "bf16" else torch.float32
    model = SentenceTransformer(str(args.model), device="cpu", model_kwargs={"torch_dtype": kind, "attn_implementation": args.attention})
    lines = args.input.read_text(encoding="utf-8").splitlines()

    def seconds_of(texts: list[str], size: int) -> float:
        start = time.perf_counter()
        vectors = model.encode(texts, batch_size=size, convert_to_tensor=True)
        np.save(args.output, vectors.float().numpy())
        return time.perf_counter() - start

    started = measure.process_seconds()
    probed = {}
    if len(args.batch_size) > 1:
        seconds_of(lines[:args.probe], args.batch_size[0])
        probed = {size: seconds_of(lines[:args.probe], size) for size in args.batch_size}
    size = min(probed, key=probed.get) if probed else args.batch_size[0]
    seconds = seconds_of(lines, size)
    print(json.dumps({"batch_size": size, "seconds": seconds, "start_seconds": started, "lines_per_second": len(lines) / seconds,
                      "probed_seconds": probed, "precision": args.precision,
                      "versions": measure.versions("torch", "transformers", "sentence-transformers")}))


if __name__ == "__main__":
    main()
