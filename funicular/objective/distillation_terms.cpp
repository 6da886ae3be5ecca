#include "funicular/objective/distillation_terms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <charconv>

#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/core/padded_batch.h"
#include "funicular/format/column_list.h"
#include "funicular/model/builder.h"
#include "funicular/nn/distances.h"
#include "funicular/objective/distillation.h"
#include "funicular/objective/distilled_answers.h"

namespace funicular::objective {

namespace {

using Kind = DistillationKind;

std::string teachers(const std::string& activation) {
  return kTeacher + activation;
}

// ---- layers

int64_t parse_layer(std::string_view text, const std::string& map, const char* whose, int64_t least,
                    int64_t layers) {
  int64_t number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < least ||
      number > layers)
    throw InputError(
        "distillation",
        "the layer map \"{}\" names the {} layer \"{}\"; expected {}; pairs STUDENT:TEACHER with commas "
        "between them, both ascending, or uniform or last",
        map, whose, text,
        least > layers ? fmt::format("none after layer {}, the last", layers)
                       : fmt::format("{} to {}", least, layers));
  return number;
}

LayerMap parse_pairs(const std::string& text, int64_t student_layers, int64_t teacher_layers) {
  LayerMap map;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const size_t colon = std::min(pair.find(':'), pair.size());
    const LayerPair before = map.empty() ? LayerPair{0, 0} : map.back();
    const std::string_view student = format::without_blanks(pair.substr(0, colon)),
                           teacher = format::without_blanks(pair.substr(std::min(pair.size(), colon + 1)));
    map.push_back({parse_layer(student, text, "student's", before.student + 1, student_layers),
                   parse_layer(teacher, text, "teacher's", before.teacher + 1, teacher_layers)});
  }
  return map;
}

/// The outputs of a model's layers that the terms on layers read.
model::LayerOutputs outputs(const DistillationOptions& o, int64_t LayerPair::*side, int64_t last,
                            int64_t relations) {
  model::LayerOutputs gives;
  if (o.has(Kind::hidden)) gives.hidden.insert(0);
  for (const LayerPair& pair : o.layers) {
    const bool patient = o.has(Kind::patient) && pair.student < o.student.encoder.layers;
    if (o.has(Kind::hidden) || patient) gives.hidden.insert(pair.*side);
    if (o.has(Kind::attention)) gives.query_key_value.insert(pair.*side);
  }
  if (o.has(Kind::cosine)) gives.hidden.insert(last);
  if (o.has(Kind::relations)) gives.query_key_value.insert(relations);
  return gives;
}

// ---- segments

/// The terms of one layer of the student.
struct LayerTerms {
  std::string student_hidden, teacher_hidden;        ///< empty: not read
  std::string student_relations, teacher_relations;  ///< ports query_key_value
  double attention = 0, hidden = 0, patient = 0, relations = 0, cosine = 0;
  int64_t heads = 1, relation_heads = 1;
  model::LinearWeights projection;

  void add(const Activations& in, const Pass& pass) const;
};

at::Tensor first_rows(const at::Tensor& hidden, const MicroBatch& batch) {
  return hidden.index_select(0, model::rows_on_device(model::first_tokens(batch), batch));
}

/// kAddedTokens or kAddedSequences; undefined without padding.
at::Tensor added_rows(const MicroBatch& batch, const char* name) {
  const auto found = batch.tensors.find(name);
  return found == batch.tensors.end() ? at::Tensor() : found->second;
}

/// Zeros the added rows, so that they add nothing to a distance and get no gradient.
at::Tensor without_added(const at::Tensor& rows, const at::Tensor& added) {
  return added.defined() ? rows.masked_fill(added, 0) : rows;
}

/// Normalises rows to length 1, in a type that is wide enough for sums.
at::Tensor normalised(const at::Tensor& rows, at::ScalarType type) {
  const at::Tensor wide = rows.to(type);
  return wide / wide.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12);
}

