#include "funicular/model/student.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/column_list.h"
#include "funicular/format/family.h"
#include "funicular/model/builder.h"
#include "funicular/model/weights.h"

namespace funicular::model {

namespace {

struct Sizes {
  const char* name;
  int64_t layers, hidden, inner, heads;
};
constexpr Sizes kStudents[] = {
    {"tinybert4", 4, 312, 1200, 12}, {"tinybert6", 6, 768, 3072, 12}, {"minilm6", 6, 384, 1536, 12}};

/// The first layer of the student that has the weights of distinct layer `number`.
size_t first_layer_of(const format::EncoderSpec& encoder, int64_t number) {
  int64_t layer = 0;
  while (encoder.weights_of(layer) < number) ++layer;
  return static_cast<size_t>(layer);
}

/// Maps a student's weight to the teacher's weight by its neutral name: "bert.encoder.layer.1.output.dense.weight"
/// becomes the one of layer layers[1] - 1. A group of layers with shared weights starts with the weights for its
/// first layer.
std::string name_in_teacher(const std::string& weight, const format::EncoderSpec& student,
                            const format::EncoderSpec& teacher, const std::vector<int64_t>& layers) {
  const std::string name = format::neutral_name(weight);
  const std::string_view prefix = format::kNeutralLayers;
  if (!name.starts_with(prefix)) return name;
  int64_t number = 0;
  const auto parsed = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
  const int64_t theirs = layers.at(first_layer_of(student, number)) - 1;
  return std::string(prefix) + std::to_string(teacher.weights_of(theirs)) +
         std::string(parsed.ptr, name.data() + name.size());
}

/// "3-layers" → 3; 0 for other names.
int64_t layers_named(const std::string& name) {
  int64_t layers = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), layers);
  const std::string rest(parsed.ptr, name.data() + name.size());
  return parsed.ec == std::errc() && (rest == "-layers" || rest == "-layer") && layers > 0 ? layers : 0;
}

/// Describes the attention of one layer for a message.
std::string attention_text(const format::LayerAttention& attention) {
  const std::string seen = attention.window
                               ? fmt::format("a token sees {} tokens on either side", *attention.window)
                               : std::string("a token sees all tokens");
  return attention.rotary_base == 0 ? seen : fmt::format("{} (rotary base {})", seen, attention.rotary_base);
}

/// Describes how the distance of two tokens enters attention, for a message.
std::string distances_text(const format::ModelConfig& config) {
  const std::optional<format::RelativePositions>& relative = config.encoder.positions.relative;
  if (!relative) return "no distances between tokens";
  return fmt::format("distances in {} buckets up to {} tokens (as in a {})", relative->buckets,
                     relative->farthest, format::family_of(config).title);
}

}  // namespace

const std::vector<std::string>& student_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Sizes& sizes : kStudents) all.emplace_back(sizes.name);
    return all;
  }();
  return names;
}

format::ModelConfig student_config(const std::string& name, const format::ModelConfig& teacher) {
  format::ModelConfig config = teacher;
  if (const int64_t layers = layers_named(name); layers > 0) {
    config.encoder.set_layers(layers);
    return config;
  }
  for (const Sizes& sizes : kStudents) {
    if (name != sizes.name) continue;
    config.encoder.set_layers(sizes.layers);
    config.encoder.width = sizes.hidden;
    config.encoder.feed_forward.width = sizes.inner;
    config.encoder.heads = sizes.heads;
    return config;
  }
  const auto& names = student_names();
  const std::string near = nearest(name, names.data(), names.data() + names.size());
  throw InputError("model",
                   "--student {}: neither a folder, nor a config.json, nor one of {}, nor such as 3-layers{}",
                   name, fmt::join(names, ", "), near.empty() ? "" : "; did you mean " + near + "?");
}

std::vector<int64_t> parse_init_layers(const std::string& text, int64_t student_layers,
                                       int64_t teacher_layers) {
  std::vector<int64_t> layers;
  if (text == "even") {
    if (student_layers > teacher_layers)
      throw InputError("model",
                       "--init-layers even: the student has {} layers and the teacher {}; expected no more",
                       student_layers, teacher_layers);
    for (int64_t layer = 1; layer <= student_layers; ++layer)
      layers.push_back(layer * teacher_layers / student_layers);
    return layers;
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(',')), number = format::without_blanks(part);
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    int64_t layer = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), layer);
    if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size() || layer < 1 ||
        layer > teacher_layers)
      throw InputError("model",
                       "--init-layers {}: expected even, or layers of the teacher from 1 to {}, found \"{}\"",
                       text, teacher_layers, number);
    layers.push_back(layer);
  }
  if (static_cast<int64_t>(layers.size()) != student_layers)
    throw InputError("model", "--init-layers {}: names {} layers; expected {}, one for each of the student's",
                     text, layers.size(), student_layers);
  return layers;
}

