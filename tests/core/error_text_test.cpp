// What LibTorch throws reaches a person as one message.

#include "funicular/core/error_text.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <stdexcept>
#include <string>

namespace funicular {
namespace {

struct Seen {
  std::string text;
  bool out_of_memory = false;
};

Seen seen(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return {error_text(error), is_out_of_memory(error)};
  }
  return {"nothing was thrown"};
}

TEST(ErrorText, TheTraceOfLibTorchIsLeftOut) {
  const Seen found = seen([] { TORCH_CHECK(false, "the sizes do not fit"); });
  EXPECT_EQ(found.text, "the sizes do not fit");
  EXPECT_FALSE(found.out_of_memory);
}

TEST(ErrorText, MemoryThatIsRefusedIsKnownAsSuch) {
  const Seen of_torch = seen([] { at::empty({int64_t{1} << 60}); });
  EXPECT_TRUE(of_torch.out_of_memory) << of_torch.text;
  EXPECT_EQ(of_torch.text.find("frame #"), of_torch.text.npos) << of_torch.text;
  EXPECT_TRUE(seen([] { throw std::bad_alloc(); }).out_of_memory);
  const Seen other = seen([] { throw std::runtime_error("something else"); });
  EXPECT_EQ(other.text, "something else");
  EXPECT_FALSE(other.out_of_memory);
}

}  // namespace
}  // namespace funicular
