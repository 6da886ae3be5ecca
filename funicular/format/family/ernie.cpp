#include "funicular/format/family/ernie.h"

#include "funicular/format/family/bert.h"

namespace funicular::format {

namespace {

constexpr int64_t kTaskTypes = 3;

void read_ernie(const ConfigFields& fields, ModelConfig& config) {
  bool used = false;
  int64_t rows = kTaskTypes;
  fields.read("use_task_id", used);
  fields.read("task_type_vocab_size", rows);
  if (rows < 1 || rows > EncoderLimits::token_types)
    fields.wrong("task_type_vocab_size", fmt::format("an integer from 1 to {}", EncoderLimits::token_types));
  config.encoder.task_types = used ? rows : 0;
}

void write_ernie(const ModelConfig& config, Json& json) {
  json["use_task_id"] = config.encoder.task_types > 0;
  if (config.encoder.task_types > 0) json["task_type_vocab_size"] = config.encoder.task_types;
}

}  // namespace

Family ernie_family() {
  Family family = bert_family();
  family.model_type = "ernie";
  family.title = "ERNIE";
  family.classes = "Ernie";
  family.prefix = "ernie.";
  family.more_keys = {"use_task_id", "task_type_vocab_size"};
  family.read_more = read_ernie;
  family.write_more = write_ernie;
  return family;
}

}  // namespace funicular::format
