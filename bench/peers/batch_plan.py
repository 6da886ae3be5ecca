"""Which rows each side of a comparison of training steps meets, in which batches: the same rows, warm-up and timed.

  ragged   rows of 32 to 128 tokens in the order in which they were drawn, for both sides
  full     rows of 128 tokens, for both sides
  grouped  ragged rows again. The peer gets them in batches of similar length, as the LengthGroupedSampler of its Trainer
           forms them (train_sampling_strategy="group_by_length"); we get the same rows in batches that were shuffled

The sampler orders a whole data set: it shuffles, cuts the order into pieces of 50 batches, and sorts each piece by length,
longest rows first. So the pool is as large as a data set of which the pieces are whole, and of a piece that many batches
are taken as there are steps, evenly spaced: long and short ones as often as they come.
"""
import make_batches

PIECE = 50  # batches that the sampler sorts together, in a data set of at least 4 * PIECE batches
SEED = 1


def length_grouped(lengths: list[int], batch_size: int, order: list[int]) -> list[int]:
    """transformers' get_length_grouped_indices (trainer_pt_utils.py) for the shuffled `order` that torch.randperm gives there."""
    batches = max(1, min(len(lengths) // (batch_size * 4), PIECE))
    size = batches * batch_size
    pieces = [sorted(order[i:i + size], key=lambda row: lengths[row], reverse=True) for i in range(0, len(order), size)]
    longest = max(range(len(pieces)), key=lambda piece: lengths[pieces[piece][0]])
    pieces[0][0], pieces[longest][0] = pieces[longest][0], pieces[0][0]
    return [row for piece in pieces for row in piece]


def shuffled(count: int, purpose: int) -> list[int]:
    """0 … count - 1 in an order that depends on the purpose alone."""
    key = make_batches.mix(make_batches.mix(SEED) ^ purpose)
    return sorted(range(count), key=lambda i: make_batches.mix(key ^ i))


def cut(rows: list, size: int) -> list[list]:
    return [rows[i:i + size] for i in range(0, len(rows), size)]


def spread(batches: list, count: int) -> list:
    """`count` of the batches, evenly spaced."""
    return [batches[(2 * i + 1) * len(batches) // (2 * count)] for i in range(count)]


def grouped(steps: int, batch_size: int, ranks: int, purpose: int, vocabulary: int, longest: int) -> tuple[list, list]:
    """Batches of so many steps: ours, shuffled, and the peer's, grouped."""
    own = batch_size // ranks  # what the Trainer tells its sampler: the rows of one process in a step
    pieces = -(-steps * batch_size // (PIECE * own))
    pool = [(purpose << 32 | batch, row) for batch in range(max(4, 1 + pieces) * PIECE) for row in range(own)]
    lengths = [make_batches.row_length(SEED, *place, "ragged", longest) for place in pool]
    order = length_grouped(lengths, own, shuffled(len(pool), purpose))
    # The first piece begins with the longest row of all, out of its order.
    batches = cut(order[PIECE * own:(1 + pieces) * PIECE * own], batch_size)
    peer = [[make_batches.make_row(SEED, *pool[i], "ragged", vocabulary, longest) for i in batch]
            for batch in spread(batches, steps)]
    rows = [row for batch in peer for row in batch]
    return cut([rows[i] for i in shuffled(len(rows), purpose + 1)], batch_size), peer


def plan(rows: str, warmup: int, steps: int, batch_size: int = 16, ranks: int = 1, vocabulary: int = 30522,
         longest: int = 128) -> dict[str, dict]:
    """What files of both sides hold, as make_batches writes them: `warmup` batches, then `steps` that are timed. The
    batches are global ones, of all of the peer's `ranks` processes. The longest row has `longest` tokens."""
    if rows != "grouped":
        both = make_batches.make_batches(SEED, rows, warmup + steps, batch_size, vocabulary, longest)
        return {"ours": both, "peer": both}
    parts = [grouped(count, batch_size, ranks, purpose, vocabulary, longest) for purpose, count in ((2, warmup), (4, steps)) if count]
    return {side: {"seed": SEED, "rows": rows, "batch_size": batch_size, "vocabulary_size": vocabulary,
                   "batches": [batch for part in parts for batch in part[number]]}
            for number, side in enumerate(("ours", "peer"))}
