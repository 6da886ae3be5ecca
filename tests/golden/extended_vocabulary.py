"""vocabulary extend against transformers and tokenizers: the same ids, old logits to the bit, new logits the means of their pieces'.

usage: extended_vocabulary.py FUNICULAR_PROGRAM
"""

import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from tokenizers import Tokenizer
from transformers import (AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, BertForPreTraining, BertTokenizerFast, ElectraConfig,
                          ElectraForMaskedLM, RobertaConfig, RobertaForMaskedLM)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *("##" + letter for letter in LETTERS), "the", "river", "##ing", "cover", "re", "'",
              "中", "文", "##ly"]
NEW = ["recover", "transformer", "the\u00f8", "国", "rivers"]  # the fourth and third were unknown
TEXTS = ["The transformer recovers, recovering rivers slowly", "a recover's 中国文 re-cover", "unrecovered [MASK] riverside", "theø THEØ the ø", "RECOVERLY"]


def run(program, *arguments, code=0):
    done = subprocess.run([program, *map(str, arguments)], text=True, capture_output=True)
    if done.returncode != code:
        sys.exit(f"funicular {' '.join(map(str, arguments))}\nexit {done.returncode}\n{done.stderr}")
    return done


def write_start(folder, model_class, config_class, dtype=torch.float32, padded=0, **options):
    os.makedirs(folder)
    with open(f"{folder}/vocab.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(VOCABULARY) + "\n")
    BertTokenizerFast(f"{folder}/vocab.txt").save_pretrained(folder)
    torch.manual_seed(0)
    config = config_class(vocab_size=len(VOCABULARY) + padded, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                          max_position_embeddings=40, initializer_range=0.3, **options)
    model = model_class(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias") and weight.shape[:1] == (config.vocab_size,):
            torch.nn.init.normal_(weight)
    model.to(dtype).save_pretrained(folder)


def logits(model, ids):
    with torch.no_grad():
        out = model(torch.tensor([ids]))
    return (out.prediction_logits if hasattr(out, "prediction_logits") else out.logits)[0]


def load(model_class, folder):
    model, info = model_class.from_pretrained(folder, output_loading_info=True, dtype="auto")
    for kind, found in info.items():
        assert not found, f"{folder}: transformers reports {kind}: {found}"
    return model.eval()


def check(program, root, name, model_class, config_class, tolerance=1e-5, **options):
    start, extended = f"{root}/{name}", f"{root}/{name}-extended"
    write_start(start, model_class, config_class, **options)
    words = f"{root}/words.txt"
    with open(words, "w", encoding="utf-8") as file:
        file.write("\n".join(NEW) + "\n")
    done = run(program, "vocabulary", "extend", "--model", start, "--words", words, "--output", extended)
    assert json.loads(done.stdout) == {"added": len(NEW), "left_out": 0, "tokens": len(VOCABULARY) + len(NEW)}, done.stdout
    check_ids(program, root, start, extended)
    before, after = load(model_class, start), load(model_class, extended)
    assert after.config.vocab_size == len(VOCABULARY) + len(NEW) and after.dtype == before.dtype
    cut = BertTokenizerFast.from_pretrained(start)
    ids = cut("a river the [MASK] cover 中 [MASK]")["input_ids"]
    old, new = logits(before, ids)[:, :len(VOCABULARY)], logits(after, ids)
    assert torch.allclose(new[:, :len(VOCABULARY)], old, atol=tolerance, rtol=0), (new[:, :len(VOCABULARY)] - old).abs().max()
    worst = 0.0
    for number, word in enumerate(NEW):
        pieces = cut(word, add_special_tokens=False)["input_ids"]
        found, expected = new[:, len(VOCABULARY) + number].double(), old[:, pieces].double().mean(1)
        worst = max(worst, float((found - expected).abs().max() / old.double().abs().max()))
    assert worst < tolerance, f"{name}: logits of new words differ from the means of their pieces' by {worst}"
    return worst


def check_ids(program, root, start, extended):
    """The saved tokenizer gives the ids of tokenizers' own with the words in its vocabulary, and of ours."""
    ours = AutoTokenizer.from_pretrained(extended)
    reference = json.loads(Tokenizer.from_file(f"{start}/tokenizer.json").to_str())
    for number, word in enumerate(NEW):
        reference["model"]["vocab"][word] = len(VOCABULARY) + number
    theirs = Tokenizer.from_str(json.dumps(reference))
    by_vocabulary = BertTokenizerFast(f"{extended}/vocab.txt")
    for text in TEXTS + VOCABULARY[5:] + NEW:
        expected = theirs.encode(text).ids
        assert ours(text)["input_ids"] == expected, text
        assert by_vocabulary(text)["input_ids"] == expected, text
    cut = BertTokenizerFast.from_pretrained(start)
    for word in VOCABULARY[5:]:  # words of old stay as they were
        assert ours(word)["input_ids"] == cut(word)["input_ids"], word
    with open(f"{root}/texts.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(TEXTS) + "\n")
    store = f"{extended}.tokens"
    run(program, "tokenize", "--tokenizer", extended, "--input", f"{root}/texts.txt", "--output", store)
    with open(f"{store}/tokens.bin", "rb") as file:
        found = list(memoryview(file.read()).cast("H"))
    assert found == [id for text in TEXTS for id in ours(text, add_special_tokens=False)["input_ids"]]


def check_refused(program, root):
    """Byte-level BPE has no words that could be appended."""
    folder = f"{root}/roberta"
    os.makedirs(folder)
    RobertaForMaskedLM(RobertaConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
                                     max_position_embeddings=10)).save_pretrained(folder)
    with open(f"{folder}/vocab.json", "w") as file:
        json.dump({token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "ab"])}, file)
    with open(f"{folder}/merges.txt", "w") as file:
        file.write("#version: 0.2\na b\n")
    done = run(program, "vocabulary", "extend", "--model", folder, "--words", f"{root}/words.txt", "--output", f"{root}/none", code=2)
    assert "expected a WordPiece tokeniser, found BPE" in done.stderr and "merges" in done.stderr, done.stderr


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as root:
        worst = [check(program, root, "tied", BertForMaskedLM, BertConfig),
                 check(program, root, "untied", BertForMaskedLM, BertConfig, tie_word_embeddings=False),
                 check(program, root, "padded", BertForMaskedLM, BertConfig, padded=7),
                 check(program, root, "pretraining", BertForPreTraining, BertConfig),
                 check(program, root, "electra", ElectraForMaskedLM, ElectraConfig, embedding_size=16)]
        check(program, root, "bf16", BertForMaskedLM, BertConfig, tolerance=2e-2, dtype=torch.bfloat16)
        check_refused(program, root)
    print(f"new logits differ from the means of their pieces' by at most {max(worst):.1e} of the largest logit")


if __name__ == "__main__":
    main()
