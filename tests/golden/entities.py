"""Entities with their characters against transformers' TokenClassificationPipeline, for each aggregation strategy.

usage: entities.py FUNICULAR_PROGRAM MODEL

MODEL is a folder with a real tokenizer; the tagger has random weights. The word of an entity is the text's own characters here, and
the joined tokens there: it is compared with the text.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, BertConfig, BertForTokenClassification, PreTrainedTokenizerFast, pipeline

transformers.logging.set_verbosity_error()
WORDS = ["river", "old", "Paris", "caf\u00e9", "bookkeeping", ",", "U.S.", "\u4e2d\u6587", "antidisestablishmentarianism", "\U0001f600", "e\u0301t\u00e9", "it's",
         "don\u2019t", "\u0130stanbul", "x" * 130, "a\u00a0b", "\ufb01sh"]
NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC"]
STRATEGIES = ["none", "simple", "first", "average", "max"]


def texts(count, seed):
    source = random.Random(seed)
    return ["".join(source.choice(WORDS) + source.choice([" ", " ", " ", "", "  ", ", "]) for _ in range(source.randint(1, 12))).strip() for _ in range(count)]


def byte_bpe():
    """A byte-level tokeniser as RoBERTa's, whose tokens do not say that they continue a word."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(texts(400, 9), trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                                     show_progress=False))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>",
                                   pad_token="<pad>", mask_token="<mask>")


def made_model(folder, tokenizer, roberta):
    torch.manual_seed(0)
    kinds = (transformers.RobertaConfig, transformers.RobertaForTokenClassification) if roberta else (BertConfig, BertForTokenClassification)
    config = kinds[0](vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=520,
                      type_vocab_size=1 if roberta else 2, initializer_range=0.3, id2label=dict(enumerate(NAMES)),
                      label2id={name: tag for tag, name in enumerate(NAMES)})
    model = kinds[1](config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def compare(program, folder, given, tagger):
    compared = 0
    with open(f"{folder}/texts.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(given) + "\n")
    for strategy in STRATEGIES:
        done = subprocess.run([program, "predict", "--model", folder, "--input", f"{folder}/texts.txt", "--aggregation", strategy, "--precision", "fp32"],
                              text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        for text, line in zip(given, done.stdout.splitlines(), strict=True):
            ours, theirs = json.loads(line)["entities"], tagger(text, aggregation_strategy=strategy)
            key = "entity" if strategy == "none" else "entity_group"
            short = lambda entities: [tuple(entity[name] for name in (key, "start", "end", *(["index"] if strategy == "none" else []))) for entity in entities]
            assert short(ours) == short(theirs), (strategy, text, ours, theirs)
            for own, other in zip(ours, theirs):
                assert abs(own["score"] - float(other["score"])) < 2e-5, (strategy, text, own, other)
                assert own["word"] == text[own["start"]:own["end"]], (text, own)
            compared += len(ours)
    return compared


def main():
    program, real = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        for name, tokenizer, roberta in (("WordPiece", AutoTokenizer.from_pretrained(real), False), ("BPE", byte_bpe(), True)):
            folder = f"{scratch}/{name}"
            model = made_model(folder, tokenizer, roberta)
            tagger = pipeline("token-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(folder))
            compared = compare(program, folder, texts(60, 1), tagger)
            assert compared > 1000
            print(f"{name}: {compared} entities of {len(STRATEGIES)} strategies are transformers'")


if __name__ == "__main__":
    main()
