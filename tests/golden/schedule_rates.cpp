// Learning rates of schedules, for schedules.py: each line of standard input is a JSON object {schedule, settings, warmup_steps,
// total_steps, peak}, each line of the answer the rates of all updates and of three beyond the last.

#include <fmt/format.h>

#include <iostream>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/optim/schedules.h"

namespace {

using namespace funicular;

std::vector<double> rates_of(const Json& test) {
  optim::Schedule schedule{.kind = optim::parse_schedule(test.at("schedule")),
                           .warmup_steps = test.at("warmup_steps")};
  for (const optim::Setting& setting : optim::schedule_row(schedule.kind).settings)
    if (test.at("settings").contains(setting.name))
      setting.set(&schedule, test.at("settings").at(setting.name).get<double>());
  const int64_t total = test.at("total_steps");
  std::vector<double> rates;
  for (int64_t step = 0; step < total + 3; ++step)
    rates.push_back(optim::learning_rate(schedule, test.at("peak"), step, total));
  return rates;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    fmt::print("{}\n", Json(rates_of(Json::parse(line))).dump());
}
