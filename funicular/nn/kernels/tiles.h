#pragma once
// Large products of bfloat16 by AMX's tiles (nn/kernels/tile_registers.h). Within each 32 of the depth, even and odd
// products form two chains. Both are added to the sum in the order of the depth, whatever the threads and the rest of
// the rows.
//
// Three levels of memory. One operand is resident: a piece of it stays in the second-level cache. The second operand
// moves past it, 32 rows (or columns) at a time. A block of these 32, some steps of the depth, stays in the
// first-level cache. Meanwhile the resident piece is read with TILELOADDT1, the load that bypasses the first-level
// cache. Without that hint, both operands, read by turns, evict each other and the sums, and a product takes half as
// long again. Sums wait in memory between blocks. So blocks of panels are longer than the first-level cache, and a
// share of each is read past it, too. The sums of a finished square are rounded and written among the products of the
// next one. No processor looks far enough ahead to do that by itself.
//
// An activation that follows (ActivationOfProduct) takes 32 rows of results from where they are staged in the
// second-level cache. GELU of several panels is computed among the products of the next rows. Other activations, and
// the last rows', are computed at once.

#include "funicular/nn/kernels/tile_activation.h"
#include "funicular/nn/kernels/tile_packing.h"

#if defined(__AMX_BF16__)

namespace funicular::nn::FUNICULAR_ISA::tiles {

constexpr int64_t kLeftBlock = 16;             // steps of 32 along the depth of rows that move, 32 KiB
constexpr int64_t kPanelBlock = 40;            // of panels that move
constexpr int64_t kKept = 15;                  // of a longer one so many stay in the first-level cache
constexpr int64_t kResident = 800 * 1024;      // bytes of a resident right operand
constexpr int64_t kResidentLeft = 960 * 1024;  // of a resident left one
constexpr int64_t kMostColumns = 512;          // of a resident right operand
constexpr int64_t kFewest = 128;               // columns or rows of a piece, however many threads there are
constexpr int64_t kMostRows = 384;             // of a resident left operand
constexpr int64_t kSums = kSquare * kSquare;   // of a square, as four tiles

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

/// The squares of a line's numbers, as they are stored, added in pairs.
template <class O>
FUNICULAR_INLINE Vec<float> line_squares(Vec<float> first, Vec<float> second) {
  if constexpr (sizeof(O) == 2) {
    const auto line = reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)));
    const Places places = places_of(line);
    first = places.even;
    second = places.odd;
  }
  return first * first + second * second;
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
  O* copy = nullptr;  ///< [rows, 32], written too; null: none
  bool copy_past = false;
  double* square_sums = nullptr;  ///< [kSquareSums] += the squares of what is written; null: none
  int64_t row = 0;                ///< the next one

  /// At most `count` rows more. With kSums their squares are added to `pending`, which should be a register,
  /// and at the end to `square_sums`.
  template <bool kSums>
  FUNICULAR_INLINE void write(int64_t count, Vec<float>& pending) {
    for (; count > 0 && row < rows; --count, ++row)
      write_row<kSums>(sums + row / kSide * 2 * kTileSums + row % kSide * kSide, out + row * stride,
                       copy ? copy + row * kSquare : nullptr, pending);
  }
  /// The rest.
  template <bool kSums>
  FUNICULAR_INLINE void write(Vec<float>& pending) {
    write<kSums>(kSquare, pending);
    if constexpr (kSums) add_square_sums(pending);
  }

  FUNICULAR_INLINE void fetch(int64_t from, int64_t count) const {
    if (!past)
      for (int64_t r = from; r < from + count && r < rows; ++r) {
        __builtin_prefetch(out + r * stride);
        if constexpr (sizeof(O) == 4) __builtin_prefetch(out + r * stride + 16);
      }
  }

 private:
  template <bool kSums>
  FUNICULAR_INLINE void write_row(const float* from, O* to, O* also, Vec<float>& pending) const {
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
      if (also) {
        if (copy_past)
          store_line<true>(also, first, second);
        else
          store_line<false>(also, first, second);
      }
      if constexpr (kSums)
        if (square_sums) pending += line_squares<O>(first, second);
    } else {
      alignas(64) float written[kSquare] = {};  // and no element of `pending`, which would make it memory
      for (int64_t j = 0; j < columns; ++j) {
        const float sum = j < lanes ? from[j] : from[kTileSums + j - lanes];
        put(to + j, add ? get(to + j) + sum : sum);
        if constexpr (kSums) written[j] = get(to + j);
      }
      if constexpr (kSums)
        if (square_sums) pending += line_squares<O>(load(written), load(written + lanes));
    }
  }

  FUNICULAR_INLINE void add_square_sums(Vec<float> pending) const {
    if (!square_sums) return;
    const auto sixteen = reinterpret_cast<__m512>(pending);
    const __m512d both = _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(sixteen)),
                                       _mm512_cvtps_pd(_mm512_extractf32x8_ps(sixteen, 1)));
    _mm512_storeu_pd(square_sums, _mm512_add_pd(_mm512_loadu_pd(square_sums), both));
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

