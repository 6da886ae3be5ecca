#pragma once
// Large products of bfloat16 by AMX's tiles (nn/kernels/tile_registers.h). Within each 32 of the depth two
// chains, even and odd, are added to the sum in the order of the depth, whatever the threads and the other
// rows.
//
// Three levels of memory. Of the two operands one is resident: a piece of it stays in the second-level cache
// while the other moves past, 32 rows (or columns) at a time. Of these 32 a block of some steps of the depth
// stays in the first-level cache while the resident piece is read past it with TILELOADDT1, the load that
// leaves the first-level cache to others: without that hint both operands, read by turns, drive each other
// and the sums out of it, and a product takes half as long again. Sums wait in memory between blocks, so
// blocks that lie in tiles are longer than that cache, and of these a share is read past it too; rows that
// do not lie in tiles are slow with that hint. The sums of a finished square are rounded and written among
// the products of the next one, since no processor looks far enough ahead to do that by itself.

#include "funicular/nn/kernels/packing.h"
#include "funicular/nn/kernels/tile_packing.h"

#if defined(__AMX_BF16__)

namespace funicular::nn::FUNICULAR_ISA::tiles {

constexpr int64_t kLeftBlock = 16;              // steps of 32 along the depth of rows that move, 32 KiB
constexpr int64_t kPanelBlock = 40;             // of panels that move
constexpr int64_t kKept = 15;                   // of a longer one so many stay in the first-level cache
constexpr int64_t kResident = 800 * 1024;       // bytes of a resident right operand
constexpr int64_t kResidentLeft = 960 * 1024;   // of a resident left one
constexpr int64_t kMostColumns = 512;           // of a resident right operand
constexpr int64_t kFewest = 128;                // columns or rows of a piece, however many threads there are
constexpr int64_t kMostRows = 384;              // of a resident left operand
constexpr int64_t kMostKept = 2 * 1024 * 1024;  // bytes: larger gradients go past the caches
constexpr int64_t kSums = kSquare * kSquare;    // of a square, as four tiles

/// 32 rows of the left operand, from some step on: as they lie, or in tiles [steps, 2, 16, 32].
struct Rows {
  const BFloat16* first;
  int64_t row, half, step;  ///< elements from row to row, to the second 16 rows, from step to step

  static Rows plain(const BFloat16* first, int64_t stride) {
    return {first, stride, kSide * stride, 2 * kStep};
  }
  static Rows packed(const BFloat16* first) { return {first, 2 * kStep, kTile, 2 * kTile}; }
  FUNICULAR_INLINE const BFloat16* at(int64_t k, int64_t h) const { return first + h * half + k * step; }
  FUNICULAR_INLINE int64_t bytes() const { return row * 2; }
};

/// 32 sums, rounded if need be.
template <bool kPast>
FUNICULAR_INLINE void store_line(float* out, Vec<float> first, Vec<float> second) {
  if constexpr (kPast) {
    _mm512_stream_ps(out, reinterpret_cast<__m512>(first));
    _mm512_stream_ps(out + kLanes<float>, reinterpret_cast<__m512>(second));
  } else {
    store(out, first);
    store(out + kLanes<float>, second);
  }
}
template <bool kPast>
FUNICULAR_INLINE void store_line(BFloat16* out, Vec<float> first, Vec<float> second) {
  const __m512bh line =
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first));
  if constexpr (kPast)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out), reinterpret_cast<__m512i>(line));
  else
    __builtin_memcpy(out, &line, sizeof line);
}

/// The sums of a finished square on their way to the result: out [rows, columns] = or += sums, which lie as
/// four tiles.
template <class O>
struct Finish {
  const float* sums = nullptr;
  O* out = nullptr;
  int64_t stride = 0, rows = 0, columns = 0;
  bool add = false;
  bool past = false;  ///< past the caches
  int64_t row = 0;    ///< the next one

  /// At most `count` rows more.
  FUNICULAR_INLINE void write(int64_t count) {
    for (; count > 0 && row < rows; --count, ++row)
      write_row(sums + row / kSide * 2 * kTileSums + row % kSide * kSide, out + row * stride);
  }

  FUNICULAR_INLINE void fetch(int64_t from, int64_t count) const {
    if (!past)
      for (int64_t r = from; r < from + count && r < rows; ++r) {
        __builtin_prefetch(out + r * stride);
        if constexpr (sizeof(O) == 4) __builtin_prefetch(out + r * stride + 16);
      }
  }

