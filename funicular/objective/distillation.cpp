#include "funicular/objective/distillation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/data/datasets.h"
#include "funicular/format/family.h"
#include "funicular/model/builder.h"
#include "funicular/model/relative.h"
#include "funicular/objective/distilled_answers.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

namespace {

using Kind = DistillationKind;

// ---- heads

/// The tokens whose word logits a model outputs.
enum class Gives { none, hidden_words, all };

Gives given_words(const DistillationOptions& o) {
  return o.has(Kind::all_tokens) ? Gives::all : o.has(Kind::tokens) ? Gives::hidden_words : Gives::none;
}

/// Adds the head of masked tokens. Unless `gives` is none, it outputs the activation kLogits [tokens, V] besides the
/// loss. Gives::all needs the hidden states of all tokens as input.
void add_hidden_words(model::Builder& builder, double mlm, Gives gives) {
  const model::MaskedLmWeights weights = model::add_masked_lm_weights(builder);
  const bool all = gives == Gives::all;
  std::vector<Port> outputs;
  if (gives != Gives::none)
    outputs.push_back(
        {model::kLogits,
         [=, words = builder.config().encoder.vocabulary](const MicroBatch& batch) {
           return std::vector<int64_t>{all ? batch.packing.tokens() : batch["mlm_rows"].size(0), words};
         },
         builder.options().dtype});  // as the bias
  builder.add_segment(
      "masked_lm", {model::hidden_of_head(builder.options())}, std::move(outputs),
      [=](Activations in, const Pass& pass) {
        const at::Tensor hidden = model::masked_lm_hidden(in.at(model::kHidden), weights);
        if (mlm > 0) {
          const at::Tensor rows =
              all ? hidden.index_select(0, pass.batch["mlm_rows"].to(hidden.device())) : hidden;
          pass.loss.add("mlm", model::masked_lm_loss(rows, weights, pass.batch["mlm_labels"]), mlm);
        }
        if (gives == Gives::none) return Activations{};
        return Activations{{model::kLogits, model::masked_lm_logits(hidden, weights)}};
      },
      {weights.decoder});
}

model::Head hidden_words_head(double mlm, Gives gives) {
  model::Head head = model::Head::masked_lm;
  if (gives == Gives::all) head.rows = nullptr;
  head.add = [=](model::Builder& builder) { add_hidden_words(builder, mlm, gives); };
  return head;
}

/// Computes temperature² KL(teacher || student), summed over rows, of the softmax of logits / temperature. The
/// gradient is temperature (student − teacher). Works on 256 rows at a time, so that only the gradient is as large as
/// the logits.
struct WordsDivergence : torch::autograd::Function<WordsDivergence> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& own,
                            const at::Tensor& theirs, double temperature) {
    constexpr int64_t kRows = 256;
    const bool learns = own.requires_grad();
    const at::Tensor gradient = learns ? at::empty_like(own) : at::Tensor();
    at::Tensor sum = at::zeros({}, own.options());
    for (int64_t begin = 0; begin < own.size(0); begin += kRows) {
      const int64_t rows = std::min(kRows, own.size(0) - begin);
      const auto log_softmax = [&](const at::Tensor& logits) {
        return (logits.narrow(0, begin, rows).to(own.scalar_type()) / temperature).log_softmax(1);
      };
      const at::Tensor student = log_softmax(own), teacher = log_softmax(theirs), target = teacher.exp();
      sum += (target * (teacher - student)).sum();
      if (learns) gradient.narrow(0, begin, rows).copy_((student.exp() - target) * temperature);
    }
    if (learns) context->save_for_backward({gradient});
    return sum * (temperature * temperature);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outputs) {
    return {context->get_saved_variables()[0] * outputs[0], {}, {}};
  }
};

/// KL divergence of the teacher's and the student's distributions of words.
Segment words_segment(const char* term, double weight, double temperature) {
  const std::string theirs = std::string(kTeacher) + model::kLogits;
  return {std::string(kDistillation) + term,
          {},
          {{model::kLogits}, {theirs}},
          {},
          [=](Activations in, const Pass& pass) {
            pass.loss.add(term,
                          WordsDivergence::apply(in.at(model::kLogits), in.at(theirs).detach(), temperature),
                          weight);
            return Activations{};
          }};
}

// ---- checks

void require_same(const char* what, int64_t student, int64_t teacher, const std::string& remedy) {
  if (student != teacher)
    throw InputError("distillation", "the student has {} {}, the teacher {}; expected the same: {}", student,
                     what, teacher, remedy);
}

