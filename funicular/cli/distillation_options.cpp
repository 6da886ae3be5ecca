#include "funicular/cli/distillation_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/chain/step.h"
#include "funicular/model/pretrained.h"
#include "funicular/task/teacher.h"

namespace funicular::cli {

void DistillationOptions::declare(Arguments& arguments, task::DistillOptions& options) {
  arguments.section("Distillation");
  arguments
      .add("init-layers", "even|LIST", options.init_layers, Effect::result,
           "begin with layers of the teacher, counted from 1, such as 3,6,9,12")
      .default_text("the weights in the student's folder, else random");
  arguments
      .add("terms", "NAME[=WEIGHT]", terms_, Effect::result,
           fmt::format("terms of the loss, with their weights (1): {}",
                       fmt::join(objective::distillation_names(), ", ")))
      .default_text("attention hidden; prediction: soft");
  arguments.add(
      "layer-map", "uniform|last|LIST", options.layer_map, Effect::result,
      "the teacher's layer for each layer of the student, as pairs STUDENT:TEACHER such as 1:3,2:6");
  arguments
      .add("temperature", "T", options.terms.temperature, Effect::result,
           "divisor of the logits in the terms soft, tokens and all-tokens")
      .above(0);
  arguments
      .add("soft-mean", "NAME", soft_mean_, Effect::result,
           "soft is a mean over rows and classes, as TinyBERT's code has it, or over rows")
      .choices({"classes", "rows"});
  arguments
      .add("relation-heads", "N", options.terms.relation_heads, Effect::result,
           "for the term relations; divides both models' sizes")
      .range(1);
  arguments
      .add("relation-layer", "N", options.terms.relation_layer, Effect::result,
           "for the term relations: the teacher's layer, from 1; 0: its last")
      .range(0);
  arguments
      .add("mlm-probability", "SHARE", options.terms.masking.probability, Effect::result,
           "for the terms tokens, all-tokens and mlm: share of masked tokens")
      .above(0);
  arguments
      .add("teacher-precision", "NAME", options.teacher_precision, Effect::result,
           "arithmetic of the teacher")
      .choices(model::inference_precisions())
      .default_text("as --precision");
}

void DistillationOptions::check(const objective::DistillationOptions& chosen) {
  if (chosen.masking.probability >= 1)
    throw InputError("usage", "--mlm-probability must be below 1, found {}", chosen.masking.probability);
}

void DistillationOptions::apply(objective::DistillationOptions& chosen, bool prediction) const {
  chosen.terms =
      objective::parse_distillation_terms(!terms_.empty() ? terms_
                                          : prediction    ? std::vector<std::string>{"soft"}
                                                          : std::vector<std::string>{"attention", "hidden"});
  chosen.mean_over_classes = soft_mean_ == "classes";
}

void DistillationOptions::warn_of_idle_options(const Arguments& arguments,
                                               const objective::DistillationOptions& chosen) const {
  using Kind = objective::DistillationKind;
  const auto& names = objective::distillation_names();
  const std::pair<const char*, std::vector<Kind>> readers[] = {
      {"layer-map", {Kind::attention, Kind::hidden, Kind::patient}},
      {"relation-heads", {Kind::relations}},
      {"relation-layer", {Kind::relations}},
      {"mlm-probability", {Kind::tokens, Kind::all_tokens, Kind::mlm}},
      {"temperature", {Kind::soft, Kind::tokens, Kind::all_tokens}},
      {"soft-mean", {Kind::soft}},
      {"cache-teacher",
       {Kind::attention, Kind::hidden, Kind::soft, Kind::logits, Kind::patient, Kind::relations,
        Kind::cosine}}};
  for (const auto& [option, kinds] : readers) {
    if (!arguments.given(option) ||
        std::any_of(kinds.begin(), kinds.end(), [&](Kind kind) { return chosen.has(kind); }))
      continue;
    std::vector<std::string> terms_of;
    for (const Kind kind : kinds) terms_of.push_back(names[static_cast<size_t>(kind)]);
    log::warning("--{} does nothing: it works with the terms {}; this run has {}", option,
                 fmt::join(terms_of, ", "), objective::describe(chosen.terms));
  }
}

void check_cache_place(const fs::path& cache, const fs::path& output,
                       std::initializer_list<std::pair<const char*, fs::path>> inputs) {
  if (cache.empty()) return;
  std::error_code ignored;
  for (const char* part : task::kCacheParts) {
    for (const auto& [option, input] : inputs)
      if (!input.empty() && fs::exists(input, ignored) && chain::lies_in(cache / part, input))
        throw InputError(
            "usage",
            "--cache-teacher {} would put its files into --{} {}, which this run reads: it would "
            "be another input afterwards. Give a folder that nothing else is in",
            cache.string(), option, input.string());
    for (const char* name : {"model", "checkpoints", "data"})
      if (chain::lies_in(cache / part, output / name))
        throw InputError("usage",
                         "--cache-teacher {} would put its files into {}, which this run makes and replaces. "
                         "Give a folder that nothing else is in",
                         cache.string(), (output / name).string());
  }
}

}  // namespace funicular::cli
