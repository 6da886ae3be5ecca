// funicular pretrain: masked-language-model training from scratch, or of a model that is to learn a domain.

#include <fmt/format.h>

#include <cstdio>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/cli/adaptation.h"
#include "funicular/cli/command.h"
#include "funicular/cli/generator_options.h"
#include "funicular/cli/masking_options.h"
#include "funicular/cli/options.h"
#include "funicular/cli/pretraining_data.h"
#include "funicular/cli/rotary_options.h"
#include "funicular/cli/stage_options.h"
#include "funicular/format/family.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/model/model_report.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/relative.h"
#include "funicular/objective/registry.h"
#include "funicular/train/checkpoint.h"

namespace funicular::cli {

namespace {

/// The folder of a BERT is a start, too.
void start_electra(model::Pretrained& pretrained, bool starts_anew) {
  const std::string family = pretrained.config().model_type;
  pretrained.read_as_electra();
  if (pretrained.config().model_type != family && starts_anew)
    log::info("{} is a {}: its embeddings and layers are the start of an ELECTRA, and its heads are left out",
              pretrained.path().string(), format::family_of(family).title);
}

void declare_freezing(Arguments& arguments, int64_t& steps, double& rate) {
  arguments
      .add("freeze-encoder-steps", "STEPS", steps, Effect::result,
           "first train only the head, with the encoder frozen, for so many "
           "steps; for models that come without this head")
      .range(0);
  arguments.add("head-learning-rate", "RATE", rate, Effect::result, "peak learning rate of these first steps")
      .above(0);
}

class Pretrain final : public Command {
 public:
  Pretrain()
      : Command("pretrain",
                "Trains a masked language model on a token store. Training starts from the weights in the "
                "folder of --model (adaptation to a domain). If the folder has only a config.json, training "
                "starts from random weights. RUN/model is a Hugging Face folder; the last line of output is "
                "one JSON object with the final metrics.") {
    arguments.example(
        "adapt a model to a domain",
        "funicular pretrain --model MODEL --train texts.tokens --output runs/domain --recipe dapt");
    arguments.example(
        "train a new model",
        "funicular pretrain --model config.json --tokenizer MODEL --train texts.tokens --output runs/new");
    arguments.section("Input and output");
    declare_model(arguments, model_, "model folder, or a config.json to start from nothing", "DIR|FILE");
    data_.declare_corpora(arguments);
    arguments
        .add("tokenizer", "DIR", tokenizer_, Effect::tokenizer,
             "folder with a tokeniser: tokenizer.json, vocab.txt, vocab.json and merges.txt, or "
             "sentencepiece.bpe.model")
        .common()
        .takes_model()
        .alias("tokenizer-name")
        .default_text("the model's folder");
    data_.declare_evaluation(arguments);
    arguments
        .add("recipe", "NAME", recipe_, Effect::result,
             "published schedules for a model that is to learn a domain (dapt) or the texts of a task "
             "(tapt), in "
             "place of the defaults below")
        .common()
        .choices(recipe_names())
        .default_text("none");
    training_.declare_output(arguments);
    training_.declare(arguments);
    arguments.section("Objective");
    arguments
        .add("objective", "NAME", objective_name_, Effect::result,
             "mlm: predict masked tokens. mlm-nsp: also predict whether the second half follows the first. "
             "mlm-sop: also predict whether the halves are in order. electra: find the tokens that a small "
             "generator replaced")
        .common()
        .choices(objective::pretraining_names());
    declare_max_length(arguments, max_length_, "longer documents are cut into pieces", 8)
        .default_text(kDefaultLength);
    rotary_.declare(arguments);
    generator_.declare(arguments);
    declare_freezing(arguments, freeze_steps_, head_rate_);
    masking_.declare(arguments);
  }

