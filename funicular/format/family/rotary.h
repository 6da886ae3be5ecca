#pragma once
// The rotary positions (Su et al., "RoFormer", 2021) of nomic-bert and GTE, and the names of their weights in
// transformers 5.

#include <string>
#include <vector>

#include "funicular/format/family.h"

namespace funicular::format {

/// Ends the messages that refuse scaled rotations.
inline constexpr const char* kNoScaledRotations =
    "scaled rotary positions are not supported; take a model without them. The type \"dynamic\" only "
    "changes texts that are longer than the original length: for shorter ones, remove it from the "
    "config.json of a copy";

/// The keys that read_rotary() reads.
std::vector<std::string> rotary_keys();

/// Reads the base of the rotations for every layer: "rope_theta", in "rope_parameters" or beside it. If the file lacks
/// it, the base of the first layer of `encoder` holds. Throws InputError for scaled rotations, and for heads of another
/// size than hidden_size / num_attention_heads.
void read_rotary(const ConfigFields& fields, EncoderSpec& encoder);

/// Writes "rope_parameters", and "head_dim" if the source has it.
void write_rotary(const ModelConfig& config, Json& json);

/// The attention of every layer of `encoder`: a token sees all tokens, and queries and keys are turned.
std::vector<LayerAttention> rotary_layers(const EncoderSpec& encoder, double base);

WeightNames rotary_names();

}  // namespace funicular::format
