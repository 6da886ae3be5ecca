#include "funicular/comm/watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "funicular/base/error.h"

namespace funicular::comm {

namespace {

using namespace std::chrono_literals;
/// How long rank 0 keeps the store after a failure, for ranks that have not heard of it yet.
constexpr auto kKeepStore = 5s;
constexpr int kFaultySteps = static_cast<int>(1s / Patience::kStep);

std::string beat_key(int rank) {
  return fmt::format("beat/{}", rank);
}

/// A beat is "STATE COUNT ACTIVITY" with STATE one of lives, left, failed.
struct Beat {
  std::string state, activity;
  explicit Beat(const std::string& text) {
    const size_t first = text.find(' '), second = text.find(' ', first + 1);
    state = text.substr(0, first);
    if (second != std::string::npos) activity = text.substr(second + 1);
  }
};

}  // namespace

Watch::Watch(Meeting meeting, int rank, int size, std::chrono::milliseconds silence)
    : meeting_(std::move(meeting)),
      rank_(rank),
      size_(size),
      silent_beats_(static_cast<int>(std::max<int64_t>(2, silence / kBeat))),
      processes_(meeting_.peers(), rank),
      heard_(static_cast<size_t>(size)) {
  beater_ = std::thread([this] {
    beat_loop();
    const std::lock_guard lock(mutex_);
    beater_ended_ = true;
    changed_.notify_all();
  });
}

std::shared_ptr<Watch> Watch::start(Meeting meeting, int rank, int size, std::chrono::milliseconds silence) {
  return {new Watch(std::move(meeting), rank, size, silence), [](Watch* watch) {
            // A thread that hangs because rank 0 is frozen uses the watch until the process ends.
            if (watch->stop()) delete watch;
          }};
}

bool Watch::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (state_ == "lives") state_ = "left";
  changed_.notify_all();
  const bool ended =
      changed_.wait_for(lock, rank_ == 0 ? 2s + kKeepStore : 2s, [&] { return beater_ended_; });
  lock.unlock();
  if (alarmer_.joinable()) alarmer_.join();
  if (ended) {
    beater_.join();
  } else {
    beater_.detach();
  }
  return ended;
}

void Watch::note(std::string activity) {
  const std::lock_guard lock(mutex_);
  if (state_ != "failed")
    activity_ = std::move(activity);  // the first failure is what the others need to know
}

void Watch::note_failure(const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == "failed") return;
    state_ = "failed";
    activity_ = message;
  }
  changed_.notify_all();
}

std::optional<std::string> Watch::ended_process() {
  const auto ended = processes_.find_ended();
  if (!ended) return std::nullopt;
  const std::string doing = Beat(heard_[static_cast<size_t>(ended->rank)].text).activity;
  return fmt::format("rank {} (process {}) has ended{}", ended->rank, ended->process,
                     doing.empty() ? "" : "; it was last heard of in " + doing);
}

bool StuckCheck::is_stuck(int64_t rounds, std::chrono::milliseconds longest) {
  const auto now = std::chrono::steady_clock::now();
  if (rounds != seen_) {
    checks_ = 0;
  } else if (now - last_ >= Patience::kStep / 2) {
    ++checks_;
    last_ = now;
  }
  seen_ = rounds;
  return checks_ * Patience::kStep > longest;
}

std::optional<std::string> Watch::fault() {
  const std::lock_guard lock(mutex_);
  if (verdict_) return verdict_;
  if (auto ended = ended_process()) return ended;
  // If rank 0, which keeps the store, is frozen, the beating thread itself hangs.
  if (stuck_.is_stuck(beats_, silent_beats_ * kBeat))
    return fmt::format("{}, which keeps the store, does not answer", processes_.describe(0));
  return std::nullopt;
}

std::string Watch::activities() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (int rank = 0; rank < size_; ++rank) {
    const Heard& heard = heard_[static_cast<size_t>(rank)];
    if (rank == rank_ || heard.text.empty()) continue;
    const Beat beat(heard.text);
    text += fmt::format("; {} {} {}", processes_.describe(rank),
                        beat.state == "lives" ? "is in" : beat.state + " in", beat.activity);
  }
  return text;
}

std::string Watch::own_text(int64_t count) {
  const std::lock_guard lock(mutex_);
  return fmt::format("{} {} {}", state_, count, activity_);
}

void Watch::beat_loop() {
  std::optional<Meeting> meeting;  // a connection of its own: this thread may hang in it
  for (int64_t count = 0;; ++count) {
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      last = stopping_;
    }
    try {
      if (!meeting) meeting = meeting_.clone();
      beat(*meeting, count);
    } catch (const RunError&) {
      const std::lock_guard lock(mutex_);
      if (!verdict_) verdict_ = fmt::format("{}, which keeps the store, has ended", processes_.describe(0));
      return;
    }
    if (last) {
      if (rank_ == 0) keep_store(*meeting);
      return;
    }
    ++beats_;
    std::unique_lock lock(mutex_);
    const std::string state = state_;
    changed_.wait_for(lock, kBeat, [&] { return stopping_ || state_ != state; });
  }
}

