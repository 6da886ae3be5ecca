// Copies from the host that travel together; the buffer lies on the CPU here.

#include "funicular/core/device_copy.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "funicular/core/batch.h"

namespace funicular {
namespace {

std::vector<at::Tensor> of_all_kinds() {
  return {at::arange(7, at::kInt),      at::arange(24, at::kLong).view({2, 3, 4}).transpose(0, 2),
          at::empty({0}, at::kLong),    at::tensor(std::vector<int64_t>{3}, at::kLong).to(at::kBool),
          at::tensor(2.5, at::kDouble), at::arange(5).to(at::kHalf)};
}

TEST(DeviceCopy, TogetherGivesTheSameTensorsApart) {
  const std::vector<at::Tensor> tensors = of_all_kinds();
  const std::vector<at::Tensor> copies = copy_together(tensors, at::kCPU);
  ASSERT_EQ(copies.size(), tensors.size());
  for (size_t i = 0; i < copies.size(); ++i) {
    EXPECT_EQ(copies[i].scalar_type(), tensors[i].scalar_type()) << i;
    EXPECT_TRUE(at::equal(copies[i], tensors[i])) << i;
    EXPECT_TRUE(copies[i].is_contiguous()) << i;
    EXPECT_EQ(copies[i].storage_offset() * copies[i].element_size() % 64, 0) << i;
  }
}

TEST(DeviceCopy, AChangeOfOneCopyIsNoChangeOfAnother) {
  const std::vector<at::Tensor> copies = copy_together(of_all_kinds(), at::kCPU);
  const int64_t before = copies[4]._version();
  copies[0].add_(1);
  EXPECT_EQ(copies[4]._version(), before);
  EXPECT_TRUE(at::equal(copies[1], of_all_kinds()[1]));
}

TEST(DeviceCopy, WhatLiesThereAlreadyIsNotCopied) {
  const at::Tensor tensor = at::arange(3);
  EXPECT_TRUE(to_device(tensor, at::kCPU).is_same(tensor));
  MicroBatch batch{{{"token_ids", tensor}}, Packing::from_lengths({3}, {0}, {0}, {}), {}, {}};
  const MicroBatch moved = batch.to(at::kCPU);
  EXPECT_TRUE(moved["token_ids"].is_same(tensor));
  EXPECT_TRUE(moved.packing.positions.is_same(batch.packing.positions));
  EXPECT_TRUE(moved.on_host("token_ids").is_same(tensor));
}

}  // namespace
}  // namespace funicular
