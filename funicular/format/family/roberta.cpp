#include "funicular/format/family/roberta.h"

namespace funicular::format {

Family roberta_family() {
  Family family{.model_type = "roberta",
                .title = "RoBERTa",
                .classes = "Roberta",
                .prefix = "roberta.",
                .tokenizer = TokenizerRules::roberta,
                .names_ends = true,
                .masked_lm = {.dense = "lm_head.dense",
                              .norm = "lm_head.layer_norm",
                              .bias = "lm_head.bias",
                              .decoder_weight = "lm_head.decoder.weight",
                              .decoder_bias = "lm_head.decoder.bias",
                              .plain_gelu = true},
                .classifier = {.dense = "classifier.dense",
                               .output = "classifier.out_proj",
                               .drops_before = true,
                               .activation = "tanh"}};
  EncoderSpec& encoder = family.defaults.encoder;
  encoder.vocabulary = 50265;
  encoder.padding_id = 1;
  encoder.positions.after_padding = true;
  return family;
}

}  // namespace funicular::format
