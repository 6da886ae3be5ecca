#!/usr/bin/env python3
"""Writes funicular/text/unicode_tables.cpp from the observed behaviour of Hugging Face `tokenizers`.

BertNormalizer, BertPreTokenizer, NFC, NFKD, Precompiled and the pattern of ByteLevel rest on several libraries with different versions of Unicode, and agree with none
of them as a whole. So every property is measured by asking the package itself, one code point at a time; properties
of sequences that per-character tables rely on are checked here, and the script stops if one does not hold.

Usage: generate_unicode_tables.py OUTPUT.cpp      (a Python with `tokenizers` installed; about a minute)
"""

import sys
import unicodedata

import tokenizers
from character_maps import character_map
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

DROPPED, SPACE, CHINESE, MARK, WHITE, PUNCTUATION, WORD = (1 << bit for bit in range(7))
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
HANGUL = range(0xAC00, 0xAC00 + 11172)


def bert(**options):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **options}).normalize_str


clean, chinese = bert(clean_text=True), bert(handle_chinese_chars=True)
strip, lower, nfd = bert(strip_accents=True), bert(lowercase=True), normalizers.NFD().normalize_str
strip_lower = bert(strip_accents=True, lowercase=True)
split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str


def require(condition, message):
    if not condition:
        sys.exit(f"{sys.argv[0]}: {message}")


def regex_classes():
    """The code points of the \\w and \\s with which added tokens are matched (single_word; lstrip, rstrip)."""

    def matcher(**options):
        tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
        tokenizer.add_tokens([AddedToken("Q", normalized=False, **options)])
        return lambda texts: [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]

    texts = ["Q" + chr(c) for c in CODE_POINTS]
    word = {c for c, ids in zip(CODE_POINTS, matcher(single_word=True)(texts)) if 1 not in ids}
    white = {c for c, ids in zip(CODE_POINTS, matcher(rstrip=True)(texts)) if ids == [1]}
    return word, white