 private:
  FUNICULAR_INLINE void write_row(const float* from, O* to) const {
    constexpr int lanes = kLanes<float>;
    Vec<float> first = load(from), second = load(from + kTileSums);
    if (columns >= kSquare) {
      if (add) {
        first += load(to);
        second += load(to + lanes);
      }
      if (past)
        store_line<true>(to, first, second);
      else
        store_line<false>(to, first, second);
    } else {
      for (int64_t j = 0; j < columns; ++j) {
        const float sum = j < lanes ? from[j] : from[kTileSums + j - lanes];
        put(to + j, add ? get(to + j) + sum : sum);
      }
    }
  }
};

/// Lines that will be needed soon: `count` for each step of the depth.
struct Ahead {
  const char* first = nullptr;
  int64_t stride = 0, step = 0;  ///< bytes from line to line, from step to step
  int64_t count = 0;
  FUNICULAR_INLINE void fetch(int64_t k) const {
    for (int64_t i = 0; i < count; ++i) __builtin_prefetch(first + i * stride + k * step, 0, 2);
  }
};

/// What is done among the products of a square.
template <class O>
struct Meanwhile {
  Ahead operand, sums;
  Finish<O>& finish;        ///< the square before
  const Finish<O>& coming;  ///< this square, if it is one that is finished
  int64_t rows;             ///< to be finished in a step

  template <bool kFetch>
  FUNICULAR_INLINE void step(int64_t k) const {
    operand.fetch(k);
    sums.fetch(k);
    finish.write(rows);
    if constexpr (kFetch) coming.fetch(k * rows, rows);
  }
};

template <bool kHint>
FUNICULAR_INLINE void load_left(const BFloat16* tile, int64_t bytes, int64_t half) {
  if constexpr (kHint) {
    if (half == 0)
      _tile_stream_loadd(4, tile, bytes);
    else
      _tile_stream_loadd(5, tile, bytes);
  } else {
    if (half == 0)
      _tile_loadd(4, tile, bytes);
    else
      _tile_loadd(5, tile, bytes);
  }
}
template <bool kHint>
FUNICULAR_INLINE void load_right(const uint32_t* step, int64_t half) {
  if constexpr (kHint) {
    if (half == 0)
      _tile_stream_loadd(6, step, 64);
    else
      _tile_stream_loadd(7, step + kTile / 2, 64);
  } else {
    if (half == 0)
      _tile_loadd(6, step, 64);
    else
      _tile_loadd(7, step + kTile / 2, 64);
  }
}

