#pragma once
// Generates the named schedules for any number of ranks and micro-batches.

#include <algorithm>
#include <string>
#include <vector>

#include "funicular/pipeline/recipes.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// Whether `schedule` is not the name of a schedule, but of an existing file.
bool is_schedule_file(const std::string& schedule);
/// Whether a schedule, given by name or as a file, updates weights while the pipeline is full. False if it is
/// neither. Throws InputError for a file that is no schedule.
bool updates_while_full(const std::string& schedule);

/// Returns the schedule `name` for `ranks` ranks with `chunks` stages each (0: its default) and `micro_batches`
/// micro-batches, without messages. With several chunks, rank r has the stages c · ranks + r; with zb-v it has the
/// stages r and 2 · ranks − 1 − r. Each stage runs its backward passes in the order of the micro-batches, so that
/// gradients are summed in that order. Throws InputError for numbers below 1, and for a number of chunks that the
/// schedule does not support.
Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int chunks = 0);

/// Returns the schedule `name` with stage s on replicas[s] ranks, without messages. The ranks of the first stage come
/// first. Replica j of r takes the micro-batches j, j + r, j + 2r, …: the round robin of 1F1B-RR (Narayanan et al.,
/// SOSP 2019, section 3.2). With 1f1b each replica of a stage holds at most h micro-batches at a time. On the last
/// stage, h is 1. On other stages, h is 1 + ⌈h' r' / r⌉, if the next stage has r' replicas that hold h' each. With
/// one rank per stage, the rows equal make_schedule's. A replica without a micro-batch has an empty row. Throws
/// InputError for a schedule whose Recipe does not replicate, for numbers below 1, and without a stage.
Schedule make_replicated(const std::string& name, const std::vector<int>& replicas, int micro_batches);

/// The default number of micro-batches per update of an asynchronous schedule, which make_replicated uses. pipedream:
/// the fewest that give all ranks of each stage equally many (1, with one rank per stage). pipedream-2bw: the number
/// of ranks, but at least least_batch.
int usual_batch(const std::string& name, const std::vector<int>& replicas);
/// The least number of micro-batches per update in make_asynchronous, except for the last update.
int least_batch(const std::string& name, const std::vector<int>& replicas);

/// Returns an asynchronous schedule with stage s on replicas[s] ranks as in make_replicated, whose update t takes
/// sizes[t] micro-batches.
///
/// On each rank of a stage, an update follows the rank's last backward pass of the batch. If the rank has none, the
/// update precedes its first backward pass of a later batch. The ranks of a stage run an update together.
///
/// The version of the weights that a micro-batch uses:
///  - pipedream: the newest version at its forward pass on its rank.
///  - Vertical sync: on all stages, the newest version at its forward pass on the first stage.
///  - 2BW: version max(0, t − 1) in batch t, for any sizes.
///
/// Take n stages with one rank each and one micro-batch per update. In pipedream, micro-batch k then uses version
/// max(0, k − (n − 1 − s)) on stage s. With vertical sync it uses max(0, k − (n − 1)).
///
/// Now let the number m of micro-batches per update be a multiple of a stage's r ranks. Each rank then has c = m / r
/// of them and holds at most h (make_replicated). In pipedream, micro-batch i of batch t uses version max(0, t −
/// max(0, ⌈(h − 1 − ⌊i / r⌋) / c⌉)).
///
/// A schedule can be extended: a last batch with at least three micro-batches per rank may be replaced by other
/// batches. With one rank per stage, any last batch may be. All rows then stay the same up to that batch's first pass.
///
/// Throws InputError for another schedule and for sizes below 1. For 2BW it also throws for a size below least_batch,
/// except in the last update, as a version would be used before it is made.
Schedule make_asynchronous(const std::string& name, const std::vector<int>& replicas,
                           const std::vector<int>& sizes);
/// As above, for `ranks` stages on one rank each.
inline Schedule make_asynchronous(const std::string& name, int ranks, const std::vector<int>& sizes) {
  return make_asynchronous(name, std::vector<int>(static_cast<size_t>(std::max(0, ranks)), 1), sizes);
}

}  // namespace funicular::pipeline