/// Work that is done among the products of a square.
template <class O>
struct Alongside {
  Ahead operand, sums, before;
  Finish<O>& finish;        ///< the square before
  const Finish<O>& coming;  ///< this square, if it is one that is finished
  int64_t rows;             ///< to be finished in a step

  template <bool kPanelsMove>
  FUNICULAR_INLINE void step(int64_t k, Vec<float>& pending) const {
    operand.fetch(k);
    sums.fetch(k);
    before.fetch(k);
    finish.template write<kPanelsMove>(rows, pending);
    if constexpr (kPanelsMove) coming.fetch(k * rows, rows);
  }
};

/// One half of the left or right operand's step. `past`: past the first-level cache.
FUNICULAR_INLINE void load_left(const BFloat16* tile, int64_t bytes, int64_t half, bool past) {
  if (past) {
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
FUNICULAR_INLINE void load_right(const uint32_t* step, int64_t half, bool past) {
  if (past) {
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

/// Adds steps of the depth to the sums. kBoth: the square has more than 16 rows. `right`: of a panel. If panels move,
/// `kept` of every eight steps stay in the first-level cache. `lines`: work on other rows.
template <bool kBoth, bool kLeftMoves, class O, class Lines>
FUNICULAR_INLINE void add_steps(const Rows& left, const uint32_t* right, int64_t steps, int64_t kept,
                                const Alongside<O>& alongside, Lines lines, Vec<float>& pending) {
  for (int64_t step = 0; step < steps; ++step, right += kPanelStep) {
    alongside.template step</*kPanelsMove=*/!kLeftMoves>(step, pending);
    lines.step();
    const bool past = kLeftMoves || step % 8 >= kept;
    load_right(right, 0, past);
    load_left(left.at(step, 0), left.bytes(), 0, !kLeftMoves);
    load_right(right, 1, past);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kBoth) {
      load_left(left.at(step, 1), left.bytes(), 1, !kLeftMoves);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  lines.end();
}

/// Rows of a matrix as they lie. If the depth is no multiple of 32, the last step is a copy filled up with zeros.
/// Memory beyond the end of a row is not ours to read. If rows are a multiple of 2 KiB apart, a block has more lines
/// than the cache sets that they share. Such blocks are copied into tiles.
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
  static constexpr bool kTiled = false;
};

/// Rows that lie in tiles [squares, steps, 2, 16, 32]: what pack_left has made, or a Tiled matrix.
struct TiledLeft {
  const BFloat16* first;
  int64_t whole_steps;
  static constexpr bool kTiled = true;

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
  int64_t stride;  ///< if `out` is Tiled: the number of its columns
  bool add;
  bool past = false;                                          ///< past the caches, where lines are whole
  const ActivationOfProduct<BFloat16>* activation = nullptr;  ///< then `out` is Tiled; may be null
  BFloat16* stage =
      nullptr;  ///< [2, panels, 32, 32]: the results of 32 rows, by turns, before their activation
  double* square_sums = nullptr;  ///< [rows / 32, rounded up; kSquareSums], to be added to; null: none
};

/// How `steps` are cut into blocks of at most `most` that are nearly equal.
struct Blocks {
  int64_t count, size;
  Blocks(int64_t steps, int64_t most) : count((steps + most - 1) / most), size((steps + count - 1) / count) {}
};

/// The number of squares whose sums wait in memory: `inner` squares, which are summed side by side, block by block.
/// If the depth comes in several parts, all squares wait.
inline int64_t waiting_squares(int64_t outer, int64_t inner, bool parts) {
  return parts ? outer * inner : inner < 2 ? 2 : inner;
}

/// Performs a task. The outer loop goes over the moving operand, 32 rows or columns at a time, and its blocks. The
/// inner loop goes over all squares beside or below each other.
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
        among_(task.activation && task.activation->activation == Activation::gelu && inner_ > 1),
        blocks_(task.steps, kLeftMoves ? kLeftBlock : kPanelBlock),
        kept_(blocks_.size <= kKept + 1 ? 8 : 8 * kKept / blocks_.size) {}

  FUNICULAR_INLINE void run() {
    for (int64_t o = 0; o < outer_; ++o)
      for (int64_t k = 0; k < t_.steps; k += blocks_.size) multiply(at(o, k));
    Vec<float> pending{};
    finish_.template write<!kLeftMoves>(pending);
    activate_finished();
    if (past_ || (t_.activation && t_.activation->past)) _mm_sfence();
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
    if constexpr (Left::kTiled)
      return false;
    else
      return t_.left.copies();
  }

  FUNICULAR_INLINE Block at(int64_t outer, int64_t first) const {
    const int64_t steps = least(blocks_.size, t_.steps - first);
    return {outer, first, steps, least(steps, t_.left.whole_steps - t_.first_step - first),
            least(kSquare, t_.rows - outer * kSquare)};
  }

  FUNICULAR_INLINE void copy(const Block& b) {
    if constexpr (!Left::kTiled) {
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
      return {reinterpret_cast<const char*>(rows.first + from * rows.row), rows.bytes(), rows.step * 2,
              to - from};
    } else {
      const uint32_t* const panel = t_.panels + (b.outer + 1) * t_.panel_size + b.first * kPanelStep;
      return {reinterpret_cast<const char*>(panel) + from * 64, 64, kPanelStep * 4, to - from};
    }
  }

  /// Further input of a square's activation, to be prefetched.
  FUNICULAR_INLINE Ahead lines_before(int64_t square, int64_t panel, int64_t steps) const {
    if constexpr (!kLeftMoves) return {};
    if (!t_.activation || !t_.activation->before) return {};
    const int64_t share = (kSquare + steps - 1) / steps;
    const BFloat16* const before = t_.activation->before + square * kSquare * t_.stride + panel * 2 * kTile;
    return {reinterpret_cast<const char*>(before), 64, share * 64, share};
  }

  /// The sums that lie behind a square's, mostly the next square's, to be prefetched if they come from memory.
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
    if constexpr (!Left::kTiled)
      if (copies()) left = Rows::packed(t_.left.buffer);
    const bool ends = t_.ends && b.first + b.steps == t_.steps;
    Finish<O> coming;
    if (ends) coming = finish_of(sums, square, panel, rows);
    written_for_tiles(right);
    if (t_.begins && b.first == 0)
      clear_sums();
    else
      load_square<kBoth>(sums);
    const int64_t share = (kSquare + b.steps - 1) / b.steps;
    Vec<float> pending{};
    const Alongside<O> alongside{next_lines(b, i),
                                 next_sums(b, sums),
                                 ends ? lines_before(square, panel, b.steps) : Ahead(),
                                 finish_,
                                 coming,
                                 share};
    if constexpr (kLeftMoves) {
      if (!activates_among(b))
        add_steps<kBoth, kLeftMoves, O>(left, right, b.whole, kept_, alongside, NoLines(), pending);
      else if (t_.activation->before)
        add_steps<kBoth, kLeftMoves, O>(left, right, b.whole, kept_, alongside, gelu_lines<true>(b, i),
                                        pending);
      else
        add_steps<kBoth, kLeftMoves, O>(left, right, b.whole, kept_, alongside, gelu_lines<false>(b, i),
                                        pending);
    } else {
      add_steps<kBoth, kLeftMoves, O>(left, right, b.whole, kept_, alongside, NoLines(), pending);
    }
    if (b.whole < b.steps)
      add_steps<kBoth, kLeftMoves, O>(t_.left.tail(square), right + b.whole * kPanelStep, 1, kept_,
                                      Alongside<O>{{}, {}, {}, finish_, coming, share}, NoLines(), pending);
    finish_.template write<!kLeftMoves>(pending);  // before its sums are overwritten
    if (!among_) activate_finished();
    store_square<kBoth>(sums);
    if (ends) finish_ = coming;
    if (ends && i + 1 == inner_) finished_ = square;
  }

  FUNICULAR_INLINE Finish<O> finish_of(const float* sums, int64_t square, int64_t panel, int64_t rows) const {
    const int64_t columns = t_.columns - panel * kSquare;
    if constexpr (kLeftMoves)
      if (t_.activation) {
        Finish<O> to_stage{sums, staged(square, panel), kSquare, rows, columns};
        if (t_.out && !t_.activation->before) {
          to_stage.copy = t_.out + square * kSquare * t_.stride + panel * 2 * kTile;
          to_stage.copy_past = t_.activation->past;
        }
        return to_stage;
      }
    Finish<O> to_rows{
        sums, t_.out + square * kSquare * t_.stride + panel * kSquare, t_.stride, rows, columns, t_.add,
        past_};
    if (t_.square_sums) to_rows.square_sums = t_.square_sums + square * kSquareSums;
    return to_rows;
  }

  /// Whether the rows before are activated among the products of these rows.
  FUNICULAR_INLINE bool activates_among(const Block& b) const {
    return among_ && finished_ == b.outer - 1 && b.outer > 0;
  }

  BFloat16* staged(int64_t square, int64_t panel) const {
    return t_.stage + (square % 2 * inner_ + panel) * 2 * kTile;
  }

  /// Activates the share of a block and panel of the rows before.
  template <bool kBackward>
  FUNICULAR_INLINE GeluLines<kBackward> gelu_lines(const Block& b, int64_t panel) const {
    const int64_t q = b.first / blocks_.size;
    const ActivationOfProduct<BFloat16>& a = *t_.activation;
    return {a,
            finished_ * kSquare * t_.stride + panel * 2 * kTile,
            panel * kSquare,
            q * kSquare / blocks_.count,
            (q + 1) * kSquare / blocks_.count,
            staged(finished_, panel),
            t_.out,
            kBackward ? a.bias_gradient + finished_ * t_.stride + panel * kSquare : nullptr};
  }

  /// The activation of 32 rows whose last square is written: a pass of its own, while they are in the caches.
  FUNICULAR_INLINE void activate_finished() {
    if constexpr (kLeftMoves) {
      if (!t_.activation || finished_ < 0) return;
      const int64_t rows = least(kSquare, t_.rows - finished_ * kSquare);
      for (int64_t panel = 0; panel < inner_; ++panel)
        activate_square(*t_.activation, finished_, panel, t_.stride, rows, staged(finished_, panel), t_.out);
      finished_ = -1;
    }
  }

  const Task<Left, O>& t_;
  const int64_t outer_, inner_;
  const bool parts_, past_;
  const bool among_;  ///< the activation is done among the products of the next rows
  const Blocks blocks_;
  const int64_t kept_;  ///< of eight steps of a panel that moves
  Finish<O> finish_;
  int64_t finished_ = -1;  ///< rows whose activation is to come
  int64_t configured_ = 0;
};

template <bool kLeftMoves, class Left, class O>
inline void multiply(const Task<Left, O>& task) {
  Multiplication<kLeftMoves, Left, O>(task).run();
}

}  // namespace funicular::nn::FUNICULAR_ISA::tiles

#endif