void LayerTerms::add(const Activations& in, const Pass& pass) const {
  const Packing& packing = pass.batch.packing;
  const at::Tensor added = added_rows(pass.batch, kAddedTokens);
  const auto read = [&](const std::string& port) { return without_added(in.at(port), added); };
  if (attention > 0)
    pass.loss.add(
        "attention",
        nn::score_distance(read(student_relations), read(teacher_relations), packing, heads, added.defined()),
        attention);
  if (relations > 0)
    pass.loss.add("relations",
                  nn::relation_divergence(read(student_relations), read(teacher_relations), packing,
                                          relation_heads, added.defined()),
                  relations);
  if (student_hidden.empty()) return;
  const at::Tensor theirs = read(teacher_hidden);
  if (hidden > 0) {
    const at::Tensor projected = model::apply_linear(in.at(student_hidden), projection, nn::Activation::none);
    pass.loss.add("hidden", nn::squared_distance(without_added(projected, added), theirs), hidden);
  }
  if (patient == 0 && cosine == 0) return;
  const at::Tensor own = read(student_hidden);
  const at::ScalarType wide = own.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (patient > 0) {
    const at::Tensor a = normalised(first_rows(own, pass.batch), wide),
                     b = normalised(first_rows(theirs, pass.batch), wide);
    pass.loss.add("patient", (a - b).square().sum(), patient);
  }
  if (cosine > 0) {
    const at::Tensor similarity = (normalised(own, wide) * normalised(theirs, wide)).sum();
    pass.loss.add("cosine",
                  added.defined() ? added.logical_not().sum() - similarity
                                  : static_cast<double>(packing.tokens()) - similarity,
                  cosine);
  }
}

/// The ports that the terms read, if `layer` of the student learns from `teacher`.
LayerTerms with_ports(LayerTerms terms, int64_t layer, int64_t teacher) {
  if (terms.hidden > 0 || terms.patient > 0 || terms.cosine > 0) {
    terms.student_hidden = model::hidden_port(layer);
    terms.teacher_hidden = teachers(model::hidden_port(teacher));
  }
  if (terms.attention > 0 || terms.relations > 0) {
    terms.student_relations = model::query_key_value_port(layer);
    terms.teacher_relations = teachers(model::query_key_value_port(teacher));
  }
  return terms;
}

/// The map's terms: of the student's layer `pair.student`, 0 for the embeddings.
LayerTerms mapped_terms(const Model& model, const DistillationOptions& o, const LayerPair& pair) {
  LayerTerms terms;
  terms.hidden = o.weight(Kind::hidden);
  if (pair.student > 0) terms.attention = o.weight(Kind::attention);
  if (pair.student > 0 && pair.student < o.student.encoder.layers) terms.patient = o.weight(Kind::patient);
  terms.heads = o.student.encoder.heads;
  if (terms.hidden > 0) {
    const std::string name = std::string(kDistillation) + "projection";
    terms.projection = {model.find(name + ".weight"), model.find(name + ".bias")};
  }
  return with_ports(terms, pair.student, pair.teacher);
}

/// Adds a segment behind the student's layer, unless it would have no terms.
void add_layer_segment(Model& model, int64_t layer, const std::string& name, const LayerTerms& terms) {
  Segment segment;
  segment.name = kDistillation + name;
  for (const std::string& port :
       {terms.student_hidden, terms.teacher_hidden, terms.student_relations, terms.teacher_relations})
    if (!port.empty()) segment.inputs.push_back({port});
  if (segment.inputs.empty()) return;
  if (terms.hidden > 0) segment.parameters = {terms.projection.weight, terms.projection.bias};
  segment.forward = [terms](Activations in, const Pass& pass) {
    terms.add(in, pass);
    return Activations{};
  };
  const std::string before = layer == 0 ? "embeddings" : "layer." + std::to_string(layer - 1);
  const auto found = std::find_if(model.segments.begin(), model.segments.end(),
                                  [&](const Segment& one) { return one.name == before; });
  if (found == model.segments.end())
    throw InputError("distillation", "the student has no segment {}", before);
  model.segments.insert(found + 1, std::move(segment));
}

