#include "funicular/model/roberta.h"

namespace funicular::model {

Family roberta_family() {
  return {.model_type = "roberta",
          .title = "RoBERTa",
          .prefix = "roberta.",
          .classes = "Roberta",
          .masked_lm = {.dense = "lm_head.dense",
                        .norm = "lm_head.layer_norm",
                        .bias = "lm_head.bias",
                        .decoder_weight = "lm_head.decoder.weight",
                        .decoder_bias = "lm_head.decoder.bias",
                        .plain_gelu = true},
          .classifier = {.dense = "classifier.dense",
                         .output = "classifier.out_proj",
                         .drops_before = true,
                         .activation = nn::Activation::tanh},
          .skips_padding = true};
}

}  // namespace funicular::model
