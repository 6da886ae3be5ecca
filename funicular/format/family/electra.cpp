#include "funicular/format/family/electra.h"

namespace funicular::format {

Family electra_family() {
  Family family{.model_type = "electra",
                .title = "ELECTRA",
                .classes = "Electra",
                .prefix = "electra.",
                .keys = {.embedding_size = "embedding_size"},
                .names = {.pooler = ""},
                .masked_lm = {.dense = "generator_predictions.dense",
                              .norm = "generator_predictions.LayerNorm",
                              .bias = "generator_lm_head.bias",
                              .decoder_weight = "generator_lm_head.weight",
                              .decoder_bias = "generator_lm_head.bias",
                              .plain_gelu = true},
                .classifier = {.dense = "classifier.dense",
                               .output = "classifier.out_proj",
                               .drops_before = true,
                               .activation = "gelu"},
                .replaced_tokens = {.dense = "discriminator_predictions.dense",
                                    .output = "discriminator_predictions.dense_prediction"}};
  EncoderSpec& encoder = family.defaults.encoder;
  encoder.embedding_size = 128;
  encoder.width = 256;
  encoder.heads = 4;
  encoder.feed_forward.width = 1024;
  return family;
}

}  // namespace funicular::format