  int run() override {
    open();
    model::ModelOptions encoder = pretrained_->options(training_.dtype(), training_.device.place());
    encoder.seed = training_.run.seed;
    encoder.repeatable = training_.repeatable();
    model::check_repeatable(encoder);
    Model model = objective_->build(encoder);
    model::report_model(model, pretrained_->config());
    if (pretrained_->has_weights()) {
      const bool starts = training_.starts_anew();
      const std::string elsewhere = generator_.electra.generator.empty() ? "" : objective::kGenerator;
      const bool is_new =
          !pretrained_->load(model, starts, "", model::Head::classification, elsewhere).missing.empty();
      if (is_new && starts && freeze_steps_ == 0)
        log::info("with --freeze-encoder-steps N a new head learns alone first, and does not spoil the rest");
    } else if (training_.starts_anew()) {
      log::info("{} has no weights: training starts from random ones", model_.string());
    }
    train::TrainerOptions whole = training_.trainer();
    choose_stages(training_, model, *data_.source(*objective_), whole);
    chosen_ = whole.run_info;
    if (!train_head(model)) {
      training_.group().barrier();
      return static_cast<int>(ExitCode::interrupted);
    }
    log::info("training all weights");
    return train_all(model);
  }

 private:
  void open() {
    if (!data_.evaluates()) training_.refuse_evaluation_options("--eval STORE or --eval-fraction SHARE");
    if (!recipe_.empty()) apply_recipe(recipe_, arguments, training_);
    training_.apply();
    training_.check_output({model_, tokenizer_, generator_.generator});
    for (const auto& files : {data_.files(), masking_.files()})
      for (const fs::path& file : files) training_.check_output({file});
    data_.check_options();
    objective::MaskedLmOptions options = masking_.options(max_length_);
    if (masking_.chosen.pack == objective::PackSentences::across && data_.holds_out())
      throw InputError(
          "usage",
          "--pack-sentences across puts documents into one sequence, so none can be held out; give "
          "--eval STORE instead of --eval-fraction, or --pack-sentences within");
    generator_.refuse_for(objective_name_, arguments);
    if (fs::is_regular_file(model_) && tokenizer_.empty())
      throw InputError("usage",
                       "--model {} is a file: a model of that shape begins with random weights, and "
                       "--tokenizer must name the folder "
                       "of its tokeniser. To start from weights, give their folder: --model {}",
                       model_.string(), model_.has_parent_path() ? model_.parent_path().string() : ".");
    pretrained_.emplace(model_, model::Pretrained::Expect::folder_or_config);
    if (objective_name_ == "electra") start_electra(*pretrained_, training_.starts_anew());
    if (pretrained_->has_weights()) model::check_sizes(pretrained_->config(), model_);
    if (!recipe_.empty() && !pretrained_->has_weights())
      throw InputError("usage", "--recipe {} adapts a model, and {} has no weights; leave it out", recipe_,
                       model_.string());
    rotary_.apply(*pretrained_, arguments.given("max-length") ? max_length_ : 0);
    pretrained_->fit_max_length(max_length_, arguments.given("max-length"));
    options.sequence.max_length = static_cast<int32_t>(max_length_);
    if (objective_name_ == "electra") generator_.choose(arguments, *pretrained_, training_.starts_anew());
    tokenizer_files_ = pretrained_->tokenizer(tokenizer_);
    objective_ = objective::make_pretraining(objective_name_, *tokenizer_files_, options, generator_.electra);
    warn_of_another_tokenizer();
    data_.open({objective_name_, *objective_, *tokenizer_files_, training_.group(), training_.run.seed});
  }

  void warn_of_another_tokenizer() const {
    if (tokenizer_.empty() || !pretrained_->has_weights()) return;
    if (!format::has_tokenizer(model_) ||
        format::load_tokenizer(model_)->fingerprint() == tokenizer_files_->fingerprint())
      return;
    log::warning(
        "the weights of {} were trained with the tokeniser in it, not with {}: their embeddings stand for "
        "other tokens",
        model_.string(), tokenizer_.string());
  }

  std::map<std::string, std::string> identity() const {
    std::map<std::string, std::string> all = objective_->identity();
    all.merge(std::map<std::string, std::string>{{"model", model::describe_model(pretrained_->config())},
                                                 {"initial_weights", pretrained_->weights_hash()},
                                                 {"tokenizer", hash_text(tokenizer_files_->fingerprint())},
                                                 {"freeze_encoder_steps", fmt::to_string(freeze_steps_)}});
    if (const std::string weights = data_.weights(); !weights.empty()) all["data_weights"] = weights;
    if (const std::string rotary = rotary_.identity(); !rotary.empty()) all["rotary"] = rotary;
    return all;
  }

