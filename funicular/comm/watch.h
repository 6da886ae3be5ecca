#pragma once
// Watches all other ranks, so that a wait for a dead or frozen rank ends with an error that names it.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "funicular/comm/local_processes.h"
#include "funicular/comm/meeting.h"

namespace funicular::comm {

/// Whether a thread that counts its rounds hangs, seen by checks at least half a Patience::kStep apart.
class StuckCheck {
 public:
  /// Whether the rounds have not changed for so long a time of checks.
  bool is_stuck(int64_t rounds, std::chrono::milliseconds longest);

 private:
  int64_t seen_ = -1;
  int checks_ = 0;
  std::chrono::steady_clock::time_point last_{};
};

/// Twice a second, every rank tells the store that it lives and what it does. Rank 0 reads the reports of all ranks,
/// and tells which rank has fallen silent. Each other rank reads this verdict and rank 0's own report. If a rank on
/// this host dies, its process shows that at once.
///
/// Time is counted in steps that this process itself has lived through. So a machine that sleeps, or a debugger that
/// stops all ranks, does not look like a frozen peer.
class Watch {
 public:
  static constexpr std::chrono::milliseconds kBeat{500};

  /// A rank is frozen once it was silent for `silence`. When its last owner lets go of it, the watch tells all ranks
  /// that this rank has left.
  static std::shared_ptr<Watch> start(Meeting meeting, int rank, int size, std::chrono::milliseconds silence);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Notes what this rank does now, for messages on other ranks: "all_reduce of 1000 float32 (number 17)".
  void note(std::string activity);
  /// Tells all ranks that this rank has failed, so that their messages name it.
  void note_failure(const std::string& message);

  /// The known fault of another rank, or nothing.
  std::optional<std::string> fault();
  /// The last activity of each other rank, for the message of a timeout.
  std::string activities();

  /// Calls `action` (once, from another thread) when there is a fault that lasts, while the returned object
  /// lives.
  class Alarm {
   public:
    Alarm(Watch& watch, std::function<void()> action);
    ~Alarm();
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;

   private:
    friend class Watch;
    Watch& watch_;
    std::function<void()> action_;
    int faulty_ticks_ = 0;
    bool rung_ = false;
  };

 private:
  struct Heard {
    std::string text;
    int unchanged = 0;  ///< beats
  };

  Watch(Meeting meeting, int rank, int size, std::chrono::milliseconds silence);
  /// False if the beating thread hangs in the store.
  bool stop();
  std::optional<std::string> ended_process();
  void beat_loop();
  void beat(Meeting& meeting, int64_t count);
  /// For rank 0: after a failure the store stays until all other ranks have failed or left, for a few seconds. A rank
  /// that was slow to notice would otherwise find the store gone, and blame rank 0.
  void keep_store(Meeting& meeting);
  bool someone_lives(Meeting& meeting);
  void listen(Meeting& meeting, int rank, Heard& heard);
  std::string own_text(int64_t count);
  void alarm_loop();

  const Meeting meeting_;
  const int rank_, size_;
  const int silent_beats_;
  const LocalProcesses processes_;
  std::atomic<int64_t> beats_{0};  ///< rounds of the beating thread

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, beater_ended_ = false;
  std::string activity_ = "starting", state_ = "lives";
  std::optional<std::string> verdict_;
  std::vector<Heard> heard_;
  std::vector<Alarm*> alarms_;
  StuckCheck stuck_;  ///< of the beating thread
  std::thread beater_, alarmer_;
};

/// One wait for other ranks, in steps of `kStep`. Call step() after each one in vain.
class Patience {
 public:
  static constexpr std::chrono::milliseconds kStep{50};
  /// `watch` may be null (nothing is watched, the time is limited all the same).
  Patience(Watch* watch, std::chrono::milliseconds limit) : watch_(watch), limit_(limit) {}
  /// Throws RunError if the time is over, or if another rank has been at fault for a second. The second keeps a rank
  /// that has done its part and left from being blamed.
  void step();

 private:
  Watch* watch_;
  std::chrono::milliseconds limit_, waited_{0};
  int faulty_steps_ = 0;
};

/// Waits for a value that another rank sets in the store. Throws as Patience does.
std::string await(const Meeting& meeting, const std::string& key, Watch* watch,
                  std::chrono::milliseconds limit);

}  // namespace funicular::comm
