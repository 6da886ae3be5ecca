// Proofs on a GPU choose attention that repeats. Their results are shown by tests/card and on a GPU.

#include <gtest/gtest.h>

#include "funicular/format/model_config.h"
#include "funicular/prove/proof.h"

namespace funicular::prove {
namespace {

TEST(DeviceOfAProof, TakesAttentionWhoseDropoutDoesNotDependOnTheBatch) {
  const auto repeats = [](const char* layout, const char* family) {
    return repeats_attention(Layout::parse(layout), format::default_config(family));
  };
  for (const char* const family : {"bert", "modernbert", "mpnet"})
    EXPECT_TRUE(repeats("pipeline -n 2", family)) << family;
  EXPECT_FALSE(repeats("ddp -n 2", "deberta-v2")) << "whose gradients cannot repeat on a GPU";
  EXPECT_TRUE(repeats("ddp -n 2 --deterministic", "deberta-v2")) << "which is refused later";
}

}  // namespace
}  // namespace funicular::prove
