#include "funicular/horovod/pending_requests.h"

#include <optional>
#include <utility>

namespace funicular::horovod {

void PendingRequests::add(std::vector<std::shared_ptr<Request>> requests) {
  for (std::shared_ptr<Request>& request : requests) {
    silent_.push_back(request);
    requests_[request->name] = std::move(request);
  }
}

std::vector<Message> PendingRequests::collect(const Negotiation& negotiation,
                                              std::chrono::milliseconds patience,
                                              std::vector<size_t>& slots) {
  std::vector<Message> messages;
  std::vector<std::weak_ptr<Request>> still_silent;
  for (const std::weak_ptr<Request>& one : silent_) {
    const std::shared_ptr<Request> request = one.lock();
    if (!request || find(request->name) != request.get()) continue;  // taken
    const auto slot = negotiation.slot_of(request->name, request->signature);
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                           request->since);
    if (slot && (patience.count() == 0 || age < patience * 3 / 4)) {
      slots.push_back(*slot);
      still_silent.push_back(request);
    } else {
      messages.push_back({Message::Kind::request, request->name, request->signature, age});
    }
  }
  silent_ = std::move(still_silent);
  return messages;
}

Request* PendingRequests::find(const std::string& name) const {
  const auto found = requests_.find(name);
  return found == requests_.end() ? nullptr : found->second.get();
}

std::shared_ptr<Request> PendingRequests::take(const std::string& name) {
  const auto found = requests_.find(name);
  if (found == requests_.end()) return nullptr;
  std::shared_ptr<Request> request = std::move(found->second);
  requests_.erase(found);
  return request;
}

std::vector<std::shared_ptr<Request>> PendingRequests::take_all() {
  std::vector<std::shared_ptr<Request>> requests;
  for (auto& [name, request] : requests_) requests.push_back(std::move(request));
  requests_.clear();
  silent_.clear();
  return requests;
}

}  // namespace funicular::horovod