def decompositions():
    """Code point -> full canonical decomposition, where it is not the code point itself; Hangul is algorithmic."""
    table = {}
    for c in CODE_POINTS:
        full = nfd(chr(c))
        if c in HANGUL:
            index = c - HANGUL.start
            parts = [0x1100 + index // 588, 0x1161 + index % 588 // 28, 0x11A7 + index % 28]
            require(full == "".join(map(chr, parts[: 2 + (index % 28 > 0)])), f"Hangul {c:x} is not algorithmic")
        elif full != chr(c):
            table[c] = full
    return table


def combining_ranks(table):
    """Code point -> rank of its combining class (1, 2, …); starters are absent. Only the order of ranks matters."""
    lowest, highest = "\u0334", "\u0345"  # classes 1 and 240, the ends of the scale

    def combines(t):
        return nfd(highest + t) == t + highest or nfd(t + lowest) == lowest + t

    representatives = {}
    for c in CODE_POINTS:
        kind = unicodedata.combining(chr(c))
        if kind and c not in table and kind not in representatives and combines(chr(c)):
            representatives[kind] = chr(c)
    ordered = [representatives[kind] for kind in sorted(representatives)]
    for low, high in zip(ordered, ordered[1:]):
        require(nfd(high + low) == low + high, f"no order between U+{ord(low):04X} and U+{ord(high):04X}")
    ranks = {}
    for c in CODE_POINTS:
        t = chr(c)
        if c in table or c in HANGUL:
            continue
        if combines(t):
            rank = 1
            while nfd(t + ordered[rank - 1]) != t + ordered[rank - 1]:
                rank += 1
            require(nfd(ordered[rank - 1] + t) == ordered[rank - 1] + t, f"U+{c:04X} lies between two classes")
            ranks[c] = rank
    return ranks


def flags_of(table, word, white):
    result = []
    for c in CODE_POINTS:
        t, flags = chr(c), 0
        cleaned = clean(t)
        require(cleaned in ("", " ", t), f"cleaning U+{c:04X} gives {cleaned!r}")
        if cleaned == "":
            flags |= DROPPED
        elif cleaned == " ":
            flags |= SPACE
        if chinese(t) != t:
            require(chinese(t) == f" {t} ", f"U+{c:04X} as Chinese gives {chinese(t)!r}")
            flags |= CHINESE
        if c not in table and c not in HANGUL and strip(t) != t:
            require(strip(t) == "", f"stripping U+{c:04X} gives {strip(t)!r}")
            flags |= MARK
        pieces = len(split(f"a{t}b"))
        flags |= (0, 0, WHITE, PUNCTUATION)[pieces]
        require((c in white) == bool(flags & WHITE), f"U+{c:04X} is white space for one of two rules only")
        flags |= WORD * (c in word)
        result.append(flags)
    return result


def categories():
    """Of every code point: 1 for \\p{L}, 2 for \\p{N}, 3 for \\s, 0 for all others, as ByteLevel's pattern has them."""
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    result = []
    for c in CODE_POINTS:
        kinds = [kind for kind, known in ((1, "a"), (2, "1"), (0, "!")) if len(pieces(known + chr(c))) == 1]
        require(len(kinds) < 2, f"U+{c:04X} is of two kinds")
        require(kinds or len(pieces("\t" + chr(c))) == 1, f"U+{c:04X} is of no kind")
        result.append(kinds[0] if kinds else 3)
    return result


def compositions(table):
    """(first, second) -> primary composite; Hangul is algorithmic."""
    nfc, pairs = normalizers.NFC().normalize_str, {}
    for c, parts in table.items():
        if nfc(parts) != chr(c):
            continue  # excluded from composition
        first, second = nfc(parts[:-1]), parts[-1]
        require(len(first) == 1 and nfc(first + second) == chr(c), f"U+{c:04X} is not composed of two")
        pairs[ord(first), ord(second)] = c
    return pairs


def replacing(keys):
    """A normaliser that replaces each of these texts by "Z" where they begin a cluster of less than 6 bytes."""
    return normalizers.Precompiled(character_map(dict.fromkeys(keys, "Z"))).normalize_str


(OTHER, CONTROL, EXTEND, EXTEND_UNLINKED, LINKER, JOINER, SPACING, PREPEND, PICTOGRAPH, CONSONANT, HANGUL_L, HANGUL_V, HANGUL_T,
 HANGUL_LV, HANGUL_LVT) = range(15)
COMBINING = 16


def clusters():
    """Of every code point its part in clusters, as Precompiled cuts text. A cluster of 6 bytes or more is replaced character by
    character, and a shorter one whole: so a mark behind it that is not in the result was in a short cluster."""
    grave, join, ka, virama, copyright = "\u0301", "\u200d", "\u0915", "\u094d", "\u00a9"
    of_a, of_mark, of_copyright = replacing("a"), replacing([grave]), replacing([copyright])
    of_three = replacing([chr(c) for c in CODE_POINTS if 0x800 <= c < 0x10000])
    joins = lambda text: of_three(text + grave).endswith(grave)  # noqa: E731 - whether the last character joins those before it
    pictures = lambda text: of_copyright(text + copyright + grave).endswith(grave)  # noqa: E731
    require(not pictures(copyright + join + join), "two joiners join pictographs")
    result = []
    for c in CODE_POINTS:
        t, kind = chr(c), OTHER
        if t in "\r\n" or of_mark(t + grave + "\u0302") == t + "Z":
            kind = CONTROL
        elif of_a("a" + t) == "Z":
            kind = (JOINER if t == join else SPACING if not pictures(copyright + t + join) else LINKER if joins(ka + t + ka)
                    else EXTEND if joins(ka + virama + t + ka) else EXTEND_UNLINKED)
        elif of_a(t + "a" + grave + grave) == t + "Z" + grave + grave:
            kind = PREPEND
        elif join in of_copyright(copyright + join + t):
            require(t == copyright or pictures(t + join), f"U+{c:04X} is a pictograph on one side only")
            kind = PICTOGRAPH
        elif 0x800 <= c < 0x10000 and joins(ka + virama + t):
            kind = CONSONANT
        else:
            before = tuple(joins(t + other) for other in "\u1100\u1161\u11a8")
            if before == (True, True, False):
                kind = HANGUL_L
            elif before == (False, True, True):
                kind = HANGUL_LV if c in HANGUL else HANGUL_V
            elif before == (False, False, True):
                kind = HANGUL_LVT if c in HANGUL else HANGUL_T
            else:
                require(not any(before), f"U+{c:04X} joins Hangul in an unknown way: {before}")
        result.append(kind | COMBINING * (normalizers.StripAccents().normalize_str(t) == ""))
    return result


def compatibility(table):
    """Code point -> full compatibility decomposition, where it differs from the canonical one."""
    nfkd = normalizers.NFKD().normalize_str
    return {c: nfkd(chr(c)) for c in CODE_POINTS if c not in HANGUL and nfkd(chr(c)) != nfd(chr(c))}


def check(table, ranks, flags, lowered):
    """What the normaliser takes for granted."""
    by_code = dict(zip(CODE_POINTS, flags))
    parts = lambda c: [ord(x) for x in nfd(chr(c))]
    for c in CODE_POINTS:
        kept = [p for p in parts(c) if not by_code[p] & MARK]
        require(strip(chr(c)) == "".join(map(chr, kept)), f"stripping U+{c:04X} is not decompose-then-drop")
        low = "".join(lowered.get(p, chr(p)) for p in kept)
        splits = [p for p in low if by_code[ord(p)] & (WHITE | PUNCTUATION | CHINESE)]
        require(len(low) < 2 or not splits, f"U+{c:04X} becomes several characters, and one of them splits words")
        require(strip_lower(chr(c)) == low, f"U+{c:04X}: lower-casing does not follow stripping")
        for p in kept:
            if p in ranks:
                require(p not in lowered, f"U+{p:04X} is kept, combining, and has a lower case")
                require(not by_code[p] & (WHITE | PUNCTUATION | CHINESE), f"U+{p:04X} is combining and splits words")
            else:
                require(all(ord(x) not in ranks for x in lowered.get(p, "")) or parts(p) != [p],
                        f"the lower case of U+{p:04X} is combining")


def rows(numbers, width=110):
    lines, line = [], " "
    for number in numbers:
        item = f" {number:#x}," if number > 9 else f" {number},"
        if len(line) + len(item) > width:
            lines.append(line)
            line = " "
        line += item
    return "\n".join(lines + [line])


def array(kind, name, numbers):
    return f"const {kind} {name}[] = {{\n{rows(numbers)}\n}};\nconst std::size_t {name}_size = {len(numbers)};\n"


def change_points(values):
    numbers, previous = [], None
    for c, flag in zip(CODE_POINTS, values):
        if flag != previous:
            numbers.append(c << 8 | flag)
            previous = flag
    return numbers


def rank_ranges(ranks):
    numbers = []
    for c in CODE_POINTS:
        rank = ranks.get(c, 0)
        if rank != (numbers[-1] & 0xFF if numbers else 0):
            numbers.append(c << 8 | rank)
    return numbers


def lower_ranges(lowered):
    """Runs (first, last, step, lower case of first) of one-to-one mappings with one difference."""
    single = sorted(c for c, t in lowered.items() if len(t) == 1)
    runs = []
    for c in single:
        difference = ord(lowered[c]) - c
        if runs:
            first, last, step, delta = runs[-1]
            gap = c - last
            if delta == difference and gap <= 2 and (step in (0, gap)):
                runs[-1] = [first, c, gap, delta]
                continue
        runs.append([c, c, 0, difference])
    return [n for first, last, step, delta in runs for n in (first, last, step or 1, first + delta)]


def sequences(table):
    """cp, parts…, each row closed by the top bit on its last part."""
    numbers = []
    for c in sorted(table):
        codes = [ord(x) for x in table[c]]
        numbers += [c, *codes[:-1], codes[-1] | 0x80000000]
    return numbers


def main():
    require(len(sys.argv) == 2, "usage: generate_unicode_tables.py OUTPUT.cpp")
    word, white = regex_classes()
    table = decompositions()
    ranks = combining_ranks(table)
    flags = flags_of(table, word, white)
    lowered = {c: lower(chr(c)) for c in CODE_POINTS if lower(chr(c)) != chr(c)}
    check(table, ranks, flags, lowered)
    long_lower = {c: t for c, t in lowered.items() if len(t) > 1}
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write(
            "// Generated by tools/generate_unicode_tables.py from the observed behaviour of `tokenizers` "
            f"{tokenizers.__version__};\n// do not edit. The format is described in unicode_tables.h.\n"
            "// clang-format off\n"
            '#include "funicular/text/unicode_tables.h"\n\nnamespace funicular::text::unicode {\n\n'
            + "\n".join([
                array("uint32_t", "flag_ranges", change_points(flags)),
                array("uint32_t", "rank_ranges", rank_ranges(ranks)),
                array("uint32_t", "lower_ranges", lower_ranges(lowered)),
                array("uint32_t", "lower_sequences", sequences(long_lower)),
                array("uint32_t", "decompositions", sequences(table)),
                array("uint32_t", "compositions", [n for (a, b), c in sorted(compositions(table).items()) for n in (a, b, c)]),
                array("uint32_t", "category_ranges", change_points(categories())),
                array("uint32_t", "compatibility", sequences(compatibility(table))),
                array("uint32_t", "cluster_ranges", change_points(clusters())),
            ])
            + "\n}  // namespace funicular::text::unicode\n")


if __name__ == "__main__":
    main()
