#include "funicular/format/family/deberta.h"

#include <algorithm>
#include <string>

namespace funicular::format {

namespace {

constexpr const char *kDebertaBuckets = "position_buckets", *kDebertaFarthest = "max_relative_positions",
                     *kDebertaTypes = "type_vocab_size", *kDebertaTable = "position_biased_input";
constexpr int64_t kFewestBuckets = 4;  // of each direction: half of them are for single distances

/// Refuses a file whose value of `key` is not `expected`; a missing one is `otherwise`.
template <class T>
void require_value(const ConfigFields& fields, const char* key, T otherwise, const T& expected) {
  fields.read(key, otherwise);
  if (otherwise == expected) return;
  fields.fail("\"{}\": expected {}, found {}: other models of this family are not supported; DeBERTa-v3 is",
              key, Json(expected).dump(), Json(otherwise).dump());
}

/// The kinds of scores that distances enter, in any order: "p2c|c2p" or a list.
void require_both_scores(const ConfigFields& fields) {
  std::string kinds;
  if (fields.has("pos_att_type") && fields["pos_att_type"].is_array()) {
    for (const Json& kind : fields["pos_att_type"]) kinds += kind.dump() + "|";
  } else {
    fields.read("pos_att_type", kinds);
    kinds += "|";
  }
  std::erase_if(kinds, [](char letter) { return letter == '"' || letter == ' '; });
  if (kinds != "p2c|c2p|" && kinds != "c2p|p2c|")
    fields.fail("\"pos_att_type\": expected \"p2c\" and \"c2p\", found {}",
                fields.has("pos_att_type") ? fields["pos_att_type"].dump() : "none");
}

void refuse_other_debertas(const ConfigFields& fields, const EncoderSpec& encoder) {
  require_value(fields, "relative_attention", false, true);
  require_value(fields, "share_att_key", false, true);
  require_value(fields, "norm_rel_ebd", std::string("none"), std::string("layer_norm"));
  require_both_scores(fields);
  require_value(fields, "conv_kernel_size", int64_t{0}, int64_t{0});
  require_value(fields, "embedding_size", encoder.width, encoder.width);
  require_value(fields, "attention_head_size", encoder.head_size(), encoder.head_size());
  require_value(fields, "pooler_hidden_size", encoder.width, encoder.width);
  require_value(fields, "pooler_dropout", 0.0, 0.0);
  require_value(fields, "pooler_hidden_act", std::string("gelu"), std::string("gelu"));
  require_value(fields, "legacy", true, true);
}

void read_deberta(const ConfigFields& fields, ModelConfig& config) {
  EncoderSpec& encoder = config.encoder;
  if (encoder.heads < 1 || encoder.width % encoder.heads != 0) return;  // refused by all families
  refuse_other_debertas(fields, encoder);
  fields.read(kDebertaTypes, encoder.token_types);
  if (encoder.token_types < 0 || encoder.token_types > EncoderLimits::token_types)
    fields.wrong(kDebertaTypes, "an integer of at least 0");
  fields.read(kDebertaTable, encoder.positions.table);
  int64_t buckets = -1, farthest = -1;
  fields.read(kDebertaBuckets, buckets);
  fields.read(kDebertaFarthest, farthest);
  if (farthest < 1) farthest = encoder.positions.rows;
  if (buckets < kFewestBuckets || buckets % 2 != 0 || buckets > EncoderLimits::positions)
    fields.fail("\"{}\": expected an even number of at least {}, found {}", kDebertaBuckets, kFewestBuckets,
                buckets);
  if (farthest <= buckets / 2 + 1 || farthest > EncoderLimits::positions)
    fields.fail("\"{}\": expected at least {}, which is half of \"{}\" and 2, and at most {}, found {}",
                kDebertaFarthest, buckets / 2 + 2, kDebertaBuckets, EncoderLimits::positions, farthest);
  encoder.positions.relative = {RelativePositions::Kind::disentangled, 2 * buckets, farthest};
}

void write_deberta(const ModelConfig& config, Json& json) {
  const EncoderSpec& encoder = config.encoder;
  const RelativePositions relative = encoder.positions.relative.value_or(RelativePositions());
  json["relative_attention"] = json["share_att_key"] = true;
  json["norm_rel_ebd"] = "layer_norm";
  json["pos_att_type"] = {"p2c", "c2p"};
  json[kDebertaTypes] = encoder.token_types;
  json[kDebertaTable] = encoder.positions.table;
  json[kDebertaBuckets] = relative.buckets / 2;
  json[kDebertaFarthest] = relative.farthest;
  for (const char* const key : {"pooler_hidden_size", "embedding_size"})
    if (config.source.is_object() && config.source.contains(key)) json[key] = encoder.width;
  if (constexpr const char* kHeadSize = "attention_head_size";
      config.source.is_object() && config.source.contains(kHeadSize))
    json[kHeadSize] = encoder.head_size();
}

}  // namespace

Family deberta_v2_family() {
  Family family{.model_type = "deberta-v2",
                .title = "DeBERTa-v2",
                .classes = "DebertaV2",
                .prefix = "deberta.",
                .tokenizer = TokenizerRules::file,
                .keys = {.token_types = nullptr, .classifier_dropout = "cls_dropout"},
                .names = {.query = "attention.self.query_proj",
                          .key = "attention.self.key_proj",
                          .value = "attention.self.value_proj",
                          .relative_vectors = "encoder.rel_embeddings",
                          .relative_norm = "encoder.LayerNorm",
                          .pooler = ""},
                .classifier = {.dense = "pooler.dense", .output = "classifier", .activation = "gelu"},
                .tags_drop_hidden = true,
                .more_keys = {"relative_attention", "share_att_key", "norm_rel_ebd", "pos_att_type",
                              "conv_kernel_size", "attention_head_size", "pooler_hidden_size",
                              "pooler_dropout", "pooler_hidden_act", "legacy", kDebertaTypes, kDebertaTable,
                              kDebertaBuckets, kDebertaFarthest, "embedding_size"},
                .read_more = read_deberta,
                .write_more = write_deberta};
  EncoderSpec& encoder = family.defaults.encoder;
  encoder.vocabulary = 128100;
  encoder.width = 1536;
  encoder.layers = 24;
  encoder.heads = 24;
  encoder.feed_forward.width = 6144;
  encoder.token_types = 0;
  encoder.norm.epsilon = 1e-7;
  encoder.positions.relative = {RelativePositions::Kind::disentangled, 512, 512};
  return family;
}

}  // namespace funicular::format