std::vector<int64_t> common_divisors(int64_t a, int64_t b) {
  std::vector<int64_t> all;
  for (int64_t divisor = 1; divisor <= std::min(a, b); ++divisor)
    if (a % divisor == 0 && b % divisor == 0) all.push_back(divisor);
  return all;
}

/// Terms that both models can compute, for the message about one that they cannot.
std::string working_terms(const DistillationOptions& o) {
  std::vector<std::string> terms = {"hidden"};
  if (o.student.encoder.width == o.teacher.encoder.width) terms.emplace_back("cosine");
  if (can_compare(o.student.encoder, Kind::relations) && can_compare(o.teacher.encoder, Kind::relations))
    terms.emplace_back("relations");
  return fmt::format("such as `{}`{}", fmt::join(terms, " "),
                     o.reads_logits() ? "" : ", or `tokens mlm` to compare words");
}

void check_comparable(const DistillationOptions& o) {
  for (const Kind kind : {Kind::attention, Kind::relations})
    for (const format::ModelConfig* const config : {&o.student, &o.teacher}) {
      if (!o.has(kind) || can_compare(config->encoder, kind)) continue;
      const std::string& title = format::family_of(*config).title;
      const std::string compared =
          config->encoder.positions.relative
              ? fmt::format("products of queries and keys, to which a {} adds what depends on their distance",
                            title)
              : fmt::format("queries and keys, which a {} turns by position", title);
      throw InputError("distillation", "the term `{}` compares {}; expected other --terms, {}",
                       distillation_names()[static_cast<size_t>(kind)], compared, working_terms(o));
    }
}

void check_relations(const DistillationOptions& o) {
  const int64_t heads = o.relation_heads;
  if (heads < 1 || o.student.encoder.width % heads != 0 || o.teacher.encoder.width % heads != 0)
    throw InputError("distillation",
                     "{} relation heads do not divide the sizes {} of the student and {} of the teacher; "
                     "expected one of {} (--relation-heads)",
                     heads, o.student.encoder.width, o.teacher.encoder.width,
                     fmt::join(common_divisors(o.student.encoder.width, o.teacher.encoder.width), ", "));
  if (o.relation_layer < 0 || o.relation_layer > o.teacher.encoder.layers)
    throw InputError("distillation", "the relation layer {} is not there; the teacher has the layers 1 to {}",
                     o.relation_layer, o.teacher.encoder.layers);
}

void check_map(const DistillationOptions& o) {
  LayerPair before;
  for (const LayerPair& pair : o.layers) {
    if (pair.student <= before.student || pair.student > o.student.encoder.layers ||
        pair.teacher <= before.teacher || pair.teacher > o.teacher.encoder.layers)
      throw InputError(
          "distillation",
          "the layer map {} is out of range; the student has the layers 1 to {}, the teacher 1 to {}, "
          "and both ascend",
          describe(o.layers), o.student.encoder.layers, o.teacher.encoder.layers);
    before = pair;
  }
}

/// Every layer of the student must have a part in the loss.
void check_reach(const DistillationOptions& o) {
  if (o.reads_logits() || o.reads_hidden_words() || o.has(Kind::cosine) || o.has(Kind::relations)) return;
  const int64_t last = o.student.encoder.layers;
  const int64_t reached = o.layers.empty() ? 0 : o.layers.back().student;
  if ((o.has(Kind::attention) || o.has(Kind::hidden)) && reached == last) return;
  throw InputError("distillation",
                   "with the terms {} and the layer map {}, the student's layers above {} learn nothing. "
                   "Expected a map that ends with layer {}, or a term of the logits",
                   describe(o.terms), describe(o.layers), reached, last);
}

