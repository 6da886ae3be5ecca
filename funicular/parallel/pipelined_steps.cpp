#include "funicular/parallel/pipelined_steps.h"

#include <algorithm>
#include <utility>

namespace funicular::parallel {

PipelinedSteps::Step& PipelinedSteps::add(Step step) {
  step.begin = micro_batches();
  return steps_.emplace_back(std::move(step));
}

std::vector<int> PipelinedSteps::sizes() const {
  std::vector<int> sizes;
  for (const Step& each : steps_) sizes.push_back(each.size);
  return sizes;
}

PipelinedSteps::Step& PipelinedSteps::of(int micro_batch) {
  const auto after = std::upper_bound(steps_.begin(), steps_.end(), micro_batch,
                                      [](int number, const Step& each) { return number < each.begin; });
  return *std::prev(after);
}

bool PipelinedSteps::is_anywhere(int micro_batch) {
  const Step& own = of(micro_batch);
  return micro_batch - own.begin < own.passes;
}

bool PipelinedSteps::is_here(int micro_batch) {
  const Step& own = of(micro_batch);
  const int number = micro_batch - own.begin, count = static_cast<int>(own.batches.size());
  return number < count;
}

StageInput PipelinedSteps::input(int micro_batch) {
  Step& own = of(micro_batch);
  const auto number = static_cast<size_t>(micro_batch - own.begin);
  return {own.batches[number], own.counts, own.settings.loss_scale, own.sums, &own.settings.taps};
}

void RowProgress::advance(const pipeline::Row& row, int micro_batches, int steps,
                          const std::function<void(size_t place)>& run) {
  const int before = std::exchange(available_, micro_batches);
  size_t next = 0;
  std::vector<size_t> put_off;
  for (size_t counted = 0; counted < done_; ++next)
    if (row[next].micro_batch >= before)
      put_off.push_back(next);
    else
      ++counted;
  const auto run_if_there = [&](size_t place) {
    if (row[place].micro_batch >= available_) return;
    run(place);
    ++done_;
  };
  for (const size_t place : put_off) run_if_there(place);
  for (; next < row.size(); ++next) {
    if (row[next].micro_batch >= available_ && pipeline::computes(row[next].kind)) return;
    if (row[next].kind == pipeline::Kind::update && row[next].version > steps) return;
    run_if_there(next);
  }
}

}  // namespace funicular::parallel
