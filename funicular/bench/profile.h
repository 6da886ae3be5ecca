#pragma once
// Where the time of a step goes, by LibTorch's RecordFunction events and ours (nn/functional.cpp).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace funicular::bench {

/// Collects events of all threads while it lives.
class Profile {
 public:
  struct Part {
    std::string name;
    double seconds = 0;  ///< without the parts inside it
    int64_t calls = 0;
  };

  /// One stretch of time. Those of a thread nest.
  struct Event {
    std::string name;
    uint64_t thread = 0;   ///< LibTorch's number of it
    int64_t start = 0;     ///< nanoseconds since the profile began
    int64_t duration = 0;  ///< nanoseconds
  };

  /// `keep_events`: for events(); parts() needs no memory that grows.
  explicit Profile(bool keep_events = false);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// By name, longest first. Call it when no event is open.
  std::vector<Part> parts() const;
  /// In the order of their starts, those that began together outer ones first. Call it when no event is open.
  std::vector<Event> events() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
  uint64_t handle_ = 0;
};

/// The kinds of work that a step consists of, in the order in which they are told.
enum class Work { products, attention, elementwise, loss, optimizer, rest };
inline constexpr int kWorks = 6;
/// "products", "attention", "normalisation, activation", …
const char* work_name(Work work);
/// Of an event's name; `rest`: LibTorch's own operations, but for products.
Work work_of(std::string_view event);

/// The events as a file for chrome://tracing and ui.perfetto.dev: the Trace Event Format's JSON object, with
/// complete events ("X") in microseconds.
std::string chrome_trace(const std::vector<Profile::Event>& events);

}  // namespace funicular::bench
