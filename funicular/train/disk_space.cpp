#include "funicular/train/disk_space.h"

#include <set>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::train {

namespace {

/// Bytes of logical tensors, of which each rank gives all, whatever it holds of them.
class LogicalBytes final : public parallel::StateVisitor {
 public:
  void visit(const parallel::StateSlice& slice) override {
    if (!seen_.emplace(slice.label(), slice.name).second) return;
    int64_t elements = 1;
    for (const int64_t size : slice.shape) elements *= size;
    bytes_ += elements * static_cast<int64_t>(slice.local.element_size());
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::set<std::pair<std::string, std::string>> seen_;
  int64_t bytes_ = 0;
};

double size_of(const fs::path& folder) {
  double bytes = 0;
  std::error_code ignored;
  for (auto entry = fs::recursive_directory_iterator(folder, ignored);
       entry != fs::recursive_directory_iterator(); entry.increment(ignored))
    if (entry->is_regular_file(ignored)) bytes += static_cast<double>(entry->file_size(ignored));
  return bytes;
}

}  // namespace

SpaceNeeds space_needs(parallel::Strategy& strategy, int64_t parameters, int64_t checkpoints) {
  LogicalBytes state;
  strategy.visit_state(state);
  return {state.bytes(), parameters * 4, checkpoints};
}

void check_space(const SpaceNeeds& needs, double available, double held, const fs::path& folder) {
  constexpr double kGigabyte = 1e9;
  const auto least = static_cast<double>(needs.least()), most = static_cast<double>(needs.most());
  if (available < least)
    throw RunError("disk",
                   "{} has {:.2f} GB free; a checkpoint ({:.2f} GB) and the model ({:.2f} GB) do not fit. "
                   "Free some space, or set --output to another disk",
                   folder.string(), available / kGigabyte, static_cast<double>(needs.checkpoint) / kGigabyte,
                   static_cast<double>(needs.model) / kGigabyte);
  if (available + held < most)
    log::warning(
        "{} has {:.2f} GB free, and this run may come to {:.2f} GB ({} checkpoints of {:.2f} GB at a time); "
        "free some "
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
