"""A copy of a Hugging Face folder that holds a BERT's first layers and first tokens only: what a test asks of embeddings, losses or folders needs
no more, and takes a fraction of the time."""

import json
import pathlib
import re
import shutil

from safetensors.torch import load_file, save_file

WORDS = "embeddings.word_embeddings.weight"


def small_model(source, target, layers=1, tokens=6000, **config):
    """target, the copy. tokens: of a WordPiece vocabulary that is ordered by frequency. config: other values of its config.json."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    shutil.copytree(source, target)
    values = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**values, "num_hidden_layers": layers, "vocab_size": tokens, **config}))
    (target / "vocab.txt").write_text("".join((source / "vocab.txt").read_text().splitlines(keepends=True)[:tokens]))
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {token: number for token, number in vocabulary.items() if number < tokens}
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    layer = re.compile(r"encoder\.layer\.(\d+)\.")
    weights = load_file(source / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not (found := layer.search(name)) or int(found.group(1)) < layers}
    words, = (name for name in kept if name.endswith(WORDS))
    kept[words] = kept[words][:tokens].clone()
    save_file(kept, target / "model.safetensors", {"format": "pt"})
    return target
