#include "funicular/bench/profile.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/base/json.h"

namespace funicular::bench {

namespace {

using Clock = std::chrono::steady_clock;

int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

struct Profile::State {
  std::mutex mutex;
  std::map<std::string, Part> parts;
  bool keep_events = false;
  std::vector<Event> events;
  Clock::time_point start = Clock::now();
};

namespace {

Profile::State* active = nullptr;  // one profile at a time

struct Open : at::ObserverContext {
  Clock::time_point start = Clock::now();
  double inside = 0;  ///< seconds of events within this one
  Open* outer = nullptr;
};
thread_local Open* innermost = nullptr;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) {
  auto open = std::make_unique<Open>();
  open->outer = innermost;
  innermost = open.get();
  return open;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* const open = static_cast<Open*>(context);
  const Clock::time_point now = Clock::now();
  const double seconds = seconds_between(open->start, now);
  innermost = open->outer;
  if (open->outer) open->outer->inside += seconds;
  if (!active) return;
  const std::lock_guard lock(active->mutex);
  Profile::Part& part = active->parts[function.name()];
  part.seconds += seconds - open->inside;
  ++part.calls;
  if (active->keep_events)
    active->events.push_back({function.name(), at::RecordFunction::currentThreadId(),
                              nanoseconds(open->start - active->start), nanoseconds(now - open->start)});
}

}  // namespace

Profile::Profile(bool keep_events) : state_(std::make_unique<State>()) {
  state_->keep_events = keep_events;
  active = state_.get();
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(begin, end));
}

Profile::~Profile() {
  at::removeCallback(handle_);
  active = nullptr;
}

const char* work_name(Work work) {
  constexpr const char* kNames[kWorks] = {"products", "attention", "normalisation, activation",
                                          "loss",     "optimiser", "rest"};
  return kNames[static_cast<int>(work)];
}

Work work_of(std::string_view event) {
  constexpr std::pair<std::string_view, Work> kBeginnings[] = {
      {"funicular::matmul", Work::products},
      {"funicular::weight_gradient", Work::products},
      {"funicular::quantized", Work::products},
      {"aten::mm", Work::products},
      {"aten::addmm", Work::products},
      {"aten::bmm", Work::products},
      {"funicular::attention", Work::attention},
      {"funicular::residual_norm", Work::elementwise},
      {"funicular::activation", Work::elementwise},
      {"funicular::column_sum", Work::elementwise},
      {"funicular::dropout", Work::elementwise},
      {"funicular::embeddings", Work::elementwise},
      {"funicular::cross_entropy", Work::loss},
      {"funicular::optimizer", Work::optimizer},
      {"funicular::gradient_norm", Work::optimizer}};
  for (const auto& [beginning, work] : kBeginnings)
    if (event.starts_with(beginning)) return work;
  return Work::rest;
}

Work work_of_kernel(std::string_view kernel) {
  // cuBLAS has nvjet and xmma on Hopper, cutlass and gemm before.
  constexpr std::pair<std::string_view, Work> kParts[] = {{"optim::device", Work::optimizer},
                                                          {"flash", Work::attention},
                                                          {"Attention", Work::attention},
                                                          {"attention", Work::attention},
                                                          {"QueryGradients", Work::attention},
                                                          {"KeyValueGradients", Work::attention},
                                                          {"ShortForward", Work::attention},
                                                          {"DecisionsBy", Work::attention},
                                                          {"CrossEntropy", Work::loss},
                                                          {"Logit", Work::loss},
                                                          {"nn::device", Work::elementwise},
                                                          {"nvjet", Work::products},
                                                          {"xmma", Work::products},
                                                          {"cutlass", Work::products},
                                                          {"gemm", Work::products},
                                                          {"splitKreduce", Work::products}};
  for (const auto& [part, work] : kParts)
    if (kernel.find(part) != std::string_view::npos) return work;
  return Work::rest;
}

std::vector<Profile::Part> Profile::parts() const {
  std::vector<Part> result;
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, part] : state_->parts) {
    result.push_back(part);
    result.back().name = name;
  }
  std::sort(result.begin(), result.end(), [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
  return result;
}

std::vector<Profile::Event> Profile::events() const {
  std::vector<Event> result;
  {
    const std::lock_guard lock(state_->mutex);
    result = state_->events;
  }
  std::stable_sort(result.begin(), result.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.start, -a.duration) < std::tuple(b.start, -b.duration);
  });
  return result;
}

std::string chrome_trace(const std::vector<Profile::Event>& events) {
  constexpr int kProcess = 1;
  OrderedJson list = OrderedJson::array();
  std::set<uint64_t> threads;
  for (const Profile::Event& event : events) {
    if (threads.insert(event.thread).second)
      list.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", kProcess},
                      {"tid", event.thread},
                      {"args", {{"name", "thread " + std::to_string(event.thread)}}}});
    list.push_back({{"name", event.name},
                    {"cat", event.name.starts_with("funicular::") ? "funicular" : "libtorch"},
                    {"ph", "X"},
                    {"ts", static_cast<double>(event.start) / 1e3},
                    {"dur", static_cast<double>(event.duration) / 1e3},
                    {"pid", kProcess},
                    {"tid", event.thread}});
  }
  return OrderedJson{{"displayTimeUnit", "ms"}, {"traceEvents", list}}.dump() + "\n";
}

}  // namespace funicular::bench
