#pragma once
// The gradients of tables of embeddings for a team of threads (base/team.h): rows of one id are added up and go to
// the id's row.

#include <cstdint>

#include "funicular/nn/device/row_kernels.h"

namespace funicular::nn::device {

/// target[id] += the rows of that id, added up in T by chunks of their sorted order. A batch has few token types and
/// many mask tokens, so one id may have many rows. Without chunks, one team would add them up while all others wait.
/// ScatterChunks comes first, ScatterSpans after it.
template <class S, class Target>
struct ScatterArguments {
  using T = Compute<S>;
  static constexpr int64_t kChunk = 64;
  int64_t count = 0, width = 0;
  const int64_t* order = nullptr;  ///< [count] rows, sorted by id, then ascending
  const int64_t* ids = nullptr;    ///< [count], the id of row order[i]
  int64_t padding = -1;            ///< the id that is left out
  const S* rows = nullptr;
  Target* target = nullptr;
  T* partial = nullptr;  ///< [chunks, 2, width]: sums of the ids cut by the chunk's begin, by its end

  FUNICULAR_DEVICE int64_t chunk_end(int64_t begin) const { return least(count, begin + kChunk); }
  FUNICULAR_DEVICE bool begins_within(int64_t begin) const {
    return begin > 0 && ids[begin - 1] == ids[begin];
  }
  FUNICULAR_DEVICE bool ends_within(int64_t end) const { return end < count && ids[end - 1] == ids[end]; }
  FUNICULAR_DEVICE void add(int64_t id, int64_t c, T sum) const {
    if (id == padding) return;
    Target& out = target[id * width + c];
    out = put<Target>(widen(out) + sum);
  }
};

/// Adds ids whose rows lie in one chunk to the target, and other ids to `partial`. Each team handles one chunk and
/// size() columns.
template <class S, class Target>
struct ScatterChunks {
  ScatterArguments<S, Target> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t c = team.column() * team.size() + team.rank();
    if (c >= a.width) return;
    const int64_t begin = team.row() * a.kChunk, end = a.chunk_end(begin);
    for (int64_t first = begin, next = begin; first < end; first = next) {
      const int64_t id = a.ids[first];
      Compute<S> sum = 0;
      for (; next < end && a.ids[next] == id; ++next) sum += widen(a.rows[a.order[next] * a.width + c]);
      const bool before = first == begin && a.begins_within(begin), after = next == end && a.ends_within(end);
      if (before || after)
        a.partial[(2 * team.row() + (before ? 0 : 1)) * a.width + c] = sum;
      else
        a.add(id, c, sum);
    }
  }
};

/// Adds ids whose rows lie in several chunks to the target. Each team handles one chunk and size() columns. The chunk
/// in which an id begins does the work.
template <class S, class Target>
struct ScatterSpans {
  ScatterArguments<S, Target> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t c = team.column() * team.size() + team.rank();
    const int64_t begin = team.row() * a.kChunk;
    int64_t end = a.chunk_end(begin);
    const int64_t id = a.ids[end - 1];
    if (c >= a.width || !a.ends_within(end) || (begin > 0 && a.ids[begin - 1] == id)) return;
    Compute<S> sum = a.partial[(2 * team.row() + 1) * a.width + c];
    for (int64_t chunk = team.row() + 1; end < a.count && a.ids[end] == id; ++chunk) {
      sum += a.partial[2 * chunk * a.width + c];
      end = a.chunk_end(end);
      if (a.ids[end - 1] != id) break;
    }
    a.add(id, c, sum);
  }
};

}  // namespace funicular::nn::device