void add_last_layer_segment(Model& model, const DistillationOptions& o) {
  const int64_t last = o.student.encoder.layers;
  LayerTerms cosine, relations;
  cosine.cosine = o.weight(Kind::cosine);
  relations.relations = o.weight(Kind::relations);
  relations.relation_heads = o.relation_heads;
  add_layer_segment(model, last, "cosine", with_ports(cosine, last, o.teacher.encoder.layers));
  add_layer_segment(model, last, "relations", with_ports(relations, last, o.teacher_relation_layer()));
}

void add_logits_segment(Model& model, const DistillationOptions& o) {
  const double soft = o.weight(Kind::soft), hard = o.weight(Kind::hard), squares = o.weight(Kind::logits),
               temperature = o.temperature;
  const DistilledAnswers answers = distilled_answers(o.student);
  Segment segment;
  segment.name = std::string(kDistillation) + "logits";
  segment.inputs.push_back({model::kLogits});
  if (soft > 0 || squares > 0) segment.inputs.push_back({teachers(model::kLogits)});
  segment.forward = [=](Activations in, const Pass& pass) {
    const at::Tensor& logits = in.at(model::kLogits);
    const at::Tensor added = added_rows(pass.batch, kAddedSequences);
    if (soft > 0)
      pass.loss.add("soft", answers.soft(logits, in.at(teachers(model::kLogits)), temperature, added), soft);
    if (squares > 0) {
      const at::Tensor theirs = in.at(teachers(model::kLogits)).to(logits.scalar_type());
      pass.loss.add("logits", without_added(logits - theirs, added).square().sum(), squares);
    }
    const at::Tensor& labels = pass.batch["labels"];
    if (hard > 0) pass.loss.add("hard", answers.hard(logits, labels), hard);
    pass.loss.output("labels", labels);
    return Activations{};
  };
  model.segments.push_back(std::move(segment));
}

}  // namespace

bool can_compare(const format::EncoderSpec& encoder, Kind kind) {
  const bool turns =
      std::any_of(encoder.attention.begin(), encoder.attention.end(),
                  [](const format::LayerAttention& layer) { return layer.window || layer.rotary_base > 0; });
  if (kind == Kind::attention) return !turns && !encoder.positions.relative;
  return kind != Kind::relations || !turns;
}

const std::vector<std::string>& distillation_names() {
  static const std::vector<std::string> names{"attention",  "hidden",    "soft",   "hard",
                                              "patient",    "relations", "cosine", "tokens",
                                              "all-tokens", "mlm",       "logits"};
  return names;
}

std::vector<DistillationTerm> parse_distillation_terms(const std::vector<std::string>& texts) {
  const auto& names = distillation_names();
  std::vector<DistillationTerm> terms;
  for (const std::string& text : texts) {
    const size_t equals = std::min(text.find('='), text.size());
    const std::string name = text.substr(0, equals);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      if (text.find(',') != text.npos)
        throw InputError("distillation",
                         "unknown term \"{}\"; expected blanks between terms, such as attention=2 hidden",
                         text);
      const std::string near = nearest(name, names.data(), names.data() + names.size());
      throw InputError("distillation", "unknown term \"{}\"{}; known are {}", name,
                       near.empty() ? "" : ", did you mean " + near + "?", fmt::join(names, ", "));
    }
    DistillationTerm term{static_cast<Kind>(found - names.begin())};
    if (equals < text.size()) {
      const std::string_view written = std::string_view(text).substr(equals + 1);
      term.weight = read_number(written).value_or(0);
      if (!(term.weight > 0) || term.weight > 1e9)
        throw InputError(
            "distillation",
            "the term {} has the weight \"{}\"; expected a number above 0 (a term that is not wanted "
            "is left out)",
            name, written);
    }
    for (const DistillationTerm& other : terms)
      if (other.kind == term.kind) throw InputError("distillation", "the term {} is given twice", name);
    terms.push_back(term);
  }
  return terms;
}

std::string describe(const std::vector<DistillationTerm>& terms) {
  std::vector<std::string> texts;
  for (const DistillationTerm& term : terms)
    texts.push_back(fmt::format("{} {}", distillation_names()[static_cast<size_t>(term.kind)], term.weight));
  return fmt::format("{}", fmt::join(texts, ", "));
}

