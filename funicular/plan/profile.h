#pragma once
// Where the time of a step goes, by LibTorch's RecordFunction events and ours (nn/functional.cpp).

#include <memory>
#include <string>
#include <vector>

namespace funicular::plan {

/// Collects events of all threads while it lives.
class Profile {
 public:
  struct Part {
    std::string name;
    double seconds = 0;  ///< without the parts inside it
    int64_t calls = 0;
  };

  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// By name, longest first. Call it when no event is open.
  std::vector<Part> parts() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
  uint64_t handle_ = 0;
};

}  // namespace funicular::plan
