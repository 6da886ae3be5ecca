#include "funicular/parallel/asynchronous_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/parallel/schedule_file.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"

namespace funicular::parallel {

namespace {

using pipeline::Action;
using pipeline::Kind;
using pipeline::Schedule;

/// Reads from one row of a schedule file which update each micro-batch belongs to. Throws InputError for a row that
/// breaks the rules of AsynchronousRows.
class RowReader {
 public:
  RowReader(const Schedule& file, int rank) : file_(file), rank_(rank) {
    for (const Action& action : file.rows[static_cast<size_t>(rank)])
      if (!pipeline::is_message(action.kind)) read(action);
    if (!open_.empty()) refuse(last_, "has no update behind it; expected one");
  }

  std::map<int, int> update_of, version_of;  ///< by micro-batch of this rank
  std::optional<int> stage;
  int updates = 0;

 private:
  [[noreturn]] void refuse(const Action& action, const std::string& why) const {
    throw InputError("schedule", "{}: {} {}", file_.place(rank_), to_text(action), why);
  }

  void read(const Action& action) {
    if (stage.value_or(action.stage) != action.stage)
      refuse(action, fmt::format("belongs to another stage than stage {} before it; expected one stage per "
                                 "rank in schedules with versions",
                                 *stage));
    stage = action.stage;
    if (action.kind == Kind::update) {
      for (const int micro_batch : open_) update_of[micro_batch] = updates;
      open_.clear();
      ++updates;
    } else if (action.kind == Kind::forward) {
      if (action.micro_batch < read_)
        refuse(action, "stands behind a later micro-batch; expected forward passes in their order");
      read_ = action.micro_batch;
      version_of[read_] = action.version;
    } else if (pipeline::ends_micro_batch(action.kind)) {
      if (action.micro_batch < answered_)
        refuse(action, "stands behind a later micro-batch; expected backward passes in their order");
      answered_ = action.micro_batch;
      open_.push_back(action.micro_batch);
    }
    last_ = action;
  }

  const Schedule& file_;
  const int rank_;
  std::vector<int> open_;  ///< micro-batches whose backward pass is done, but which no update includes yet
  int read_ = -1, answered_ = -1;
  Action last_;
};

/// Throws InputError if a micro-batch uses an older version than the one before it on the same stage, even on another
/// rank. Ranks that share a weight drop its version once the next micro-batch needs a newer one.
void check_versions(const Schedule& file, const std::vector<RowReader>& rows) {
  struct Used {
    int version, rank;
  };
  std::map<int, std::map<int, Used>> stages;  // by the micro-batch
  for (int rank = 0; rank < file.ranks(); ++rank)
    for (const auto& [micro_batch, version] : rows[static_cast<size_t>(rank)].version_of)
      stages[*rows[static_cast<size_t>(rank)].stage][micro_batch] = {version, rank};
  for (const auto& [stage, used] : stages)
    for (auto next = used.begin(), before = next++; next != used.end(); before = next++)
      if (next->second.version < before->second.version)
        throw InputError("schedule",
                         "{}: {}F{}@{} uses an older version than micro-batch {} before it, which had @{}",
                         file.place(next->second.rank), stage, next->first, next->second.version,
                         before->first, before->second.version);
}

/// Returns the number of micro-batches per update. Throws InputError unless all updates of all rows have this number.
int size_of_updates(const Schedule& file) {
  std::vector<RowReader> rows;
  for (int rank = 0; rank < file.ranks(); ++rank) rows.emplace_back(file, rank);
  const int updates = rows.front().updates, all = file.micro_batches();
  if (updates == 0 || all % updates != 0)
    throw InputError(
        "schedule",
        "{}: it has {} micro-batches and {} updates; expected as many micro-batches in each update",
        file.name, all, updates);
  const int size = all / updates;
  for (int rank = 0; rank < file.ranks(); ++rank) {
    const RowReader& row = rows[static_cast<size_t>(rank)];
    if (row.updates != updates)
      throw InputError("schedule", "{}: there are {} updates, of which rank 0 has {}; expected as many",
                       file.place(rank), row.updates, updates);
    for (const auto& [micro_batch, update] : row.update_of)
      if (micro_batch / size != update)
        throw InputError("schedule",
                         "{}: micro-batch {} is in update {}; of updates of {} micro-batches each it is one "
                         "of update {}",
                         file.place(rank), micro_batch, update + 1, size, micro_batch / size + 1);
  }
  check_versions(file, rows);
  return size;
}

}  // namespace

AsynchronousRows::AsynchronousRows(const Layout& layout) : layout_(layout) {
  if (!pipeline::is_schedule_file(layout.schedule)) {
    pipeline::make_schedule(layout.schedule, layout.pipeline, 1,
                            layout.stages_per_rank);  // throws for a wrong number of stages per rank
    placement_ = pipeline::Placement::consecutive(replicas());
    return;
  }
  file_ = read_schedule_for(layout.schedule, layout.pipeline);
  size_ = size_of_updates(file_);
  for (pipeline::Row& row : file_.rows)  // an update reduces its own gradients
    std::erase_if(row, [](const Action& action) { return action.kind == Kind::reduce; });
  placement_ = placement_of_file(layout, file_);
}

std::vector<int> AsynchronousRows::replicas() const {
  const std::vector<int>& several = layout_.stages.replicas;
  return several.empty() ? std::vector<int>(static_cast<size_t>(layout_.pipeline), 1) : several;
}

int64_t AsynchronousRows::pieces() const {
  return size_ > 0 ? size_ : pipeline::usual_batch(layout_.schedule, replicas());
}

int64_t AsynchronousRows::most_steps() const {
  return size_ > 0 ? file_.micro_batches() / size_ : std::numeric_limits<int64_t>::max();
}

int AsynchronousRows::size_of(int passes) const {
  if (size_ == 0) return std::max(passes, pipeline::least_batch(layout_.schedule, replicas()));
  if (passes > size_)
    throw InputError("pipeline",
                     "{} has {} micro-batches in each update, and this step has {}; expected a batch of that "
                     "many (--micro-batch-size)",
                     layout_.schedule, size_, passes);
  return size_;
}

std::string AsynchronousRows::name() const {
  return size_ == 0 ? layout_.schedule
                    : fmt::format("a file of the rows {}", hash_text(hash_bytes(to_text(file_))));
}

void AsynchronousRows::add_expected(std::vector<int>& sizes, int64_t planned) const {
  if (size_ > 0) {  // a rank may have no passes in some updates, so a few more steps may not be enough
    sizes.resize(static_cast<size_t>(planned), size_);
    return;
  }
  // The rows must stay the same when the schedule grows. If stages have replicas, its last batch needs at least three
  // micro-batches per rank for that (pipeline::make_asynchronous).
  const bool several = placement_.replicated();
  const int least = size_of(1), size = several ? std::max(least, 3 * layout_.pipeline) : least;
  const auto coming =
      std::min<int64_t>(planned - static_cast<int64_t>(sizes.size()), several ? 1 : layout_.pipeline);
  for (int64_t i = 0; i < coming; ++i) sizes.push_back(size);
}

Schedule AsynchronousRows::of(const std::vector<int>& sizes) const {
  if (size_ == 0)
    return pipeline::with_messages(pipeline::make_asynchronous(layout_.schedule, replicas(), sizes));
  Schedule part = file_;
  const auto updates = static_cast<int>(sizes.size());
  for (pipeline::Row& row : part.rows)
    std::erase_if(row, [&](const Action& action) {
      return action.kind == Kind::update ? action.version > updates : action.micro_batch >= updates * size_;
    });
  return part;
}

}  // namespace funicular::parallel
