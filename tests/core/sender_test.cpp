// Copies between the host and a device on streams of the host: who waits for whom.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "funicular/core/device_copy.h"
#include "funicular/runtime/host_stream.h"

namespace funicular {
namespace {

using device::HostStream;

/// A stream whose work does not begin before go().
struct HeldStream {
  std::shared_ptr<HostStream> stream = std::make_shared<HostStream>();
  std::promise<void> start;

  HeldStream() {
    stream->queue([begun = start.get_future().share()] { begun.wait(); });
  }
  void go() { start.set_value(); }
};

/// Waits for all that the stream was asked for.
void finish(HostStream& stream) {
  stream.record()->wait();
}

TEST(Sender, WorkOfTheReaderWaitsForTheCopy) {
  HeldStream copies;
  Sender sender(copies.stream);
  HostStream reader;
  const std::vector<at::Tensor> sent = sender.send({at::full({5}, 7, at::kLong)}, reader);
  std::atomic<bool> went = false, waited = false;
  at::Tensor read;
  reader.queue([&] {
    waited = went.load();
    read = sent[0].clone();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  went = true;
  copies.go();
  finish(reader);
  EXPECT_TRUE(waited);
  EXPECT_TRUE(at::equal(read, at::full({5}, 7, at::kLong)));
}

TEST(Sender, ABufferIsFilledAgainOnceItsCopyIsDone) {
  HeldStream copies;
  Sender sender(copies.stream);
  HostStream reader;
  std::vector<at::Tensor> sent;
  for (int64_t i = 0; i < 3; ++i) sent.push_back(sender.send({at::full({100}, i, at::kLong)}, reader)[0]);
  EXPECT_EQ(sender.buffers(), 3U);
  copies.go();
  finish(reader);
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(sent[static_cast<size_t>(i)].eq(i).all().item<bool>()) << i;
  for (int64_t i = 0; i < 9; ++i) {
    const at::Tensor one = sender.send({at::full({100}, i, at::kLong)}, reader)[0];
    finish(reader);
    EXPECT_TRUE(one.eq(i).all().item<bool>()) << i;
  }
  EXPECT_EQ(sender.buffers(), 3U);
}

/// The second batch needs a larger buffer than the first, and the third one fits into it again.
TEST(Sender, ABufferGrowsWithItsBatch) {
  Sender sender(std::make_shared<HostStream>());
  HostStream reader;
  for (const int64_t size : {10, 100'000, 1000}) {
    const std::vector<at::Tensor> tensors{at::arange(size), at::empty({0}), at::arange(3).to(at::kInt)};
    const std::vector<at::Tensor> sent = sender.send(tensors, reader);
    finish(reader);
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(at::equal(sent[i], tensors[i])) << size << " " << i;
  }
  EXPECT_EQ(sender.buffers(), 1U);
}

TEST(Arriving, IsReadOnceItIsThere) {
  HeldStream device;
  const at::Tensor there = at::zeros({4});
  device.stream->queue([there] { there.fill_(3); });
  const device::UseHostStream use(device.stream);
  const Arriving arriving(there);
  device.stream->queue([there] { there.fill_(5); });
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    device.go();
  });
  EXPECT_TRUE(at::equal(arriving.wait(), at::full({4}, 3.0F)));
  later.join();
  finish(*device.stream);
}

}  // namespace
}  // namespace funicular
