#include "funicular/cli/embedder_options.h"

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/format/sentence_folder.h"
#include "funicular/task/embedders.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

namespace {

constexpr const char* kOptions[] = {"compare",     "scale",           "hardness", "batch-hardness",
                                    "loss-margin", "matryoshka-dims", "pooling",  "distinct-batches"};

/// The tasks whose models give vectors.
constexpr const char* kTasks = "pairs, triplets, scores or vectors";

std::vector<int64_t> sizes_of(const std::vector<std::string>& texts) {
  std::vector<int64_t> sizes;
  for (const std::string& text : texts) {
    const auto size = read_number(text);
    if (!size || *size != static_cast<double>(static_cast<int64_t>(*size)) || *size < 1)
      throw InputError("usage", "--matryoshka-dims expects whole numbers of at least 1, found \"{}\"", text);
    sizes.push_back(static_cast<int64_t>(*size));
  }
  return sizes;
}

objective::VectorLoss loss_of(const std::string& name, const std::string& task) {
  const std::vector<std::string>& names = objective::vector_loss_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw InputError(
        "usage",
        "--loss {} is for --task reranker and does not fit --task {}; give --task reranker, or one of "
        "the losses {}",
        name, task, task::Embedders::losses(task));
  return static_cast<objective::VectorLoss>(found - names.begin());
}

}  // namespace

void EmbedderOptions::declare(Arguments& arguments) {
  arguments.section("Embedders (--task pairs, triplets, scores, vectors)");
  arguments
      .add("teacher", "PATH", teacher_, Effect::input,
           "with --task vectors, the teacher: folder of an embedder, or a .npy file of embed with a vector "
           "per row of "
           "--train")
      .takes_model()
      .default_text("none");
  arguments.add("compare", "NAME", loss_.comparison, objective::comparison_names(), Effect::result,
                "with multiple-negatives, compare anchors with positives, or both ways, or all texts in one "
                "softmax (GTE)");
  arguments.add("scale", "X", loss_.scale, Effect::result, "factor of cosines in the loss: 1 / temperature")
      .above(0);
  arguments
      .add("hardness", "X", loss_.hardness, Effect::result,
           "with multiple-negatives, extra weight of a row's own negatives, times their cosine; "
           "EmbeddingGemma: 5")
      .range(0);
  arguments
      .add("batch-hardness", "X", loss_.batch_hardness, Effect::result,
           "with multiple-negatives, extra weight of other rows' texts, times their cosine; Lan et al.: 9")
      .range(0);
  arguments
      .add("loss-margin", "X", loss_.margin, Effect::result,
           "margin of the losses triplet, contrastive and online-contrastive")
      .range(0)
      .default_text("5 for triplet, 0.5 otherwise");
  arguments
      .add("matryoshka-dims", "SIZE", matryoshka_, Effect::result,
           "also train the vectors' first numbers: sizes at which the loss is taken, besides the whole size")
      .default_text("none");
  arguments
      .add("pooling", "NAME", pooling_, Effect::result,
           "how a text's tokens become a vector, if the model's folder does not say it")
      .choices(format::pooling_names())
      .default_text("mean");
  arguments.add("distinct-batches", distinct_batches_, Effect::result,
                "with multiple-negatives, keep rows that share a text in different batches");
}

void EmbedderOptions::apply(const Arguments& arguments, const std::string& loss,
                            task::FinetuneOptions& run) const {
  const std::string& name = run.task->type().option;
  const bool embeds = name == "pairs" || name == "triplets" || name == "scores" || name == "vectors";
  for (const char* option : kOptions)
    if (!embeds && arguments.given(option))
      throw InputError("usage", "--{} works only with --task {}, found --task {}", option, kTasks, name);
  if (arguments.given("teacher") && name != "vectors")
    throw InputError("usage", "--teacher works only with --task vectors, found --task {}", name);
  if (!embeds) return;
  run.teacher = teacher_;
  task::EmbeddingOptions& embedding = run.embedding;
  embedding.chosen = arguments.given("loss");
  embedding.loss = loss_;
  if (embedding.chosen) embedding.loss.loss = loss_of(loss, name);
  if (embedding.chosen && embedding.loss.loss == objective::VectorLoss::margin_mse) {
    task::FileOptions files = run.task->files();
    files.margins = true;
    run.task = task::with_files(*run.task, std::move(files));
  }
  embedding.loss.matryoshka = sizes_of(matryoshka_);
  embedding.pooling = pooling_;
  const bool negatives = embedding.chosen ? embedding.loss.loss == objective::VectorLoss::multiple_negatives
                                          : name == "pairs" || name == "triplets";
  if (arguments.given("distinct-batches") && distinct_batches_ && !negatives)
    throw InputError("usage", "--distinct-batches works only with --loss multiple-negatives, found {}",
                     embedding.chosen ? "--loss " + embedding.loss.name() : "the loss of --task " + name);
  run.trainer.distinct_batches = distinct_batches_ && negatives;
}

}  // namespace funicular::cli