/// Adds steps of the depth to the sums. kBoth: the square has more than 16 rows. `right`: of a panel. Of
/// eight steps of a panel that moves `kept` stay in the first-level cache.
template <bool kBoth, bool kLeftMoves, class O>
FUNICULAR_INLINE void add_steps(const Rows& left, const uint32_t* right, int64_t steps, int64_t kept,
                                const Meanwhile<O>& meanwhile) {
  for (int64_t step = 0; step < steps; ++step, right += kPanelStep) {
    meanwhile.template step</*kFetch=*/!kLeftMoves>(step);
    const bool past = kLeftMoves || step % 8 >= kept;
    if (past)
      load_right<true>(right, 0);
    else
      load_right<false>(right, 0);
    load_left<!kLeftMoves>(left.at(step, 0), left.bytes(), 0);
    if (past)
      load_right<true>(right, 1);
    else
      load_right<false>(right, 1);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kBoth) {
      load_left<!kLeftMoves>(left.at(step, 1), left.bytes(), 1);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
}

/// Rows of a matrix. The last step of rows whose depth is no multiple of 32 is a copy filled up with zeros:
/// what lies beyond the end of a row is not ours to read. Blocks of rows a multiple of 2 KiB
/// apart have more lines than the sets that they share: they are copied into tiles.
struct MatrixLeft {
  const BFloat16* first;
  int64_t stride;
  int64_t whole_steps;    ///< of 32 each
  const BFloat16* tails;  ///< [squares, 2, 16, 32], or null
  BFloat16* buffer;       ///< [kLeftBlock, 2, 16, 32]

  FUNICULAR_INLINE Rows rows(int64_t square, int64_t step) const {
    return Rows::plain(first + square * kSquare * stride + step * 2 * kStep, stride);
  }
  FUNICULAR_INLINE Rows tail(int64_t square) const { return Rows::packed(tails + square * 2 * kTile); }
  FUNICULAR_INLINE bool copies() const { return stride % 1024 == 0; }
};

/// What pack_left has made.
struct PackedLeft {
  const BFloat16* first;
  int64_t whole_steps;

  FUNICULAR_INLINE Rows rows(int64_t square, int64_t step) const {
    return Rows::packed(first + (square * whole_steps + step) * 2 * kTile);
  }
  FUNICULAR_INLINE Rows tail(int64_t) const { return Rows::packed(nullptr); }
};

/// out [rows, columns] = or += left * panels, over some steps of the depth.
template <class Left, class O>
struct Task {
  const Left& left;
  int64_t rows, columns;
  int64_t first_step, steps;
  const uint32_t* panels;  ///< from first_step on
  int64_t panel_size;      ///< pairs from panel to panel
  bool begins, ends;       ///< whether the depth begins and ends here
  float* sums;             ///< see waiting_squares
  O* out;
  int64_t stride;
  bool add;
  bool past = false;  ///< past the caches, where lines are whole
};

/// How `steps` are cut into blocks of at most `most` that are nearly equal.
struct Blocks {
  int64_t count, size;
  Blocks(int64_t steps, int64_t most) : count((steps + most - 1) / most), size((steps + count - 1) / count) {}
};

/// Squares whose sums wait in memory where `inner` of them are summed side by side, block by block, or all of
/// them where the depth comes in several parts.
inline int64_t waiting_squares(int64_t outer, int64_t inner, bool parts) {
  return parts ? outer * inner : inner < 2 ? 2 : inner;
}

/// A task at work: 32 rows or columns of the moving operand after the other (outer), block by block, and for
/// each block all squares beside or below each other (inner).
template <bool kLeftMoves, class Left, class O>
class Multiplication {
 public:
  FUNICULAR_INLINE explicit Multiplication(const Task<Left, O>& task)
      : t_(task),
        outer_(squares_of(kLeftMoves ? task.rows : task.columns)),
        inner_(squares_of(kLeftMoves ? task.columns : task.rows)),
        parts_(!task.begins || !task.ends),
        past_(task.past && !task.add &&
              (reinterpret_cast<uintptr_t>(task.out) | task.stride * sizeof(O)) % 64 == 0),
        blocks_(task.steps, kLeftMoves ? kLeftBlock : kPanelBlock),
        kept_(blocks_.size <= kKept + 1 ? 8 : 8 * kKept / blocks_.size) {}

  FUNICULAR_INLINE void run() {
    for (int64_t o = 0; o < outer_; ++o)
      for (int64_t k = 0; k < t_.steps; k += blocks_.size) multiply(at(o, k));
    finish_.write(kSquare);
    if (past_) _mm_sfence();
    _tile_release();
  }

 private:
  /// A block of the moving operand.
  struct Block {
    int64_t outer, first;  ///< first: step within the task
    int64_t steps, whole;  ///< of which `whole` are not the filled-up last one
    int64_t rows;          ///< of the left operand, if that moves
  };

  FUNICULAR_INLINE bool copies() const {
    if constexpr (kLeftMoves)
      return t_.left.copies();
    else
      return false;
  }

  FUNICULAR_INLINE Block at(int64_t outer, int64_t first) const {
    const int64_t steps = least(blocks_.size, t_.steps - first);
    return {outer, first, steps, least(steps, t_.left.whole_steps - t_.first_step - first),
            least(kSquare, t_.rows - outer * kSquare)};
  }

  FUNICULAR_INLINE void copy(const Block& b) {
    if constexpr (kLeftMoves) {
      const Rows rows = t_.left.rows(b.outer, t_.first_step + b.first);
      for (int64_t k = 0; k < b.whole; ++k)
        for (int64_t r = 0; r < b.rows; ++r)
          __builtin_memcpy(t_.left.buffer + 2 * k * kTile + 2 * r * kStep, rows.at(k, 0) + r * rows.row, 64);
    }
  }

  FUNICULAR_INLINE void multiply(const Block& b) {
    if (copies()) copy(b);
    for (int64_t i = 0; i < inner_; ++i) {
      const int64_t rows = least(kSquare, t_.rows - (kLeftMoves ? b.outer : i) * kSquare);
      const int64_t held = kLeftMoves ? rows : kSquare;  // packed rows are filled up
      if (held != configured_) configure(configured_ = held);
      if (held > kSide)
        sum<true>(b, i, rows);
      else
        sum<false>(b, i, rows);
    }
  }

  /// A share of the lines that the same block of the next 32 rows or columns will need.
  FUNICULAR_INLINE Ahead next_lines(const Block& b, int64_t i) const {
    if (b.outer + 1 >= outer_) return {};
    const int64_t from = i * kSquare / inner_, to = (i + 1) * kSquare / inner_;
    if constexpr (kLeftMoves) {
      const Rows rows = t_.left.rows(b.outer + 1, t_.first_step + b.first);
      return {reinterpret_cast<const char*>(rows.first + from * rows.row), rows.bytes(), 64, to - from};
    } else {
      const uint32_t* const panel = t_.panels + (b.outer + 1) * t_.panel_size + b.first * kPanelStep;
      return {reinterpret_cast<const char*>(panel) + from * 64, 64, kPanelStep * 4, to - from};
    }
  }

  /// The sums that lie behind a square's, mostly those of the next one, where they come from memory.
  FUNICULAR_INLINE Ahead next_sums(const Block& b, const float* sums) const {
    if (!parts_ || t_.begins) return {};
    const int64_t lines = kSums / kSide, share = (lines + b.steps - 1) / b.steps;
    return {reinterpret_cast<const char*>(sums + kSums), 64, share * 64, share};
  }

  /// Adds the block to square `i` of the inner ones.
  template <bool kBoth>
  FUNICULAR_INLINE void sum(const Block& b, int64_t i, int64_t rows) {
    const int64_t square = kLeftMoves ? b.outer : i, panel = kLeftMoves ? i : b.outer;
    const uint32_t* const right = t_.panels + panel * t_.panel_size + b.first * kPanelStep;
    float* const sums = t_.sums + (parts_ ? b.outer * inner_ + i : blocks_.count > 1 ? i : i % 2) * kSums;
    Rows left = t_.left.rows(square, t_.first_step + b.first);
    if constexpr (kLeftMoves)
      if (copies()) left = Rows::packed(t_.left.buffer);
    const bool ends = t_.ends && b.first + b.steps == t_.steps;
    Finish<O> coming;
    if (ends)
      coming = {sums,
                t_.out + square * kSquare * t_.stride + panel * kSquare,
                t_.stride,
                rows,
                t_.columns - panel * kSquare,
                t_.add,
                past_};
    written_for_tiles(right);
    if (t_.begins && b.first == 0)
      clear_sums();
    else
      load_square<kBoth>(sums);
    const int64_t share = (kSquare + b.steps - 1) / b.steps;
    add_steps<kBoth, kLeftMoves, O>(left, right, b.whole, kept_,
                                    {next_lines(b, i), next_sums(b, sums), finish_, coming, share});
    if (b.whole < b.steps)
      add_steps<kBoth, kLeftMoves, O>(t_.left.tail(square), right + b.whole * kPanelStep, 1, kept_,
                                      {{}, {}, finish_, coming, share});
    finish_.write(kSquare);  // before its sums are overwritten
    store_square<kBoth>(sums);
    if (ends) finish_ = coming;
  }

  const Task<Left, O>& t_;
  const int64_t outer_, inner_;
  const bool parts_, past_;
  const Blocks blocks_;
  const int64_t kept_;  ///< of eight steps of a panel that moves
  Finish<O> finish_;
  int64_t configured_ = 0;
};

template <bool kLeftMoves, class Left, class O>
inline void multiply(const Task<Left, O>& task) {
  Multiplication<kLeftMoves, Left, O>(task).run();
}

/// Panels of a product's right operand, from an element of the depth on.
inline void pack_panels(const MatmulArguments<BFloat16>& m, int64_t column, int64_t columns, int64_t first,
                        int64_t depth, int64_t size, uint32_t* out) {
  if (m.right_transposed)
    pack_columns(m.right + column * m.right_stride + first, m.right_stride, depth, columns, size, out);
  else
    pack_rows(m.right + first * m.right_stride + column, m.right_stride, depth, columns, size, out);
}

inline void pack(const MatmulArguments<BFloat16>& m, int64_t first_panel, int64_t last_panel,
                 unsigned char* out) {
  const int64_t column = first_panel * kSquare, size = panel_groups(m.depth),
                end = least(last_panel * kSquare, m.last_column);
  pack_panels(m, column, end - column, 0, m.depth, size,
              reinterpret_cast<uint32_t*>(out) + first_panel * size);
}

FUNICULAR_INLINE void pack_tails(const MatmulArguments<BFloat16>& m, BFloat16* out) {
  const int64_t first = m.depth / (2 * kStep) * 2 * kStep, rows = round_up(m.rows, kSquare);
  __builtin_memset(out, 0, static_cast<size_t>(rows * 2 * kStep) * sizeof(BFloat16));
  for (int64_t i = 0; i < m.rows; ++i)
    __builtin_memcpy(out + i * 2 * kStep, m.left + i * m.left_stride + first,
                     static_cast<size_t>(m.depth - first) * sizeof(BFloat16));
}

/// Steps of a part of the depth whose panels, so many columns wide, may stay in the second-level cache.
inline int64_t part_steps(int64_t steps, int64_t columns) {
  const int64_t fit = kResident / (round_up(columns, kSquare) * 2 * kStep * 2);
  const int64_t parts = (steps + fit - 1) / fit;
  return (steps + parts - 1) / parts;
}

/// What a product's workspace holds, in this order, in bytes; tails and block whether they are needed or not.
/// It grows with rows and columns, so that what holds the widest piece holds the narrower ones, whose parts
/// of the depth may be longer.
struct PieceWorkspace {
  int64_t tails, block = kLeftBlock * 2 * kTile * 2, sums, panels;
  PieceWorkspace(int64_t rows, int64_t depth, int64_t columns, bool packed) {
    const int64_t steps = padded_groups(depth) / kStep, part = part_steps(steps, columns);
    const int64_t squares = squares_of(rows), panel_count = squares_of(columns);
    const int64_t all = panel_count * steps * kPanelStep * 4;
    tails = round_up(rows, kSquare) * 2 * kStep * 2;
    sums = waiting_squares(squares, panel_count, part < steps) * kSums * 4;
    panels = packed ? 0 : least(all, kResident);
  }
  int64_t bytes() const { return tails + block + sums + panels; }
};

inline void matmul(const MatmulArguments<BFloat16>& m) {
  const int64_t columns = m.last_column - m.first_column;
  const int64_t steps = padded_groups(m.depth) / kStep, part = part_steps(steps, columns);
  const PieceWorkspace space(m.rows, m.depth, columns, m.packed);
  auto* const tails = reinterpret_cast<BFloat16*>(m.workspace);
  auto* const buffer = reinterpret_cast<BFloat16*>(m.workspace + space.tails);
  auto* const sums = reinterpret_cast<float*>(m.workspace + space.tails + space.block);
  auto* const own = reinterpret_cast<uint32_t*>(m.workspace + space.tails + space.block + space.sums);
  const bool has_tail = m.depth % (2 * kStep) != 0;
  if (has_tail) pack_tails(m, tails);
  const MatrixLeft left{m.left, m.left_stride, m.depth / (2 * kStep), has_tail ? tails : nullptr, buffer};
  for (int64_t first = 0; first < steps; first += part) {
    const int64_t count = least(steps - first, part);
    const uint32_t* panels = own;
    int64_t size = count * kPanelStep;
    if (m.packed) {
      size = panel_groups(m.depth);
      panels =
          reinterpret_cast<const uint32_t*>(m.packed) + m.first_column / kSquare * size + first * kPanelStep;
    } else {
      const int64_t element = first * 2 * kStep, rest = m.depth - element,
                    depth = least(rest, count * 2 * kStep);
      pack_panels(m, m.first_column, columns, element, depth, size, own);
    }
    multiply</*kLeftMoves=*/true>(Task<MatrixLeft, BFloat16>{left, m.rows, columns, first, count, panels,
                                                             size, first == 0, first + count == steps, sums,
                                                             m.out + m.first_column, m.out_stride, m.add});
  }
}

inline void pack_right(const GradientArguments<BFloat16>& g, int64_t first_panel, int64_t last_panel) {
  const int64_t column = first_panel * kSquare, size = panel_groups(g.depth),
                end = least(last_panel * kSquare, g.columns);
  pack_rows(g.right + column, g.columns, g.depth, end - column, size,
            reinterpret_cast<uint32_t*>(g.packed) + first_panel * size);
}

/// Some columns of the left operand as rows, in tiles: out [squares, steps, 2, 16, 32], filled up with zeros.
inline void pack_left(const GradientArguments<BFloat16>& g, BFloat16* out) {
  using V = Bits;
  const int64_t rows = g.last_row - g.first_row, width = round_up(rows, kSquare),
                steps = padded_groups(g.depth) / kStep;
  alignas(64) uint32_t part[kStep * kMostRows];  // a step of all rows
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t first = step * 2 * kStep, left = g.depth - first, count = least(left, 2 * kStep);
    for (int64_t r = count; r < 2 * count && r < left; ++r)  // the next step's lines, far apart or not
      for (int64_t c = 0; c < rows; c += kSquare)
        __builtin_prefetch(g.left + (first + r) * g.rows + g.first_row + c, 0, 2);
    pack_depth_rows<Pairs>(g.left + first * g.rows + g.first_row, g.rows, count, rows, width, part);
    for (int64_t group = (count + 1) / 2; group < kStep; ++group)
      __builtin_memset(part + group * width, 0, static_cast<size_t>(width) * sizeof(uint32_t));
    for (int64_t r = 0; r < width; r += kSide) {
      V square[kSide];
#pragma GCC unroll 16
      for (int i = 0; i < kSide; ++i) __builtin_memcpy(&square[i], part + i * width + r, sizeof(V));
      transpose_square<V, kSide>(square);
      BFloat16* const tile = out + ((r / kSquare * steps + step) * 2 + r / kSide % 2) * kTile;
#pragma GCC unroll 16
      for (int i = 0; i < kSide; ++i) __builtin_memcpy(tile + i * 2 * kStep, &square[i], sizeof(V));
    }
  }
}