  /// The steps with a frozen encoder: a run of its own in RUN/head, so that it too can be interrupted and
  /// resumed. False if it was interrupted.
  bool train_head(Model& model) {
    const bool resumes_elsewhere = training_.run.resume != "auto" && training_.run.resume != "never";
    if (freeze_steps_ == 0 || resumes_elsewhere ||
        !train::list_checkpoints(training_.run.output / "checkpoints").empty())
      return true;
    train::TrainerOptions options = training_.trainer();
    options.output = training_.run.output / kHeadRun;
    options.max_steps = freeze_steps_;
    options.num_train_epochs = 0;
    options.batch_warmup_steps = options.batch_warmup_start = 0;
    options.schedule = {.warmup_ratio = 0.1};
    options.save_steps = 0;
    options.whole_model_after = true;  // all weights are trained next
    options.frozen = {format::family_of(pretrained_->config()).prefix};
    if (objective_name_ == "electra")
      options.frozen.push_back(objective::kGenerator + options.frozen.front());
    options.seed = hash_bytes(
        fmt::format("head {}", training_.run.seed));  // other masks than those of the steps that follow
    options.identity = identity();
    options.run_info = chosen_;
    TrainingOptions head = training_;
    head.learning_rate = head_rate_;
    log::info("training the head for {} steps, the encoder frozen", freeze_steps_);
    train::Trainer trainer(options, training_.strategy_factory(), head.optimizer());
    trainer.callbacks.save_model = [](const fs::path&) {};  // the state that matters goes on in memory
    const train::FitResult result = trainer.fit(model, *data_.source(*objective_));
    if (result.interrupted)
      log::info("interrupted while the head was trained alone; repeat the command to resume");
    return !result.interrupted;
  }

  int train_all(Model& model) {
    train::TrainerOptions options = training_.trainer();
    options.identity = identity();
    options.run_info = {{"command", "pretrain"}, {"source_model", model_.string()}};
    options.run_info["data_path"] = data_.description();
    if (!recipe_.empty()) options.run_info["recipe"] = recipe_;
    if (chosen_.is_object()) options.run_info.update(chosen_);
    choose_best(options);
    train::Trainer trainer(options, training_.strategy_factory(), training_.optimizer());
    trainer.callbacks.save_model = [&](const fs::path& folder) {
      model::save_folder(model, pretrained_->config(), objective_->head(), *tokenizer_files_, folder);
      objective_->save_more(model, pretrained_->config(), *tokenizer_files_, folder);
    };
    const std::unique_ptr<train::Source> seen = data_.source(*objective_);
    std::optional<train::DatasetSource<objective::Objective>> unseen;
    if (data_.evaluation()) unseen.emplace(*objective_, *data_.evaluation());
    const std::unique_ptr<Metrics> metrics = objective_->metrics();
    return report_result(
        trainer.fit(model, *seen,
                    {.data = unseen ? &*unseen : nullptr, .metrics = unseen ? metrics.get() : nullptr}),
        options, training_.group(), OrderedJson::object(),
        fmt::format("funicular finetune FILE --model {}", options.output.string()));
  }

  void choose_best(train::TrainerOptions& options) const {
    const std::string& name = training_.best_metric;
    if (!name.empty() && name != "loss" && name != "perplexity")
      throw InputError("usage", "--metric-for-best-model expects loss or perplexity, found \"{}\"", name);
    if (!name.empty()) options.best_metric = name;
  }

  fs::path model_, tokenizer_;
  PretrainingData data_;
  std::string recipe_;
  double head_rate_ = 1e-3;
  std::string objective_name_ = "mlm";
  int64_t max_length_ = 128, freeze_steps_ = 0;
  MaskingOptions masking_;
  GeneratorOptions generator_;
  RotaryOptions rotary_;
  TrainingOptions training_;

  std::optional<model::Pretrained> pretrained_;
  std::unique_ptr<objective::Objective> objective_;
  std::unique_ptr<text::Tokenizer> tokenizer_files_;
  OrderedJson chosen_;  ///< at the start, for run.json
};

}  // namespace

std::unique_ptr<Command> make_pretrain() {
  return std::make_unique<Pretrain>();
}

}  // namespace funicular::cli
