#include "funicular/format/family/distilbert.h"

namespace funicular::format {

Family distilbert_family() {
  Family family{.model_type = "distilbert",
                .title = "DistilBERT",
                .classes = "DistilBert",
                .prefix = "distilbert.",
                .keys = {.width = "dim",
                         .layers = "n_layers",
                         .heads = "n_heads",
                         .feed_forward = "hidden_dim",
                         .position_waves = "sinusoidal_pos_embds",
                         .token_types = nullptr,
                         .norm_epsilon = nullptr,
                         .hidden_dropout = "dropout",
                         .attention_dropout = "attention_dropout",
                         .classifier_dropout = "seq_classif_dropout",
                         .activation = "activation"},
                .names = {.layers = "transformer.layer.",
                          .query = "attention.q_lin",
                          .key = "attention.k_lin",
                          .value = "attention.v_lin",
                          .query_key_value = "attention.qkv_lin",
                          .attention_output = "attention.out_lin",
                          .attention_norm = "sa_layer_norm",
                          .up = "ffn.lin1",
                          .down = "ffn.lin2",
                          .output_norm = "output_layer_norm",
                          .pooler = ""},
                .masked_lm = {.dense = "vocab_transform",
                              .norm = "vocab_layer_norm",
                              .bias = "vocab_projector.bias",
                              .decoder_weight = "vocab_projector.weight",
                              .decoder_bias = "vocab_projector.bias"},
                .classifier = {.dense = "pre_classifier", .output = "classifier", .activation = "relu"},
                .tags_drop_hidden = true};
  EncoderSpec& encoder = family.defaults.encoder;
  encoder.layers = 6;
  encoder.token_types = 0;
  encoder.dropouts.attention_output = 0;
  family.defaults.classifier_dropout = 0.2;
  return family;
}

}  // namespace funicular::format
