// Claims about losses over a whole batch: no cut of a batch may make another loss of them without a word.
#include "funicular/train/cut_check.h"

#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "funicular/parallel/layout.h"
#include "plain_training.h"

namespace funicular::train::cut_check_tests {
namespace {

using namespace funicular::test;

/// Plain that can be cloned, for devices of one process.
struct SmallImpl : torch::nn::Cloneable<SmallImpl> {
  torch::nn::Linear first{nullptr}, second{nullptr};
  SmallImpl() { SmallImpl::reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 8));
    second = register_module("second", torch::nn::Linear(8, 6));
  }
};
TORCH_MODULE(Small);

Small make_small() {
  torch::manual_seed(1);
  return Small();
}

using SmallLoss = std::function<void(SmallImpl&, const MicroBatch&, LossSink&)>;

at::Tensor output_of(SmallImpl& net, const MicroBatch& batch) {
  return net.second(torch::tanh(net.first(batch["x"])));
}

void squares(SmallImpl& net, const MicroBatch& batch, LossSink& sink) {
  sink.add("squared_error", (output_of(net, batch) - batch["y"]).square().sum());
}

/// Each row's output has to be nearer to its own target than to those of the other rows.
void contrast(SmallImpl& net, const MicroBatch& batch, LossSink& sink) {
  const at::Tensor scores = output_of(net, batch).matmul(batch["y"].t());
  sink.add("contrast",
           at::cross_entropy_loss(scores, at::arange(scores.size(0), at::kLong), {}, at::Reduction::Sum));
}

void mean_error(SmallImpl& net, const MicroBatch& batch, LossSink& sink) {
  sink.add("error", at::mse_loss(output_of(net, batch), batch["y"]));
}

/// A penalty that is added once a batch.
void variance(SmallImpl& net, const MicroBatch& batch, LossSink& sink) {
  const at::Tensor output = output_of(net, batch);
  sink.add("error", (output - batch["y"]).square().sum());
  sink.add("variance", output.var(0, /*unbiased=*/false).sum(), 0.1);
}

TrainerOptions options_of(const std::function<void(TrainerOptions&)>& change = {}) {
  TrainerOptions options = quiet();
  options.max_steps = 2;
  options.batch_size = 8;
  if (change) change(options);
  return options;
}

/// What ways there are to cut a batch of 8.
struct CutRun {
  TrainerOptions options;
  std::string layout = "single";
  bool evaluates = false;
};

std::map<std::string, CutRun> cut_runs() {
  return {{"micro-batches of 4 rows", {options_of([](auto& o) { o.micro_batch_size = 4; })}},
          {"micro-batches of 2 rows", {options_of([](auto& o) { o.gradient_accumulation = 4; })}},
          {"micro-batches of at most 5 tokens, where a batch may have 8",
           {options_of([](auto& o) { o.micro_batch_tokens = 5; })}},
          {"2 ranks or devices that share each batch (dp)", {options_of(), "dp --devices 2"}},
          {"micro-batches of 4 rows ", {options_of(), "pipeline --devices 2"}},
          {"an evaluation in batches of 3 rows",
           {options_of([](auto& o) { o.eval_batch_size = 3; }), "single", true}}};
}

/// The error of a training, "" if it trains.
std::string refusal(const CutRun& run, const SmallLoss& loss, LossOver over = LossOver::undeclared) {
  const auto layout = parallel::Layout::parse(run.layout);
  Trainer trainer(
      run.options, [&] { return make_strategy(layout, comm::Group()); }, optim::Sgd{});
  const TensorDataset data = make_data(22), unseen = make_data(9, 5);
  Evaluation evaluation;
  if (run.evaluates) evaluation.data = &unseen;
  return error_of([&] { trainer.fit(make_small(), data, loss, evaluation, over); });
}

/// A module for the output and one for its activation before: what a pipeline cuts.
std::string refusal_of_stages(const CutRun& run, const SequentialLoss& loss, LossOver over) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::Linear(8, 6));
  const TensorDataset data = make_data(22);
  Model model = wrap_sequential(net, "x", data.tensors().at("x"), loss, over);
  const auto layout = parallel::Layout::parse(run.layout);
  Trainer trainer(
      run.options, [&] { return make_strategy(layout, comm::Group()); }, optim::Sgd{});
  return error_of([&] { trainer.fit(model, data); });
}

TEST(CutCheck, AGrowingBatchIsComparedAtItsFullSize) {
  CutRun run{options_of([](auto& o) {
    o.micro_batch_size = 4;
    o.batch_warmup_steps = 200;  // the first batches have one row, which nothing can cut
    o.batch_warmup_start = 1;
  })};
  EXPECT_EQ(refusal(run, squares), "");
  EXPECT_NE(refusal(run, contrast), "");
  run.options.batch_size = 0;
  run.options.batch_tokens = 8;
  EXPECT_EQ(refusal(run, squares), "");
  const std::string found = refusal(run, contrast);
  EXPECT_NE(found.find("cuts its batches of 8 tokens"), std::string::npos) << found;
  EXPECT_NE(found.find("set micro_batch_size to 8"), std::string::npos) << found;
}