void check(const DistillationOptions& o, bool teacher_is_rows) {
  if (o.terms.empty()) throw InputError("distillation", "there is no term; expected at least one");
  if (!(o.temperature > 0))
    throw InputError("distillation", "the temperature is {}; expected more than 0", o.temperature);
  const bool layers = o.has(Kind::attention) || o.has(Kind::hidden) || o.has(Kind::patient);
  if (o.reads_logits() && o.reads_hidden_words())
    throw InputError("distillation",
                     "the logits of texts (soft, hard, logits) and of masked tokens (tokens, all-tokens, "
                     "mlm) come from different heads; expected terms of one kind");
  if (o.has(Kind::tokens) && o.has(Kind::all_tokens))
    throw InputError(
        "distillation",
        "tokens (masked tokens) and all-tokens (all tokens) exclude each other; expected one of them");
  if (o.reads_logits() && o.documents)
    throw InputError("distillation",
                     "soft, hard and logits are terms of a task's rows; documents have no classes");
  if (!teacher_is_rows && (layers || o.has(Kind::relations) || o.has(Kind::cosine) || o.compares_words() ||
                           o.reads_teacher_logits()))
    require_same("tokens in its vocabulary", o.student.encoder.vocabulary, o.teacher.encoder.vocabulary,
                 "both read the same numbers, so that the student takes the teacher's tokeniser");
  check_comparable(o);
  if (o.has(Kind::attention))
    require_same(
        "attention heads", o.student.encoder.heads, o.teacher.encoder.heads,
        "scores are compared head by head; a student with as many heads, or the term relations, which takes "
        "any number");
  if (o.has(Kind::patient) || o.has(Kind::cosine))
    require_same("channels (hidden_size)", o.student.encoder.width, o.teacher.encoder.width,
                 "patient and cosine compare channel by channel; the term hidden has a projection");
  if (o.reads_teacher_logits())
    require_same("classes", o.student.num_labels, o.teacher.num_labels,
                 "the student takes the teacher's classes");
  if (layers) check_map(o);
  if (o.has(Kind::relations)) check_relations(o);
  check_reach(o);
}

std::unique_ptr<Objective> inner_of(const text::Tokenizer& tokenizer, const DistillationOptions& o) {
  if (o.reads_hidden_words()) {
    MaskedLmOptions masking = o.masking;
    masking.sequence = o.sequence;
    return std::make_unique<MaskedLm>(tokenizer, masking);
  }
  return o.rows ? o.rows(tokenizer, o) : distilled_answers(o.student).rows(tokenizer, o);
}

}  // namespace

void check_distillation(const DistillationOptions& options) {
  check(options, /*teacher_is_rows=*/false);
}

double DistillationOptions::weight(Kind kind) const {
  for (const DistillationTerm& term : terms)
    if (term.kind == kind) return term.weight;
  return 0;
}

int64_t DistillationOptions::teacher_layers_read() const {
  if (reads_teacher_logits() || compares_words() || has(Kind::cosine)) return teacher.encoder.layers;
  int64_t highest = 0;
  if (has(Kind::attention) || has(Kind::hidden) || has(Kind::patient))
    for (const LayerPair& pair : layers) highest = std::max(highest, pair.teacher);
  if (has(Kind::relations)) highest = std::max(highest, teacher_relation_layer());
  return highest;
}

Distillation::Distillation(const text::Tokenizer& tokenizer, DistillationOptions options,
                           std::function<Model()> make_teacher, std::shared_ptr<const TeacherRows> rows)
    : options_(std::move(options)),
      make_teacher_(std::move(make_teacher)),
      rows_(std::move(rows)),
      sequence_(tokenizer.sequence()),
      own_stores_(tokenizer, {}) {
  check(options_, rows_ != nullptr);
  inner_ = inner_of(tokenizer, options_);
  reads_teacher_ = std::any_of(
      options_.terms.begin(), options_.terms.end(),
      [](const DistillationTerm& term) { return term.kind != Kind::hard && term.kind != Kind::mlm; });
}

std::shared_ptr<const data::Dataset> Distillation::samples(
    std::shared_ptr<const data::TokenStore> store) const {
  own_stores_.require(*store);
  if (options_.documents)
    return std::make_shared<data::ChunkDataset>(std::move(store),
                                                text_length(sequence_, options_.sequence, 1));
  return std::make_shared<data::RowDataset>(std::move(store));
}

MicroBatch Distillation::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  MicroBatch batch = inner_->collate(samples, random);
  add_distillation_counts(batch, options_);
  if (rows_) rows_->add(batch, samples);
  return batch;
}

model::Head Distillation::head() const {
  model::Head head = options_.reads_logits() ? model::Head::logits : model::Head::none;
  if (options_.reads_hidden_words())
    head = hidden_words_head(options_.weight(Kind::mlm), given_words(options_));
  if (!options_.has(Kind::hidden)) return head;
  const int64_t theirs = options_.teacher.encoder.width;
  head.add = [add = head.add, theirs](model::Builder& builder) {
    add(builder);
    const model::LinearWeights projection =
        builder.add_linear(std::string(kDistillation) + "projection", theirs, builder.config().encoder.width);
    projection.weight->exported = projection.bias->exported = false;
  };
  head.parameters = [count = head.parameters, theirs](const format::ModelConfig& config) {
    return count(config) + theirs * (config.encoder.width + 1);
  };
  return head;
}

