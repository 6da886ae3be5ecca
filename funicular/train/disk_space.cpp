#include "funicular/train/disk_space.h"

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::train {

namespace {

/// Numbers that an optimiser keeps for each weight.
int64_t states_of(const optim::OptimizerSpec& optimizer) {
  if (const auto* sgd = std::get_if<optim::Sgd>(&optimizer)) return sgd->momentum != 0;
  return std::holds_alternative<optim::Lars>(optimizer) ? 1 : 2;
}

double size_of(const fs::path& folder) {
  double bytes = 0;
  std::error_code ignored;
  for (auto entry = fs::recursive_directory_iterator(folder, ignored); entry != fs::recursive_directory_iterator();
       entry.increment(ignored))
    if (entry->is_regular_file(ignored)) bytes += static_cast<double>(entry->file_size(ignored));
  return bytes;
}

}  // namespace

SpaceNeeds space_needs(int64_t parameters, int64_t bytes, const optim::OptimizerSpec& optimizer,
                       int64_t checkpoints) {
  return {parameters * bytes * (1 + states_of(optimizer)), parameters * 4, checkpoints};
}

void check_space(const SpaceNeeds& needs, double available, double held, const fs::path& folder) {
  constexpr double kGigabyte = 1e9;
  const auto least = static_cast<double>(needs.least()), most = static_cast<double>(needs.most());
  if (available < least)
    throw RunError("disk",
                   "{} has {:.2f} GB free, and a checkpoint ({:.2f} GB) and the model ({:.2f} GB) do not fit; free "
                   "some space, or give --output a folder on another disk",
                   folder.string(), available / kGigabyte, static_cast<double>(needs.checkpoint) / kGigabyte,
                   static_cast<double>(needs.model) / kGigabyte);
  if (available + held < most)
    log::warning(
        "{} has {:.2f} GB free, and this run may come to {:.2f} GB ({} checkpoints of {:.2f} GB at a time); free some "
        "space, or lower --save-total-limit",
        folder.string(), available / kGigabyte, most / kGigabyte, needs.checkpoints,
        static_cast<double>(needs.checkpoint) / kGigabyte);
}

void check_space(const SpaceNeeds& needs, const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(existing_part(folder), error);
  if (!error) check_space(needs, static_cast<double>(space.available), size_of(folder), folder);
}

}  // namespace funicular::train
