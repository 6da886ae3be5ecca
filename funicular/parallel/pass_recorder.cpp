#include "funicular/parallel/pass_recorder.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::parallel {

using pipeline::Recording;
using pipeline::Span;

namespace {

constexpr int kMeetings = 21;

/// By how many milliseconds `clock` is ahead of `other`, from the times at which both left the same barriers. It is the
/// median, because a rank that the system keeps from running leaves a barrier late.
double clock_ahead(const std::vector<double>& clock, const std::vector<double>& other) {
  std::vector<double> ahead(clock.size());
  std::transform(clock.begin(), clock.end(), other.begin(), ahead.begin(), std::minus<>());
  const auto middle = ahead.begin() + static_cast<std::ptrdiff_t>(ahead.size() / 2);
  std::nth_element(ahead.begin(), middle, ahead.end());
  return *middle;
}

}  // namespace

PassRecorder::PassRecorder(const comm::Group& ranks) {
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
  current_.action = action;
  current_.start = now();
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
  // Passes do not know their versions. The row does, and lists the passes in the order in which they ran.
  auto next = row_.begin();
  for (Span& span : spans_) {
    next = std::find_if(next, row_.end(), [&](const pipeline::Action& action) {
      return action.kind == span.action.kind && action.stage == span.action.stage &&
             action.micro_batch == span.action.micro_batch;
    });
    if (next == row_.end()) return;
    span.action = *next;
  }
}

void PassRecorder::write(const comm::Group& ranks, const std::string& schedule,
                         const std::filesystem::path& file, bool writes) const {
  const Recording own{{schedule, {row_}, {}}, spans_};
  const std::vector<std::string> noted = ranks.gather_texts(pipeline::to_json_text(own));
  const std::vector<std::string> clocks = ranks.gather_texts(Json(meetings_).dump());
  if (!writes || ranks.rank() != 0) return;
  Recording all{{schedule, {}, {}}, {}};
  double start = std::numeric_limits<double>::max();
  for (size_t rank = 0; rank < noted.size(); ++rank) {
    const Recording of = pipeline::parse_recording(noted[rank], file.string());
    const double ahead = clock_ahead(Json::parse(clocks[rank]).get<std::vector<double>>(), meetings_);
    all.schedule.rows.push_back(of.schedule.rows.front());
    for (Span span : of.spans) {
      span.rank = static_cast<int>(rank);
      span.start -= ahead;
      span.end -= ahead;
      start = std::min(start, span.start);
      all.spans.push_back(span);
    }
  }
  for (Span& span : all.spans) span.start -= start, span.end -= start;
  write_file_atomically(file, pipeline::to_json_text(all));
}

}  // namespace funicular::parallel