std::unique_ptr<Metrics> Distillation::metrics() const {
  if (options_.has(Kind::mlm) && options_.terms.size() == 1) return inner_->metrics();
  return options_.reads_logits() ? inner_->metrics() : nullptr;
}

std::map<std::string, std::string> Distillation::identity() const {
  std::map<std::string, std::string> all = inner_->identity();
  const DistillationOptions& o = options_;
  std::string read = describe(o.terms);  // and what they read: the rest may change
  if (o.has(Kind::attention) || o.has(Kind::hidden) || o.has(Kind::patient))
    read += fmt::format("; layers {}", describe(o.layers));
  if (o.has(Kind::soft) || o.compares_words()) read += fmt::format("; temperature {}", o.temperature);
  if (o.has(Kind::soft)) read += o.mean_over_classes ? "; mean over rows and classes" : "; mean over rows";
  if (o.has(Kind::relations))
    read += fmt::format("; {} relation heads of layer {}", o.relation_heads, o.teacher_relation_layer());
  all["distillation"] = std::move(read);
  return all;
}

Model Distillation::build_student(model::ModelOptions encoder) const {
  model::check_repeatable(encoder);
  if (options_.reads_logits()) model::require_classes(encoder.config, options_.student.num_labels);
  encoder.head = head();
  encoder.gives = student_outputs(options_);
  return model::build_model(encoder);
}

Model Distillation::build_teacher(model::ModelOptions encoder) const {
  format::EncoderSpec& spec = encoder.config.encoder;
  // A group of layers with shared weights is kept whole. If all layers are one group, the cut can be anywhere.
  const int64_t groups = spec.distinct_layers(), group = groups > 1 ? spec.layers / groups : 1;
  spec.set_layers((options_.teacher_layers_read() + group - 1) / group * group);
  encoder.gives = teacher_outputs(options_);
  encoder.head = model::Head::none;
  encoder.head.add = [](model::Builder&) {};  // not even a pooler, which not every teacher has
  encoder.head.parameters = [](const format::ModelConfig&) { return int64_t{0}; };
  if (options_.reads_teacher_logits()) {
    model::require_classes(encoder.config, options_.teacher.num_labels);
    encoder.head = model::Head::logits;
  }
  if (options_.compares_words()) encoder.head = hidden_words_head(0, given_words(options_));
  return model::build_model(encoder);
}

std::vector<KeptActivation> Distillation::teacher_activations() const {
  const model::LayerOutputs outputs = teacher_outputs(options_);
  const int64_t hidden = options_.teacher.encoder.width;
  std::vector<KeptActivation> all;
  if (options_.reads_teacher_logits())
    all.push_back({std::string(kTeacher) + model::kLogits, options_.teacher.num_labels, false});
  for (const int64_t layer : outputs.hidden)
    all.push_back({kTeacher + model::hidden_port(layer), hidden, true});
  for (const int64_t layer : outputs.query_key_value)
    all.push_back({kTeacher + model::query_key_value_port(layer), 3 * hidden, true});
  return all;
}

Model Distillation::collecting(Model teacher, TensorMap& found) const {
  Segment segment;
  segment.name = std::string(kDistillation) + "collect";
  for (const KeptActivation& kept : teacher_activations())
    segment.inputs.push_back({kept.name.substr(std::string(kTeacher).size())});
  segment.forward = [&found](Activations in, const Pass&) {
    found.clear();
    for (auto& [name, value] : in) found[kTeacher + name] = std::move(value);
    return Activations{};
  };
  teacher.segments.push_back(std::move(segment));
  return teacher;
}

Model Distillation::compose(Model student, Model teacher) const {
  if (has_teacher())
    student.append(std::move(teacher),
                   {.prefix = kTeacher, .frozen = true, .exported = false, .first = true});
  const auto add_terms = [options = options_](Model& model) {
    add_distillation_segments(model, options);
    for (const auto& [kind, term] : {std::pair{Kind::tokens, "tokens"}, {Kind::all_tokens, "all-tokens"}})
      if (options.has(kind))
        model.segments.push_back(words_segment(term, options.weight(kind), options.temperature));
  };
  if (student.replicate)
    student.replicate = [both = std::move(student.replicate), add_terms] {
      Model model = both();
      add_terms(model);
      return model;
    };
  add_terms(student);
  student.declare_loss(loss_over());
  return student;
}

Model Distillation::build(model::ModelOptions encoder) const {
  return compose(build_student(std::move(encoder)), has_teacher() ? make_teacher_() : Model());
}

}  // namespace funicular::objective
