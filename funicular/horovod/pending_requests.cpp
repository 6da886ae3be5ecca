#include "funicular/horovod/pending_requests.h"

#include <optional>
#include <utility>

namespace funicular::horovod {

void PendingRequests::add(std::vector<std::shared_ptr<Request>> requests) {
  for (std::shared_ptr<Request>& request : requests) {
    silent_.push_back(request->name);
    requests_[request->name] = std::move(request);
  }
}

std::vector<Message> PendingRequests::collect(const Negotiation& negotiation,
                                              std::chrono::milliseconds patience,
                                              std::vector<size_t>& slots) {
  std::vector<Message> messages;
  std::vector<std::string> still_silent;
  for (std::string& name : silent_) {
    const Request& request = *requests_.at(name);
    const auto slot = negotiation.slot_of(name, request.signature);
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                           request.since);
    if (slot && (patience.count() == 0 || age < patience * 3 / 4)) {
      slots.push_back(*slot);
      still_silent.push_back(std::move(name));
    } else {
      messages.push_back({Message::Kind::request, std::move(name), request.signature, age});
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

void PendingRequests::forget_taken() {
  std::erase_if(silent_, [&](const std::string& name) { return !requests_.contains(name); });
}

std::vector<std::shared_ptr<Request>> PendingRequests::take_all() {
  std::vector<std::shared_ptr<Request>> requests;
  for (auto& [name, request] : requests_) requests.push_back(std::move(request));
  requests_.clear();
  silent_.clear();
  return requests;
}

}  // namespace funicular::horovod
