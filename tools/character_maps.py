"""Tables of characters as SentencePiece compiles them: a Darts double array of texts, each with the text that replaces it."""

import struct


def scaled_offset(offset):
    """The bits of an offset in a unit: 21 bits, or 21 bits times 256."""
    if offset < 1 << 21:
        return offset << 10
    if offset % 256:
        raise ValueError("an offset does not fit")
    return (offset >> 8) << 10 | 1 << 9


def place_nodes(trie):
    """The units of the array by their places; the node of a text's end has the label 0 and a number."""
    units, bases, open_nodes = {0: 0}, set(), [(0, trie)]
    search_from = {}  # by the number of children: the search never goes back, so that it takes linear time
    while open_nodes:
        place, node = open_nodes.pop()
        base = search_from.get(len(node), 1)
        while base in bases or any(base ^ label in units for label in node):
            base += 1
        bases.add(base)
        search_from[len(node)] = base + 1
        units[place] |= scaled_offset(place ^ base) | (0 in node) << 8
        for label, child in node.items():
            units[base ^ label] = child if label == 0 else label
            if label:
                open_nodes.append((base ^ label, child))
    return units


def character_map(table):
    """The bytes of a precompiled_charsmap from texts and their replacements."""
    trie, strings, places = {}, b"", {}
    for text, replacement in table.items():
        if replacement not in places:
            places[replacement] = len(strings)
            strings += replacement.encode() + b"\0"
        node = trie
        for byte in text.encode():
            node = node.setdefault(byte, {})
        node[0] = places[replacement] | 1 << 31
    units = place_nodes(trie)
    size = (max(units) | 255) + 1  # a look-up changes the lowest eight bits of a place, and readers check no bounds
    array = struct.pack(f"<{size}I", *(units.get(i, 0) for i in range(size)))
    return struct.pack("<I", len(array)) + array + strings