void Watch::keep_store(Meeting& meeting) {
  {
    const std::lock_guard lock(mutex_);
    if (!verdict_ && state_ != "failed") return;
  }
  const auto end = std::chrono::steady_clock::now() + kKeepStore;
  while (someone_lives(meeting) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(Patience::kStep);
}

bool Watch::someone_lives(Meeting& meeting) {
  for (int rank = 1; rank < size_; ++rank) {
    if (processes_.has_ended(rank) || heard_[static_cast<size_t>(rank)].unchanged >= silent_beats_) continue;
    const auto text = meeting.get_now(beat_key(rank));
    if (text && Beat(*text).state == "lives") return true;
  }
  return false;
}

void Watch::beat(Meeting& meeting, int64_t count) {
  const std::string text = own_text(count);
  meeting.set(beat_key(rank_), text);
  if (Beat(text).state == "left") return;
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_ && (rank_ == 0 || rank == 0)) listen(meeting, rank, heard_[static_cast<size_t>(rank)]);
  if (rank_ == 0) {
    const std::lock_guard lock(mutex_);
    if (verdict_) meeting.set("verdict", *verdict_);
  } else if (const auto verdict = meeting.get_now("verdict")) {
    const std::lock_guard lock(mutex_);
    // If rank 0 misses this rank itself, that is no fault of another rank.
    if (!verdict_ && verdict->rfind(fmt::format("rank {} ", rank_), 0) != 0) verdict_ = *verdict;
  }
}

void Watch::listen(Meeting& meeting, int rank, Heard& heard) {
  const auto text = meeting.get_now(beat_key(rank));
  const std::lock_guard lock(mutex_);
  if (text && *text != heard.text) {
    heard = {*text, 0};
  } else {
    ++heard.unchanged;
  }
  if (verdict_) return;
  const Beat beat(heard.text);
  if (beat.state == "failed") {
    verdict_ = fmt::format("rank {} failed: {}", rank, beat.activity);
  } else if (beat.state == "left") {
    verdict_ = fmt::format("rank {} has ended, after {}", rank, beat.activity);
  } else if (const auto ended = ended_process()) {
    verdict_ = ended;
  } else if (heard.unchanged >= silent_beats_) {
    verdict_ =
        fmt::format("{} has not been heard of for {:g} s; it was last in {}", processes_.describe(rank),
                    1e-3 * static_cast<double>((heard.unchanged * kBeat).count()),
                    beat.activity.empty() ? "no collective" : beat.activity);
  }
}

Watch::Alarm::Alarm(Watch& watch, std::function<void()> action) : watch_(watch), action_(std::move(action)) {
  const std::lock_guard lock(watch_.mutex_);
  watch_.alarms_.push_back(this);
  if (!watch_.alarmer_.joinable()) watch_.alarmer_ = std::thread([&watch] { watch.alarm_loop(); });
}

Watch::Alarm::~Alarm() {
  const std::lock_guard lock(watch_.mutex_);
  std::erase(watch_.alarms_, this);
}

void Watch::alarm_loop() {
  while (true) {
    const bool faulty = fault().has_value();
    std::unique_lock lock(mutex_);
    for (Alarm* alarm : alarms_) {
      alarm->faulty_ticks_ = faulty ? alarm->faulty_ticks_ + 1 : 0;
      if (alarm->faulty_ticks_ < kFaultySteps || alarm->rung_) continue;
      alarm->rung_ = true;
      alarm->action_();
    }
    if (changed_.wait_for(lock, Patience::kStep, [&] { return stopping_; })) return;
  }
}

void Patience::step() {
  waited_ += kStep;
  const std::optional<std::string> fault = watch_ ? watch_->fault() : std::nullopt;
  faulty_steps_ = fault ? faulty_steps_ + 1 : 0;
  if (faulty_steps_ >= kFaultySteps) throw RunError(launch::kRanks, "{}", *fault);
  if (waited_ >= limit_)
    throw RunError(launch::kRanks, "no answer within {:g} s{}", 1e-3 * static_cast<double>(limit_.count()),
                   watch_ ? watch_->activities() : "");
}

std::string await(const Meeting& meeting, const std::string& key, Watch* watch,
                  std::chrono::milliseconds limit) {
  Patience patience(watch, limit);
  while (true) {
    if (auto value = meeting.get(key, Patience::kStep)) return *value;
    patience.step();
  }
}

}  // namespace funicular::comm
