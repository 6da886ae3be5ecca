#include "funicular/parallel/pass_recorder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::parallel {

using pipeline::Recording;
using pipeline::Span;

namespace {

constexpr int kMeetings = 21;

/// Milliseconds by which one clock is ahead of another, of when both left the same barriers. A rank that the system keeps from
/// running leaves one late: so the median.
double clock_ahead(const std::vector<double>& clock, const std::vector<double>& other) {
  std::vector<double> ahead(clock.size());
  std::transform(clock.begin(), clock.end(), other.begin(), ahead.begin(), std::minus<>());
  const auto middle = ahead.begin() + static_cast<std::ptrdiff_t>(ahead.size() / 2);
  std::nth_element(ahead.begin(), middle, ahead.end());
  return *middle;
}

}  // namespace

PassRecorder::PassRecorder(const comm::Group& ranks) : rank_(ranks.rank()) {
  for (int i = 0; i < kMeetings; ++i) {
    ranks.barrier();
    meetings_.push_back(now());
  }
}

void PassRecorder::start() {
  spans_.clear();
  notes_ = true;
}

void PassRecorder::begin(const pipeline::Action& action) {
  current_ = {.rank = rank_, .action = action, .start = now()};
}

void PassRecorder::end() {
  current_.end = now();
  if (notes_) spans_.push_back(current_);
}

void PassRecorder::finish(const pipeline::Row& row) {
  notes_ = false;
  row_.clear();
  for (const pipeline::Action& action : row)
    if (!pipeline::is_message(action.kind)) row_.push_back(action);
  // Passes know nothing of versions; the row does.
  for (Span& span : spans_)
    for (const pipeline::Action& action : row_)
      if (action.kind == span.action.kind && action.stage == span.action.stage &&
          action.micro_batch == span.action.micro_batch)
        span.action = action;
}

void PassRecorder::write(const comm::Group& ranks, const std::string& schedule,
                         const std::filesystem::path& file, bool writes) const {
  const Recording own{{schedule, {row_}, {}}, spans_};
  const std::vector<std::string> all = ranks.gather_texts(pipeline::to_json_text(own));
  const std::vector<std::string> clocks = ranks.gather_texts(Json(meetings_).dump());
  if (!writes || ranks.rank() != 0) return;
  OrderedJson rows = OrderedJson::array(), spans = OrderedJson::array();
  double start = std::numeric_limits<double>::max();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const OrderedJson found = OrderedJson::parse(all[rank]);
    const double ahead = clock_ahead(Json::parse(clocks[rank]).get<std::vector<double>>(), meetings_);
    rows.push_back(found["rows"][0]);
    for (auto span : found["milliseconds"]) {
      for (const int time : {2, 3}) span[time] = span[time].get<double>() - ahead;
      start = std::min(start, span[2].get<double>());
      spans.push_back(span);
    }
  }
  for (auto& span : spans)
    for (const int time : {2, 3}) span[time] = std::round((span[time].get<double>() - start) * 1e4) / 1e4;
  write_file_atomically(
      file, OrderedJson{{"schedule", schedule}, {"rows", rows}, {"milliseconds", spans}}.dump() + "\n");
}

}  // namespace funicular::parallel
