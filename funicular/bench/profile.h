#pragma once
// Measures where the time of a step goes, by LibTorch's RecordFunction events and ours (nn/functional.cpp).

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

  /// One stretch of time. The stretches of one thread nest.
  struct Event {
    std::string name;
    uint64_t thread = 0;   ///< LibTorch's number of the thread
    int64_t start = 0;     ///< nanoseconds since the profile began
    int64_t duration = 0;  ///< nanoseconds
  };

  /// `keep_events`: needed for events(); takes memory that grows with each event.
  explicit Profile(bool keep_events = false);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Returns the time of each name, longest first. Call it when no event is open.
  std::vector<Part> parts() const;
  /// Returns the events in the order of their starts. If two start together, the outer event is first. Call it when
  /// no event is open.
  std::vector<Event> events() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
  uint64_t handle_ = 0;
};

/// The kinds of work in a step, in the order of reports.
enum class Work { products, attention, elementwise, loss, optimizer, rest };
inline constexpr int kWorks = 6;
/// "products", "attention", "normalisation, activation", …
const char* work_name(Work work);
/// Returns the kind of work of an event, by its name. LibTorch's own operations are `rest`, except products.
Work work_of(std::string_view event);
/// As work_of, of a kernel on a GPU.
Work work_of_kernel(std::string_view kernel);

/// The events as a file for chrome://tracing and ui.perfetto.dev: the Trace Event Format's JSON object, with
/// complete events ("X") in microseconds.
std::string chrome_trace(const std::vector<Profile::Event>& events);

}  // namespace funicular::bench
