#pragma once
// Static embeddings: a table with one vector per token; a text's vector is the mean over its tokens. This is the
// module StaticEmbedding of sentence-transformers, and model2vec's models.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/batch.h"

namespace funicular::model {

/// The table's name in the file, and in a model.
inline constexpr const char* kStaticTable = "embedding.weight";

/// Rows and columns of the table that read_static_table returns. Reads no weights.
std::vector<int64_t> static_table_shape(const fs::path& folder);
/// The table [tokens, D] in fp32. Expands a model2vec table with shared or weighted rows, so that each token has its
/// own row. Throws InputError for another file.
at::Tensor read_static_table(const fs::path& folder);

/// The mean of the rows of each sequence's tokens. table [V, D], ids [T] int64 → [S, D]. The token `none` is left
/// out; the mean over no tokens is 0. Throws InputError for an id outside the table.
at::Tensor static_means(const at::Tensor& table, const at::Tensor& ids, const Packing& packing,
                        std::optional<int64_t> none = {});

}  // namespace funicular::model
