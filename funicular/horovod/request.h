#pragma once
// A collective that a thread of this rank has asked for.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "funicular/horovod/fusion.h"
#include "funicular/horovod/negotiation.h"

namespace funicular::horovod {

class Request {
 public:
  Request() = default;  ///< a join
  Request(Signature what, Operands tensors) : signature(std::move(what)), operands(std::move(tensors)) {}

  bool done() const;
  /// Waits until it is done. Throws the error with which it failed.
  void wait();
  /// Marks the request as done. `error`: why it failed, or null.
  void finish(std::exception_ptr error);

  // Written before another thread sees the request, or before the request is done.
  std::string name{};
  Signature signature{};
  Operands operands{};
  int last_joined = 0;  ///< of a join
  const std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
};

}  // namespace funicular::horovod
