#include "funicular/model/static_embedding.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/own_decoder.h"

namespace funicular::model {

namespace {

const format::TensorEntry* find_entry(const format::WeightFiles& files, const char* name) {
  const auto found = std::ranges::find_if(
      files.entries(), [&](const format::TensorEntry* entry) { return entry->name == name; });
  return found == files.entries().end() ? nullptr : *found;
}

/// The table as stored in the file.
const format::TensorEntry& table_entry(const format::WeightFiles& files) {
  const format::TensorEntry* entry = find_entry(files, kStaticTable);
  if (!entry) entry = find_entry(files, "embeddings");  // model2vec's own name
  if (!entry)
    throw InputError("weights",
                     "{}: expected the tensor {} or embeddings of static embeddings, found neither",
                     files.path().string(), kStaticTable);
  if (entry->shape.size() != 2 || entry->shape[0] < 1 || entry->shape[1] < 1 || !scalar_type(entry->dtype))
    throw InputError("weights", "{}: {} has the shape [{}]; expected a table of floating-point numbers",
                     files.path().string(), entry->name, fmt::join(entry->shape, ", "));
  return *entry;
}

at::Tensor numbers_of(const format::TensorEntry& entry) {
  return tensor_of(entry, *scalar_type(entry.dtype)).to(at::kFloat);
}

/// Row numbers, of any integer type.
at::Tensor rows_of(const format::TensorEntry& entry, const format::WeightFiles& files, int64_t limit) {
  const bool wide = entry.dtype == format::DType::I64;
  if (!wide && entry.dtype != format::DType::I32)
    throw InputError("weights", "{}: {} has the type {}; expected I32 or I64", files.path().string(),
                     entry.name, format::dtype_name(entry.dtype));
  const at::Tensor rows = tensor_of(entry, wide ? at::kLong : at::kInt).to(at::kLong);
  if (rows.numel() > 0 && (rows.min().item<int64_t>() < 0 || rows.max().item<int64_t>() >= limit))
    throw InputError("weights", "{}: {} names a row outside the table's {}", files.path().string(),
                     entry.name, limit);
  return rows;
}

}  // namespace

std::vector<int64_t> static_table_shape(const fs::path& folder) {
  const format::WeightFiles files(folder);
  std::vector<int64_t> shape = table_entry(files).shape;
  const format::TensorEntry* const mapping = find_entry(files, "mapping");
  if (mapping && mapping->shape.size() == 1) shape[0] = mapping->shape[0];
  return shape;
}

at::Tensor read_static_table(const fs::path& folder) {
  const format::WeightFiles files(folder);
  at::Tensor table = numbers_of(table_entry(files)).clone();
  if (const format::TensorEntry* const mapping = find_entry(files, "mapping"))
    table = table.index_select(0, rows_of(*mapping, files, table.size(0)));
  if (const format::TensorEntry* const weights = find_entry(files, "weights")) {
    if (!scalar_type(weights->dtype) || weights->shape != std::vector<int64_t>{table.size(0)})
      throw InputError("weights", "{}: expected a weight for each of the {} tokens", files.path().string(),
                       table.size(0));
    table = table * numbers_of(*weights).unsqueeze(1);
  }
  if (!at::isfinite(table).all().item<bool>())
    throw InputError("weights", "{}: the table holds NaN or infinite values; take another copy",
                     files.path().string());
  return table;
}

at::Tensor static_means(const at::Tensor& table, const at::Tensor& ids, const Packing& packing,
                        std::optional<int64_t> none) {
  if (packing.sequences() == 0) return table.narrow(0, 0, 0);
  if (const int64_t most = ids.max().item<int64_t>(); most >= table.size(0))
    throw InputError(
        "embed", "the tokeniser gives the id {}, and the table has {} rows; do the files belong together?",
        most, table.size(0));
  constexpr int64_t kMean = 1;
  const at::Tensor starts = packing.offsets.narrow(0, 0, packing.sequences()).to(at::kLong);
  return std::get<0>(at::embedding_bag(table, ids, starts, /*scale_grad_by_freq=*/false, kMean,
                                       /*sparse=*/false,
                                       /*per_sample_weights=*/{}, /*include_last_offset=*/false, none));
}

}  // namespace funicular::model