/// The first row is longer than a batch of 8 tokens; the other rows have one token each.
struct LongFirst final : Source {
  TensorDataset data = make_data(22);
  int64_t size() const override { return data.size(); }
  uint64_t fingerprint() const override { return data.fingerprint(); }
  int64_t length(int64_t sample) const override { return sample == 0 ? 20 : 1; }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    return data.collate(draws, random);
  }
};

/// The error of a training on LongFirst whose batches have 8 tokens, "" if it trains.
std::string refusal_in_tokens(const std::function<void(TrainerOptions&)>& change, LossOver over,
                              const Source* evaluated = nullptr) {
  TrainerOptions options = options_of(change);
  options.batch_size = 0;
  options.batch_tokens = 8;
  options.shuffle = false;
  options.diverged_at = 1e9;  // the first batch has one row, whose contrast is 0
  const LongFirst source;
  Evaluation evaluation;
  evaluation.data = evaluated;
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  return error_of([&] { trainer.fit(make_small(), source, contrast, evaluation, over); });
}

TEST(CutCheck, ALongRowThatIsABatchOfItsOwnIsNeitherComparedNorACut) {
  const std::string found = refusal_in_tokens([](auto& o) { o.micro_batch_size = 4; }, LossOver::undeclared);
  EXPECT_NE(found.find("the loss term contrast depends on which rows"), std::string::npos) << found;
  EXPECT_EQ(refusal_in_tokens([](auto& o) { o.micro_batch_tokens = 8; }, LossOver::batch), "");
}

TEST(CutCheck, RefusesAnEvaluationThatALimitOfTokensCutsBesideABatchInTokens) {
  const TensorDataset unseen = make_data(9, 5);
  const auto refusal_with = [&](int64_t rows) {
    return refusal_in_tokens(
        [&](auto& o) {
          o.micro_batch_tokens = 8;
          o.eval_batch_size = rows;
        },
        LossOver::batch, &unseen);
  };
  EXPECT_NE(refusal_with(9).find("an evaluation in batches of at most 8 tokens, where a batch may have 9"),
            std::string::npos);
  EXPECT_EQ(refusal_with(8), "");
  EXPECT_EQ(refusal_with(0), "") << "no number of rows to keep together";
}

TEST(CutCheck, RefusesEveryCutOfALossThatComparesRows) {
  for (const auto& [what, run] : cut_runs()) {
    SCOPED_TRACE(what);
    const bool staged = run.layout.starts_with("pipeline");
    const SequentialLoss compares = [](const at::Tensor& output, const MicroBatch& batch, LossSink& sink) {
      sink.add("contrast",
               at::cross_entropy_loss(output.matmul(batch["y"].t()), at::arange(output.size(0), at::kLong),
                                      {}, at::Reduction::Sum));
    };
    const SequentialLoss squared = [](const at::Tensor& output, const MicroBatch& batch, LossSink& sink) {
      sink.add("error", (output - batch["y"]).square().sum());
    };
    const std::string words = what.substr(0, what.find_last_not_of(' ') + 1);
    for (const LossOver over : {LossOver::undeclared, LossOver::batch}) {
      const std::string found =
          staged ? refusal_of_stages(run, compares, over) : refusal(run, contrast, over);
      EXPECT_NE(found.find(words), std::string::npos) << found;
      EXPECT_NE(found.find(over == LossOver::batch ? "the loss is over a whole batch (LossOver::batch)"
                                                   : "the loss term contrast depends on which rows"),
                std::string::npos)
          << found;
    }
    EXPECT_EQ(
        staged ? refusal_of_stages(run, compares, LossOver::rows) : refusal(run, contrast, LossOver::rows),
        "");
    EXPECT_EQ(staged ? refusal_of_stages(run, squared, LossOver::undeclared) : refusal(run, squares), "");
  }
}

TEST(CutCheck, LeavesWholeBatchesAlone) {
  for (const LossOver over : {LossOver::undeclared, LossOver::batch}) {
    EXPECT_EQ(refusal({options_of(), "single", true}, contrast, over), "");
    EXPECT_EQ(refusal({options_of([](auto& o) { o.micro_batch_tokens = 8; })}, contrast, over), "");
  }
}

