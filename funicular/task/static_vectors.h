#pragma once
// Distils an encoder to static embeddings, one vector per token, without data. The recipe is model2vec's.

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "funicular/base/file.h"

namespace funicular::task {

struct StaticVectorOptions {
  fs::path from{};      ///< folder of an encoder
  int64_t width = 256;  ///< numbers of a vector: principal components
  /// `a` of the weights a / (a + p). The frequency p of a token is taken as proportional to 1 / (rank + 2), where the
  /// rank is that of its id, from 0.
  double frequency = 1e-4;
  int64_t batch_tokens = 4096;
  at::Device device = at::kCPU;
};

/// Embeds each token between special tokens, as the mean over the whole sequence. Projects the centred vectors to
/// their principal components, and weighs rare tokens more. Tokens named [unused…] have no vector. Writes a folder of
/// sentence-transformers with the modules StaticEmbedding and Normalize, which gets its name once it is complete. An
/// existing folder is replaced with all its files. Rows of special and unknown tokens are 0, so that they do not
/// affect a text's vector. Returns how many tokens have a vector. Throws InputError for a folder that cannot be read,
/// and for a width above the encoder's.
int64_t make_static_vectors(const StaticVectorOptions& options, const fs::path& output);

}  // namespace funicular::task
