#pragma once
// A device's generator of random numbers, lent to one call of LibTorch that takes no other source of them.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>

namespace funicular::nn::device {

/// While it lives, the generator of the process for `device` gives the numbers that belong to `seed`. Afterwards the
/// generator has the state that it had before, so the draws of a user's modules stay what they were. One thread at a
/// time may have one with a seed: other threads wait for it.
class KeyedGenerator {
 public:
  /// Without a seed it does nothing.
  KeyedGenerator(const at::Device& device, std::optional<uint64_t> seed);
  ~KeyedGenerator();
  KeyedGenerator(const KeyedGenerator&) = delete;
  KeyedGenerator& operator=(const KeyedGenerator&) = delete;

 private:
  std::unique_lock<std::mutex> turn_;
  at::Generator generator_;
  at::Tensor before_;
};

}  // namespace funicular::nn::device
