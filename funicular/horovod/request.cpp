#include "funicular/horovod/request.h"

namespace funicular::horovod {

bool Request::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Request::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
}

void Request::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  if (error_) std::rethrow_exception(error_);
}

}  // namespace funicular::horovod
