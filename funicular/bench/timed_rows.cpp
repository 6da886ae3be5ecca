#include "funicular/bench/timed_rows.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::bench {

namespace {

constexpr int64_t kSmallestVocabulary = 8;

enum Purpose : uint64_t { kLength, kToken, kOrder, kReplace, kSubstitute };

/// The output function of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", OOPSLA 2014).
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

Row make_row(const RowsRule& rule, uint64_t batch, uint64_t number) {
  const uint64_t key = mix(mix(mix(rule.seed) ^ batch) ^ number);
  const auto draw = [&](Purpose purpose, int64_t i) {
    return mix(key ^ (uint64_t{purpose} << 32 | static_cast<uint64_t>(i)));
  };
  const TokenIds ids = TokenIds::of(rule.vocabulary);
  const auto token = [&](Purpose purpose, int64_t i) {
    return ids.first_ordinary +
           static_cast<int64_t>(draw(purpose, i) %
                                static_cast<uint64_t>(rule.vocabulary - ids.first_ordinary));
  };
  const auto span = static_cast<uint64_t>(rule.longest - rule.shortest + 1);
  const int64_t length =
      rule.ragged ? rule.shortest + static_cast<int64_t>(draw(kLength, 0) % span) : rule.longest;
  Row row;
  row.token_ids.push_back(ids.cls);
  for (int64_t i = 1; i + 1 < length; ++i) row.token_ids.push_back(token(kToken, i));
  row.token_ids.push_back(ids.sep);
  std::vector<int64_t> order(static_cast<size_t>(length - 2));
  std::iota(order.begin(), order.end(), 1);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return draw(kOrder, a) < draw(kOrder, b); });
  order.resize(static_cast<size_t>((3 * (length - 2) + 10) / 20));
  std::sort(order.begin(), order.end());
  for (const int64_t i : order) {
    int64_t& seen = row.token_ids[static_cast<size_t>(i)];
    row.masked_positions.push_back(i);
    row.labels.push_back(seen);
    const uint64_t choice = draw(kReplace, i) % 10;
    if (choice < 9) seen = choice < 8 ? ids.mask : token(kSubstitute, i);
  }
  return row;
}

}  // namespace

Rows make_rows(const RowsRule& rule, uint64_t batch) {
  if (rule.longest < rule.shortest || rule.vocabulary < kSmallestVocabulary || rule.batch_size < 1)
    throw InputError(
        "bench",
        "expected rows of at least {} tokens, a vocabulary of at least {} and a batch of at least "
        "1; found {}, {} and {}",
        rule.shortest, kSmallestVocabulary, rule.longest, rule.vocabulary, rule.batch_size);
  Rows rows;
  for (int64_t r = 0; r < rule.batch_size; ++r)
    rows.push_back(make_row(rule, batch, static_cast<uint64_t>(r)));
  return rows;
}

std::vector<Rows> read_batches(const std::filesystem::path& file) {
  const std::string name = file.string();
  const Json json = read_json(file);
  std::vector<Rows> batches;
  for (const Json& batch : json_get<std::vector<Json>>(json, "batches", name)) {
    Rows rows;
    for (const Json& from : batch) {
      Row row{json_get<std::vector<int64_t>>(from, "token_ids", name),
              json_get<std::vector<int64_t>>(from, "masked_positions", name),
              json_get<std::vector<int64_t>>(from, "labels", name)};
      const auto length = static_cast<int64_t>(row.token_ids.size());
      const auto& masked = row.masked_positions;
      const bool ascend =
          std::adjacent_find(masked.begin(), masked.end(), std::greater_equal<>()) == masked.end();
      if (length == 0 || row.labels.size() != masked.size() || !ascend ||
          (!masked.empty() && (masked.front() < 0 || masked.back() >= length)))
        throw InputError(
            "bench",
            "{}: row {} of batch {}: expected tokens, masked positions in ascending order, and a "
            "label for each",
            name, rows.size(), batches.size());
      rows.push_back(std::move(row));
    }
    if (rows.empty()) throw InputError("bench", "{}: batch {} has no rows", name, batches.size());
    batches.push_back(std::move(rows));
  }
  if (batches.empty()) throw InputError("bench", "{}: expected at least one batch", name);
  return batches;
}

MicroBatch pack_rows(std::span<const Row> rows, int64_t first_draw, const RandomState& random) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> tokens, masked, labels, ids, draws;
  for (const Row& row : rows) {
    const auto begin = static_cast<int64_t>(tokens.size());
    ids.push_back(static_cast<int64_t>(ids.size()));
    draws.push_back(first_draw + static_cast<int64_t>(draws.size()));
    lengths.push_back(static_cast<int32_t>(row.token_ids.size()));
    tokens.insert(tokens.end(), row.token_ids.begin(), row.token_ids.end());
    for (const int64_t position : row.masked_positions) masked.push_back(begin + position);
    labels.insert(labels.end(), row.labels.begin(), row.labels.end());
  }
  MicroBatch result;
  result.packing = Packing::from_lengths(lengths, ids, draws, random);
  result.tensors["token_ids"] = at::tensor(tokens, at::kLong);
  result.tensors["token_type_ids"] = at::zeros({static_cast<int64_t>(tokens.size())}, at::kLong);
  result.tensors["mlm_rows"] = at::tensor(masked, at::kLong);
  result.tensors["mlm_labels"] = at::tensor(labels, at::kLong);
  result.counts["mlm"] = static_cast<double>(labels.size());
  result.counts["samples"] = static_cast<double>(rows.size());
  return result;
}

}  // namespace funicular::bench
