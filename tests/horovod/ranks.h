#pragma once
// What the tests of Horovod's interface share: ranks, and tensors whose sums are known.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "../comm/ranks.h"
#include "funicular/base/error.h"
#include "funicular/horovod/horovod.h"

namespace funicular::horovod::test {

using comm::test::with_ranks;

/// Runs `body` in `count` processes between init() and shutdown(); with 1 in this one.
template <class Body>
void with_horovod(int count, const InitOptions& options, const Body& body) {
  const auto run = [&] {
    init(options);
    EXPECT_EQ(size(), count);
    body();
    barrier();
    shutdown();
  };
  if (count == 1) return run();
  with_ranks(count, run);
}
template <class Body>
void with_horovod(int count, const Body& body) {
  with_horovod(count, {}, body);
}

template <class Error, class Action>
std::string failure(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no failure";
  return "";
}

inline void expect_in(const std::string& message, const std::vector<std::string>& phrases) {
  for (const std::string& phrase : phrases)
    EXPECT_NE(message.find(phrase), std::string::npos) << message << "\nlacks " << phrase;
}

/// The device of the tensors: that of TEST_DEVICE, else the CPU.
inline at::Device place() {
  const char* const device = std::getenv("TEST_DEVICE");
  return at::Device(device ? device : "cpu");
}

/// Small whole numbers, another sequence on each rank.
inline at::Tensor values(int of_rank, std::vector<int64_t> shape, at::ScalarType type = at::kFloat) {
  const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return ((at::arange(size, at::kLong) * 7 + of_rank * 3).remainder(11) - 4).reshape(shape).to(place(), type);
}
inline at::Tensor mine(std::vector<int64_t> shape, at::ScalarType type = at::kFloat) {
  return values(rank(), std::move(shape), type);
}
inline at::Tensor all_of(const std::vector<int64_t>& shape, at::ScalarType type = at::kDouble) {
  std::vector<at::Tensor> each;
  for (int of = 0; of < size(); ++of) each.push_back(values(of, shape, type));
  return at::stack(each);
}
inline at::Tensor sum_of(const std::vector<int64_t>& shape) {
  return all_of(shape).sum(0);
}

inline void expect_same(const at::Tensor& found, const at::Tensor& wanted, const std::string& what = "") {
  ASSERT_EQ(found.sizes().vec(), wanted.sizes().vec()) << what;
  EXPECT_TRUE(at::equal(found.cpu().to(at::kDouble), wanted.cpu().to(at::kDouble)))
      << what << "\n"
      << found.cpu() << wanted.cpu();
}

/// With the number of ranks as its parameter.
class OnRanks : public testing::TestWithParam<int> {
 protected:
  static int ranks() { return GetParam(); }
};

}  // namespace funicular::horovod::test
