#include "funicular/comm/collective_sequence.h"

#include <fmt/format.h>

#include <utility>

#include "funicular/base/error.h"

namespace funicular::comm {

void Pending::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  if (error_) std::rethrow_exception(error_);
}

bool Pending::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Pending::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
}

CollectiveSequence::CollectiveSequence(const Meeting& meeting, std::shared_ptr<Watch> watch, int rank,
                                       int size, const Options& options)
    : meeting_(meeting), watch_(std::move(watch)), rank_(rank), size_(size), options_(options) {}

CollectiveSequence::~CollectiveSequence() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void CollectiveSequence::run(const std::string& what, const std::function<void()>& action) {
  wait_for_all();
  carry_out(what, true, action);
}

void CollectiveSequence::run_between_two(const std::string& what, const std::function<void()>& action) {
  wait_for_all();
  carry_out(what, false, action);
}

void CollectiveSequence::run_aside(const std::string& what, const std::function<void()>& action) {
  carry_out(what, false, action);
}

void CollectiveSequence::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

std::shared_ptr<Pending> CollectiveSequence::start(std::string what, std::function<void()> action) {
  auto pending = std::make_shared<Pending>();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(what), std::move(action), pending});
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
  return pending;
}

void CollectiveSequence::work() {
  while (true) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
    }
    std::exception_ptr error;
    try {
      carry_out(item.what, true, item.action);
    } catch (...) {
      error = std::current_exception();
    }
    item.action = nullptr;  // lets the tensors go
    item.pending->finish(error);
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    changed_.notify_all();
  }
}

void CollectiveSequence::carry_out(const std::string& what, bool by_all,
                                   const std::function<void()>& action) {
  if (broken_)
    throw RunError(launch::kRanks, "rank {} of {}: {}: the group broke earlier: {}", rank_, size_, what,
                   *broken_);
  const int64_t number = number_ + 1;
  const std::string full = by_all ? fmt::format("{} (collective {})", what, number) : what;
  watch_->note(full);
  try {
    if (by_all && (number == 1 || options_.compare_all)) compare(number, what);
    action();
  } catch (const RunError& error) {
    std::string text = error.what();
    if (const std::string prefix = fmt::format("[{}] ", launch::kRanks); text.rfind(prefix, 0) == 0)
      text.erase(0, prefix.size());
    broken_ = fmt::format("in {}: {}", full, text);
    watch_->note_failure(*broken_);
    throw RunError(launch::kRanks, "rank {} of {}, {}", rank_, size_, *broken_);
  }
  if (by_all) number_ = number;
  watch_->note("no collective; the last was " + full);
}

/// Throws unless all ranks are about to do the same.
void CollectiveSequence::compare(int64_t number, const std::string& what) {
  const auto call = [&](int rank) { return fmt::format("call/{}/{}", number, rank); };
  const auto verdict = [](int64_t of) { return fmt::format("agreed/{}", of); };
  meeting_.set(call(rank_), what);
  if (rank_ == 0) {
    std::string different;
    for (int other = 1; other < size_; ++other) {
      const std::string theirs = await(meeting_, call(other), watch_.get(), options_.timeout);
      if (theirs != what) different += fmt::format("; rank {} calls {}", other, theirs);
      meeting_.erase(call(other));
    }
    // Whoever tells its call has read the verdict before.
    if (number > 1) meeting_.erase(verdict(number - 1));
    meeting_.set(verdict(number),
                 different.empty() ? "yes" : fmt::format("rank 0 calls {}{}", what, different));
    if (!different.empty())
      throw RunError(launch::kRanks, "the ranks call different collectives: rank 0 calls {}{}", what,
                     different);
    return;
  }
  if (const std::string text = await(meeting_, verdict(number), watch_.get(), options_.timeout);
      text != "yes")
    throw RunError(launch::kRanks, "the ranks call different collectives: {}", text);
}

}  // namespace funicular::comm
