#include "funicular/task/teacher.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/launch/environment.h"
#include "funicular/model/heads.h"
#include "funicular/model/weights.h"
#include "funicular/task/distill.h"

namespace funicular::task {

Teacher::Teacher(const DistillOptions& options)
    : o_(options),
      precision_(options.teacher_precision.empty() ? options.precision : options.teacher_precision) {
  if (!options.soft_columns.empty()) return;
  folder_.emplace(options.teacher, model::Pretrained::Expect::folder, "--teacher");
  model::check_sizes(folder_->config(), options.teacher);
}

std::string Teacher::identity() const {
  return is_model() ? folder_->weights_hash() : fmt::format("columns {}", fmt::join(o_.soft_columns, ", "));
}

Model Teacher::make(const objective::Distillation& objective) const {
  const bool precise = precision_ == "fp64";
  model::ModelOptions encoder = folder_->options(precise ? at::kDouble : at::kFloat, o_.device);
  encoder.repeatable = o_.repeatable;
  Model teacher = objective.build_teacher(encoder);
  const bool words = objective.options().reads_hidden_words();
  folder_->load_all(teacher, words ? model::Head::masked_lm : model::Head::logits);
  if (!precise) model::prepare_inference(teacher, precision_);
  return teacher;
}

format::TextOptions Teacher::soft_layout() const {
  const data::TextFileSourceOptions columns = o_.task->columns();
  format::TextOptions layout;
  layout.format = columns.format;
  layout.header = columns.header;
  layout.style = columns.style;
  for (const std::string& column : o_.soft_columns)
    layout.columns.push_back(format::column_from_text(column));
  return layout;
}

Teacher::Known Teacher::read(const objective::Distillation& objective, const data::Dataset& rows,
                             const data::Dataset* held_out, int64_t length) const {
  Known known;
  if (!is_model()) {
    comm::together(o_.group, [&] {
      known.train = objective::read_soft_labels(o_.train_file, soft_layout(), rows.size());
      if (held_out) known.eval = objective::read_soft_labels(o_.eval_file, soft_layout(), held_out->size());
    });
    return known;
  }
  if (o_.cache.empty() || !objective.has_teacher()) return known;
  for (const bool first : {true, false})
    comm::together(o_.group, [&] {
      if ((o_.group.rank() == 0) != first) return;
      try {
        known.train = open_cache(kCacheParts[0], objective, rows, length, first);
        if (held_out) known.eval = open_cache(kCacheParts[1], objective, *held_out, length, first);
      } catch (const objective::CacheInterrupted&) {
        known.interrupted = true;
      }
      if (known.interrupted && o_.group.size() > 1)
        throw Error(ExitCode::interrupted, "distillation",
                    "interrupted; to resume, repeat the command: the cache keeps the teacher's answers",
                    fmt::format_args());
    });
  if (known.interrupted)
    log::info("interrupted; to resume, repeat the command: the cache keeps the teacher's answers");
  return known;
}

/// Rank 0 fills the cache.
std::shared_ptr<const objective::TeacherRows> Teacher::open_cache(const std::string& part,
                                                                  const objective::Distillation& objective,
                                                                  const data::Dataset& rows, int64_t length,
                                                                  bool fills) const {
  const objective::CacheIdentity identity{fmt::format("{}, {}, {}", folder_->weights_hash(),
                                                      model::describe_model(folder_->config()), precision_),
                                          hash_text(rows.fingerprint()),
                                          fmt::format("at most {} tokens, {}", length, o_.truncation)};
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < rows.size(); ++i)
    lengths.push_back(static_cast<int32_t>(objective.length(rows.get(i))));
  const std::vector<objective::KeptActivation> kept = objective.teacher_activations();
  // Only the first rank of each host verifies the whole cache, as it may be larger than memory.
  if (!fills)
    return objective::open_teacher_cache(o_.cache / part, identity, kept, lengths, 0, nullptr,
                                         launch::read_environment().local_rank == 0);
  std::optional<Model> teacher;  // made only if the teacher must run
  std::map<std::string, at::Tensor> found;
  const auto ask = [&](int64_t begin, int64_t end) {
    if (!teacher) teacher = objective.collecting(make(objective), found);
    std::vector<data::Sample> samples;
    for (int64_t i = begin; i < end; ++i) {
      samples.push_back(rows.get(i));
      samples.back().sample_id = i;
    }
    const at::NoGradGuard no_gradient;
    LossSink none;
    teacher->forward({}, objective.collate(samples, {}), {}, none);
    return found;
  };
  return objective::open_teacher_cache(o_.cache / part, identity, kept, lengths,
                                       std::max<int64_t>(o_.trainer.micro_batch_tokens, 1), ask);
}

}  // namespace funicular::task
