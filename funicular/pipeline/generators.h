#pragma once
// Schedules made by their recipes, for any number of ranks and micro-batches.

#include <algorithm>
#include <string>
#include <vector>

#include "funicular/pipeline/recipes.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// Whether this is no name of a schedule, but that of a file.
bool is_schedule_file(const std::string& schedule);
/// Whether a schedule, by its name or of a file, updates weights while the pipeline is full. Throws InputError for a file that is
/// no schedule; false for what is neither.
bool updates_while_full(const std::string& schedule);

/// The rows of the schedule `name` for `ranks` ranks of `chunks` stages each (0: its default) and `micro_batches`
/// micro-batches, without messages. Of several chunks stage c · ranks + r lies on rank r; of zb-v stages r and
/// 2 · ranks − 1 − r do. Every stage's backward passes are in the order of the micro-batches, so that sums of gradients
/// are. Throws InputError for numbers below 1 and for chunks that the schedule does not have.
Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int chunks = 0);

/// The rows of the schedule `name` with stage s on replicas[s] ranks, those of the first stage first, without messages.
/// Of r replicas number j takes the micro-batches j, j + r, j + 2r, …: the round robin of 1F1B-RR (Narayanan et al., SOSP
/// 2019, section 3.2). With 1f1b each replica of a stage holds at most h of them: one more than ⌈h' r' / r⌉, where r' replicas
/// of the next stage hold h' each, and 1 on the last. With one rank a stage the rows are those of make_schedule. A replica
/// without a micro-batch has an empty row. Throws InputError for another schedule than a Recipe that replicates, for numbers
/// below 1, and where there is no stage.
Schedule make_replicated(const std::string& name, const std::vector<int>& replicas, int micro_batches);

/// How many micro-batches each update of an asynchronous schedule takes in make_replicated, and unless the caller of
/// make_asynchronous says otherwise: of pipedream as many as make a turn of every stage's ranks (one, of one rank a stage), of
/// pipedream-2bw as many as there are ranks, or the least.
int usual_batch(const std::string& name, const std::vector<int>& replicas);
/// The fewest that an update of make_asynchronous may have but for the last.
int least_batch(const std::string& name, const std::vector<int>& replicas);

/// An asynchronous schedule with stage s on replicas[s] ranks as in make_replicated, whose update t takes sizes[t] micro-batches.
///
/// Where updates stand: on each rank of a stage behind the last of its own backward passes of the batch or, where it has none,
/// before its first of a later batch. The ranks of a stage make an update together.
///
/// Which version a micro-batch uses:
///  - pipedream: the one after all updates that stand before its forward pass on its rank;
///  - vertical sync: the same, on its rank of the first stage, for all stages;
///  - 2BW: in batch t version max(0, t − 1), whatever the sizes.
/// With one rank a stage, n stages and one micro-batch an update, micro-batch k uses version max(0, k − (n − 1 − s)) of pipedream
/// on stage s, and max(0, k − (n − 1)) with vertical sync. Where the m micro-batches of an update make whole turns of a stage's r
/// ranks, each of which has c = m / r of them and holds h at most (make_replicated), number i of batch t uses version
/// max(0, t − max(0, ⌈(h − 1 − ⌊i / r⌋) / c⌉)) of pipedream.
///
/// A schedule may be made longer: if its last batch has at least three micro-batches for each rank (with one rank a stage, any number),
/// other batches may stand in its place, and all rows are the same up to that batch's first pass. Throws InputError for another
/// schedule, sizes below 1, and for 2BW below least_batch but in the last update: a version would be needed before it is made.
Schedule make_asynchronous(const std::string& name, const std::vector<int>& replicas,
                           const std::vector<int>& sizes);
/// The same of so many ranks with a stage each.
inline Schedule make_asynchronous(const std::string& name, int ranks, const std::vector<int>& sizes) {
  return make_asynchronous(name, std::vector<int>(static_cast<size_t>(std::max(0, ranks)), 1), sizes);
}

}  // namespace funicular::pipeline
