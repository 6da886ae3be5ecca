#pragma once
// A rank's requests that are not done, and what it tells all other ranks about them.

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "funicular/horovod/negotiation.h"
#include "funicular/horovod/request.h"

namespace funicular::horovod {

/// For one thread.
class PendingRequests {
 public:
  bool empty() const { return requests_.empty(); }
  void add(std::vector<std::shared_ptr<Request>> requests);
  /// Collects what this rank has to say in a cycle. Adds the slots of remembered requests to `slots`, and returns
  /// messages about all other requests. Counters do not tell which rank is missing, so a request gets a message before
  /// it is `patience` old (0: never).
  std::vector<Message> collect(const Negotiation& negotiation, std::chrono::milliseconds patience,
                               std::vector<size_t>& slots);
  /// The request of a name; null: this rank has not asked for it.
  Request* find(const std::string& name) const;
  /// As find(), and removes it: collect() says nothing more about it, and its name may be asked for again.
  std::shared_ptr<Request> take(const std::string& name);
  std::vector<std::shared_ptr<Request>> take_all();

 private:
  std::map<std::string, std::shared_ptr<Request>> requests_;
  std::vector<std::weak_ptr<Request>>
      silent_;  ///< no message was sent about them; in the order of add(), even if taken
};

}  // namespace funicular::horovod
