// Claims about the floor of a step and about where its time goes.
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/bench/device_trace.h"
#include "funicular/bench/floor.h"
#include "funicular/bench/profile.h"
#include "funicular/format/family.h"
#include "funicular/model/encoder.h"

namespace funicular::bench {
namespace {

constexpr int64_t kTokens = 700, kMasked = 90;

/// Six operations for each token and each weight of a matrix that it meets, by the model's own weights.
double expected_flops(const format::ModelConfig& config) {
  const Model model = model::build_model({config, model::Head::masked_lm});
  double expected = 0;
  for (const auto& parameter : model.parameters) {
    const std::string name = format::neutral_name(parameter->slices.front().name);
    const bool encoder = name.starts_with(format::kNeutralLayers);
    // After the attention of the last layer only what is predicted goes on.
    const bool few =
        name.find("layer.2.") != std::string::npos && name.find("attention.self.") == std::string::npos;
    const bool head = name.find("transform.dense") != std::string::npos ||
                      name.find("word_embeddings") != std::string::npos;
    if (parameter->master.dim() == 2 && (encoder || head))
      expected +=
          6.0 * static_cast<double>(parameter->master.numel() * (encoder && !few ? kTokens : kMasked));
  }
  return expected;
}

double counted_flops(const BertShape& shape) {
  double flops = 0;
  for (const ProductShape& product : step_products(shape, kTokens, kMasked)) flops += product.flops();
  return flops;
}

TEST(Floor, CountsTwoOperationsAForwardAndFourABackwardForEachWeightAndToken) {
  for (const bool gated : {false, true}) {
    format::ModelConfig config = format::default_config(gated ? "gte" : "bert");
    config.encoder.vocabulary = 1000;
    config.encoder.width = 48;
    config.encoder.set_layers(3);
    config.encoder.heads = 4;
    config.encoder.feed_forward.width = 100;
    const BertShape shape{.layers = 3, .hidden = 48, .inner = 100, .vocabulary = 1000, .gated = gated};
    EXPECT_EQ(counted_flops(shape), expected_flops(config)) << gated;
  }
}

TEST(Floor, IsTheTimeOfAllProducts) {
  const Floor once = measure_floor({{256, 256, 256, 1}}, at::kFloat, 3);
  const Floor often = measure_floor({{256, 256, 256, 1000}}, at::kFloat, 3);
  EXPECT_GT(once.seconds, 0);
  EXPECT_GT(often.seconds, 50 * once.seconds);
  EXPECT_EQ(often.flops, 1000 * once.flops);
  EXPECT_GT(once.square_flops_per_second, 0);
}

TEST(Profile, CountsTheTimeOfEachEventWithoutThoseInsideIt) {
  using namespace std::chrono_literals;
  const Profile profile;
  for (int i = 0; i < 2; ++i) {
    RECORD_FUNCTION("outer", c10::ArrayRef<const c10::IValue>{});
    std::this_thread::sleep_for(10ms);
    for (int j = 0; j < 3; ++j) {
      RECORD_FUNCTION("inner", c10::ArrayRef<const c10::IValue>{});
      std::this_thread::sleep_for(20ms);
    }
  }
  const auto parts = profile.parts();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "inner");
  EXPECT_EQ(parts[0].calls, 6);
  EXPECT_GE(parts[0].seconds, 0.12);
  EXPECT_EQ(parts[1].name, "outer");
  EXPECT_EQ(parts[1].calls, 2);
  EXPECT_GE(parts[1].seconds, 0.02);
  EXPECT_LT(parts[1].seconds, parts[0].seconds);
}

TEST(Profile, SeesLibTorchsOperations) {
  const at::Tensor x = torch::randn({8, 16});
  const Profile profile;
  at::mm(x, x.t());
  const auto parts = profile.parts();
  EXPECT_TRUE(std::any_of(parts.begin(), parts.end(), [](const Profile::Part& part) {
    return part.name == "aten::mm" && part.calls == 1;
  }));
}

TEST(Profile, SortsEventsByTheKindOfWork) {
  EXPECT_EQ(work_of("funicular::matmul"), Work::products);
  EXPECT_EQ(work_of("funicular::weight_gradient"), Work::products);
  EXPECT_EQ(work_of("aten::addmm"), Work::products);
  EXPECT_EQ(work_of("funicular::attention_backward"), Work::attention);
  EXPECT_EQ(work_of("funicular::activation_backward"), Work::elementwise);
  EXPECT_EQ(work_of("funicular::residual_norm"), Work::elementwise);
  EXPECT_EQ(work_of("funicular::cross_entropy"), Work::loss);
  EXPECT_EQ(work_of("funicular::optimizer"), Work::optimizer);
  EXPECT_EQ(work_of("funicular::gradient_norm"), Work::optimizer);
  EXPECT_EQ(work_of("aten::add_"), Work::rest);
}

TEST(DeviceTrace, HoldsLibTorchsOperations) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "trace.json";
  const at::Tensor square = at::ones({8, 8});
  trace_device([&] { at::mm(square, square); }, file);
  const OrderedJson trace = OrderedJson::parse(read_file(file));
  const auto is_product = [](const OrderedJson& event) { return event.value("name", "") == "aten::mm"; };
  EXPECT_TRUE(std::ranges::any_of(trace["traceEvents"], is_product));
}

TEST(DeviceTrace, ThatCannotBeWrittenIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THROW(trace_device([] {}, folder.path() / "none" / "trace.json"), RunError);
}

TEST(DeviceTrace, OfWorkThatFailsLeavesTheEarlierFileAndAProfilerThatCanBeUsed) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "trace.json";
  write_file_atomically(file, "earlier");
  EXPECT_THROW(trace_device([] { throw RunError("test", "stopped"); }, file), RunError);
  EXPECT_EQ(read_file(file), "earlier");
  trace_device([] {}, file);
  EXPECT_NE(read_file(file), "earlier");
}

TEST(Trace, HoldsNestedEventsOfEachThreadInMicroseconds) {
  using namespace std::chrono_literals;
  const Profile profile(/*keep_events=*/true);
  {
    RECORD_FUNCTION("outer", c10::ArrayRef<const c10::IValue>{});
    std::this_thread::sleep_for(2ms);
    {
      RECORD_FUNCTION("funicular::inner", c10::ArrayRef<const c10::IValue>{});
      std::this_thread::sleep_for(5ms);
    }
    std::thread([] { RECORD_FUNCTION("other", c10::ArrayRef<const c10::IValue>{}); }).join();
  }
  const OrderedJson trace = OrderedJson::parse(chrome_trace(profile.events()));
  std::map<std::string, OrderedJson> events;
  for (const OrderedJson& event : trace["traceEvents"])
    if (event["ph"] == "X") events[event["name"]] = event;
  ASSERT_EQ(events.size(), 3u);
  const auto begin = [&](const char* name) { return events[name]["ts"].get<double>(); };
  const auto end = [&](const char* name) { return begin(name) + events[name]["dur"].get<double>(); };
  EXPECT_GE(events["funicular::inner"]["dur"].get<double>(), 5000);
  EXPECT_LE(begin("outer") + 2000, begin("funicular::inner"));
  EXPECT_LE(end("funicular::inner"), end("outer") + 1e-6);
  EXPECT_EQ(events["outer"]["tid"], events["funicular::inner"]["tid"]);
  EXPECT_NE(events["outer"]["tid"], events["other"]["tid"]);
}

}  // namespace
}  // namespace funicular::bench