/// Bytes of some rows of a weight gradient's left operand.
inline int64_t packed_left(int64_t depth, int64_t rows) {
  return round_up(rows, kSquare) * padded_groups(depth) * 4;
}

template <class O>
FUNICULAR_INLINE void gradient_rows_of(const GradientArguments<BFloat16>& g, O* out) {
  const int64_t rows = g.last_row - g.first_row, steps = padded_groups(g.depth) / kStep;
  auto* const packed = reinterpret_cast<BFloat16*>(g.workspace);
  auto* const sums = reinterpret_cast<float*>(g.workspace + packed_left(g.depth, rows));
  pack_left(g, packed);
  const PackedLeft left{packed, steps};
  // Those of large models are read again long after they have left the caches.
  const bool past = g.rows * g.columns * static_cast<int64_t>(sizeof(O)) > kMostKept;
  multiply</*kLeftMoves=*/false>(Task<PackedLeft, O>{
      left, rows, g.columns, 0, steps, reinterpret_cast<const uint32_t*>(g.packed), panel_groups(g.depth),
      true, true, sums, out + g.first_row * g.columns, g.columns, g.add, past});
}

inline void weight_gradient(const GradientArguments<BFloat16>& g) {
  if (g.wide)
    gradient_rows_of(g, g.wide);
  else
    gradient_rows_of(g, g.narrow);
}

