#include "funicular/comm/collective_sequence.h"

#include <fmt/format.h>

#include <utility>

#include "funicular/base/error.h"

namespace funicular::comm {

std::string text_to_quote(const std::exception& error) {
  std::string text = error.what();
  if (const std::string prefix = fmt::format("[{}] ", launch::kRanks); text.starts_with(prefix))
    text.erase(0, prefix.size());
  return text;
}

CollectiveSequence::CollectiveSequence(const Meeting& meeting, std::shared_ptr<Watch> watch, int rank,
                                       int size, const Options& options)
    : meeting_(meeting), watch_(std::move(watch)), rank_(rank), size_(size), options_(options) {}

void CollectiveSequence::run(const std::string& what, const std::function<void()>& action) {
  queue_.wait_for_all();
  carry_out(what, true, action);
}

void CollectiveSequence::run_between_two(const std::string& what, const std::function<void()>& action) {
  queue_.wait_for_all();
  carry_out(what, false, action);
}

void CollectiveSequence::run_aside(const std::string& what, const std::function<void()>& action) {
  carry_out(what, false, action);
}

std::shared_ptr<Pending> CollectiveSequence::start(std::string what, std::function<void()> action) {
  return queue_.start(
      [this, what = std::move(what), action = std::move(action)] { carry_out(what, true, action); });
}

std::shared_ptr<Pending> CollectiveSequence::start_between_two(std::string what,
                                                               std::function<void()> action) {
  return queue_.start(
      [this, what = std::move(what), action = std::move(action)] { carry_out(what, false, action); });
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
    if (by_all) number_ = number;  // even if the action throws InputError: the verdict is in the store
    action();
  } catch (const RunError& error) {
    broken_ = fmt::format("in {}: {}", full, text_to_quote(error));
    watch_->note_failure(*broken_);
    throw RunError(launch::kRanks, "rank {} of {}, {}", rank_, size_, *broken_);
  }
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
    // A rank that tells its call has read the verdict before.
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