TEST(CutCheck, NamesEveryCutAndTheRemedies) {
  const CutRun run{options_of([](auto& o) {
    o.micro_batch_size = 2;
    o.micro_batch_tokens = 6;
  })};
  EXPECT_EQ(refusal(run, contrast, LossOver::batch),
            "[loss] the loss is over a whole batch (LossOver::batch), and this run would cut its batches of "
            "8 rows, "
            "which gives another loss: micro-batches of 2 rows; micro-batches of at most 6 tokens, where a "
            "batch may "
            "have 8. To train, set micro_batch_size to 8 and gradient_accumulation to 1; set "
            "micro_batch_tokens to 0, "
            "or to at least 8");
}

TEST(CutCheck, TellsAMeanAPenaltyAndACountThatAreNoSums) {
  const CutRun run = cut_runs().at("micro-batches of 4 rows");
  EXPECT_NE(refusal(run, mean_error).find("the loss term error is a mean over the rows and not their sum"),
            std::string::npos);
  EXPECT_NE(refusal(run, variance).find("the loss term variance depends on which rows"), std::string::npos);
  struct Once final : Source {
    TensorDataset data = make_data(22);
    int64_t size() const override { return data.size(); }
    uint64_t fingerprint() const override { return data.fingerprint(); }
    int64_t length(int64_t) const override { return 1; }
    MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
      MicroBatch batch = data.collate(draws, random);
      batch.counts["squared_error"] = 1;
      return batch;
    }
  } source;
  Trainer trainer(run.options, parallel::make_single, optim::Sgd{});
  EXPECT_NE(error_of([&] { trainer.fit(make_small(), source, squares); })
                .find("the count squared_error is not a sum over rows: 1 for 8 rows together, 2 for their "
                      "two halves"),
            std::string::npos);
}

TEST(CutCheck, TakesNoDropoutBatchNormalisationOrNoiseForALossOverTheBatch) {
  const CutRun run = cut_runs().at("micro-batches of 4 rows");
  Trainer trainer(run.options, parallel::make_single, optim::Sgd{});
  testing::internal::CaptureStderr();
  EXPECT_EQ(error_of([&] { trainer.fit(make_net(), make_data(22), squared_error); }), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("draws random numbers"), std::string::npos);
  const SmallLoss noisy = [](SmallImpl& net, const MicroBatch& batch, LossSink& sink) {
    const at::Tensor output = output_of(net, batch);
    sink.add("error", (output + at::randn_like(output) - batch["y"]).square().sum());
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(run, noisy), "");
  EXPECT_NE(
      testing::internal::GetCapturedStderr().find("the model draws random numbers from LibTorch's generator"),
      std::string::npos);
  const SmallLoss backward = [](SmallImpl& net, const MicroBatch& batch, LossSink& sink) {
    const at::Tensor loss = (output_of(net, batch) - batch["y"]).square().sum();
    if (net.is_training() || !at::GradMode::is_enabled()) loss.mul(1e-3).backward({}, /*retain_graph=*/true);
    sink.add("error", loss);
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(run, backward), "");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot be computed without gradients"),
            std::string::npos);
}

TEST(CutCheck, CostsNothingThatIsDeclaredOrUncutAndChangesNoResult) {
  std::atomic<int> passes{0};
  const SmallLoss counted = [&](SmallImpl& net, const MicroBatch& batch, LossSink& sink) {
    ++passes;
    squares(net, batch, sink);
  };
  const auto passes_of = [&](const CutRun& run, LossOver over) {
    passes = 0;
    EXPECT_EQ(refusal(run, counted, over), "");
    return passes.load();
  };
  const CutRun cut = cut_runs().at("micro-batches of 4 rows");
  EXPECT_EQ(passes_of({options_of()}, LossOver::undeclared), 2);
  EXPECT_EQ(passes_of(cut, LossOver::rows), 4);
  EXPECT_EQ(passes_of(cut, LossOver::undeclared), 4 + 3);
  std::vector<at::Tensor> weights;
  for (const LossOver over : {LossOver::rows, LossOver::undeclared}) {
    Net net = make_net();
    torch::manual_seed(8);
    Trainer(cut.options, parallel::make_single, optim::Sgd{})
        .fit(net, make_data(22), squared_error, {}, over);
    weights.push_back(net->first->weight.detach().clone());
  }
  EXPECT_TRUE(at::equal(weights[0], weights[1]));
}

TEST(CutCheck, RefusesAnEvaluationWhoseTokensWouldCutADeclaredBatch) {
  const TensorDataset data = make_data(22);
  for (const LossOver over : {LossOver::batch, LossOver::rows}) {
    const Model model = wrap_module(make_small(), contrast, over);
    const std::string found = error_of([&] { evaluate(model, data, nullptr, 8, /*batch_tokens=*/4); });
    EXPECT_EQ(found.find("batches of at most 4 tokens would cut batches of 8 rows") != std::string::npos,
              over == LossOver::batch)
        << found;
    EXPECT_EQ(error_of([&] { evaluate(model, data, nullptr, 8, /*batch_tokens=*/8); }), "");
  }
}

}  // namespace
}  // namespace funicular::train::cut_check_tests