/// `all` in parts of at most `most`, as many as threads or a multiple, unless they would be less than
/// `fewest`; a multiple of 32.
inline int64_t part_of(int64_t all, int64_t most, int64_t fewest, int64_t threads) {
  int64_t parts = (all + most - 1) / most;
  const int64_t equal = round_up(parts, threads), many = all / fewest;
  parts = equal <= many ? equal : many > parts ? many : parts;
  if (parts == 0) return kSquare;
  return round_up((all + parts - 1) / parts, kSquare);
}

inline int64_t columns(int64_t columns, int threads) {
  return part_of(columns, kMostColumns, kFewest, threads);
}

/// Of depths above 3,840 the fewest rows are more than may stay in the second-level cache.
inline int64_t gradient_rows(int64_t rows, int64_t depth, int threads) {
  const int64_t fit = kResidentLeft / (padded_groups(depth) * 4) / kSquare * kSquare;
  const int64_t most = fit > kMostRows ? kMostRows : fit < kFewest ? kFewest : fit;
  return part_of(rows, most, kSquare, threads);
}

inline int64_t workspace(int64_t rows, int64_t depth, int64_t columns, bool packed) {
  return PieceWorkspace(rows, depth, columns, packed).bytes();
}

inline int64_t gradient_workspace(int64_t depth, int64_t rows) {
  return packed_left(depth, rows) + waiting_squares(0, squares_of(rows), false) * kSums * 4;
}

constexpr MatmulKernels<BFloat16> kernels() {
  return {kSquare,        2,         2 * kStep,          1,      kFewest, columns,
          gradient_rows,  workspace, gradient_workspace, matmul, pack,    pack_right,
          weight_gradient};
}

}  // namespace funicular::nn::FUNICULAR_ISA::tiles

#endif
