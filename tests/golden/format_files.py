"""The format layer against its peers: safetensors, transformers and TensorBoard's file format.

    python format_files.py FORMAT_FILES_PROGRAM
"""

import json
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BertConfig, ElectraConfig, RobertaConfig

program = sys.argv[1]
scratch = Path(tempfile.mkdtemp())
generator = random.Random(1)


def run(*arguments, text=None):
    return subprocess.run([program, *map(str, arguments)], input=text, check=True, capture_output=True, text=True).stdout


def read_all(paths):
    return [json.loads(line) for line in run("read", text="".join(f"{path}\n" for path in paths)).splitlines()]


def random_tensors():
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]
    tensors = {}
    for _ in range(generator.randrange(1, 12)):
        shape = [generator.randrange(0, 6) for _ in range(generator.randrange(0, 4))]
        name = "".join(generator.choice("abc.é\"\\/ ") for _ in range(generator.randrange(1, 8)))
        tensors[name] = (torch.rand(shape) * 100).to(generator.choice(dtypes))
    return tensors


def same_tensors(ours, theirs):
    return ours.keys() == theirs.keys() and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in ((ours[k], theirs[k]) for k in ours))


def check_round_trips():
    """What they write we read and write again: the same tensors, the same header, the same order of the data."""
    for _ in range(60):
        theirs, ours = scratch / "theirs.safetensors", scratch / "ours.safetensors"
        tensors = random_tensors()
        save_file(tensors, theirs, metadata={"format": "pt"})
        run("copy", theirs, ours)
        assert same_tensors(load_file(ours), tensors)
        headers, data = [], []
        for path in (theirs, ours):
            raw = path.read_bytes()
            length = struct.unpack("<Q", raw[:8])[0]
            headers.append(json.loads(raw[8:8 + length]))
            data.append(raw[8 + length:])
        assert headers[0] == headers[1], headers
        assert list(headers[0]) == list(headers[1])
        assert data[0] == data[1]
    print("safetensors: 60 files read and written again, data and headers equal")


def mutated(header):
    text = bytearray(header)
    for _ in range(generator.randrange(1, 3)):
        at = generator.randrange(len(text))
        kind = generator.randrange(4)
        if kind == 0:
            text[at] = generator.choice(b"{}[]\",:\\0123456789eE-+. \x00\xff")
        elif kind == 1:
            del text[at:at + generator.randrange(1, 8)]
        elif kind == 2:
            text[at:at] = text[at:at + generator.randrange(1, 12)]
        else:
            text[at:at] = generator.choice([b" ", b"0", b"1", b'"x":null,', b'"x":[{}],', b'"__metadata__":{},', b"\n"])
        if not text:
            text = bytearray(b"{")
    return bytes(text)


def they_read(path):
    try:
        with safetensors.safe_open(path, "pt") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}
    except Exception:
        return None


# What we refuse and the reference takes: each is a decision of ours.
STRICTER = re.compile("occurs twice|does not begin with|zero byte|nested too deeply|63 bits")


def check_validity():
    """Of mutated files both accept the same ones, but for the named strictness."""
    base = (b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
            b'"b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},"c":{"dtype":"I64","shape":[0,7],"data_offsets":[26,26]}}')
    paths = []
    for number in range(6000):
        header = mutated(base)
        path = scratch / f"m{number}"
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(26))
        paths.append(path)
    accepted = stricter = 0
    for path, ours in zip(paths, read_all(paths)):
        theirs = they_read(path)
        if "refused" in ours and theirs is not None:
            assert STRICTER.search(ours["refused"]), (path.read_bytes(), ours)
            stricter += 1
        elif "refused" not in ours:
            assert theirs is not None, (path.read_bytes(), ours)
            assert {name: tensor["shape"] for name, tensor in ours["tensors"].items()} == theirs, path.read_bytes()
            accepted += 1
    assert accepted > 100
    print(f"safetensors: 6000 mutated headers, {accepted} read by both, {stricter} refused by us alone for a named reason, none by them alone")


def check_configs():
    """transformers reads what we write as what it wrote."""
    cases = [
        BertConfig(),
        BertConfig(num_labels=3),
        BertConfig(num_labels=1, problem_type="regression"),
        BertConfig(hidden_size=312, intermediate_size=1200, num_hidden_layers=4, hidden_act="gelu_new", layer_norm_eps=1e-5,
                   classifier_dropout=0.3, hidden_dropout_prob=0, architectures=["BertForSequenceClassification"],
                   id2label={i: f"é{i}" for i in range(15)}, label2id={f"é{i}": i for i in range(15)}, dtype="bfloat16"),
        RobertaConfig(),
        RobertaConfig(max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5, num_labels=3, pad_token_id=4),
        ElectraConfig(),
        ElectraConfig(embedding_size=64, hidden_size=64, num_attention_heads=1, summary_last_dropout=0.3),
        BertConfig(tie_word_embeddings=False, own_key={"x": [1, 2.5]}, initializer_range=1.0),
    ]
    for number, config in enumerate(cases):
        theirs, ours = scratch / f"config{number}", scratch / f"written{number}"
        config.save_pretrained(theirs)
        run("config", theirs, ours)
        read = [{**AutoConfig.from_pretrained(path).to_dict(), "_name_or_path": ""} for path in (ours, theirs)]
        assert read[0] == read[1], read
    print(f"config.json: {len(cases)} configurations of transformers read and written again, equal to transformers")


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(data):
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """(field number, value) of a protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value = message[at:at + size]
            at += size
        yield key >> 3, value


def check_events():
    """A reader of our own, from the format's description; and TensorBoard's where it is installed."""
    run("events", scratch / "events")
    (path,) = (scratch / "events").iterdir()
    raw, points, at = path.read_bytes(), [], 0
    while at < len(raw):
        length, length_crc = struct.unpack_from("<QI", raw, at)
        payload = raw[at + 12:at + 12 + length]
        assert length_crc == masked(raw[at:at + 8])
        assert struct.unpack_from("<I", raw, at + 12 + length)[0] == masked(payload)
        at += 16 + length
        event = dict(fields(payload))
        if 5 in event:
            value = dict(fields(dict(fields(event[5]))[1]))
            if 2 in value:
                points.append((struct.unpack("<d", event[1])[0], event.get(2, 0), value[1].decode(), struct.unpack("<f", value[2])[0]))
    assert [(wall, step, tag) for wall, step, tag, _ in points] == [(1.5e9 + i, i * 1000, "train/loss") for i in range(100)]
    assert all(abs(value - 1 / (1 + i)) < 1e-7 for i, (*_, value) in enumerate(points))
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        print("events: 100 scalars read back (TensorBoard itself is not installed)")
        return
    accumulator = EventAccumulator(str(scratch / "events"))
    accumulator.Reload()
    scalars = accumulator.Scalars("train/loss")
    assert [(s.wall_time, s.step) for s in scalars] == [(wall, step) for wall, step, *_ in points]
    assert accumulator.Tensors("config")[0].tensor_proto.string_val[0] == b"a **b**"
    print("events: 100 scalars and a text read back, by TensorBoard too")


check_round_trips()
check_validity()
check_configs()
check_events()
