// Claims about weights that do not train: what is computed with follows what a checkpoint brings.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "funicular/model/encoder.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {
namespace {

TEST(FrozenWeights, ThatWereWrittenToAreComputedWithInSixteenBits) {
  const std::string name = "bert.encoder.layer.0.output.dense.weight";
  for (const char* strategy : {"single", "ddp", "zero1", "zero2", "zero3"}) {
    model::ModelOptions options;
    options.config.encoder.vocabulary = 31;
    options.config.encoder.width = 16;
    options.config.encoder.layers = 2;
    options.config.encoder.heads = 2;
    options.config.encoder.feed_forward.width = 24;
    options.config.encoder.positions.rows = 32;
    options.head = model::Head::masked_lm;
    Model model = model::build_model(options);
    Parameter& frozen = *model.find(name);
    frozen.trainable = false;
    frozen.compute.set_requires_grad(false);
    const auto made = make_strategy(strategy, comm::Group());
    made->attach(model, optim::make_optimizer(optim::AdamW{}), {.compute = at::kBFloat16});
    struct Write final : StateVisitor {
      const std::string& name;
      int written = 0;
      explicit Write(const std::string& name) : name(name) {}
      void visit(const StateSlice& slice) override {
        if (slice.kind != StateSlice::Kind::model || slice.name != name) return;
        slice.local.fill_(0.25);
        ++written;
      }
    } write(name);
    made->visit_state(write);
    made->state_changed();
    EXPECT_EQ(write.written, 1) << strategy;
    EXPECT_EQ(frozen.compute.scalar_type(), at::kBFloat16) << strategy;
    EXPECT_TRUE(frozen.compute.eq(0.25).all().item<bool>()) << strategy;
  }
}

}  // namespace
}  // namespace funicular::parallel