LayerMap make_layer_map(const std::string& text, int64_t student_layers, int64_t teacher_layers) {
  if (text != "uniform" && text != "last") return parse_pairs(text, student_layers, teacher_layers);
  if (student_layers > teacher_layers)
    throw InputError(
        "distillation",
        "the student has {} layers and the teacher {}; expected no more than the teacher's, or a map "
        "of some of them, such as 1:1,2:2",
        student_layers, teacher_layers);
  const bool uniform = text == "uniform";
  if (uniform && teacher_layers % student_layers != 0)
    throw InputError(
        "distillation",
        "the map uniform takes every N-th layer of the teacher: {} layers cannot be divided among {}; "
        "expected the map last, or pairs STUDENT:TEACHER such as 1:{},{}:{}",
        teacher_layers, student_layers, std::max<int64_t>(1, teacher_layers / student_layers), student_layers,
        teacher_layers);
  LayerMap map;
  for (int64_t layer = 1; layer <= student_layers; ++layer)
    map.push_back({layer, uniform ? layer * (teacher_layers / student_layers)
                                  : teacher_layers - student_layers + layer});
  return map;
}

std::string describe(const LayerMap& map) {
  std::vector<std::string> pairs;
  for (const LayerPair& pair : map) pairs.push_back(fmt::format("{}:{}", pair.student, pair.teacher));
  return fmt::format("{}", fmt::join(pairs, ","));
}

model::LayerOutputs student_outputs(const DistillationOptions& o) {
  return outputs(o, &LayerPair::student, o.student.encoder.layers, o.student.encoder.layers);
}

model::LayerOutputs teacher_outputs(const DistillationOptions& o) {
  return outputs(o, &LayerPair::teacher, o.teacher.encoder.layers, o.teacher_relation_layer());
}

void add_distillation_segments(Model& model, const DistillationOptions& options) {
  LayerMap all = options.layers;
  all.insert(all.begin(), LayerPair{});
  for (const LayerPair& pair : all)
    add_layer_segment(model, pair.student, std::to_string(pair.student), mapped_terms(model, options, pair));
  add_last_layer_segment(model, options);
  if (options.reads_logits()) add_logits_segment(model, options);
}

void add_distillation_counts(MicroBatch& batch, const DistillationOptions& o) {
  const auto sequences = static_cast<double>(batch.packing.sequences()),
             tokens = static_cast<double>(batch.packing.tokens());
  double pairs = 0;
  const std::vector<int32_t>& offsets = batch.packing.host_offsets;
  for (size_t s = 1; s < offsets.size(); ++s) {
    const double length = offsets[s] - offsets[s - 1];
    pairs += length * length;
  }
  const auto mapped =
      static_cast<double>(std::count_if(o.layers.begin(), o.layers.end(), [&](const LayerPair& pair) {
        return pair.student < o.student.encoder.layers;
      }));
  const double classes = o.reads_logits() ? distilled_answers(o.student).classes(o.student) : 1;
  const std::map<Kind, double> counts = {
      {Kind::attention, pairs * static_cast<double>(o.student.encoder.heads)},
      {Kind::hidden, tokens * static_cast<double>(o.teacher.encoder.width)},
      {Kind::soft, o.mean_over_classes ? sequences * classes : sequences},
      {Kind::logits, sequences * classes},
      {Kind::hard, sequences},
      {Kind::patient, sequences * mapped * static_cast<double>(o.student.encoder.width)},
      {Kind::relations, tokens * static_cast<double>(o.relation_heads)},
      {Kind::cosine, tokens},
      {Kind::all_tokens, tokens}};
  for (const DistillationTerm& term : o.terms) {
    const std::string& name = distillation_names()[static_cast<size_t>(term.kind)];
    if (const auto count = counts.find(term.kind); count != counts.end()) batch.counts[name] = count->second;
    if (term.kind == Kind::tokens) batch.counts[name] = batch.counts.at("mlm");
  }
}

}  // namespace funicular::objective
