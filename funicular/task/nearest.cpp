#include "funicular/task/nearest.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/runtime/parallel_loop.h"

namespace funicular::task {

namespace {

/// Rows of the index and queries per step, which bounds the memory of the scores.
constexpr int64_t kIndexRows = 4096, kQueryRows = 512;

/// Rows [begin, end) of a table of numbers as float32.
at::Tensor block_of(const format::NpyFile& index, int64_t begin, int64_t end,
                    const format::VectorRanges& ranges) {
  using format::NpyType;
  const int64_t columns = index.columns();
  const size_t size = static_cast<size_t>(columns) * format::npy_size(index.type());
  const auto bytes =
      index.data().subspan(static_cast<size_t>(begin) * size, static_cast<size_t>(end - begin) * size);
  const at::ScalarType type = index.type() == NpyType::float32 ? at::kFloat
                              : index.type() == NpyType::int8  ? at::kChar
                                                               : at::kByte;
  const at::Tensor stored = at::empty({end - begin, columns}, type);
  std::memcpy(stored.data_ptr(), bytes.data(), bytes.size());
  if (type == at::kFloat || ranges.empty()) return stored.to(at::kFloat);
  const at::Tensor least = at::tensor(ranges.least), step = (at::tensor(ranges.most) - least) / 255;
  const double shift = type == at::kChar ? 128.5 : 0.5;  // the middle of the interval that a byte represents
  return least + (stored.to(at::kFloat) + shift) * step;
}

/// Rows of `width` bytes, padded with zeros to whole words.
std::vector<uint64_t> words_of(const char* bytes, int64_t rows, size_t width) {
  const size_t words = (width + 7) / 8;
  std::vector<uint64_t> all(static_cast<size_t>(rows) * words, 0);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row)
    std::memcpy(all.data() + row * words, bytes + row * width, width);
  return all;
}

/// The bits x > 0 of each row.
std::vector<uint64_t> bits_of(const at::Tensor& rows) {
  const at::Tensor values = rows.contiguous();
  const auto width = static_cast<size_t>(rows.size(1));
  std::string bytes;
  for (int64_t row = 0; row < rows.size(0); ++row)
    append_code(format::VectorCode::ubinary,
                {values.const_data_ptr<float>() + static_cast<size_t>(row) * width, width}, {}, bytes);
  return words_of(bytes.data(), rows.size(0), (width + 7) / 8);
}

/// As bits_of, for rows [begin, end) of a table of bits. In "binary" tables (int8), the highest bit of each byte is
/// flipped.
std::vector<uint64_t> stored_bits(const format::NpyFile& index, int64_t begin, int64_t end) {
  const auto width = static_cast<size_t>(index.columns());
  const auto data =
      index.data().subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(end - begin) * width);
  std::string bytes(reinterpret_cast<const char*>(data.data()), data.size());
  if (index.type() == format::NpyType::int8)
    for (char& byte : bytes) byte = static_cast<char>(byte ^ 0x80);
  return words_of(bytes.data(), end - begin, width);
}

/// [queries, rows]: the share of equal bits, scaled to −1 … 1.
at::Tensor bit_scores(const std::vector<uint64_t>& queries, const std::vector<uint64_t>& rows, int64_t bits) {
  const size_t words = (static_cast<size_t>(bits) + 63) / 64;
  const auto count = static_cast<int64_t>(queries.size() / words),
             others = static_cast<int64_t>(rows.size() / words);
  const at::Tensor scores = at::empty({count, others}, at::kFloat);
  auto* const out = scores.data_ptr<float>();
  parallel_loop(0, count, 1, [&](int64_t first, int64_t last) {
    for (int64_t q = first; q < last; ++q)
      for (int64_t r = 0; r < others; ++r) {
        int different = 0;
        for (size_t w = 0; w < words; ++w)
          different += std::popcount(queries[static_cast<size_t>(q) * words + w] ^
                                     rows[static_cast<size_t>(r) * words + w]);
        out[q * others + r] = 1.0F - 2.0F * static_cast<float>(different) / static_cast<float>(bits);
      }
  });
  return scores;
}

}  // namespace

const std::vector<std::string>& similarity_names() {
  static const std::vector<std::string> names{"cosine", "dot", "euclidean", "manhattan"};
  return names;
}

Similarity parse_similarity(const std::string& name) {
  const auto& names = similarity_names();
  const auto found = std::ranges::find(names, name.empty() ? names.front() : name);
  if (found == names.end()) throw InputError("search", "there is no similarity {}", name);
  return static_cast<Similarity>(found - names.begin());
}

BestRows::BestRows(int64_t queries, int64_t k, TieOrder ties)
    : k_(static_cast<size_t>(k)), ties_(std::move(ties)), kept_(static_cast<size_t>(queries)) {
  if (k < 1) throw InputError("usage", "expected at least 1 neighbour per query, found {}", k);
}

