// Copies from the host that travel together. Where there is a GPU one test copies to it; else the buffers lie on the CPU.

#include "funicular/core/device_copy.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "funicular/core/batch.h"
#include "tests/team_kernels.h"

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

/// On a GPU the copies wait until all sources are gone, so a buffer of the host that is used again too early shows.
TEST(DeviceCopy, BehindLongWorkHasTheNumbersOfSourcesThatAreGone) {
  constexpr int kCopies = 300;
  const at::Device place = TeamKernels().place();
  const int64_t width = place.is_cuda() ? 8192 : 8;
  const at::Tensor ones = at::ones({width, width}, place);
  for (int i = 0; i < 20; ++i) at::mm(ones, ones);
  std::vector<at::Tensor> alone, together;
  for (int i = 0; i < kCopies; ++i) {
    alone.push_back(to_device(at::full({1000 + i}, i, at::kLong), place));
    for (const at::Tensor& copy :
         copy_together({at::full({1000}, -i, at::kLong), at::full({7}, i, at::kInt)}, place))
      together.push_back(copy);
  }
  for (int i = 0; i < kCopies; ++i) {
    EXPECT_TRUE(alone[i].eq(i).all().item<bool>()) << i;
    EXPECT_TRUE(together[2 * i].eq(-i).all().item<bool>()) << i;
    EXPECT_TRUE(together[2 * i + 1].eq(i).all().item<bool>()) << i;
  }
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
