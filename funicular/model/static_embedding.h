#pragma once
// Static embeddings: a table with a vector for each token, whose mean is the text's vector. The module
// StaticEmbedding of sentence-transformers; the models of model2vec.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/batch.h"

namespace funicular::model {

/// The table's name in the file, and in a model.
inline constexpr const char* kStaticTable = "embedding.weight";

/// Rows and numbers per row of the table that read_static_table gives. Reads no weights.
std::vector<int64_t> static_table_shape(const fs::path& folder);
/// The table [tokens, D] in fp32. A table of model2vec that shares rows or weights them is unfolded, so that each token
/// has its row. Throws InputError for another file.
at::Tensor read_static_table(const fs::path& folder);

/// The mean of the rows of each sequence's tokens. table [V, D], ids [T] int64 → [S, D]. The token `none` is left
/// out, and 0 is the mean of no token. Throws InputError for an id outside the table.
at::Tensor static_means(const at::Tensor& table, const at::Tensor& ids, const Packing& packing,
                        std::optional<int64_t> none = {});

}  // namespace funicular::model