bool BestRows::before(const Neighbour& a, const Neighbour& b) const {
  if (a.score != b.score) return a.score > b.score;
  return ties_ ? ties_(a.row, b.row) : a.row < b.row;
}

/// Adds the newest rows with scores among the best k to the heap.
void BestRows::offer(std::vector<Neighbour>& kept, const float* scores, int64_t count) const {
  const auto later = [this](const Neighbour& a, const Neighbour& b) { return before(a, b); };
  float least = kept.size() < k_ ? -std::numeric_limits<float>::infinity() : kept.front().score;
  for (int64_t i = 0; i < count; ++i) {
    if (!(scores[i] >= least)) continue;
    const Neighbour found{rows_ + i, scores[i]};
    if (kept.size() == k_) {
      if (!before(found, kept.front())) continue;
      std::ranges::pop_heap(kept, later);
      kept.pop_back();
    }
    kept.push_back(found);
    std::ranges::push_heap(kept, later);
    if (kept.size() == k_) least = kept.front().score;
  }
}

void BestRows::offer(int64_t first_query, const at::Tensor& scores) {
  const at::Tensor all = scores.contiguous();
  const auto* const values = all.const_data_ptr<float>();
  const int64_t count = all.size(1);
  parallel_loop(0, all.size(0), 1, [&](int64_t first, int64_t last) {
    for (int64_t q = first; q < last; ++q)
      offer(kept_[static_cast<size_t>(first_query + q)], values + q * count, count);
  });
}

std::vector<std::vector<Neighbour>> BestRows::found() const {
  std::vector<std::vector<Neighbour>> sorted = kept_;
  for (std::vector<Neighbour>& row : sorted)
    std::ranges::sort(row, [this](const Neighbour& a, const Neighbour& b) { return before(a, b); });
  return sorted;
}

NearestRows::NearestRows(const at::Tensor& queries, int64_t k, Similarity similarity, TieOrder ties)
    : queries_(similarity == Similarity::cosine ? model::normalise_rows(queries) : queries),
      similarity_(similarity),
      best_(queries.size(0), k, std::move(ties)) {}

namespace {

at::Tensor scores_of(const at::Tensor& queries, const at::Tensor& rows, Similarity similarity) {
  if (similarity == Similarity::euclidean) return -at::cdist(queries, rows, 2);
  if (similarity == Similarity::manhattan) return -at::cdist(queries, rows, 1);
  return queries.matmul(rows.t());
}

}  // namespace

void NearestRows::add(const at::Tensor& block) {
  if (block.size(1) != queries_.size(1))
    throw InputError("search",
                     "the queries have {} numbers each, and the index {}; expected the same model's",
                     queries_.size(1), block.size(1));
  const at::Tensor rows = similarity_ == Similarity::cosine ? model::normalise_rows(block) : block;
  for (int64_t first = 0; first < queries_.size(0); first += kQueryRows) {
    const int64_t count = std::min(kQueryRows, queries_.size(0) - first);
    best_.offer(first, scores_of(queries_.narrow(0, first, count), rows, similarity_));
  }
  best_.advance(block.size(0));
}

std::vector<std::vector<Neighbour>> nearest_in_file(const format::NpyFile& index, const at::Tensor& queries,
                                                    int64_t k, Similarity similarity,
                                                    const format::VectorRanges& ranges) {
  const int64_t width = queries.size(1);
  const bool bits =
      index.type() != format::NpyType::float32 && index.columns() == (width + 7) / 8 && width > 1;
  if (!bits && !ranges.empty() && std::ssize(ranges.least) != index.columns())
    throw InputError("search", "the ranges have {} numbers, and the index has {} per row; expected as many",
                     ranges.least.size(), index.columns());
  if (!bits && index.type() != format::NpyType::float32 && ranges.empty() && index.rows() > 0 &&
      index.columns() == width)
    throw InputError("usage", "--index {}: bytes need the ranges that they stand for; give --ranges FILE",
                     index.path().string());
  NearestRows numbers(queries, k, similarity);
  BestRows best(queries.size(0), k, nullptr);
  const std::vector<uint64_t> asked = bits ? bits_of(queries) : std::vector<uint64_t>();
  for (int64_t begin = 0; begin < index.rows(); begin += kIndexRows) {
    stop_if_interrupted("search", "nothing was written");
    const int64_t end = std::min(begin + kIndexRows, index.rows());
    if (!bits) {
      numbers.add(block_of(index, begin, end, ranges));
      continue;
    }
    best.offer(0, bit_scores(asked, stored_bits(index, begin, end), width));
    best.advance(end - begin);
  }
  return bits ? best.found() : numbers.found();
}

}  // namespace funicular::task
