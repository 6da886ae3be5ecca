// Claims about models that become parts of others.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "funicular/base/error.h"
#include "funicular/core/flat_layout.h"
#include "funicular/core/precision.h"
#include "funicular/core/recompute.h"

namespace funicular::append_tests {
namespace {

/// What a segment saw of its pass.
struct Seen {
  std::vector<uint64_t> seeds;
  int training = 0, recorded = 0, runs = 0;
};

/// x = table[token_ids]; hidden = tanh(x w); loss term `sum` of hidden. Two segments.
Model small(double value, Seen* seen = nullptr, bool gives_ids = false) {
  Model model;
  Parameter* const table =
      model.add_parameter("table", torch::full({5, 3}, value, torch::kDouble), ParameterKind::matrix);
  Parameter* const weight =
      model.add_parameter("weight", torch::full({3, 3}, value / 3, torch::kDouble), ParameterKind::matrix);
  const auto look = [seen](const Pass& pass) {
    if (!seen) return;
    seen->seeds.push_back(pass.batch.packing.random.seed);
    seen->training += pass.batch.packing.random.training || pass.options.training;
    seen->recorded += at::GradMode::is_enabled();
    ++seen->runs;
  };
  model.segments.push_back(
      {"embed", {table}, {{"token_ids"}}, {{"x"}}, [=](Activations in, const Pass& pass) {
         look(pass);
         pass.taps("x", table->compute);
         return Activations{{"x", table->compute.index_select(0, in.at("token_ids"))}};
       }});
  std::vector<Port> outputs{{"hidden"}};
  if (gives_ids) outputs.push_back({"token_ids"});
  model.segments.push_back({"layer", {weight}, {{"x"}}, outputs, [=](Activations in, const Pass& pass) {
                              look(pass);
                              const at::Tensor hidden = torch::tanh(in.at("x").matmul(weight->compute));
                              pass.loss.add("sum", hidden.sum());
                              pass.loss.output("hidden", hidden);
                              Activations out{{"hidden", hidden}};
                              if (gives_ids) out["token_ids"] = (hidden.sum(1) > 0).to(torch::kLong);
                              return out;
                            }});
  model.replicate = [=] { return small(0, nullptr, gives_ids); };
  model.makes_row_gradients = true;
  return model;
}

MicroBatch batch_of(std::vector<int64_t> ids) {
  MicroBatch batch;
  const auto count = static_cast<int32_t>(ids.size());
  batch.tensors["token_ids"] = torch::tensor(ids);
  batch.packing = Packing::from_lengths({count}, {0}, {0}, {.seed = 7, .training = true});
  batch.counts = {{"sum", 1}};
  return batch;
}

/// Reads both models' hidden states.
void add_distance(Model& model, const std::string& teacher) {
  model.segments.push_back(
      {"distance", {}, {{"hidden"}, {teacher + "hidden"}}, {}, [=](Activations in, const Pass& pass) {
         const at::Tensor &a = in.at("hidden"), &b = in.at(teacher + "hidden");
         EXPECT_FALSE(b.requires_grad());
         pass.loss.add("sum", (a - b).square().sum());
         return Activations{};
       }});
}

TEST(Append, NamesGetThePrefixAndSharedPortsDoNot) {
  Model host = small(0.1);
  host.append(small(0.2), {.prefix = "other."});
  std::vector<std::string> names, segments;
  for (const auto& parameter : host.parameters) {
    names.push_back(parameter->name);
    EXPECT_EQ(parameter->slices.front().name, parameter->name);
    EXPECT_TRUE(parameter->exported && parameter->trainable && !parameter->constant);
  }
  for (const Segment& segment : host.segments) segments.push_back(segment.name);
  EXPECT_EQ(names, (std::vector<std::string>{"table", "weight", "other.table", "other.weight"}));
  EXPECT_EQ(segments, (std::vector<std::string>{"embed", "layer", "other.embed", "other.layer"}));
  EXPECT_EQ(host.segments[2].inputs[0].name, "token_ids");
  EXPECT_EQ(host.segments[2].outputs[0].name, "other.x");
  EXPECT_EQ(host.segments[3].inputs[0].name, "other.x");
  EXPECT_EQ(host.parameter_count(), 2 * (15 + 9));
  Model again = small(0.1);
  again.append(small(0.2), {.prefix = "other.", .first = true});
  EXPECT_EQ(again.segments.front().name, "other.embed");
  EXPECT_EQ(again.segments.back().name, "layer");
}

TEST(Append, ObserversAreToldThePrefixedNames) {
  Model host = small(0.1);
  host.append(small(0.2), {.prefix = "other."});
  std::vector<std::string> names;
  LossSink sink;
  host.forward({}, batch_of({1, 2}),
               {[&](std::string_view name, const at::Tensor&) { names.emplace_back(name); }}, sink);
  EXPECT_EQ(names, (std::vector<std::string>{"x", "other.x"}));
}

TEST(Append, TheSecondModelReadsTheIdsThatTheFirstMakes) {
  Model host = small(0.5, nullptr, /*gives_ids=*/true);
  Seen seen;
  Model second = small(0.25, &seen);
  host.append(std::move(second), {.prefix = "second."});
  LossSink sink;
  const Activations out = host.forward({}, batch_of({4, 4, 4}), {}, sink);
  const at::Tensor alone = torch::full({3, 3}, std::tanh(0.25 * 0.25), torch::kDouble);
  EXPECT_TRUE(torch::allclose(out.at("second.hidden"), alone));
  // Rows 1 of the table: that is what the first model gave, not the batch's 4.
  sink.total({{"sum", 1}}).backward();
  EXPECT_GT(host.find("second.table")->compute.grad()[1].abs().sum().item<double>(), 0);
  EXPECT_EQ(host.find("second.table")->compute.grad()[4].abs().sum().item<double>(), 0);
}

TEST(Append, ASharedWeightIsOneParameterOfBoth) {
  Model host = small(0.3);
  Scope scope{.prefix = "other.", .shared_weights = {{"table", "table"}}};
  host.append(small(0.7), scope);
  ASSERT_EQ(host.parameters.size(), 3u);
  Parameter* const table = host.find("table");
  EXPECT_EQ(host.segments[2].parameters, std::vector<Parameter*>{table});
  const auto gradient = [&] {
    LossSink sink;
    host.forward({}, batch_of({1}), {}, sink);
    table->compute.mutable_grad().reset();
    sink.total({{"sum", 1}}).backward();
    return table->compute.grad()[1].clone();
  };
  const auto of_one = [&](double weight) {
    return weight * (1 - std::pow(std::tanh(0.3 * weight * 3), 2)) * 3;
  };
  const at::Tensor both = torch::full({3}, of_one(0.1) + of_one(0.7 / 3), torch::kDouble);
  EXPECT_TRUE(torch::allclose(gradient(), both)) << gradient();
  // What a model for prediction computes with may be another tensor than before: both read it.
  table->master = at::zeros_like(table->master);
  make_inference(host, Precision::fp32);
  LossSink sink;
  const Activations out = host.forward({}, batch_of({1}), {}, sink);
  EXPECT_EQ(out.at("other.hidden").abs().sum().item<double>(), 0);
  Model third = small(0.1);
  EXPECT_THROW(third.append(small(0.1), {.prefix = "o.", .shared_weights = {{"table", "none"}}}), InputError);
  Model fourth = small(0.1);
  EXPECT_THROW(fourth.append(small(0.1), {.prefix = "o.", .shared_weights = {{"none", "table"}}}),
               InputError);
  Model fifth = small(0.1);
  EXPECT_THROW(fifth.append(small(0.1), {.prefix = "o.", .shared_weights = {{"weight", "table"}}}),
               InputError);
  Model sixth = small(0.1);
  EXPECT_THROW(sixth.append(small(0.1), {.prefix = ""}), InputError);
}

TEST(Append, AFrozenModelIsOnlyUsed) {
  Seen own, seen;
  Model host = small(0.3, &own);
  host.append(small(0.7, &seen), {.prefix = "teacher.", .frozen = true, .exported = false, .first = true});
  add_distance(host, "teacher.");
  LossSink sink;
  sink.keep_outputs = true;
  host.forward({}, batch_of({1, 2}), {}, sink, {.training = true});
  EXPECT_EQ(seen.runs, 2);
  EXPECT_EQ(seen.training + seen.recorded, 0);
  EXPECT_EQ(own.training, 2);
  EXPECT_EQ(sink.terms().size(), 2u);  // the host's, and the distance; not the teacher's
  const double expected = std::tanh(0.3 * 0.3);
  EXPECT_NEAR(sink.outputs().at("hidden")[0][0].item<double>(), expected, 1e-15);
  sink.total({{"sum", 1}}).backward();
  for (const char* name : {"teacher.table", "teacher.weight"}) {
    const Parameter* const parameter = host.find(name);
    EXPECT_FALSE(parameter->compute.grad().defined() || parameter->trainable || parameter->exported);
    EXPECT_TRUE(parameter->constant);
  }
  const FlatLayout layout(host);
  for (const FlatLayout::Entry& entry : layout.entries())
    EXPECT_FALSE(entry.parameter->name.starts_with("teacher."));
  convert(host, at::kFloat);
  EXPECT_EQ(host.find("teacher.table")->compute.scalar_type(), at::kDouble);
  EXPECT_EQ(host.find("table")->compute.scalar_type(), at::kFloat);
}

TEST(Append, DropoutOfTheTwoIsKeyedApart) {
  Seen own, first, second;
  Model host = small(0.3, &own);
  host.append(small(0.7, &first), {.prefix = "first."});
  host.append(small(0.7, &second), {.prefix = "second."});
  LossSink sink;
  MicroBatch batch = batch_of({1});
  host.forward({}, batch, {}, sink);
  batch.packing.random.seed = 8;
  host.forward({}, batch, {}, sink);
  EXPECT_EQ(own.seeds, (std::vector<uint64_t>{7, 7, 8, 8}));
  std::set<uint64_t> all;
  for (const Seen* seen : {&own, &first, &second}) {
    EXPECT_EQ(seen->seeds[0], seen->seeds[1]);
    all.insert(seen->seeds.begin(), seen->seeds.end());
  }
  EXPECT_EQ(all.size(), 6u);  // of two seeds and three models
}

TEST(Append, ReplicatesArePutTogetherAsTheFirstWas) {
  Model host = small(0.3);
  host.append(small(0.7), {.prefix = "teacher.", .frozen = true, .first = true});
  const Model replica = host.replicate();
  ASSERT_EQ(replica.parameters.size(), host.parameters.size());
  for (size_t i = 0; i < host.parameters.size(); ++i) {
    EXPECT_EQ(replica.parameters[i]->name, host.parameters[i]->name);
    EXPECT_EQ(replica.parameters[i]->trainable, host.parameters[i]->trainable);
  }
  EXPECT_EQ(replica.segments.front().name, "teacher.embed");
  Model other = small(0.1);
  other.replicate = nullptr;
  host.append(std::move(other), {.prefix = "b."});
  EXPECT_FALSE(host.replicate);
}

TEST(Append, WhatTheTwoCanDoIsWhatBothCan) {
  const auto flags = [](bool frozen) {
    Model host = small(0.1), other = small(0.2);
    host.low_precision = host.recomputes_attention = true;
    other.makes_row_gradients = false;
    host.append(std::move(other), {.prefix = "o.", .frozen = frozen});
    return std::tuple(host.low_precision, host.recomputes_attention, host.makes_row_gradients);
  };
  EXPECT_EQ(flags(false), std::tuple(false, false, false));
  EXPECT_EQ(flags(true), std::tuple(false, true, true));  // a frozen one neither recomputes nor learns
}

TEST(Append, RecomputationLeavesTheFrozenSegmentsInFrontAlone) {
  const auto run = [](Recompute mode, Seen& seen) {
    Model host = small(0.3);
    host.append(small(0.7, &seen), {.prefix = "teacher.", .frozen = true, .first = true});
    add_distance(host, "teacher.");
    LossSink sink;
    forward_recomputed(host, mode, {}, batch_of({1, 2}), {}, sink, {.training = true});
    sink.total({{"sum", 1}}).backward();
    return host.find("table")->compute.grad().clone();
  };
  Seen plain, full, sqrt;
  const at::Tensor expected = run(Recompute::none, plain);
  EXPECT_TRUE(torch::equal(run(Recompute::full, full), expected));
  EXPECT_TRUE(torch::equal(run(Recompute::sqrt, sqrt), expected));
  EXPECT_EQ(std::tuple(plain.runs, full.runs, sqrt.runs), std::tuple(2, 2, 2));
}

}  // namespace
}  // namespace funicular::append_tests
