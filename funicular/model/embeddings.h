#pragma once
// The first segment of an encoder: the sum of a token's embeddings, normalised and projected to the encoder's width.

#include <cstdint>

#include "funicular/model/builder.h"

namespace funicular::model {

/// Adds the tables and the segment `embeddings`.
void add_embeddings(Builder& builder);

/// The number of weights that add_embeddings makes.
int64_t count_embedding_parameters(const format::EncoderSpec& encoder);

}  // namespace funicular::model