void check_init_sizes(const format::ModelConfig& config, const format::ModelConfig& theirs) {
  struct Size {
    const char* name;
    int64_t student, teacher;
  };
  const format::ConfigKeys& keys = format::family_of(config).keys;
  const format::EncoderSpec &own = config.encoder, &other = theirs.encoder;
  const bool biased =
      own.positions.relative &&
      own.positions.relative->kind == format::RelativePositions::Kind::bias;  // a number per head
  for (const Size& size : {Size{keys.width, own.width, other.width},
                           Size{keys.heads, biased ? own.heads : 0, biased ? other.heads : 0},
                           Size{keys.embedding_size ? keys.embedding_size : keys.width, own.embedding_width(),
                                other.embedding_width()},
                           Size{keys.feed_forward, own.feed_forward.width, other.feed_forward.width},
                           Size{"vocab_size", own.vocabulary, other.vocabulary},
                           Size{keys.positions, own.positions.rows, other.positions.rows},
                           Size{token_types_key(config), own.token_types, other.token_types}})
    if (size.student != size.teacher && size.student > 0)  // a student without token types leaves them out
      throw InputError(
          "model",
          "--init-layers: the student has the {} {} and the teacher {}, so the teacher's layers do not fit. "
          "Leave it out (random weights), or take a student of the teacher's sizes",
          size.name, size.student, size.teacher);
}

void take_layer_attention(format::ModelConfig& student, const format::ModelConfig& teacher,
                          const std::vector<int64_t>& layers) {
  if (teacher.encoder.attention.empty()) return;
  student.encoder.attention.clear();
  for (const int64_t layer : layers)
    student.encoder.attention.push_back(teacher.encoder.attention_of(layer - 1));
}

void check_init_layers(const format::ModelConfig& student, const format::ModelConfig& teacher,
                       const std::vector<int64_t>& layers) {
  if (student.encoder.positions.relative != teacher.encoder.positions.relative)
    throw InputError(
        "model",
        "--init-layers: {} in the student, and {} in the teacher; expected equal distances. Change "
        "the student's config.json",
        distances_text(student), distances_text(teacher));
  for (int64_t layer = 1; layer <= student.encoder.layers; ++layer) {
    const int64_t theirs = layers.at(static_cast<size_t>(layer - 1));
    const format::LayerAttention own = student.encoder.attention_of(layer - 1),
                                 other = teacher.encoder.attention_of(theirs - 1);
    if (own != other)
      throw InputError(
          "model",
          "--init-layers: {} in the student's layer {}, and {} in the teacher's layer {}; expected "
          "equal attention. Choose other layers, or change the student's config.json",
          attention_text(own), layer, attention_text(other), theirs);
    if (teacher.encoder.norm.first && layer > 1 && theirs == 1)
      throw InputError(
          "model",
          "--init-layers: the teacher's layer 1 has no norm before attention, which the student's "
          "layer {} needs; expected a layer from 2 on",
          layer);
  }
  if (teacher.encoder.norm.first && !layers.empty() && layers.front() != 1)
    log::warning(
        "--init-layers: the student's layer 1 has no norm before attention; the norm of the teacher's layer "
        "{} is "
        "left out",
        layers.front());
}

void prepare_init_layers(format::ModelConfig& student, const format::ModelConfig& teacher,
                         const std::vector<int64_t>& layers, bool own_config) {
  check_init_sizes(student, teacher);
  if (!own_config) take_layer_attention(student, teacher, layers);
  check_init_layers(student, teacher, layers);
}

void load_layers(Model& student, const format::ModelConfig& config, const Pretrained& teacher,
                 const std::vector<int64_t>& layers) {
  check_init_sizes(config, teacher.config());
  load_pretrained(student, teacher.path(), classes_layer(config), [&](const std::string& name) {
    return name_in_teacher(name, config.encoder, teacher.config().encoder, layers);
  });
}

}  // namespace funicular::model
